// Operators of com.microsoft on quantised elements: taken to float32 by scale and zero point, computed, and taken back.
#include "ops/conv.h"
#include "ops/pool.h"
#include "ops/qint.h"

static const char *const no_attrs[] = {NULL};

// Input i, scale i + 1, zero point i + 2.
static mx real(op *o, size_t i) { return mx_mul(qint_input(o, i, i + 2).x, qint_number(o, i + 1, 1)); }

// Sets the output from y in float32, by the scale and the zero point that are inputs i and i + 1.
static void put(op *o, mx y, size_t i) {
  out(o, 0, qint_saturated(mx_div(y, qint_number(o, i, 1)), qint_number(o, i + 1, 0), want_type(o, 0)));
}

// Inputs [first, last) are quantised tensors with their scale and zero point.
static void claim_triples(claim *c, size_t first, size_t last) {
  for (size_t i = first; i < last; i += 3) {
    require_types(c, i, DTS_8);
    require_types(c, i + 1, DTYPE_BIT(DT_F32));
    require_types(c, i + 2, DTS_8);
  }
  REQUIRE(c, dtype_in(out_type(c, 0), DTS_8), "output of type %s", dtype_name(out_type(c, 0)));
}

// ---- one and two operands ---------------------------------------------------------------------------------------------------
static void binary_claim(claim *c) {
  require_known(c, no_attrs);
  claim_triples(c, 0, 6);
}

static void add(op *o) { put(o, mx_add(real(o, 0), real(o, 3)), 6); }

// The product of two centred values is exact; it is scaled once.
static void mul(op *o) {
  mx p = mx_mul(qint_input(o, 0, 2).x, qint_input(o, 3, 5).x);
  mx scale = mx_div(mx_mul(qint_number(o, 1, 1), qint_number(o, 4, 1)), qint_number(o, 6, 1));
  out(o, 0, qint_saturated(mx_mul(p, scale), qint_number(o, 7, 0), want_type(o, 0)));
}

static void unary_claim(claim *c) {
  static const char *const attrs[] = {"alpha", NULL};
  require_known(c, attrs);
  claim_triples(c, 0, 3);
}

static void sigmoid(op *o) { put(o, mx_sigmoid(real(o, 0)), 3); }

static void leaky_relu(op *o) {
  mx x = real(o, 0), alpha = mx_scalar(x, (double)attr_f(o->n, "alpha", 0.01f));
  put(o, mx_where(mx_less(x, mx_scalar(x, 0)), mx_mul(x, alpha), x), 3);
}

// ---- QLinearSoftmax -----------------------------------------------------------------------------------------------------------
static void softmax_claim(claim *c) {
  static const char *const attrs[] = {"axis", "opset", NULL};
  require_known(c, attrs);
  claim_triples(c, 0, 3);
  CLAIM_GOES_ON(c);
  int64_t axis = attr_i(c->n, "axis", attr_i(c->n, "opset", 13) < 13 ? 1 : -1);
  int rank = in_rank(c, 0);
  REQUIRE(c, rank < 0 || (axis >= -rank && axis < rank), "axis %lld for rank %d", (long long)axis, rank);
}

// The output's scale counts as one over a whole number, as in ONNX Runtime.
static void softmax(op *o) {
  bool flat = attr_i(o->n, "opset", 13) < 13;
  mx x = qint_input(o, 0, 2).x;
  mx_ints shape = mx_shape(x);
  int axis = norm_axis(o, attr_i(o->n, "axis", flat ? 1 : -1), shape.n);
  if (!mx_ok(o->s)) return;
  if (mx_size(x) == 0) {
    out(o, 0, in(o, 0));
    return;
  }
  if (flat) {
    int rows = 1, columns = 1;
    for (int i = 0; i < shape.n; i++) *(i < axis ? &rows : &columns) *= shape.v[i];
    x = mx_reshape(x, MXI(rows, columns));
    axis = 1;
  }
  mx e = mx_exp(mx_mul(mx_sub(x, mx_max(x, MXI(axis), true)), qint_number(o, 1, 1)));
  mx steps = mx_floor(mx_reciprocal(qint_number(o, 3, 1)));
  mx y = mx_div(mx_mul(e, steps), mx_sum(e, MXI(axis), true));
  out(o, 0, mx_reshape(qint_saturated(y, qint_number(o, 4, 0), want_type(o, 0)), shape));
}

// ---- pools and means ------------------------------------------------------------------------------------------------------------
static void pool_claim(claim *c) {
  static const char *const attrs[] = {"auto_pad", "ceil_mode", "channels_last", "count_include_pad", "kernel_shape", "pads",
                                      "strides", NULL};
  require_known(c, attrs);
  claim_triples(c, 0, 3);
  spatial_claim(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, attr_has(c->n, "kernel_shape"), "kernel_shape is missing");
}

static void average_pool(op *o) {
  mx x = real(o, 0);
  bool last = attr_i(o->n, "channels_last", 0) != 0;
  if (mx_ndim(x) < 3 || (last && mx_size(x) == 0)) {
    op_fail(o, "an image of rank %d with %zu elements", mx_ndim(x), mx_size(x));
    return;
  }
  mx y = pool_average(o, last ? conv_channels_first(x) : x);
  if (y) put(o, last ? conv_channels_last(y) : y, 3);
}

