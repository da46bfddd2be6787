// Products of matrices: MatMul, Gemm, their fused and integer forms.
#include <string.h>

#include "ops/matmul.h"

// ---- integer products: MLX multiplies matrices of floats only ----------------------------------------------------------
// Products are spread out and summed, a part of k at a time to bound the memory.
mx matmul_int(op *o, mx x, mx y) {
  enum { SPREAD = 1 << 24 };
  int x_rank = mx_ndim(x), y_rank = mx_ndim(y), k = mx_dim(x, -1);
  if (!x_rank || !y_rank || mx_dim(y, y_rank == 1 ? 0 : -2) != k) return op_fail(o, "the operands do not fit");
  if (x_rank >= MX_MAX_RANK || y_rank >= MX_MAX_RANK) return op_fail(o, "integer products of rank %d", MX_MAX_RANK);
  if (x_rank == 1) x = mx_expand_dims(x, MXI(0));
  if (y_rank == 1) y = mx_expand_dims(y, MXI(1));
  int xr = mx_ndim(x), yr = mx_ndim(y);
  size_t each = mx_size(x) / (size_t)(k ? k : 1) * (size_t)mx_dim(y, -1) + 1;
  if (yr > xr) each *= mx_size(y) / ((size_t)(k ? k : 1) * (size_t)(mx_dim(y, -1) ? mx_dim(y, -1) : 1)) + 1;
  int part = each >= SPREAD ? 1 : (int)(SPREAD / each), r = xr > yr ? xr : yr;
  mx sum = NULL;
  for (int at = 0; at < k || !sum; at += part) {
    int end = k - at < part ? k : at + part;
    mx a = mx_expand_dims(mx_slice_axis(x, xr - 1, at, end), MXI(xr));
    mx b = mx_expand_dims(mx_slice_axis(y, yr - 2, at, end), MXI(yr - 2));
    mx s = mx_sum(mx_mul(a, b), MXI(r - 1), false);
    sum = sum ? mx_add(sum, s) : s;
    if (!mx_ok(o->s)) break;
  }
  mx_ints gone = {0};
  if (x_rank == 1) gone.v[gone.n++] = r - 2;
  if (y_rank == 1) gone.v[gone.n++] = r - 1;
  return mx_squeeze(sum, gone);
}

// ---- MatMul -------------------------------------------------------------------------------------------------------------
static void claim_operands(claim *c) {
  REQUIRE(c, in_rank(c, 0) && in_rank(c, 1), "an operand is a scalar");
}

static mx product(op *o, mx x, mx y) {
  if (!mx_ndim(x) || !mx_ndim(y)) return op_fail(o, "an operand is a scalar");
  return dtype_is_float(mx_dtype(x)) ? mx_matmul(x, y) : matmul_int(o, x, y);
}

static void matmul(op *o) {
  mx x = in(o, 0), y = in(o, 1);
  if (dtype_is_float(mx_dtype(x)) && mx_ndim(x) >= 2 && mx_ndim(y) == 2) out(o, 0, mx_linear(x, y, NULL));
  else out(o, 0, product(o, x, y));
}

// ---- FusedMatMul ----------------------------------------------------------------------------------------------------------
static const char *const fused_attrs[] = {"alpha", "transA", "transB", "transBatchA", "transBatchB", NULL};

static void fused_claim(claim *c) {
  require_known(c, fused_attrs);
  claim_operands(c);
}

// batch: the first axis holds rows (or columns) and the batch lies between; it goes behind the batch.
static mx operand(op *o, size_t i, const char *trans, const char *trans_batch) {
  mx x = in(o, i);
  int r = mx_ndim(x);
  if (r < 2) return x;
  mx_ints perm = perm_identity(r);
  if (attr_i(o->n, trans_batch, 0)) {
    for (int a = 0; a + 2 < r; a++) perm.v[a] = a + 1;
    perm.v[r - 2] = 0;
  }
  if (attr_i(o->n, trans, 0)) {
    int last = perm.v[r - 1];
    perm.v[r - 1] = perm.v[r - 2];
    perm.v[r - 2] = last;
  }
  return mx_transpose(x, perm);
}

