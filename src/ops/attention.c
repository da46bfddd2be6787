// Attention of ai.onnx.
#include <limits.h>
#include <math.h>

#include "ops/attn.h"
#include "ops/cached.h"

enum { A_Q, A_K, A_V, A_MASK, A_PAST_K, A_PAST_V, A_LENGTHS };
enum { MODE_PRODUCTS, MODE_CAPPED, MODE_BIASED, MODE_WEIGHTS };
static const char *const known_attrs[] = {
    "is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap", "softmax_precision",
    "left_window_size", "right_window_size", NULL};

// ---- claiming -----------------------------------------------------------------------------------------------------------
static void attention_claim_inputs(claim *c) {
  dtype q = in_type(c, A_Q), v = in_type(c, A_V);
  require_types(c, A_K, DTYPE_BIT(q));
  require_types(c, A_V, DTS_FLOAT64);
  require_types(c, A_MASK, DTS_TENSOR);
  require_types(c, A_PAST_K, DTYPE_BIT(q));
  require_types(c, A_PAST_V, DTYPE_BIT(v));
  require_types(c, A_LENGTHS, DTYPE_BIT(DT_I64));
  CLAIM_GOES_ON(c);
  REQUIRE(c, has_in(c, A_PAST_K) == has_in(c, A_PAST_V), "past_key and past_value must come together");
  REQUIRE(c, !has_in(c, A_PAST_K) || !has_in(c, A_LENGTHS), "nonpad_kv_seqlen with past_key");
  for (size_t i = A_Q; i <= A_V; i++) {
    int rank = in_rank(c, i);
    REQUIRE(c, rank < 0 || rank == 3 || rank == 4, "input %zu has rank %d", i, rank);
    REQUIRE(c, rank != 3 || (attr_has(c->n, "q_num_heads") && attr_has(c->n, "kv_num_heads")),
            "inputs of rank 3 need q_num_heads and kv_num_heads");
  }
  REQUIRE(c, in_rank(c, A_MASK) <= 4, "attn_mask has rank %d", in_rank(c, A_MASK));
}

static void attention_claim(claim *c) {
  require_known(c, known_attrs);
  CLAIM_GOES_ON(c);
  attention_claim_inputs(c);
  CLAIM_GOES_ON(c);
  int64_t heads = attr_i(c->n, "q_num_heads", 1), kv = attr_i(c->n, "kv_num_heads", 1);
  bool named = attr_has(c->n, "q_num_heads") && attr_has(c->n, "kv_num_heads");
  REQUIRE(c, heads > 0 && heads < 65536 && kv > 0 && kv < 65536 && (!named || heads % kv == 0), "%lld heads over %lld key heads",
          (long long)heads, (long long)kv);
  REQUIRE(c, !attr_has(c->n, "scale") || attr_f(c->n, "scale", 0) > 0, "scale is not positive");
  int64_t mode = attr_i(c->n, "qk_matmul_output_mode", 0);
  REQUIRE(c, mode >= MODE_PRODUCTS && mode <= MODE_WEIGHTS, "qk_matmul_output_mode %lld", (long long)mode);
  int64_t precision = attr_i(c->n, "softmax_precision", DT_F32);
  REQUIRE(c, precision > 0 && precision < DT_COUNT && dtype_in((dtype)precision, DTS_FLOAT64), "softmax_precision %lld",
          (long long)precision);
  REQUIRE(c, precision != DT_F64 || mx_has_dtype(c->device, DT_F64), "softmax_precision asks for float64");
  int64_t left = attr_i(c->n, "left_window_size", -1), right = attr_i(c->n, "right_window_size", -1);
  REQUIRE(c, left >= -1 && left < INT_MAX / 2 && right >= -1 && right < INT_MAX / 2, "window of %lld and %lld", (long long)left,
          (long long)right);
}

// ---- query, key, value --------------------------------------------------------------------------------------------------
// Input i with its heads second; NULL and the scope fails where it does not split.
static mx heads_of(op *o, size_t i, const char *heads_attr) {
  mx x = in(o, i);
  int64_t heads = attr_i(o->n, heads_attr, 0);
  if (mx_ndim(x) == 4) return x;
  if (mx_ndim(x) == 3 && heads > 0 && mx_dim(x, 2) % heads == 0) return attn_split(x, (int)heads);
  return op_fail(o, "input %zu of rank %d and width %d does not split into %lld heads", i, mx_ndim(x), mx_dim(x, -1),
                 (long long)heads);
}

