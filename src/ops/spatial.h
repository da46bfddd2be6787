// Windows over spatial axes, as convolutions and pools take them: kernel, stride, dilation and pads of each axis after
// the first two. Invariant: after spatial_read and spatial_windows kernel, stride and dilation are 1 or more and every
// window lies inside the padded input; after spatial_pool_windows it starts there, or there is no window.
#pragma once
#include "ops/op.h"

enum { SPATIAL_MAX = 3 };

typedef struct spatial {
  int n;  // spatial axes, 1 to SPATIAL_MAX
  int size[SPATIAL_MAX], kernel[SPATIAL_MAX], stride[SPATIAL_MAX], dilation[SPATIAL_MAX];
  int lo[SPATIAL_MAX], hi[SPATIAL_MAX];  // pads
  int out[SPATIAL_MAX];                  // windows along each axis
} spatial;

// Declines wrong ranks, lists of wrong length, wrong values and an unknown auto_pad.
void spatial_claim(claim *c);
// Sizes of x [N, C, spatial..] and the attributes; kernel: its sizes, or NULL to take kernel_shape. Pads as given.
bool spatial_read(op *o, mx x, const int *kernel, spatial *w);
// Then the pads of auto_pad and the number of windows of a convolution.
bool spatial_windows(op *o, spatial *w);
// The same of a pool, as ONNX Runtime counts them: SAME pads know nothing of dilations and may be negative; a window larger
// than its axis by less than a stride hangs over the end, by one to less than two strides there is none; ceil: the last
// window may hang over the end (ceil_mode).
bool spatial_pool_windows(op *o, spatial *w, bool ceil);
int spatial_reach(const spatial *w, int axis);  // elements from the first to the last tap of a window
// auto_pad: 'U' for SAME_UPPER, 'L' for SAME_LOWER, 'V' for VALID, 'N' for NOTSET, 0 for what it cannot be.
char spatial_auto_pad(const node *n);
