// Functions whose MLX kernel on float64 is only as exact as float32, in a form that is exact.
#pragma once
#include "mx/mx.h"

// e^x. expm1 is exact in float64, but 1 + expm1(x) loses digits for negative x: there it is 1 / e^-x.
static inline mx exp_exact(mx x) {
  if (mx_dtype(x) != DT_F64) return mx_exp(x);
  mx e = mx_add(mx_expm1(mx_abs(x)), mx_scalar(x, 1));
  return mx_where(mx_less(x, mx_scalar(x, 0)), mx_reciprocal(e), e);
}

// Along an axis that is not empty; halves are summed in float32.
static inline mx softmax_exact(mx x, int axis) {
  if (mx_dtype(x) != DT_F64) return mx_softmax(x, axis);
  mx e = exp_exact(mx_sub(x, mx_max(x, MXI(axis), true)));
  return mx_div(e, mx_sum(e, MXI(axis), true));
}