static bool attention_inputs(op *o, attn *a) {
  a->q = heads_of(o, A_Q, "q_num_heads");
  a->k = heads_of(o, A_K, "kv_num_heads");
  a->v = heads_of(o, A_V, "kv_num_heads");
  if (!mx_ok(o->s)) return false;
  int b = mx_dim(a->q, 0), heads = mx_dim(a->q, 1), size = mx_dim(a->q, 3), kv = mx_dim(a->k, 1), rows = mx_dim(a->k, 2);
  if (mx_ndim(in(o, A_Q)) != mx_ndim(in(o, A_K)) || mx_dim(a->k, 0) != b || mx_dim(a->v, 0) != b || !kv || heads % kv ||
      mx_dim(a->v, 1) != kv || mx_dim(a->v, 2) != rows || mx_dim(a->k, 3) != size || !size) {
    op_fail(o, "keys [%d, %d, %d, %d] and values [%d, %d, %d, %d] do not fit %d entries of %d heads of size %d",
            mx_dim(a->k, 0), kv, rows, mx_dim(a->k, 3), mx_dim(a->v, 0), mx_dim(a->v, 1), mx_dim(a->v, 2), mx_dim(a->v, 3), b,
            heads, size);
    return false;
  }
  return true;
}

static bool attention_append(op *o, attn *a) {
  if (!attn_past_fits(o, A_PAST_K, A_PAST_K, a->k) || !attn_past_fits(o, A_PAST_V, A_PAST_K, a->v)) return false;
  a->k = attn_append(in(o, A_PAST_K), a->k);
  a->v = attn_append(in(o, A_PAST_V), a->v);
  return true;
}

// ---- masks --------------------------------------------------------------------------------------------------------------
static mx both(mx a, mx b) { return !a ? b : !b ? a : mx_logical_and(a, b); }

// What windows and lengths leave, and the causal rule where they stand; NULL where all is seen.
static mx placed(op *o, const attn *a, mx lengths, bool causal) {
  int left = (int)attr_i(o->n, "left_window_size", -1), right = (int)attr_i(o->n, "right_window_size", -1);
  int rows = mx_dim(a->q, 2), keys = mx_dim(a->k, 2), past = in(o, A_PAST_K) ? mx_dim(in(o, A_PAST_K), 2) : 0;
  if (!lengths && left < 0 && right < 0) return causal ? attn_causal(o->s, rows, keys, past) : NULL;
  mx key = mx_reshape(mx_arange(o->s, 0, keys, 1, DT_I64), MXI(1, 1, 1, keys)), seen = NULL;
  mx at = mx_reshape(mx_arange(o->s, 0, rows, 1, DT_I64), MXI(1, 1, rows, 1));
  if (lengths) {
    seen = mx_less(key, lengths);
    at = mx_add(at, mx_sub(lengths, mx_scalar_i64(o->s, rows, DT_I64)));
  } else at = mx_add(at, mx_scalar_i64(o->s, past, DT_I64));
  if (causal) seen = both(seen, mx_less_equal(key, at));
  if (left >= 0) seen = both(seen, mx_greater_equal(key, mx_sub(at, mx_scalar_i64(o->s, left, DT_I64))));
  if (right >= 0) seen = both(seen, mx_less_equal(key, mx_add(at, mx_scalar_i64(o->s, right, DT_I64))));
  return seen;
}

// The mask, its last axis as long as the keys: version 24 lets it be shorter, and what is missing is not seen.
static mx mask_padded(op *o, int keys) {
  mx mask = in(o, A_MASK);
  if (mx_dtype(mask) != DT_BOOL && mx_dtype(mask) != DT_F64) mask = mx_astype(mask, DT_F32);
  int axis = mx_ndim(mask) - 1, missing = axis < 0 ? 0 : keys - mx_dim(mask, axis);
  if (missing <= 0 || o->n->since < 24) return mask;
  double unseen = mx_dtype(mask) == DT_BOOL ? 0 : -(double)INFINITY;
  return mx_pad(mask, MXI(axis), MXI(0), MXI(missing), mx_scalar(mask, unseen), "constant");
}

