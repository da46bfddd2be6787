// com.microsoft: products with weights of 4- and 8-bit floats, scaled by blocks or as a whole.
#include <limits.h>
#include <string.h>

#include "ops/narrow.h"
#include "ops/numeric.h"

// ---- MatMulBlockQuantizedFp4Weight, MatMulBlockQuantizedFp8Weight -------------------------------------------------------
enum { LF_A, LF_B, LF_SCALE, LF_SCALE2, LF_FP4_BIAS = 5, LF_FP8_BIAS = 4 };

static bool is_fp4(const node *n) { return strstr(n->op_type, "Fp4") != NULL; }
static int64_t block_of(const node *n) { return attr_i(n, "block_size", is_fp4(n) ? 16 : 128); }

// Bytes [N, K / 2] as codes [N, K], the lower half first.
static mx nibbles(mx b) {
  mx parts[2] = {mx_bitwise_and(b, mx_scalar(b, 15)), mx_right_shift(b, mx_scalar(b, 4))};
  return mx_reshape(mx_stack(mx_scope_of(b), parts, 2, 2), MXI(mx_dim(b, 0), 2 * mx_dim(b, 1)));
}

// The weight [K, N] of type t, from B's codes and the scales.
static mx scaled_weight(const node *n, mx b, mx scale, mx scale2, dtype t) {
  mx_scope *s = mx_scope_of(b);
  if (mx_ndim(b) != 2 || mx_ndim(scale) != 2 || (scale2 && mx_size(scale2) != 1))
    return mx_fail(s, ERR_INVALID, "B and its scales must have two axes, weight_scale_2 one element");
  mx w = narrow_values(is_fp4(n) ? nibbles(b) : b, is_fp4(n) ? DT_F4E2M1 : DT_F8E4M3FN);
  int64_t block = block_of(n), k = mx_dim(w, 1);
  if (mx_dim(scale, 0) != mx_dim(w, 0) || mx_dim(scale, 1) != (k + block - 1) / block)
    return mx_fail(s, ERR_INVALID, "scales [%d, %d] for weights [%d, %d]", mx_dim(scale, 0), mx_dim(scale, 1), mx_dim(w, 0), (int)k);
  if (is_fp4(n)) scale = narrow_values(scale, DT_F8E4M3FN);
  if (scale2) scale = mx_mul(scale, mx_reshape(scale2, MXI(1, 1)));
  int each = block < k ? (int)block : (int)k;
  if (k && mx_dim(w, 0)) w = mx_mul(w, mx_slice_axis(mx_repeat(scale, each, 1), 1, 0, (int)k));
  return mx_contiguous(mx_transpose(mx_astype(w, t), MXI(1, 0)));
}

static void *block_prepare(const node *n, mx_device d, err *e) {
  for (size_t i = LF_B; i <= (is_fp4(n) ? LF_SCALE2 : LF_SCALE); i++)
    if (!n->in[i]->constant) return NULL;
  mx_scope *s = mx_scope_new(d);
  mx w = s ? scaled_weight(n, narrow_from(s, n->in[LF_B]->constant), narrow_from(s, n->in[LF_SCALE]->constant),
                           is_fp4(n) ? narrow_from(s, n->in[LF_SCALE2]->constant) : NULL, n->in[LF_A]->type)
           : NULL;
  mx_held *held = w && mx_eval(s, &w, 1) ? mx_hold(w) : NULL;
  if (!held) FAIL(e, ERR_NO_MEMORY, "weights cannot be unpacked: %s", s && mx_error(s)->msg[0] ? mx_error(s)->msg : "out of memory");
  mx_scope_free(s);
  return held;
}

static void block_unprepare(void *held) { mx_held_free(held); }

// x as float8 numbers times its scale.
static mx rounded_fp8(mx x, mx scale) {
  mx s = mx_reshape(scale, (mx_ints){0});
  mx codes = narrow_codes(mx_div(mx_astype(x, DT_F32), s), DT_F8E4M3FN, true, ROUND_NEAREST);
  return mx_astype(mx_mul(narrow_values(codes, DT_F8E4M3FN), s), mx_dtype(x));
}

static void block_product(op *o) {
  bool fp4 = is_fp4(o->n);
  mx x = in(o, LF_A), bias = in(o, fp4 ? LF_FP4_BIAS : LF_FP8_BIAS), scale = in(o, LF_SCALE2);
  mx w = o->prepared ? mx_use(o->s, o->prepared) : scaled_weight(o->n, in(o, LF_B), in(o, LF_SCALE), fp4 ? scale : NULL, mx_dtype(x));
  if (!mx_ok(o->s)) return;
  if (mx_ndim(x) < 1 || mx_dim(x, -1) != mx_dim(w, 0)) op_fail(o, "the last axis of A must be %d", mx_dim(w, 0));
  if (!fp4 && scale && mx_size(scale) != 1) op_fail(o, "a_scale must hold one number");
  if (bias && (mx_ndim(bias) != 1 || mx_dim(bias, 0) != mx_dim(w, 1))) op_fail(o, "the bias must hold %d numbers", mx_dim(w, 1));
  if (!mx_ok(o->s)) return;
  if (!fp4 && scale) x = rounded_fp8(x, scale);
  out(o, 0, mx_linear(x, w, bias));
}

