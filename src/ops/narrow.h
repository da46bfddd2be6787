// Numbers of the narrow types (DTS_NARROW), which MLX has not. Invariant: an array of such a type holds codes (see dtype.h),
// and only rows with OP_NARROW or OP_ANY_TYPE see one.
#pragma once
#include "ops/op.h"

mx_ints shape_of_tensor(mx_scope *s, const tensor *t);  // fails the scope for a shape that MLX cannot hold
// A tensor's data as an array of its own; of a narrow type as codes. Fails the scope when the data is cut short.
mx narrow_from(mx_scope *s, const tensor *t);
// Codes as numbers: float32, or the codes themselves for integers. x of a type that MLX has stays as it is.
mx narrow_values(mx x, dtype t);

typedef enum { ROUND_UP, ROUND_DOWN, ROUND_NEAREST } e8m0_round;  // only nearest's ties go up
// Numbers of any MLX type as codes of t. Integers: nearest, ties away from zero, the lowest bits of what is too large.
// Floats: from float32, to which every other type is rounded first, as ONNX Runtime and the onnx package do; nearest, ties to
// even; out of range gives the largest number, or NaN or infinity without saturate. float8e8m0 alone takes `round`.
mx narrow_codes(mx x, dtype t, bool saturate, e8m0_round round);