static bool attention_masks(op *o, attn *a) {
  int b = mx_dim(a->q, 0), rows = mx_dim(a->q, 2), keys = mx_dim(a->k, 2);
  mx lengths = in(o, A_LENGTHS);
  if (lengths && (mx_ndim(lengths) != 1 || mx_dim(lengths, 0) != b)) {
    op_fail(o, "nonpad_kv_seqlen must hold %d lengths", b);
    return false;
  }
  if (lengths) lengths = mx_reshape(lengths, MXI(b, 1, 1, 1));
  a->seen = placed(o, a, lengths, attr_i(o->n, "is_causal", 0) != 0);
  a->guarded = lengths || in(o, A_MASK) || attr_i(o->n, "left_window_size", -1) >= 0;
  if (!in(o, A_MASK)) return true;
  mx mask = mask_padded(o, keys);
  if (!attn_broadcasts(mask, b, mx_dim(a->q, 1), rows, keys)) {
    op_fail(o, "attn_mask does not broadcast to [%d, %d, %d, %d]", b, mx_dim(a->q, 1), rows, keys);
    return false;
  }
  if (!mx_ndim(mask)) mask = mx_reshape(mask, MXI(1));
  if (mx_dtype(mask) == DT_BOOL) a->seen = both(a->seen, mask);
  else a->bias = mask;
  return true;
}

// ---- results ------------------------------------------------------------------------------------------------------------
static mx attention_result(op *o, const attn *a) {
  if (!wants(o, 3)) return attn_apply(a);
  attn_stages st;
  mx y = attn_stepwise(a, &st);
  switch (attr_i(o->n, "qk_matmul_output_mode", 0)) {
    case MODE_CAPPED: out(o, 3, st.capped); break;
    case MODE_BIASED: out(o, 3, st.biased); break;
    case MODE_WEIGHTS: out(o, 3, st.weights); break;
    default: out(o, 3, st.products);
  }
  return y;
}

// In a trace: the mask's last axis must be as long as the keys, which mx_attend checks.
static void attention_traced(op *o, const attn *a, op_cache *c) {
  int left = (int)attr_i(o->n, "left_window_size", -1), right = (int)attr_i(o->n, "right_window_size", -1);
  bool causal = attr_i(o->n, "is_causal", 0) != 0 || right == 0;
  mx mask = in(o, A_MASK);
  if (mx_dtype(a->q) == DT_F64 || attr_i(o->n, "softmax_precision", 0) == DT_F64) untraced(o, "float64");
  if (wants(o, 3) || in(o, A_LENGTHS)) untraced(o, "an output of the products, or nonpad_kv_seqlen with a past");
  if (right > 0 || (left >= 0 && !causal)) untraced(o, "a window that looks forward");
  if (mask && mx_ndim(mask) < 2) untraced(o, "a mask of this rank");
  if (mask && mx_dtype(mask) != DT_BOOL) mask = mx_astype(mask, DT_F32);
  mx_attend_desc d = {.q = a->q, .k = a->k, .v = a->v, .mask = mask, .scale = (float)attn_scale(o, mx_dim(a->q, 3)),
                      .cap = attr_f(o->n, "softcap", 0), .window = left >= 0 ? left + 1 : 0, .causal = causal};
  if (!mx_ok(o->s)) return;
  mx y = cached_attention(o, c, &d, A_PAST_K, 1);
  out(o, 0, mx_ndim(in(o, A_Q)) == 3 ? attn_join(y) : y);
}

static void attention(op *o) {
  attn a = {0};
  op_cache *c = trace_cache(o);
  if (!attention_inputs(o, &a)) return;
  if (c) {
    attention_traced(o, &a, c);
    return;
  }
  if (!attention_append(o, &a) || !attention_masks(o, &a)) return;
  a.scale = attn_scale(o, mx_dim(a.q, 3));
  a.cap = (double)attr_f(o->n, "softcap", 0);
  if (attr_i(o->n, "softmax_precision", 0) == DT_F64) a.softmax = DT_F64;
  mx y = attention_result(o, &a);
  if (!mx_ok(o->s)) return;
  out(o, 0, mx_ndim(in(o, A_Q)) == 3 ? attn_join(y) : y);
  out(o, 1, a.k);
  out(o, 2, a.v);
}

const op_row ops_attention[] = {OP("", "Attention", 23, ANY, attention_claim, attention, .types = DTS_FLOAT64,
                                   .traits = OP_KV, .past_in = A_PAST_K, .present_out = 1,
                                   .limits = "nonpad_kv_seqlen without a past only; a positive scale; a mask of rank 4 at most"), {0}};