static void block_claim(claim *c) {
  bool fp4 = is_fp4(c->n);
  dtype t = in_type(c, LF_A);
  require_known(c, (const char *const[]){"block_size", NULL});
  require_types(c, LF_B, DTYPE_BIT(fp4 ? DT_U8 : DT_F8E4M3FN));
  require_types(c, LF_SCALE, DTYPE_BIT(fp4 ? DT_U8 : DT_F32));
  require_types(c, LF_SCALE2, DTYPE_BIT(DT_F32));
  require_types(c, fp4 ? LF_FP4_BIAS : LF_FP8_BIAS, DTYPE_BIT(t));
  CLAIM_GOES_ON(c);
  REQUIRE(c, block_of(c->n) > 0 && block_of(c->n) < 1 << 30, "block_size %lld", (long long)block_of(c->n));
  REQUIRE(c, has_in(c, LF_B) && has_in(c, LF_SCALE) && (!fp4 || has_in(c, LF_SCALE2)), "an input is missing");
}

// ---- GemmFloat8 -----------------------------------------------------------------------------------------------------------
enum { G_A, G_B, G_C, G_SCALE_A, G_SCALE_B, G_SCALE_Y };
enum { DTS_FP8 = DTYPE_BIT(DT_F8E4M3FN) | DTYPE_BIT(DT_F8E5M2) };

static mx operand(op *o, size_t i, size_t scale, const char *transposed) {
  mx x = mx_astype(narrow_values(in(o, i), o->n->in[i]->type), DT_F32), s = in(o, scale);
  if (mx_ndim(x) != 2) return op_fail(o, "input %zu has rank %d, not 2", i, mx_ndim(x));
  if (s && mx_size(s) != 1) return op_fail(o, "input %zu must hold one number", scale);
  if (s) x = mx_mul(x, mx_reshape(s, (mx_ints){0}));
  return attr_i(o->n, transposed, 0) ? mx_transpose(x, MXI(1, 0)) : x;
}

static void gemm_float8(op *o) {
  mx a = operand(o, G_A, G_SCALE_A, "transA"), b = operand(o, G_B, G_SCALE_B, "transB"), c = in(o, G_C);
  double beta = (double)attr_f(o->n, "beta", 0);
  if (mx_ok(o->s) && mx_dim(a, 1) != mx_dim(b, 0)) op_fail(o, "inner sizes %d and %d differ", mx_dim(a, 1), mx_dim(b, 0));
  if (!mx_ok(o->s)) return;
  mx y = num_times(mx_matmul(a, b), (double)attr_f(o->n, "alpha", 1));
  if (c && beta != 0) y = mx_add(y, num_times(mx_astype(c, DT_F32), beta));
  const char *act = attr_s(o->n, "activation", "NONE");
  if (!strcmp(act, "RELU")) y = mx_maximum(y, mx_scalar(y, 0));
  out(o, 0, dtype_in(want_type(o, 0), DTS_FP8) ? narrow_codes(y, want_type(o, 0), true, ROUND_NEAREST) : y);
}

static void gemm_claim(claim *c) {
  require_known(c, (const char *const[]){"activation", "alpha", "beta", "dtype", "transA", "transB", NULL});
  require_types(c, G_B, DTS_FLOAT | DTS_FP8);
  require_types(c, G_C, DTS_FLOAT);
  CLAIM_GOES_ON(c);
  const char *act = attr_s(c->n, "activation", "NONE");
  REQUIRE(c, !*act || !strcmp(act, "NONE") || !strcmp(act, "RELU"), "activation '%s'", act);
  REQUIRE(c, !has_in(c, G_SCALE_Y), "a scale of the output");
  REQUIRE(c, dtype_in(out_type(c, 0), DTS_FLOAT | DTS_FP8), "output 0 has type %s", dtype_name(out_type(c, 0)));
}

#define MS "com.microsoft"
const op_row ops_lowfloat[] = {
    OP(MS, "MatMulBlockQuantizedFp4Weight", 1, ANY, block_claim, block_product, .types = DTS_F16_BF16,
       .prepare = block_prepare, .unprepare = block_unprepare, .prepared_in = IN(LF_B) | IN(LF_SCALE)),
    OP(MS, "MatMulBlockQuantizedFp8Weight", 1, ANY, block_claim, block_product, .types = DTS_F16_BF16,
       .traits = OP_NARROW, .prepare = block_prepare, .unprepare = block_unprepare,
       .prepared_in = IN(LF_B) | IN(LF_SCALE)),
    OP(MS, "GemmFloat8", 1, ANY, gemm_claim, gemm_float8, .types = DTS_FLOAT | DTS_FP8, .traits = OP_NARROW,
       .limits = "activation is NONE or RELU; no scale of the output"),
    {0}};