// A factor on a product of halves goes on before the result is rounded.
static mx scaled(mx y, double alpha) { return alpha == 1 ? y : mx_mul(y, mx_scalar(y, alpha)); }

static mx fused_product(op *o) {
  mx x = operand(o, 0, "transA", "transBatchA"), y = operand(o, 1, "transB", "transBatchB");
  double alpha = (double)attr_f(o->n, "alpha", 1);
  if (alpha != 1) {
    x = f32_up(x);
    y = f32_up(y);
  }
  return scaled(product(o, x, y), alpha);
}

static void fused(op *o) { out(o, 0, fused_product(o)); }

// ---- Gemm -----------------------------------------------------------------------------------------------------------------
static const char *const gemm_attrs[] = {"alpha", "beta", "transA", "transB", "broadcast", NULL};

static void gemm_claim_ranks(claim *c) {
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) == 2, "A has rank %d", in_rank(c, 0));
  REQUIRE(c, in_rank(c, 1) < 0 || in_rank(c, 1) == 2, "B has rank %d", in_rank(c, 1));
  REQUIRE(c, in_rank(c, 2) <= 2, "C has rank %d", in_rank(c, 2));
}

static void gemm_claim(claim *c) {
  require_known(c, gemm_attrs);
  float alpha = attr_f(c->n, "alpha", 1), beta = attr_f(c->n, "beta", 1);
  REQUIRE(c, dtype_is_float(in_type(c, 0)) || (alpha == 1 && beta == 1), "integers with an alpha or beta other than 1");
  gemm_claim_ranks(c);
}

static mx gemm_product(op *o) {
  mx x = in(o, 0), y = in(o, 1), c = in(o, 2);
  double alpha = (double)attr_f(o->n, "alpha", 1), beta = (double)attr_f(o->n, "beta", 1);
  if (mx_ndim(x) != 2 || mx_ndim(y) != 2) return op_fail(o, "A has rank %d and B rank %d", mx_ndim(x), mx_ndim(y));
  if (attr_i(o->n, "transA", 0)) x = mx_transpose(x, MXI(1, 0));
  if (attr_i(o->n, "transB", 0)) y = mx_transpose(y, MXI(1, 0));
  if (beta == 0) c = NULL;
  bool plain = dtype_is_float(mx_dtype(x)) && alpha == 1 && beta == 1;
  if (plain && (!c || (mx_ndim(c) == 1 && mx_dim(c, 0) == mx_dim(y, 1)))) return mx_linear(x, y, c);
  x = f32_up(x);
  y = f32_up(y);
  mx_ints shape = MXI(mx_dim(x, 0), mx_dim(y, 1));
  mx p = scaled(product(o, x, y), alpha);
  return c ? mx_add(p, mx_broadcast_to(scaled(f32_up(c), beta), shape)) : p;
}

static void gemm(op *o) { out(o, 0, gemm_product(o)); }

// ---- FusedGemm --------------------------------------------------------------------------------------------------------------
static const char *const fused_gemm_attrs[] = {"alpha", "beta", "transA", "transB", "activation", "activation_alpha",
                                               "activation_beta", "activation_gamma", NULL};

static mx relu(op *o, mx x) { return (void)o, mx_maximum(x, mx_scalar(x, 0)); }
static mx sigmoid(op *o, mx x) { return (void)o, mx_sigmoid(x); }
static mx tanh_of(op *o, mx x) { return (void)o, mx_tanh(x); }
static mx leaky_relu(op *o, mx x) {
  mx alpha = mx_scalar(x, (double)attr_f(o->n, "activation_alpha", 0.01f));
  return mx_where(mx_less(x, mx_scalar(x, 0)), mx_mul(x, alpha), x);
}
static mx hard_sigmoid(op *o, mx x) {
  mx alpha = mx_scalar(x, (double)attr_f(o->n, "activation_alpha", 0.2f));
  mx beta = mx_scalar(x, (double)attr_f(o->n, "activation_beta", 0.5f));
  return mx_clip(mx_add(mx_mul(x, alpha), beta), mx_scalar(x, 0), mx_scalar(x, 1));
}

