// Windows over spatial axes, as convolutions and pools take them: kernel, stride, dilation and pads of each axis after
// the first two. Invariant: after spatial_read and spatial_windows kernel, stride and dilation are 1 or more and every
// window starts inside the padded input.
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
// Then the pads of auto_pad and the number of windows; ceil: the last window may hang over the end (ceil_mode).
bool spatial_windows(op *o, spatial *w, bool ceil);
int spatial_reach(const spatial *w, int axis);  // elements from the first to the last tap of a window
// auto_pad: 'U' for SAME_UPPER, 'L' for SAME_LOWER, 'V' for VALID, 'N' for NOTSET, 0 for what it cannot be.
char spatial_auto_pad(const node *n);
