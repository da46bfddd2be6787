// Attention as graphs write it out: softmax(scale * q k^T + bias) v, made by a rewrite. The domain is the provider's own: no
// model names it. Differs from ai.onnx Attention in that any operands that broadcast are taken, keys may come transposed,
// and a query that sees no key gives NaN, as the written form does, unless guarded says otherwise.
#include "ops/attn.h"
#include "ops/numeric.h"

enum { S_Q, S_K, S_V, S_BIAS };

static void sdpa_claim(claim *c) {
  for (size_t i = S_Q; i <= S_V; i++) REQUIRE(c, in_rank(c, i) == 4, "input %zu has rank %d", i, in_rank(c, i));
}

static bool is_regular(const attn *a) {
  int b = mx_dim(a->q, 0), h = mx_dim(a->q, 1), kv = mx_dim(a->k, 1), keys = mx_dim(a->k, 2);
  bool fits = mx_ndim(a->q) == 4 && mx_ndim(a->k) == 4 && mx_ndim(a->v) == 4 && mx_dim(a->k, 0) == b && mx_dim(a->v, 0) == b &&
              (kv == h || kv == 1) && mx_dim(a->v, 1) == kv && mx_dim(a->v, 2) == keys && mx_dim(a->k, 3) == mx_dim(a->q, 3);
  return fits && (!a->bias || (mx_ndim(a->bias) && attn_broadcasts(a->bias, b, h, mx_dim(a->q, 2), keys)));
}

static mx written_out(const attn *a) {
  dtype wide = mx_dtype(a->q) == DT_F64 ? DT_F64 : DT_F32;
  mx s = mx_matmul(num_times(mx_astype(a->q, wide), a->scale), mx_swapaxes(mx_astype(a->k, wide), 2, 3));
  if (a->bias) s = mx_add(s, mx_astype(a->bias, wide));
  mx w = num_softmax(s, 3);
  if (a->guarded) {
    mx none = mx_isneginf(mx_max(mx_astype(a->bias, wide), MXI(mx_ndim(a->bias) - 1), true));
    w = mx_where(none, mx_scalar(w, 0), w);
  }
  return mx_matmul(w, mx_astype(a->v, wide));
}

static void sdpa(op *o) {
  attn a = {.q = in(o, S_Q), .k = in(o, S_K), .v = in(o, S_V), .bias = in(o, S_BIAS)};
  a.scale = (double)attr_f(o->n, "scale", 1);
  a.guarded = a.bias && attr_i(o->n, "guarded", 0) != 0;
  if (attr_i(o->n, "k_transposed", 0)) a.k = mx_swapaxes(a.k, 2, 3);
  out(o, 0, is_regular(&a) ? attn_apply(&a) : written_out(&a));
}

const op_row ops_sdpa[] = {OP("mlx", "Attention", 1, ANY, sdpa_claim, sdpa, .types = DTS_FLOAT64, .typed_in = ALL_IN,
                               .limits = "inputs of rank 4"), {0}};
