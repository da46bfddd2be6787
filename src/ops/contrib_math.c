// com.microsoft: small operators that optimisers and quantisers leave behind.
#include "ops/numeric.h"
#include "ops/op.h"

// ---- IsAllFinite ------------------------------------------------------------------------------------------------------
static void is_all_finite(op *o) {
  bool nan = attr_i(o->n, "isnan_only", 0) != 0, inf = attr_i(o->n, "isinf_only", 0) != 0;
  mx all = NULL;
  for (size_t i = 0; i < o->n->n_in; i++) {
    mx x = in(o, i), ok = nan ? mx_logical_not(mx_isnan(x)) : inf ? mx_logical_not(mx_isinf(x)) : mx_isfinite(x);
    ok = mx_all(ok, all_axes(mx_ndim(x)), false);
    all = all ? mx_logical_and(all, ok) : ok;
  }
  out(o, 0, all ? all : mx_full(o->s, (mx_ints){0}, 1, DT_BOOL));
}

// ---- ReduceSumInteger, MulInteger -------------------------------------------------------------------------------------

static void reduce_sum_integer(op *o) {
  mx x = mx_astype(in(o, 0), mx_dtype(in(o, 0)) == DT_U8 ? DT_U32 : DT_I32);
  mx_ints axes = op_axes(o, "axes", SIZE_MAX, mx_ndim(x));
  if (axes.n == 0) axes = all_axes(mx_ndim(x));
  out(o, 0, mx_sum(x, axes, attr_i(o->n, "keepdims", 1) != 0));
}

// (A - its zero point) times (B - its own); the zero points are scalars.
static mx from_zero(op *o, size_t i) {
  mx x = mx_astype(in(o, i), DT_I32), zero = in(o, i + 1);
  if (zero && mx_size(zero) != 1) return op_fail(o, "input %zu must hold one number", i + 1);
  return zero ? mx_sub(x, mx_reshape(mx_astype(zero, DT_I32), (mx_ints){0})) : x;
}

static void mul_integer(op *o) { out(o, 0, mx_mul(from_zero(o, 0), from_zero(o, 2))); }

// ---- SampleOp, GemmFastGelu -------------------------------------------------------------------------------------------
static void sample(op *o) { out(o, 0, in(o, 0)); }

static void gemm_fast_gelu(op *o) {
  mx x = mx_matmul(f32_up(in(o, 0)), f32_up(in(o, 1)));
  if (in(o, 2)) x = mx_add(x, f32_up(in(o, 2)));
  mx cubic = mx_add(x, num_times(mx_mul(mx_square(x), x), 0.044715));
  out(o, 0, mx_mul(num_times(x, 0.5), num_plus(mx_tanh(num_times(cubic, 0.7978845608028654)), 1)));
}

static void gemm_fast_gelu_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) != 0 && in_rank(c, 1) != 0, "an operand is a scalar");
}

enum { BYTES = DTYPE_BIT(DT_I8) | DTYPE_BIT(DT_U8) };

const op_row ops_contrib_math[] = {
    OP("com.microsoft", "IsAllFinite", 1, ANY, NULL, is_all_finite, .types = DTS_FLOAT64, .typed_in = ALL_IN),
    OP("com.microsoft", "ReduceSumInteger", 1, ANY, NULL, reduce_sum_integer, .types = BYTES),
    OP("com.microsoft", "MulInteger", 1, ANY, NULL, mul_integer, .types = BYTES),
    OP("com.microsoft", "SampleOp", 1, ANY, NULL, sample, .traits = OP_CHEAP),
    OP("com.microsoft", "GemmFastGelu", 1, ANY, gemm_fast_gelu_claim, gemm_fast_gelu, .types = DTS_FLOAT,
       .limits = "no scalar operand"),
    {0}};
