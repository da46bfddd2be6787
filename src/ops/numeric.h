// Arithmetic that MLX's own functions do not give. Invariants:
// - No integer argument can trap: a zero divisor gives 0, the least integer over -1 wraps.
// - float64 arguments give float64 accuracy; MLX's exp, sin, cos and sigmoid are float32-accurate there.
// - Arguments of two are of one type and broadcast; shapes are never baked in.
#pragma once
#include "mx/mx.h"

mx num_div(mx a, mx b);   // integers: toward zero
mx num_mod(mx a, mx b);   // integers and floats: the sign of b, as Python's %
mx num_fmod(mx a, mx b);  // integers and floats: the sign of a, as C's fmod
mx num_pow_int(mx a, mx e);  // integers of one type; a negative exponent truncates the exact result (0^-n gives 0)

mx num_exp(mx x);       // floats
mx num_sin(mx x);
mx num_cos(mx x);
mx num_sigmoid(mx x);
mx num_softmax(mx x, int axis);  // along an axis that is not empty; halves are summed in float32
mx num_softplus(mx x);  // log(1 + exp(x)), without overflow

mx num_times(mx x, double v);  // x * v, v rounded to x's type
mx num_plus(mx x, double v);
