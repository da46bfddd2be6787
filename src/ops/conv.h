// Convolutions as other operators use them: ONNX has channels first, MLX last. Invariant: input 1 is the weight in ONNX's
// layout; the rows of all that call conv_product or conv_transposed_product name conv_prepare (or transposed_prepare),
// conv_unprepare and .prepared_in = IN(1). A NULL result: the scope failed.
#pragma once
#include "ops/spatial.h"

void convolution_claim(claim *c);  // types, ranks, windows, groups
void *conv_prepare(const node *n, mx_device d, err *e);
void *transposed_prepare(const node *n, mx_device d, err *e);
void conv_unprepare(void *prepared);

mx conv_channels_last(mx x);   // [N, C, spatial..] to [N, spatial.., C]
mx conv_channels_first(mx x);  // and back
// x with channels first, bias [M] or NULL; the result has its channels last.
mx conv_product(op *o, mx x, mx bias);
// pads: lower ones of all axes, then upper ones, in place of the attribute; NULL for the attribute.
mx conv_transposed_product(op *o, mx x, const int *pads, mx bias);
// x [N, spatial.., C], w [M, spatial.., C / groups]; steps, pads and dilation of s.
mx conv_plain(mx x, mx w, const spatial *s, int groups);
// No image, channel or window: then *zeros is the result [N, spatial.., M] of x's type.
bool conv_is_empty(op *o, mx x, mx w, const spatial *s, mx *zeros);
