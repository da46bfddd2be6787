#include "ops/numeric.h"

static mx int_like(mx x, int64_t v) { return mx_scalar_i64(mx_scope_of(x), v, mx_dtype(x)); }
static mx is_zero(mx x) { return mx_equal(x, int_like(x, 0)); }
static mx is_negative(mx x) { return mx_less(x, mx_scalar(x, 0)); }

static dtype unsigned_of(dtype t) {
  switch (t) {
    case DT_I8: return DT_U8;
    case DT_I16: return DT_U16;
    case DT_I32: return DT_U32;
    case DT_I64: return DT_U64;
    default: return t;
  }
}

// |x| in the unsigned type of x's width, where the least integer has one.
static mx magnitude(mx x) {
  mx u = mx_astype(x, unsigned_of(mx_dtype(x)));
  return mx_where(is_negative(x), mx_neg(u), u);
}

static mx signed_by(mx negative, mx u, dtype t) {
  mx x = mx_astype(u, t);
  return mx_where(negative, mx_neg(x), x);
}

static mx unsigned_div(mx a, mx b) {
  mx none = is_zero(b);
  return mx_where(none, int_like(a, 0), mx_floor_div(a, mx_where(none, int_like(b, 1), b)));
}

static mx unsigned_mod(mx a, mx b) { return mx_remainder(a, mx_where(is_zero(b), int_like(b, 1), b)); }

// MLX's division of negative integers floors or truncates by version, so it sees magnitudes only.
mx num_div(mx a, mx b) {
  dtype t = mx_dtype(a);
  if (!dtype_in(t, DTS_SIGNED)) return unsigned_div(a, b);
  mx negative = mx_not_equal(is_negative(a), is_negative(b));
  return signed_by(negative, unsigned_div(magnitude(a), magnitude(b)), t);
}

// Both x mod 1 and x mod -1 are 0; the second traps for the least integer.
static mx int_mod(mx a, mx b) {
  if (!dtype_in(mx_dtype(a), DTS_SIGNED)) return unsigned_mod(a, b);
  mx trivial = mx_logical_or(is_zero(b), mx_equal(b, int_like(b, -1)));
  return mx_remainder(a, mx_where(trivial, int_like(b, 1), b));
}

mx num_mod(mx a, mx b) {
  if (!dtype_is_float(mx_dtype(a))) return int_mod(a, b);
  mx r = mx_remainder(a, b), zero = mx_scalar(r, 0);
  return mx_where(mx_equal(r, zero), mx_where(is_negative(b), mx_scalar(r, -0.0), zero), r);
}

mx num_fmod(mx a, mx b) {
  dtype t = mx_dtype(a);
  if (dtype_in(t, DTS_UNSIGNED)) return unsigned_mod(a, b);
  if (dtype_is_float(t)) return signed_by(is_negative(a), mx_remainder(mx_abs(a), mx_abs(b)), t);
  return signed_by(is_negative(a), unsigned_mod(magnitude(a), magnitude(b)), t);
}

// MLX's integer power is exact but takes a negative exponent for an overflow; only 1 and -1 have such a power but 0.
mx num_pow_int(mx a, mx e) {
  mx zero = int_like(a, 0), one = int_like(a, 1), minus = int_like(a, -1);
  mx unit = mx_logical_or(mx_equal(a, one), mx_equal(a, minus));
  mx inverse = mx_where(unit, mx_pow(a, mx_bitwise_and(e, one)), zero);
  return mx_where(is_negative(e), inverse, mx_pow(a, mx_maximum(e, zero)));
}

static bool is_f64(mx x) { return mx_dtype(x) == DT_F64; }

// expm1(x) + 1 loses digits below 0, so negative arguments go through the reciprocal.
mx num_exp(mx x) {
  if (!is_f64(x)) return mx_exp(x);
  mx grown = num_plus(mx_expm1(mx_abs(x)), 1);
  return mx_where(is_negative(x), mx_reciprocal(grown), grown);
}

static mx tan_half(mx x) { return mx_tan(num_times(x, 0.5)); }

mx num_sin(mx x) {
  if (!is_f64(x)) return mx_sin(x);
  mx t = tan_half(x);
  return mx_div(num_times(t, 2), num_plus(mx_square(t), 1));
}

mx num_cos(mx x) {
  if (!is_f64(x)) return mx_cos(x);
  mx t = tan_half(x), one = mx_scalar(x, 1);
  return mx_div(mx_mul(mx_sub(one, t), mx_add(one, t)), num_plus(mx_square(t), 1));
}

mx num_sigmoid(mx x) {
  if (!is_f64(x)) return mx_sigmoid(x);
  return mx_reciprocal(num_plus(num_exp(mx_neg(x)), 1));
}

mx num_softmax(mx x, int axis) {
  if (!is_f64(x)) return mx_softmax(x, axis);
  mx e = num_exp(mx_sub(x, mx_max(x, MXI(axis), true)));
  return mx_div(e, mx_sum(e, MXI(axis), true));
}

mx num_softplus(mx x) {
  if (!is_f64(x)) return mx_logaddexp(x, mx_scalar(x, 0));
  return mx_add(mx_maximum(x, mx_scalar(x, 0)), mx_log1p(num_exp(mx_neg(mx_abs(x)))));
}

mx num_times(mx x, double v) { return mx_mul(x, mx_scalar(x, v)); }
mx num_plus(mx x, double v) { return mx_add(x, mx_scalar(x, v)); }
