// Elements of images at fractional places. Invariants:
// - An image is rows [N * places, C], its axes flattened in order; base says where each image begins.
// - Places are floats of any value: what lies outside of an axis is never read. NaN counts as outside.
#pragma once
#include "ops/op.h"

enum { TAPS_AXES = 3 };
typedef enum { TAPS_ZEROS, TAPS_BORDER, TAPS_REFLECTION } taps_padding;

typedef struct taps {
  int n;                // axes, 1 to TAPS_AXES
  int size[TAPS_AXES];
  taps_padding padding;
  bool corners;         // reflection is about the outer elements' centres, not their edges
  mx rows;              // [N * places, C]
  mx base;              // int32 [N, 1]: the image's first row
} taps;

mx taps_rows(op *o, mx x);             // [N, C, spatial..] as rows
mx taps_base(op *o, int images, int places);  // 0, places, 2 * places.. int32 [images, 1]
mx taps_at(const taps *t, const mx *whole);    // whole: for each axis whole numbers [N, P]; gives [N, P, C]
mx taps_linear(const taps *t, const mx *at, mx (*join)(mx, mx));  // weighted neighbours, joined (mx_add, mx_maximum)
mx taps_cubic(const taps *t, const mx *at);    // a = -0.75
mx taps_reflect(mx at, double lo, double hi);
