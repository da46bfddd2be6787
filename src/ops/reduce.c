// Reductions over axes, the position of an extreme value, and running sums and products.
#include <math.h>

#include "ops/numeric.h"
#include "ops/op.h"

// ---- Reduce* --------------------------------------------------------------------------------------------------------
typedef struct reduction {
  mx x;
  mx_ints axes;  // none: a scalar, or noop_with_empty_axes
  bool keep;
  bool empty;  // x has no elements: the result is the operator's identity, if it has any
} reduction;

static reduction reduction_of(op *o) {
  reduction r = {.x = in(o, 0), .keep = attr_i(o->n, "keepdims", 1) != 0};
  int rank = mx_ndim(r.x);
  r.axes = op_axes(o, "axes", 1, rank);
  if (!r.axes.n && !attr_i(o->n, "noop_with_empty_axes", 0)) r.axes = all_axes(rank);
  r.empty = mx_size(r.x) == 0;
  return r;
}

static mx apply(const reduction *r, mx (*f)(mx, mx_ints, bool), mx x) {
  return r->axes.n ? f(x, r->axes, r->keep) : x;
}

// The identity v (rank 0) in the shape of the result.
static mx identity(const reduction *r, mx v) {
  mx_ints shape = mx_shape(r->x), kept = {0};
  bool reduced[MX_MAX_RANK] = {false};
  for (int i = 0; i < r->axes.n; i++) reduced[r->axes.v[i]] = true;
  for (int i = 0; i < shape.n; i++)
    if (!reduced[i] || r->keep) kept.v[kept.n++] = reduced[i] ? 1 : shape.v[i];
  return mx_broadcast_to(v, kept);
}

static bool done_empty(op *o, const reduction *r, double v) {
  if (r->empty) out(o, 0, identity(r, mx_full(o->s, (mx_ints){0}, v, want_type(o, 0))));
  return r->empty;
}

// Integers as the widest float of the device, for logarithms and roots.
static mx widest(const op *o, mx x) {
  if (dtype_is_float(mx_dtype(x))) return f32_up(x);
  return mx_astype(x, mx_has_dtype(mx_device_of(o->s), DT_F64) ? DT_F64 : DT_F32);
}

static void reduce_sum(op *o) {
  reduction r = reduction_of(o);
  if (!done_empty(o, &r, 0)) out(o, 0, apply(&r, mx_sum, f32_up(r.x)));
}

static void reduce_prod(op *o) {
  reduction r = reduction_of(o);
  if (!done_empty(o, &r, 1)) out(o, 0, apply(&r, mx_prod, f32_up(r.x)));
}

static void reduce_l1(op *o) {
  reduction r = reduction_of(o);
  if (!done_empty(o, &r, 0)) out(o, 0, apply(&r, mx_sum, mx_abs(f32_up(r.x))));
}

static void reduce_sum_square(op *o) {
  reduction r = reduction_of(o);
  if (!done_empty(o, &r, 0)) out(o, 0, apply(&r, mx_sum, mx_square(f32_up(r.x))));
}

static void reduce_l2(op *o) {
  reduction r = reduction_of(o);
  if (done_empty(o, &r, 0)) return;
  mx squares = apply(&r, mx_sum, mx_square(f32_up(r.x)));
  out(o, 0, mx_sqrt(widest(o, squares)));
}

static void reduce_log_sum(op *o) {
  reduction r = reduction_of(o);
  if (done_empty(o, &r, -INFINITY)) return;
  mx sum = apply(&r, mx_sum, f32_up(r.x));
  out(o, 0, mx_log(widest(o, sum)));
}

static void reduce_log_sum_exp(op *o) {
  reduction r = reduction_of(o);
  if (done_empty(o, &r, -INFINITY)) return;
  mx x = widest(o, r.x);
  if (!r.axes.n || mx_dtype(x) != DT_F64) {
    out(o, 0, apply(&r, mx_logsumexp, x));
    return;
  }
  mx top = mx_max(x, r.axes, true);
  top = mx_where(mx_isfinite(top), top, mx_scalar(top, 0));  // inf - inf would be NaN
  mx sum = mx_sum(num_exp(mx_sub(x, top)), r.axes, true);
  mx y = mx_add(mx_log(sum), top);
  out(o, 0, r.keep ? y : mx_squeeze(y, r.axes));
}

// The sum wraps in x's type, as a sum of its own would; the quotient is truncated.
static mx integer_mean(const reduction *r) {
  dtype t = mx_dtype(r->x), wide = dtype_in(t, DTS_SIGNED) ? DT_I64 : DT_U64;
  mx sum = mx_astype(mx_astype(mx_sum(r->x, r->axes, r->keep), t), wide);
  mx count = mx_sum(mx_astype(mx_equal(r->x, r->x), wide), r->axes, r->keep);
  return num_div(sum, count);
}

static void reduce_mean(op *o) {
  reduction r = reduction_of(o);
  if (done_empty(o, &r, 0)) return;
  if (r.axes.n && dtype_is_int(mx_dtype(r.x)))
    out(o, 0, integer_mean(&r));
  else
    out(o, 0, apply(&r, mx_mean, f32_up(r.x)));
}

// The least (or greatest) value of a type, rank 0.
static mx extreme(mx_scope *s, dtype t, bool least) {
  if (dtype_is_float(t)) return mx_full(s, (mx_ints){0}, least ? -INFINITY : INFINITY, t);
  if (t == DT_U64) return mx_view(mx_scalar_i64(s, least ? 0 : -1, DT_I64), DT_U64);
  int bits = (int)dtype_size(t) * 8;
  if (dtype_in(t, DTS_UNSIGNED)) return mx_scalar_i64(s, least ? 0 : (INT64_C(1) << bits) - 1, t);
  int64_t top = INT64_MAX >> (64 - bits);
  return mx_scalar_i64(s, least ? -top - 1 : top, t);
}

