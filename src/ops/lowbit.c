// MatMulBnb4 of com.microsoft: weights of 4 bits that index a table of floats, scaled by blocks.
#include <limits.h>

#include "ops/nbits.h"

enum { B_X, B_Q, B_ABSMAX };
static const char *const bnb_attrs[] = {"K", "N", "block_size", "quant_type", "training_mode", "transB", NULL};

// bitsandbytes' two sets of values.
static const float fp4[16] = {0,          5.208333333e-03f, 0.66666667f, 1,  0.33333333f, 0.5f,  0.16666667f, 0.25f,
                              -0.0f,      -5.208333333e-03f, -0.66666667f, -1, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
static const float nf4[16] = {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
                              -0.18477343022823334f, -0.09105003625154495f, 0, 0.07958029955625534f, 0.16093020141124725f,
                              0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
                              0.7229568362236023f, 1.0f};

static void bnb_claim(claim *c) {
  require_known(c, bnb_attrs);
  require_types(c, B_Q, DTYPE_BIT(DT_U8));
  require_types(c, B_ABSMAX, DTS_FLOAT);
  CLAIM_GOES_ON(c);
  int64_t k = attr_i(c->n, "K", 0), n = attr_i(c->n, "N", 0), block = attr_i(c->n, "block_size", 0), kind = attr_i(c->n, "quant_type", 0);
  REQUIRE(c, k > 0 && n > 0 && k < INT_MAX && n < INT_MAX && k * n < INT_MAX, "K or N is out of range");
  REQUIRE(c, block >= 16 && block <= 1 << 30 && (block & (block - 1)) == 0, "block_size must be a power of two of 16 or more");
  REQUIRE(c, kind == 0 || kind == 1, "quant_type %lld", (long long)kind);
  const tensor *q = in_const(c, B_Q), *absmax = in_const(c, B_ABSMAX);
  REQUIRE(c, q && absmax, "the weights and absmax must be constant");
  size_t bytes = 0, scales = 0;
  bool fits = dims_count(q->dims, q->rank, &bytes) && dims_count(absmax->dims, absmax->rank, &scales);
  REQUIRE(c, fits && (int64_t)bytes == (n * k + 1) / 2 && (int64_t)scales == (n * k + block - 1) / block,
          "%zu bytes and %zu scales for %lld x %lld weights", bytes, scales, (long long)n, (long long)k);
  int64_t width = attr_i(c->n, "transB", 1) ? k : n;
  REQUIRE(c, in_dim(c, B_X, -1) < 0 || in_dim(c, B_X, -1) == width, "the last axis of A must be %lld", (long long)width);
}

// The weight as float32, [N, K]; the first of two values is a byte's upper half.
static float *bnb_floats(const node *n, err *e) {
  size_t count = (size_t)(attr_i(n, "K", 0) * attr_i(n, "N", 0)), block = (size_t)attr_i(n, "block_size", 16);
  const float *table = attr_i(n, "quant_type", 0) ? nf4 : fp4;
  const uint8_t *q = n->in[B_Q]->constant->data;
  float *owned = NULL, *w = mem_alloc(count * sizeof *w);
  const float *absmax = nbits_floats(n->in[B_ABSMAX]->constant, &owned, e);
  if (!w && err_ok(e)) FAIL(e, ERR_NO_MEMORY, "out of memory for %zu weights", count);
  for (size_t i = 0; w && absmax && i < count; i++) w[i] = table[q[i / 2] >> (i % 2 ? 0 : 4) & 15] * absmax[i / block];
  mem_free(owned);
  return w;
}

static void *bnb_prepare(const node *n, mx_device d, err *e) {
  float *w = bnb_floats(n, e);
  mx_scope *s = mx_scope_new(d);
  mx_held *held = NULL;
  if (w && s && err_ok(e)) {
    mx x = mx_from(s, w, DT_F32, MXI((int)attr_i(n, "N", 1), (int)attr_i(n, "K", 1)));
    if (attr_i(n, "transB", 1)) x = mx_contiguous(mx_transpose(x, MXI(1, 0)));
    x = mx_astype(x, n->in[B_X]->type);
    held = mx_eval(s, &x, 1) ? mx_hold(x) : NULL;
  }
  mem_free(w);
  mx_scope_free(s);
  if (!held && err_ok(e)) FAIL(e, ERR_NO_MEMORY, "4-bit weights cannot be unpacked");
  return held;
}

static void bnb_unprepare(void *held) { mx_held_free(held); }

static void bnb(op *o) {
  mx x = in(o, B_X), w = o->prepared ? mx_use(o->s, o->prepared) : NULL;
  if (!w) op_fail(o, "the weights are not unpacked");
  else if (mx_ndim(x) < 1 || mx_dim(x, -1) != mx_dim(w, 0)) op_fail(o, "the last axis of A must be %d", mx_dim(w, 0));
  else out(o, 0, mx_linear(x, w, NULL));
}

const op_row ops_lowbit[] = {OP("com.microsoft", "MatMulBnb4", 1, ANY, bnb_claim, bnb, .types = DTS_FLOAT,
                                .prepare = bnb_prepare, .unprepare = bnb_unprepare,
                                .prepared_in = IN(B_Q) | IN(B_ABSMAX),
                                .limits = "constant weights and absmax; blocks of a power of two of 16 or more"),
                             {0}};
