// Operators of two or more inputs, element by element, with broadcasting.
#include <string.h>

#include "ops/numeric.h"
#include "ops/op.h"

static void claim_mod(claim *c) {
  int64_t fmod = attr_i(c->n, "fmod", 0);
  REQUIRE(c, fmod == 0 || fmod == 1, "attribute fmod is %lld, not 0 or 1", (long long)fmod);
}

// Up to version 6 the second operand broadcasts only when asked to, and then its axes match those of the first from
// `axis` on; without `axis` the last ones.
static mx old_operand(op *o, mx a, mx b) {
  mx_ints sa = mx_shape(a), sb = mx_shape(b);
  if (!attr_i(o->n, "broadcast", 0)) {
    bool same = sa.n == sb.n && !memcmp(sa.v, sb.v, (size_t)sa.n * sizeof *sa.v);
    return same ? b : op_fail(o, "the inputs differ in shape and attribute broadcast is 0");
  }
  if (sb.n > sa.n && mx_size(b) == 1) return mx_reshape(b, (mx_ints){0});
  int64_t axis = attr_i(o->n, "axis", sa.n - sb.n);
  if (axis < 0) axis += sa.n;
  if (axis < 0 || axis > sa.n - sb.n)
    return op_fail(o, "an input of rank %d does not fit rank %d at axis %lld", sb.n, sa.n, (long long)axis);
  while (sb.n < sa.n - (int)axis) sb.v[sb.n++] = 1;
  return mx_reshape(b, sb);
}

static mx second(op *o) { return o->n->since < 7 ? old_operand(o, in(o, 0), in(o, 1)) : in(o, 1); }

static void pair(op *o, mx (*f)(mx, mx)) { out(o, 0, f(in(o, 0), second(o))); }
static void add_op(op *o) { pair(o, mx_add); }
static void sub_op(op *o) { pair(o, mx_sub); }
static void mul_op(op *o) { pair(o, mx_mul); }
static void div_op(op *o) { pair(o, dtype_is_float(mx_dtype(in(o, 0))) ? mx_div : num_div); }
static void mod_op(op *o) { pair(o, attr_i(o->n, "fmod", 0) ? num_fmod : num_mod); }
static void equal_op(op *o) { pair(o, mx_equal); }
static void greater_op(op *o) { pair(o, mx_greater); }
static void greater_equal_op(op *o) { pair(o, mx_greater_equal); }
static void less_op(op *o) { pair(o, mx_less); }
static void less_equal_op(op *o) { pair(o, mx_less_equal); }
static void and_op(op *o) { pair(o, mx_logical_and); }
static void or_op(op *o) { pair(o, mx_logical_or); }
static void xor_op(op *o) { pair(o, mx_not_equal); }
static void bitwise_and_op(op *o) { pair(o, mx_bitwise_and); }
static void bitwise_or_op(op *o) { pair(o, mx_bitwise_or); }
static void bitwise_xor_op(op *o) { pair(o, mx_bitwise_xor); }
static void where_op(op *o) { out(o, 0, mx_where(in(o, 0), in(o, 1), in(o, 2))); }

// ---- BitShift -----------------------------------------------------------------------------------------------------------
static void claim_shift(claim *c) {
  const char *d = attr_s(c->n, "direction", "");
  REQUIRE(c, !strcmp(d, "LEFT") || !strcmp(d, "RIGHT"), "direction is '%s', not LEFT or RIGHT", d);
}

// A count outside [0, width) moves every bit out: 0 is left, or copies of the sign when a signed number goes right. MLX
// would use the count modulo the width.
static void shift_op(op *o) {
  mx x = in(o, 0), y = in(o, 1);
  dtype t = mx_dtype(x);
  int64_t width = (int64_t)dtype_size(t) * 8;
  mx zero = mx_scalar_i64(o->s, 0, t), last = mx_scalar_i64(o->s, width - 1, t);
  mx outside = mx_logical_or(mx_less(y, zero), mx_greater(y, last));
  bool right = !strcmp(attr_s(o->n, "direction", ""), "RIGHT");
  if (right && dtype_in(t, DTS_SIGNED)) {
    out(o, 0, mx_right_shift(x, mx_where(outside, last, y)));
    return;
  }
  mx safe = mx_where(outside, zero, y);
  out(o, 0, mx_where(outside, zero, right ? mx_right_shift(x, safe) : mx_left_shift(x, safe)));
}

// ---- Pow ------------------------------------------------------------------------------------------------------------------
static void claim_pow(claim *c) {
  bool by_float = dtype_is_int(in_type(c, 0)) && dtype_is_float(in_type(c, 1));
  REQUIRE(c, !by_float || mx_has_dtype(c->device, DT_F64), "an integer to a float power needs float64");
}