static void global_claim(claim *c) {
  static const char *const attrs[] = {"channels_last", NULL};
  require_known(c, attrs);
  claim_triples(c, 0, 3);
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) >= 3, "rank %d", in_rank(c, 0));
}

// The mean over axes from exact sums, scaled once.
static void put_mean(op *o, mx_ints axes, bool keep) {
  mx x = mx_astype(in(o, 0), DT_I32), sums = axes.n ? mx_sum(x, axes, keep) : x;
  double count = 1;
  for (int i = 0; i < axes.n; i++) count *= mx_dim(x, axes.v[i]);
  mx n = mx_full(o->s, (mx_ints){0}, count, DT_F32);
  sums = mx_sub(sums, mx_astype(mx_mul(n, qint_number(o, 2, 0)), DT_I32));
  mx scale = mx_div(qint_number(o, 1, 1), mx_mul(qint_number(o, 3, 1), n));
  mx y = mx_mul(mx_astype(sums, DT_F32), scale);
  out(o, 0, qint_saturated(y, qint_number(o, 4, 0), want_type(o, 0)));
}

static bool has_enough(op *o, size_t most) {
  size_t n = mx_size(in(o, 0));
  if (n && n <= most) return true;
  op_fail(o, "a mean of a tensor of %zu elements", n);
  return false;
}

static void global_average(op *o) {
  enum { SUMMED = INT32_MAX / 255 };  // int32 holds the sum of as many
  bool last = attr_i(o->n, "channels_last", 0) != 0;
  int rank = mx_ndim(in(o, 0));
  mx_ints axes = {0};
  size_t summed = 1;
  for (int i = last ? 1 : 2; i < (last ? rank - 1 : rank); i++) {
    axes.v[axes.n++] = i;
    summed *= (size_t)mx_dim(in(o, 0), i);
  }
  if (rank < 3 || !summed || summed > SUMMED) op_fail(o, "a mean of %zu elements of an image of rank %d", summed, rank);
  else put_mean(o, axes, true);
}

static void mean_claim(claim *c) {
  static const char *const attrs[] = {"axes", "keepdims", NULL};
  require_known(c, attrs);
  claim_triples(c, 0, 3);
}

static void reduce_mean(op *o) {
  if (!has_enough(o, INT32_MAX / 255)) return;
  int rank = mx_ndim(in(o, 0));
  mx_ints axes = op_axes(o, "axes", 31, rank);
  put_mean(o, axes.n ? axes : all_axes(rank), attr_i(o->n, "keepdims", 1) != 0);
}

// ---- QLinearConcat and QLinearWhere ------------------------------------------------------------------------------------------------
enum { CONCAT_MAX = 64 };

static void concat_claim(claim *c) {
  static const char *const attrs[] = {"axis", NULL};
  require_known(c, attrs);
  require_types(c, 0, DTYPE_BIT(DT_F32));
  require_types(c, 1, DTS_8);
  claim_triples(c, 2, c->n->n_in);
  CLAIM_GOES_ON(c);
  size_t n = c->n->n_in;
  REQUIRE(c, n >= 5 && (n - 2) % 3 == 0 && n <= 2 + 3 * CONCAT_MAX, "%zu inputs", n);
}

static void concat(op *o) {
  mx parts[CONCAT_MAX];
  size_t n = 0;
  for (size_t i = 2; i + 2 < o->n->n_in && n < CONCAT_MAX; i += 3) parts[n++] = real(o, i);
  int axis = norm_axis(o, attr_i(o->n, "axis", 0), mx_ndim(parts[0]));
  if (mx_ok(o->s)) put(o, mx_concatenate(o->s, parts, n, axis), 0);
}

static void where_claim(claim *c) {
  require_known(c, no_attrs);
  require_types(c, 0, DTS_BOOL);
  claim_triples(c, 1, 7);
}

static void where(op *o) { put(o, mx_where(in(o, 0), real(o, 1), real(o, 4)), 7); }

#define MS(type, claim, translate, ...) OP("com.microsoft", type, 1, ANY, claim, translate, .types = DTS_8, __VA_ARGS__)
const op_row ops_qlinear_elem[] = {
    MS("QLinearAdd", binary_claim, add, .host_in = 0),
    MS("QLinearMul", binary_claim, mul, .host_in = 0),
    MS("QLinearSigmoid", unary_claim, sigmoid, .host_in = 0),
    MS("QLinearLeakyRelu", unary_claim, leaky_relu, .host_in = 0),
    MS("QLinearSoftmax", softmax_claim, softmax, .host_in = 0),
    MS("QLinearAveragePool", pool_claim, average_pool, .limits = "1 to 3 spatial axes; no negative pads"),
    MS("QLinearGlobalAveragePool", global_claim, global_average, .limits = "rank 3 or more"),
    MS("QLinearReduceMean", mean_claim, reduce_mean, .host_in = 0),
    MS("QLinearConcat", concat_claim, concat, .typed_in = IN(2), .limits = "64 operands at most"),
    MS("QLinearWhere", where_claim, where, .typed_in = IN(1)),
    {0}};
