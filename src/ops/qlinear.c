// Products of quantised matrices and images: exact int32 sums, scaled once as ONNX Runtime scales them.
#include <string.h>

#include "ops/conv.h"
#include "ops/qint.h"

// Where an operator has its inputs; NONE for what it has not.
enum { NONE = 31 };
typedef struct layout {
  const char *type;
  size_t x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias;
} layout;
static const layout layouts[] = {
    {"MatMulInteger", 0, NONE, 2, 1, NONE, 3, NONE, NONE, NONE},
    {"MatMulIntegerToFloat", 0, 2, 4, 1, 3, 5, NONE, NONE, 6},
    {"DynamicQuantizeMatMul", 0, NONE, NONE, 1, 2, 3, NONE, NONE, 4},
    {"QLinearMatMul", 0, 1, 2, 3, 4, 5, 6, 7, NONE},
    {"QGemm", 0, 1, 2, 3, 4, 5, 7, 8, 6},
    {"ConvInteger", 0, NONE, 2, 1, NONE, 3, NONE, NONE, NONE},
    {"QLinearConv", 0, 1, 2, 3, 4, 5, 6, 7, 8},
};

static const layout *layout_of(const node *n) {
  for (size_t i = 0; i + 1 < sizeof layouts / sizeof *layouts; i++)
    if (!strcmp(layouts[i].type, n->op_type)) return &layouts[i];
  return &layouts[sizeof layouts / sizeof *layouts - 1];
}

static void claim_quantised(claim *c, const layout *l) {
  require_types(c, l->x_zero, DTS_8);
  require_types(c, l->w, DTS_8);
  require_types(c, l->w_zero, DTS_8);
  require_types(c, l->x_scale, DTS_FLOAT);
  require_types(c, l->w_scale, DTS_FLOAT);
  require_types(c, l->y_scale, DTS_FLOAT);
  require_types(c, l->y_zero, DTS_8);
}

static bool fits(op *o, mx before, mx after, const char *what) {
  mx_ints x = mx_shape(before), y = mx_shape(after);
  if (!mx_ok(o->s)) return false;
  if (x.n == y.n && !memcmp(x.v, y.v, sizeof(int) * (size_t)x.n)) return true;
  op_fail(o, "%s does not fit the result", what);
  return false;
}

// The sums times scale, into the range of the output: by its own scale when it is quantised.
static mx rescaled(op *o, const layout *l, mx sums, mx scale) {
  if (in(o, l->y_scale)) scale = mx_div(scale, qint_number(o, l->y_scale, 1));
  mx y = mx_astype(sums, DT_F32), z = mx_mul(y, scale);
  if (!fits(o, y, z, "a scale")) return z;
  if (!in(o, l->y_scale)) return z;
  return qint_saturated(z, qint_number(o, l->y_zero, 0), want_type(o, 0));
}

// ---- matrices -----------------------------------------------------------------------------------------------------------------
static mx matrix_weight(op *o) {
  const layout *l = layout_of(o->n);
  mx w = in(o, l->w);
  if (attr_i(o->n, "transB", 0) && mx_ndim(w) == 2) w = mx_transpose(w, MXI(1, 0));
  return mx_contiguous(qint_centred(o, w, qint_of_matrix(o, l->w_zero, true), l->w_zero).x);
}

static mx matrix_bounds(op *o) {
  mx w = memo(o, 0, matrix_weight);
  return qint_bounds(w, mx_ndim(w) > 1 ? mx_ndim(w) - 1 : -1);
}

static qint matrix_operand(op *o, const layout *l) {
  mx x = in(o, l->x);
  if (attr_i(o->n, "transA", 0) && mx_ndim(x) == 2) x = mx_transpose(x, MXI(1, 0));
  return qint_centred(o, x, qint_of_matrix(o, l->x_zero, false), l->x_zero);
}

static mx matrix_sums(op *o, const layout *l, qint x) {
  return qint_matmul(o, x, qint_weight(o, matrix_weight, matrix_bounds, 0, l->w, l->w_zero));
}

static void claim_ranks(claim *c, const layout *l) {
  REQUIRE(c, in_rank(c, l->x) && in_rank(c, l->w), "an operand is a scalar");
}

static void matmul_integer_claim(claim *c) {
  claim_quantised(c, layout_of(c->n));
  claim_ranks(c, layout_of(c->n));
}

static void matmul_integer(op *o) {
  const layout *l = layout_of(o->n);
  out(o, 0, matrix_sums(o, l, matrix_operand(o, l)));
}

