// Convolutions as other operators use them. Invariant: input 1 is the weight in ONNX's layout; the rows of all of them
// name conv_prepare (or transposed_prepare), conv_unprepare and .prepared_in = IN(1). A NULL result: the scope failed.
#pragma once
#include "ops/spatial.h"

void convolution_claim(claim *c);  // types, ranks, windows, groups
void *conv_prepare(const node *n, mx_device d, err *e);
void *transposed_prepare(const node *n, mx_device d, err *e);
void conv_unprepare(void *prepared);

mx channels_last(mx x);   // [N, C, spatial..] to [N, spatial.., C]
mx channels_first(mx x);  // and back
// x with channels first, bias [M] or NULL; the result has its channels last.
mx conv_product(op *o, mx x, mx bias);
// pads: lower ones of all axes, then upper ones, in place of the attribute; NULL for the attribute.
mx conv_transposed_product(op *o, mx x, const int *pads, mx bias);
// MaxPool's values of x with channels first.
mx pool_max(op *o, mx x);