static void reduce_extreme(op *o, bool greatest) {
  reduction r = reduction_of(o);
  bool is_bool = mx_dtype(r.x) == DT_BOOL;  // any and all have an identity of their own
  if (r.empty && !is_bool)
    out(o, 0, identity(&r, extreme(o->s, mx_dtype(r.x), greatest)));
  else if (greatest)
    out(o, 0, apply(&r, is_bool ? mx_any : mx_max, r.x));
  else
    out(o, 0, apply(&r, is_bool ? mx_all : mx_min, r.x));
}

static void reduce_max(op *o) { reduce_extreme(o, true); }
static void reduce_min(op *o) { reduce_extreme(o, false); }

// ---- ArgMax, ArgMin -------------------------------------------------------------------------------------------------
static mx reversed(mx x, int axis) {
  mx_ints start = {.n = mx_ndim(x)}, stop = mx_shape(x), stride = {.n = mx_ndim(x)};
  for (int i = 0; i < stride.n; i++) stride.v[i] = 1;
  start.v[axis] = stop.v[axis] - 1;
  stop.v[axis] = -stop.v[axis] - 1;
  stride.v[axis] = -1;
  return mx_slice(x, start, stop, stride);
}

static void arg_extreme(op *o, mx (*f)(mx, int, bool)) {
  mx x = in(o, 0);
  int axis = norm_axis(o, attr_i(o->n, "axis", 0), mx_ndim(x));
  bool keep = attr_i(o->n, "keepdims", 1) != 0;
  if (!mx_ok(o->s)) return;
  int size = mx_dim(x, axis);
  if (size == 0) {
    op_fail(o, "axis %d has no elements to take an index of", axis);
    return;
  }
  if (mx_size(x) == 0) {
    mx none = mx_slice_axis(x, axis, 0, 1);
    out(o, 0, keep ? none : mx_squeeze(none, MXI(axis)));
    return;
  }
  if (!attr_i(o->n, "select_last_index", 0)) {
    out(o, 0, f(x, axis, keep));
    return;
  }
  mx from_end = mx_astype(f(reversed(x, axis), axis, keep), DT_I64);
  out(o, 0, mx_sub(mx_scalar(from_end, size - 1), from_end));
}

static void arg_max(op *o) { arg_extreme(o, mx_argmax); }
static void arg_min(op *o) { arg_extreme(o, mx_argmin); }

// ---- CumSum, CumProd ------------------------------------------------------------------------------------------------
static void cumulative(op *o, mx (*f)(mx, int, bool, bool)) {
  mx x = f32_up(in(o, 0));
  int64_t axis = 0;
  if (!host_int(o, 1, &axis)) return;
  int a = norm_axis(o, axis, mx_ndim(x));
  bool reverse = attr_i(o->n, "reverse", 0) != 0, exclusive = attr_i(o->n, "exclusive", 0) != 0;
  if (mx_ok(o->s)) out(o, 0, f(x, a, reverse, !exclusive));
}

static void cum_sum(op *o) { cumulative(o, mx_cumsum); }
static void cum_prod(op *o) { cumulative(o, mx_cumprod); }

// ---- rows -----------------------------------------------------------------------------------------------------------
// Axes are an attribute in older opsets and input 1 in newer ones; op_axes reads both.
const op_row ops_reduce[] = {
    OP("", "ReduceSum", 1, ANY, NULL, reduce_sum, .types = DTS_NUMERIC, .host_in = IN(1)),
    OP("", "ReduceMean", 1, ANY, NULL, reduce_mean, .types = DTS_NUMERIC, .host_in = IN(1)),
    OP("", "ReduceProd", 1, ANY, NULL, reduce_prod, .types = DTS_NUMERIC, .host_in = IN(1)),
    OP("", "ReduceL1", 1, ANY, NULL, reduce_l1, .types = DTS_NUMERIC, .host_in = IN(1)),
    OP("", "ReduceL2", 1, ANY, NULL, reduce_l2, .types = DTS_NUMERIC, .host_in = IN(1)),
    OP("", "ReduceSumSquare", 1, ANY, NULL, reduce_sum_square, .types = DTS_NUMERIC, .host_in = IN(1)),
    OP("", "ReduceLogSum", 1, ANY, NULL, reduce_log_sum, .types = DTS_NUMERIC, .host_in = IN(1)),
    OP("", "ReduceLogSumExp", 1, ANY, NULL, reduce_log_sum_exp, .types = DTS_NUMERIC, .host_in = IN(1)),
    OP("", "ReduceMax", 1, ANY, NULL, reduce_max, .types = DTS_TENSOR, .host_in = IN(1)),
    OP("", "ReduceMin", 1, ANY, NULL, reduce_min, .types = DTS_TENSOR, .host_in = IN(1)),
    OP("", "ArgMax", 1, ANY, NULL, arg_max, .types = DTS_NUMERIC),
    OP("", "ArgMin", 1, ANY, NULL, arg_min, .types = DTS_NUMERIC),
    OP("", "CumSum", 11, ANY, NULL, cum_sum, .types = DTS_NUMERIC, .host_in = IN(1)),
    OP("", "CumProd", 26, ANY, NULL, cum_prod, .types = DTS_NUMERIC, .host_in = IN(1)),
    {0}};