// The exponent when it is one constant number that leaves the base's shape alone; else 0.
static double fixed_exponent(const op *o, mx base) {
  const tensor *t = is_const(o, 1) ? o->n->in[1]->constant : NULL;
  size_t n = 0;
  if (!t || t->rank > mx_ndim(base) || !dims_count(t->dims, t->rank, &n) || n != 1) return 0;
  switch (t->type) {
    case DT_F32: return (double)*(const float *)t->data;
    case DT_F64: return *(const double *)t->data;
    case DT_I32: return *(const int32_t *)t->data;
    case DT_I64: return (double)*(const int64_t *)t->data;
    default: return 0;
  }
}

static void pow_float(op *o, mx x, mx y) {
  double e = fixed_exponent(o, x);
  bool f64 = mx_dtype(x) == DT_F64 || mx_dtype(y) == DT_F64;
  x = mx_astype(x, f64 ? DT_F64 : DT_F32);
  if (e == 1) out(o, 0, x);
  else if (e == 2) out(o, 0, mx_square(x));
  else if (e == 3) out(o, 0, mx_mul(x, mx_square(x)));
  else if (e == -1) out(o, 0, mx_reciprocal(x));
  else out(o, 0, mx_pow(x, mx_astype(y, mx_dtype(x))));
}

static void pow_op(op *o) {
  mx x = in(o, 0), y = second(o);
  if (dtype_is_float(mx_dtype(x))) pow_float(o, x, y);
  else if (dtype_is_int(mx_dtype(y))) out(o, 0, num_pow_int(x, mx_astype(y, mx_dtype(x))));
  else out(o, 0, mx_pow(mx_astype(x, DT_F64), mx_astype(y, DT_F64)));
}

// ---- any number of inputs ---------------------------------------------------------------------------------------------------
static mx fold(op *o, mx (*f)(mx, mx), mx (*first)(mx)) {
  mx x = first(in(o, 0));
  for (size_t i = 1; i < o->n->n_in; i++) x = f(x, first(in(o, i)));
  return x;
}

static mx as_it_is(mx x) { return x; }
static void max_op(op *o) { out(o, 0, fold(o, mx_maximum, as_it_is)); }
static void min_op(op *o) { out(o, 0, fold(o, mx_minimum, as_it_is)); }
static void sum_op(op *o) { out(o, 0, fold(o, mx_add, f32_up)); }

static void mean_op(op *o) {
  mx sum = fold(o, mx_add, f32_up);
  out(o, 0, mx_div(sum, mx_scalar(sum, (double)o->n->n_in)));
}

const op_row ops_binary[] = {
    OP("", "Add", 1, ANY, NULL, add_op, .types = DTS_NUMERIC),
    OP("", "Sub", 1, ANY, NULL, sub_op, .types = DTS_NUMERIC),
    OP("", "Mul", 1, ANY, NULL, mul_op, .types = DTS_NUMERIC),
    OP("", "Div", 1, ANY, NULL, div_op, .types = DTS_NUMERIC),
    OP("", "Mod", 10, ANY, claim_mod, mod_op, .types = DTS_NUMERIC, .limits = "fmod is 0 or 1"),
    OP("", "Pow", 1, ANY, claim_pow, pow_op, .types = DTS_NUMERIC, .typed_in = ALL_IN,
       .limits = "on the GPU device no integer to a float power"),
    OP("", "Equal", 1, ANY, NULL, equal_op, .types = DTS_TENSOR),
    OP("", "Greater", 1, ANY, NULL, greater_op, .types = DTS_NUMERIC),
    OP("", "GreaterOrEqual", 12, ANY, NULL, greater_equal_op, .types = DTS_NUMERIC),
    OP("", "Less", 1, ANY, NULL, less_op, .types = DTS_NUMERIC),
    OP("", "LessOrEqual", 12, ANY, NULL, less_equal_op, .types = DTS_NUMERIC),
    OP("", "And", 1, ANY, NULL, and_op, .types = DTS_BOOL),
    OP("", "Or", 1, ANY, NULL, or_op, .types = DTS_BOOL),
    OP("", "Xor", 1, ANY, NULL, xor_op, .types = DTS_BOOL),
    OP("", "BitShift", 11, ANY, claim_shift, shift_op, .types = DTS_INT, .limits = "direction is LEFT or RIGHT"),
    OP("", "BitwiseAnd", 18, ANY, NULL, bitwise_and_op, .types = DTS_INT),
    OP("", "BitwiseOr", 18, ANY, NULL, bitwise_or_op, .types = DTS_INT),
    OP("", "BitwiseXor", 18, ANY, NULL, bitwise_xor_op, .types = DTS_INT),
    OP("", "Max", 1, ANY, NULL, max_op, .types = DTS_NUMERIC),
    OP("", "Min", 1, ANY, NULL, min_op, .types = DTS_NUMERIC),
    OP("", "Sum", 1, ANY, NULL, sum_op, .types = DTS_FLOAT64),
    OP("", "Mean", 1, ANY, NULL, mean_op, .types = DTS_FLOAT64),
    OP("", "Where", 9, ANY, NULL, where_op, .types = DTS_TENSOR, .typed_in = IN(1)),
    {0},
};