static void qlinear_matmul(op *o) {
  const layout *l = layout_of(o->n);
  mx sums = matrix_sums(o, l, matrix_operand(o, l));
  mx scale = mx_mul(qint_of_matrix(o, l->x_scale, false), qint_of_matrix(o, l->w_scale, true));
  out(o, 0, rescaled(o, l, sums, scale));
}

// Sums scaled to floats, with a bias.
static void to_float(op *o, const layout *l, mx sums, mx x_scale) {
  mx y = rescaled(o, l, sums, mx_mul(x_scale, qint_of_matrix(o, l->w_scale, true))), bias = in(o, l->bias);
  mx z = bias ? mx_add(y, mx_astype(bias, DT_F32)) : y;
  if (fits(o, y, z, "the bias")) out(o, 0, z);
}

static void to_float_claim(claim *c) {
  const layout *l = layout_of(c->n);
  matmul_integer_claim(c);
  require_types(c, l->bias, DTS_FLOAT);
}

static void matmul_to_float(op *o) {
  const layout *l = layout_of(o->n);
  to_float(o, l, matrix_sums(o, l, matrix_operand(o, l)), qint_of_matrix(o, l->x_scale, false));
}

static void dynamic_matmul_claim(claim *c) {
  const layout *l = layout_of(c->n);
  require_types(c, l->w, DTS_8);
  require_types(c, l->w_zero, DTS_8);
  require_types(c, l->w_scale, DTYPE_BIT(DT_F32));
  require_types(c, l->bias, DTYPE_BIT(DT_F32));
  claim_ranks(c, l);
}

static void dynamic_matmul(op *o) {
  const layout *l = layout_of(o->n);
  mx scale, zero, x = qint_dynamic(in(o, l->x), &scale, &zero);
  to_float(o, l, matrix_sums(o, l, (qint){mx_sub(x, zero), 255, 0}), scale);
}

// ---- QGemm ----------------------------------------------------------------------------------------------------------------------
static const char *const gemm_attrs[] = {"alpha", "transA", "transB", NULL};

static void qgemm_claim(claim *c) {
  const layout *l = layout_of(c->n);
  require_known(c, gemm_attrs);
  claim_quantised(c, l);
  require_types(c, l->bias, DTYPE_BIT(DT_I32));
  CLAIM_GOES_ON(c);
  for (size_t i = l->x; i <= l->w; i += l->w - l->x)
    REQUIRE(c, in_rank(c, i) < 0 || in_rank(c, i) == 2, "input %zu has rank %d", i, in_rank(c, i));
  REQUIRE(c, in_rank(c, l->bias) <= 2, "C has rank %d", in_rank(c, l->bias));
}

static void qgemm(op *o) {
  const layout *l = layout_of(o->n);
  if (mx_ndim(in(o, l->x)) != 2 || mx_ndim(in(o, l->w)) != 2) {
    op_fail(o, "A and B must have rank 2");
    return;
  }
  mx sums = matrix_sums(o, l, matrix_operand(o, l)), with = in(o, l->bias) ? mx_add(sums, in(o, l->bias)) : sums;
  if (!fits(o, sums, with, "C")) return;
  mx scale = mx_mul(qint_of_matrix(o, l->x_scale, false), mx_full(o->s, (mx_ints){0}, (double)attr_f(o->n, "alpha", 1), DT_F32));
  out(o, 0, rescaled(o, l, with, mx_mul(scale, qint_of_matrix(o, l->w_scale, true))));
}

// ---- images -----------------------------------------------------------------------------------------------------------------------
static const char *const conv_attrs[] = {"auto_pad", "channels_last", "dilations", "group", "kernel_shape", "pads", "strides",
                                         NULL};

static void conv_claim(claim *c) {
  const layout *l = layout_of(c->n);
  require_known(c, conv_attrs);
  claim_quantised(c, l);
  require_types(c, l->bias, DTYPE_BIT(DT_I32));
  spatial_claim(c);
  CLAIM_GOES_ON(c);
  int rank = in_rank(c, l->x), w_rank = in_rank(c, l->w);
  int64_t groups = attr_i(c->n, "group", 1);
  REQUIRE(c, groups >= 1 && groups <= 1 << 30, "group %lld", (long long)groups);
  REQUIRE(c, rank < 0 || w_rank < 0 || rank == w_rank, "a weight of rank %d for an image of rank %d", w_rank, rank);
}