typedef struct activation {
  const char *name;
  mx (*apply)(op *o, mx x);
} activation;
static const activation activations[] = {{"Relu", relu}, {"Sigmoid", sigmoid}, {"Tanh", tanh_of},
                                         {"LeakyRelu", leaky_relu}, {"HardSigmoid", hard_sigmoid}};

static const activation *activation_of(const node *n) {
  const char *name = attr_s(n, "activation", "");
  for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
    if (!strcmp(activations[i].name, name)) return &activations[i];
  return NULL;
}

static void fused_gemm_claim(claim *c) {
  require_known(c, fused_gemm_attrs);
  const char *name = attr_s(c->n, "activation", "");
  REQUIRE(c, !*name || activation_of(c->n), "activation '%s'", name);
  gemm_claim_ranks(c);
}

static void fused_gemm(op *o) {
  const activation *a = activation_of(o->n);
  mx y = gemm_product(o);
  out(o, 0, a ? a->apply(o, y) : y);
}

// ---- FusedMatMulActivation ----------------------------------------------------------------------------------------------
static const char *const fused_activation_attrs[] = {"alpha", "transA", "transB", "transBatchA", "transBatchB", "activation",
                                                     "activation_alpha", "activation_beta", "activation_gamma", "activation_axis", NULL};

static void fused_activation_claim(claim *c) {
  require_known(c, fused_activation_attrs);
  claim_operands(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, activation_of(c->n), "activation '%s'", attr_s(c->n, "activation", ""));
}

static void fused_activation(op *o) { out(o, 0, activation_of(o->n)->apply(o, fused_product(o))); }

// ---- MatMulInteger16 --------------------------------------------------------------------------------------------------------

static void matmul_integer16(op *o) {
  dtype t = want_type(o, 0) == DT_U32 ? DT_U32 : DT_I32;  // the same bits
  out(o, 0, matmul_int(o, mx_astype(in(o, 0), t), mx_astype(in(o, 1), t)));
}

const op_row ops_matmul[] = {
    OP("", "MatMul", 1, ANY, claim_operands, matmul, .types = DTS_FLOAT64 | DTS_WIDE_INT, .limits = "no scalar operand"),
    OP("", "Gemm", 1, ANY, gemm_claim, gemm, .types = DTS_FLOAT64 | DTS_WIDE_INT,
       .limits = "integers with alpha and beta 1 only; matrices of rank 2"),
    OP("com.microsoft", "FusedMatMul", 1, ANY, fused_claim, fused, .types = DTS_FLOAT64, .limits = "no scalar operand"),
    OP("com.microsoft", "TransposeMatMul", 1, ANY, fused_claim, fused, .types = DTS_FLOAT64,
       .limits = "no scalar operand"),
    OP("com.microsoft", "FusedMatMulActivation", 1, ANY, fused_activation_claim, fused_activation, .types = DTS_FLOAT,
       .limits = "no scalar operand; activation is Relu, Sigmoid, Tanh, LeakyRelu or HardSigmoid"),
    OP("com.microsoft", "FusedGemm", 1, ANY, fused_gemm_claim, fused_gemm, .types = DTS_FLOAT,
       .limits = "matrices of rank 2; activation is Relu, Sigmoid, Tanh, LeakyRelu or HardSigmoid"),
    OP("com.microsoft", "MatMulInteger16", 1, ANY, claim_operands, matmul_integer16,
       .types = DTYPE_BIT(DT_U16) | DTYPE_BIT(DT_I16), .typed_in = IN(0) | IN(1), .limits = "no scalar operand"),
    {0}};
