// MatMulNBitsMlp and MatMulNBitsQkv of com.microsoft: products with block-quantised weights that share one input, which may
// first get a residual added and be normalised.
#include <limits.h>
#include <string.h>

#include "ops/nbits.h"

enum { F_X, F_SKIP, F_NORM, F_FIRST };  // then for each product: weights, scales, bias
enum { MOST = 3 };

typedef struct products {
  mx_nbits *w[MOST];
} products;

static bool is_mlp(const node *n) { return !strcmp(n->op_type, "MatMulNBitsMlp"); }
static int count_of(const node *n) { return is_mlp(n) ? 2 : 3; }
static int64_t width_of(const node *n, int i) { return attr_i(n, is_mlp(n) ? "N" : i == 0 ? "Nq" : "Nkv", 0); }
static size_t weights_at(int i) { return F_FIRST + 3 * (size_t)i; }

static void require_constant(claim *c, size_t i, int64_t want) {
  const tensor *t = in_const(c, i);
  size_t n = 0;
  REQUIRE(c, t, "input %zu must be constant", i);
  REQUIRE(c, dims_count(t->dims, t->rank, &n) && n == (size_t)want, "input %zu must have %lld elements", i, (long long)want);
}

static void claim_product(claim *c, int i, int64_t k, int64_t bits, int64_t block) {
  size_t at = weights_at(i);
  int64_t n = width_of(c->n, i), blocks = (k + block - 1) / block;
  dtype t = in_type(c, F_X);
  REQUIRE(c, n > 0 && n <= INT_MAX / 2, "%lld columns", (long long)n);
  require_types(c, at, DTYPE_BIT(DT_U8));
  require_types(c, at + 1, DTYPE_BIT(t));
  require_types(c, at + 2, DTYPE_BIT(t));
  CLAIM_GOES_ON(c);
  require_constant(c, at, n * blocks * (block * bits / 8));
  require_constant(c, at + 1, n * blocks);
  if (has_in(c, at + 2)) require_constant(c, at + 2, n);
}

static void fused_claim(claim *c) {
  static const char *const attrs[] = {"K", "N", "Nkv", "Nq", "accuracy_level", "activation", "bits", "block_size", "epsilon", NULL};
  require_known(c, attrs);
  int64_t bits = attr_i(c->n, "bits", 4), block = attr_i(c->n, "block_size", 0), k = attr_i(c->n, "K", 0);
  const char *act = attr_s(c->n, "activation", "");
  require_types(c, F_SKIP, DTYPE_BIT(in_type(c, F_X)));
  require_types(c, F_NORM, DTYPE_BIT(in_type(c, F_X)));
  CLAIM_GOES_ON(c);
  REQUIRE(c, !is_mlp(c->n) || !strcmp(act, "silu"), "activation '%s'", act);
  REQUIRE(c, bits == 2 || bits == 4 || bits == 8, "weights of %lld bits", (long long)bits);
  REQUIRE(c, k > 0 && k <= INT_MAX / 2, "K is out of range");
  REQUIRE(c, block >= 16 && block <= 1 << 30 && (block & (block - 1)) == 0, "block_size must be a power of two of 16 or more");
  REQUIRE(c, in_dim(c, F_X, -1) < 0 || in_dim(c, F_X, -1) == k, "the last axis of A must be K");
  size_t sum = (size_t)(is_mlp(c->n) ? 1 : 3);
  REQUIRE(c, has_in(c, F_SKIP) || !has_out(c, sum), "the residual sum without a skip");
  for (int i = 0; i < count_of(c->n); i++) claim_product(c, i, k, bits, block);
}

static mx_nbits *pack(const node *n, mx_device d, int i, err *e) {
  size_t at = weights_at(i);
  const value *bias = at + 2 < n->n_in ? n->in[at + 2] : NULL;
  float *owned[2] = {NULL, NULL};
  mx_nbits_desc w = {
      .k = (int)attr_i(n, "K", 0),
      .n = (int)width_of(n, i),
      .bits = (int)attr_i(n, "bits", 4),
      .block_size = (int)attr_i(n, "block_size", 0),
      .accuracy_level = (int)attr_i(n, "accuracy_level", 0),
      .q = n->in[at]->constant->data,
      .scales = nbits_floats(n->in[at + 1]->constant, &owned[0], e),
      .bias = bias ? nbits_floats(bias->constant, &owned[1], e) : NULL,
  };
  mx_nbits *packed = err_ok(e) ? mx_nbits_pack(d, &w, e) : NULL;
  mem_free(owned[0]);
  mem_free(owned[1]);
  return packed;
}