// One value for each output (axis 0 of the weight), as [M, 1, ..]; or rank 0.
static mx of_outputs(op *o, size_t i, int rank) {
  mx x = in(o, i);
  if (!x) return NULL;
  x = mx_astype(x, DT_F32);
  if (mx_size(x) == 1) return mx_reshape(x, (mx_ints){0});
  if (mx_ndim(x) != 1) return op_fail(o, "input %zu has rank %d", i, mx_ndim(x));
  mx_ints shape = {.n = rank, .v = {mx_dim(x, 0)}};
  for (int a = 1; a < rank; a++) shape.v[a] = 1;
  return mx_reshape(x, shape);
}

static mx image_weight(op *o) {
  const layout *l = layout_of(o->n);
  mx w = in(o, l->w);
  if (mx_ndim(w) < 3) return op_fail(o, "a weight of rank %d", mx_ndim(w));
  return mx_contiguous(conv_channels_last(qint_centred(o, w, of_outputs(o, l->w_zero, mx_ndim(w)), l->w_zero).x));
}

static mx image_bounds(op *o) { return qint_bounds(memo(o, 0, image_weight), 0); }

// The sums, channels last; scales and biases of outputs lie along their last axis.
static mx image_sums(op *o, const layout *l, bool last) {
  mx x = in(o, l->x), sums;
  if (last) x = conv_channels_first(x);
  int groups = (int)attr_i(o->n, "group", 1), rank = mx_ndim(x), kernel[SPATIAL_MAX];
  if (rank < 3 || rank > SPATIAL_MAX + 2 || mx_ndim(in(o, l->w)) != rank)
    return op_fail(o, "a weight of rank %d for an image of rank %d", mx_ndim(in(o, l->w)), rank);
  qint w = qint_weight(o, image_weight, image_bounds, 0, l->w, l->w_zero);
  if ((int64_t)mx_dim(w.x, -1) * groups != mx_dim(x, 1) || mx_dim(w.x, 0) % groups)
    return op_fail(o, "the weight takes %d channels in each of %d groups, X has %d", mx_dim(w.x, -1), groups, mx_dim(x, 1));
  spatial s;
  for (int i = 0; i + 2 < rank; i++) kernel[i] = mx_dim(w.x, i + 1);
  if (!mx_ok(o->s) || !spatial_read(o, x, kernel, &s) || !spatial_windows(o, &s)) return x;
  qint q = qint_centred(o, x, in(o, l->x_zero) ? qint_number(o, l->x_zero, 0) : NULL, l->x_zero);
  if (conv_is_empty(o, q.x, w.x, &s, &sums)) return mx_astype(sums, DT_I32);
  q.x = conv_channels_last(q.x);
  return qint_conv(o, q, w, &s, groups);
}

static void conv_integer(op *o) { out(o, 0, conv_channels_first(image_sums(o, layout_of(o->n), false))); }

static void qlinear_conv(op *o) {
  const layout *l = layout_of(o->n);
  bool last = attr_i(o->n, "channels_last", 0) != 0;
  mx sums = image_sums(o, l, last), with = in(o, l->bias) ? mx_add(sums, in(o, l->bias)) : sums;
  if (!fits(o, sums, with, "the bias")) return;
  mx y = rescaled(o, l, with, mx_mul(qint_number(o, l->x_scale, 1), qint_of_matrix(o, l->w_scale, true)));
  out(o, 0, last ? y : conv_channels_first(y));
}

const op_row ops_qlinear[] = {
    OP("", "MatMulInteger", 10, ANY, matmul_integer_claim, matmul_integer, .types = DTS_8, .limits = "no scalar operand"),
    OP("", "QLinearMatMul", 10, ANY, matmul_integer_claim, qlinear_matmul, .types = DTS_8, .limits = "no scalar operand"),
    OP("", "ConvInteger", 10, ANY, conv_claim, conv_integer, .types = DTS_8,
       .limits = "1 to 3 spatial axes; no negative pads"),
    OP("", "QLinearConv", 10, ANY, conv_claim, qlinear_conv, .types = DTS_8,
       .limits = "1 to 3 spatial axes; no negative pads"),
    OP("com.microsoft", "QLinearConv", 1, ANY, conv_claim, qlinear_conv, .types = DTS_8,
       .limits = "1 to 3 spatial axes; no negative pads"),
    OP("com.microsoft", "MatMulIntegerToFloat", 1, ANY, to_float_claim, matmul_to_float, .types = DTS_8,
       .limits = "no scalar operand"),
    OP("com.microsoft", "DynamicQuantizeMatMul", 1, ANY, dynamic_matmul_claim, dynamic_matmul,
       .types = DTYPE_BIT(DT_F32), .limits = "no scalar operand"),
    OP("com.microsoft", "QGemm", 1, ANY, qgemm_claim, qgemm, .types = DTS_8, .limits = "matrices of rank 2"),
    {0}};
