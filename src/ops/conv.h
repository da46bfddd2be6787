// Convolution and its layouts, for the operators that convolve. ONNX has channels first, MLX last.
#pragma once
#include "ops/spatial.h"

mx conv_channels_last(mx x);   // [N, C, spatial..] to [N, spatial.., C]
mx conv_channels_first(mx x);  // and back
// x [N, spatial.., C], w [M, spatial.., C / groups]; steps, pads and dilation of s.
mx conv_plain(mx x, mx w, const spatial *s, int groups);
// No image, channel or window: then *zeros is the result [N, spatial.., M] of x's type.
bool conv_is_empty(op *o, mx x, mx w, const spatial *s, mx *zeros);