static void fused_unprepare(void *prepared) {
  products *p = prepared;
  for (int i = 0; p && i < MOST; i++) mx_nbits_free(p->w[i]);
  mem_free(p);
}

static void *fused_prepare(const node *n, mx_device d, err *e) {
  products *p = mem_alloc(sizeof *p);
  if (!p) FAIL(e, ERR_NO_MEMORY, "out of memory for packed weights");
  for (int i = 0; p && i < count_of(n) && err_ok(e); i++) p->w[i] = pack(n, d, i, e);
  if (err_ok(e)) return p;
  fused_unprepare(p);
  return NULL;
}

static mx product(op *o, mx x, int i) {
  const products *p = o->prepared;
  if (mx_size(x)) return mx_nbits_matmul(x, p->w[i]);
  mx_ints shape = mx_shape(x);
  shape.v[shape.n - 1] = (int)width_of(o->n, i);
  return mx_full(o->s, shape, 0, mx_dtype(x));
}

static void fused(op *o) {
  mx x = in(o, F_X), skip = in(o, F_SKIP), norm = in(o, F_NORM);
  int k = (int)attr_i(o->n, "K", 0);
  bool same = !skip || mx_ndim(skip) == mx_ndim(x);
  for (int i = 0; skip && same && i < mx_ndim(x); i++) same = mx_dim(skip, i) == mx_dim(x, i);
  if (!o->prepared) op_fail(o, "the quantised weights are not packed");
  else if (mx_ndim(x) < 1 || mx_dim(x, -1) != k) op_fail(o, "the last axis of A must be %d", k);
  else if (!same) op_fail(o, "skip does not have the shape of A");
  else if (norm && (mx_ndim(norm) != 1 || mx_dim(norm, 0) != k)) op_fail(o, "norm_scale must hold %d numbers", k);
  if (!mx_ok(o->s)) return;
  dtype t = mx_dtype(x);
  mx sum = skip ? mx_add(f32_up(x), f32_up(skip)) : f32_up(x);
  if (skip) out(o, is_mlp(o->n) ? 1 : 3, sum);
  double eps = (double)attr_f(o->n, "epsilon", is_mlp(o->n) ? 1e-5f : 1e-6f);
  x = norm && mx_size(x) ? mx_astype(mx_rms_norm(sum, f32_up(norm), (float)eps), t) : x;
  if (!is_mlp(o->n)) {
    for (int i = 0; i < 3; i++) out(o, (size_t)i, product(o, x, i));
    return;
  }
  mx gate = f32_up(product(o, x, 0)), up = f32_up(product(o, x, 1));
  out(o, 0, mx_mul(mx_mul(gate, mx_sigmoid(gate)), up));
}

#define PACKED(i) (IN(F_FIRST + 3 * (i)) | IN(F_FIRST + 3 * (i) + 1) | IN(F_FIRST + 3 * (i) + 2))
const op_row ops_nbits_fused[] = {
    OP("com.microsoft", "MatMulNBitsMlp", 1, ANY, fused_claim, fused, .types = DTS_FLOAT, .prepare = fused_prepare,
       .unprepare = fused_unprepare, .prepared_in = PACKED(0) | PACKED(1),
       .limits = "constant weights of 2, 4 or 8 bits; blocks of a power of two of 16 or more; activation is silu"),
    OP("com.microsoft", "MatMulNBitsQkv", 1, ANY, fused_claim, fused, .types = DTS_FLOAT, .prepare = fused_prepare,
       .unprepare = fused_unprepare, .prepared_in = PACKED(0) | PACKED(1) | PACKED(2),
       .limits = "constant weights of 2, 4 or 8 bits; blocks of a power of two of 16 or more"),
    {0}};
