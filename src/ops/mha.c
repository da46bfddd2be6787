// MultiHeadAttention, Attention and DecoderMaskedMultiHeadAttention of com.microsoft. Their masks are added to the
// products: a masked key gets mask_filter_value, so a query whose keys are all masked sees them all.
#include <math.h>
#include <string.h>

#include "ops/attn.h"
#include "ops/cached.h"

typedef struct mha {
  attn a;
  int batch, rows, heads;  // rows: of the queries
  int past;                // rows before the new keys
  mx present_k, present_v; // [B, H, .., D]
} mha;

// The inputs that the three operators have in common, by their places; SIZE_MAX: not there.
typedef struct places {
  size_t mask, bias, past_length;
} places;

static bool heads_ok(claim *c) {
  int64_t heads = attr_i(c->n, "num_heads", 0);
  if (heads < 1 || heads > 65535) claim_decline(c, "%lld heads", (long long)heads);
  return !c->declined;
}

static void types_like(claim *c, const size_t *inputs, size_t n) {
  dtype t = in_type(c, 0);
  for (size_t i = 0; i < n; i++) require_types(c, inputs[i], DTYPE_BIT(t));
}

// ---- masks --------------------------------------------------------------------------------------------------------------
static mx key_numbers(op *o, int keys) { return mx_reshape(mx_arange(o->s, 0, keys, 1, DT_I32), MXI(1, keys)); }

static mx lengths_part(mx mask, int part, int batch) {
  return mx_reshape(mx_slice_axis(mask, 0, part * batch, (part + 1) * batch), MXI(batch, 1));
}

// Bool, true where a key counts, broadcasting to [B, 1, rows, keys]; NULL when all count, and after a failure.
static mx counted_keys(op *o, const mha *m, mx mask, int keys) {
  int rank = mx_ndim(mask), n = mx_dim(mask, 0), b = m->batch;
  mx zero = mx_scalar(mask, 0), counts = NULL;
  if (rank == 1 && (n == b || n == 3 * b + 2 || n == 2 * b)) {
    mx key = key_numbers(o, keys);
    counts = mx_less(key, lengths_part(mask, 0, b));  // exclusive ends
    if (n == 2 * b) counts = mx_logical_and(counts, mx_greater_equal(key, lengths_part(mask, 1, b)));
    return mx_reshape(counts, MXI(b, 1, 1, keys));
  }
  if (rank == 2 && n == b && mx_dim(mask, 1) == keys) return mx_reshape(mx_greater(mask, zero), MXI(b, 1, 1, keys));
  if (rank == 3 && n == b && mx_dim(mask, 1) == m->rows && mx_dim(mask, 2) == keys)
    return mx_reshape(mx_greater(mask, zero), MXI(b, 1, m->rows, keys));
  // A column stands for no mask in Attention.
  bool dummy = !strcmp(o->n->op_type, "Attention") && rank == 2 && (n == b || n == 1) && mx_dim(mask, 1) == 1;
  if (!dummy)
    op_fail(o, "a mask of rank %d and %d rows does not fit %d entries of %d queries and %d keys", rank, n, b, m->rows, keys);
  return NULL;
}

// What is added to the products, float32: 0 where a key counts.
static mx masked_weights(op *o, const mha *m, mx counts) {
  double filter = (double)attr_f(o->n, "mask_filter_value", -10000);
  mx zero = mx_full(o->s, MXI(1), 0, DT_F32);
  return mx_where(counts, zero, mx_scalar(zero, is_half(m->a.q) ? fmax(filter, -65504) : filter));
}

static bool mha_masks(op *o, mha *m, places at) {
  int keys = mx_dim(m->a.k, 2);
  mx mask = in(o, at.mask), bias = in(o, at.bias);
  if (bias && (mx_ndim(bias) != 4 || !attn_broadcasts(bias, m->batch, m->heads, m->rows, keys))) {
    op_fail(o, "attention_bias must have shape [batch or 1, heads or 1, %d, %d]", m->rows, keys);
    return false;
  }
  mx counts = mask ? counted_keys(o, m, mask, keys) : NULL;
  if (!mx_ok(o->s)) return false;
  m->a.bias = bias;
  if (counts) {
    mx added = masked_weights(o, m, counts);
    m->a.bias = bias ? mx_add(mx_astype(bias, DT_F32), added) : added;
  }
  if (!attr_i(o->n, "unidirectional", 0)) return true;
  if (keys - m->past != m->rows) {
    op_fail(o, "unidirectional attention of %d queries to %d new keys", m->rows, keys - m->past);
    return false;
  }
  m->a.seen = attn_causal(o->s, m->rows, keys, m->past);
  return true;
}

// ---- the cache ------------------------------------------------------------------------------------------------------------
static bool cache_fits(op *o, mx past, mx fresh) {
  if (mx_ndim(past) == 4 && mx_dim(past, 0) == mx_dim(fresh, 0) && mx_dim(past, 1) == mx_dim(fresh, 1) &&
      mx_dim(past, 3) == mx_dim(fresh, 3))
    return true;
  op_fail(o, "a past of rank %d does not fit [%d, %d, rows, %d]", mx_ndim(past), mx_dim(fresh, 0), mx_dim(fresh, 1),
          mx_dim(fresh, 3));
  return false;
}

// Writes the new rows behind the past ones in a buffer of fixed size. *used: the rows that are valid now.
static mx shared(mx buffer, mx fresh, int past, mx *used) {
  mx_ints s = mx_shape(fresh);
  int end = past + s.v[2];
  mx present = mx_slice_update(buffer, fresh, MXI(0, 0, past, 0), MXI(s.v[0], s.v[1], end, s.v[3]), MXI(1, 1, 1, 1));
  *used = mx_slice_axis(present, 2, 0, end);
  return present;
}

// Joins the past to the new keys and values in m->a. past_k may be NULL.
static bool mha_cache(op *o, mha *m, mx past_k, mx past_v, size_t past_length) {
  attn *a = &m->a;
  m->present_k = a->k;
  m->present_v = a->v;
  if (!past_k) return true;
  if (!cache_fits(o, past_k, a->k) || !cache_fits(o, past_v, a->v)) return false;
  int rows = mx_dim(past_k, 2);
  if (mx_dim(past_v, 2) != rows) op_fail(o, "%d past keys and %d past values", rows, mx_dim(past_v, 2));
  if (!in(o, past_length)) {
    m->past = rows;
    m->present_k = a->k = attn_append(past_k, a->k);
    m->present_v = a->v = attn_append(past_v, a->v);
    return mx_ok(o->s);
  }
  int64_t past;
  if (!host_int(o, past_length, &past)) return false;
  if (past < 0 || past > rows - mx_dim(a->k, 2)) {
    op_fail(o, "past_sequence_length is %lld, the buffer has %d rows", (long long)past, rows);
    return false;
  }
  m->past = (int)past;
  m->present_k = shared(past_k, a->k, m->past, &a->k);
  m->present_v = shared(past_v, a->v, m->past, &a->v);
  return mx_ok(o->s);
}

static bool qkv_fits(op *o, const mha *m) {
  const attn *a = &m->a;
  int size = mx_dim(a->q, 3), rows = mx_dim(a->k, 2);
  if (size && mx_dim(a->k, 0) == m->batch && mx_dim(a->v, 0) == m->batch && mx_dim(a->k, 1) == m->heads &&
      mx_dim(a->v, 1) == m->heads && mx_dim(a->v, 2) == rows && mx_dim(a->k, 3) == size)
    return true;
  op_fail(o, "keys [%d, %d, %d, %d] and values [%d, %d, %d, %d] do not fit %d entries of %d heads of size %d", mx_dim(a->k, 0),
          mx_dim(a->k, 1), rows, mx_dim(a->k, 3), mx_dim(a->v, 0), mx_dim(a->v, 1), mx_dim(a->v, 2), mx_dim(a->v, 3), m->batch,
          m->heads, size);
  return false;
}

static void mha_finish(op *o, mha *m, places at) {
  if (!mha_masks(o, m, at)) return;
  m->a.scale = attn_scale(o, mx_dim(m->a.q, 3));
  mx y = attn_apply(&m->a);
  if (mx_ok(o->s)) out(o, 0, attn_join(y));
}

// ---- MultiHeadAttention, DecoderMaskedMultiHeadAttention ------------------------------------------------------------------
enum { M_Q, M_K, M_V, M_BIAS, M_MASK, M_ADDED, M_PAST_K, M_PAST_V, M_PAST_LENGTH, M_INDIRECTION };
enum { D_Q, D_K, D_V, D_MASK, D_ADDED, D_PAST_K, D_PAST_V, D_PAST_LENGTH, D_BEAMS, D_INDIRECTION, D_BIAS };

// Part `part` of x [B, S, H, parts, D] as [B, H, S, D].
static mx packed_part(mx x, int part) {
  return mx_transpose(mx_squeeze(mx_slice_axis(x, 3, part, part + 1), MXI(3)), MXI(0, 2, 1, 3));
}

// The piece of the projections' bias from `at` on, as [1, H, 1, D]; NULL if it does not fit.
static mx bias_part(mx bias, int at, int heads, int size) {
  if (mx_ndim(bias) != 1 || mx_dim(bias, 0) < at + heads * size) return NULL;
  return mx_reshape(mx_slice_axis(bias, 0, at, at + heads * size), MXI(1, heads, 1, size));
}

// Keys and values that came with their heads apart already have their bias.
static bool add_biases(op *o, mha *m, mx bias, bool query_only) {
  attn *a = &m->a;
  if (!bias) return true;
  int size = mx_dim(a->q, 3), width = m->heads * size, value_size = mx_dim(a->v, 3);
  mx q = bias_part(bias, 0, m->heads, size), k = bias_part(bias, width, m->heads, size);
  mx v = bias_part(bias, 2 * width, m->heads, value_size);
  if (!q || !k || !v) {
    op_fail(o, "the bias must hold %d numbers", m->heads * (2 * size + value_size));
    return false;
  }
  a->q = mx_add(a->q, q);
  if (query_only) return true;
  a->k = mx_add(a->k, k);
  a->v = mx_add(a->v, v);
  return true;
}

static bool mha_split(op *o, mha *m) {
  mx q = in(o, M_Q), k = in(o, M_K), v = in(o, M_V);
  attn *a = &m->a;
  int h = m->heads, q_rank = mx_ndim(q), k_rank = k ? mx_ndim(k) : 0, v_rank = v ? mx_ndim(v) : 0;
  bool packed = !k && !v && q_rank == 5 && mx_dim(q, 2) == h && mx_dim(q, 3) == 3;
  bool flat_q = q_rank == 3 && mx_dim(q, 2) % h == 0;
  if (packed) {
    a->q = packed_part(q, 0);
    a->k = packed_part(q, 1);
    a->v = packed_part(q, 2);
  } else if (flat_q && !v && k_rank == 5 && mx_dim(k, 2) == h && mx_dim(k, 3) == 2) {
    a->k = packed_part(k, 0);
    a->v = packed_part(k, 1);
  } else if (flat_q && k_rank == 3 && v_rank == 3 && mx_dim(k, 2) % h == 0 && mx_dim(v, 2) % h == 0) {
    a->k = attn_split(k, h);
    a->v = attn_split(v, h);
  } else if (flat_q && k_rank == 4 && v_rank == 4) {
    a->k = k;
    a->v = v;
  } else {
    op_fail(o, "query, key and value of ranks %d, %d and %d do not split into %d heads", q_rank, k_rank, v_rank, h);
    return false;
  }
  if (!packed) a->q = attn_split(q, h);
  m->batch = mx_dim(a->q, 0);
  m->rows = mx_dim(a->q, 2);
  return qkv_fits(o, m);
}

// In a trace. mask [B, T] of ints: a key counts where it is positive.
static mx traced_mask(op *o, const mha *m, places at) {
  mx mask = in(o, at.mask), bias = in(o, at.bias);
  if (bias && mx_ndim(bias) != 4) return untraced(o, "an attention_bias of this shape");
  if (!mask) return bias;
  if (mx_ndim(mask) != 2 || mx_dim(mask, 0) != m->batch) return untraced(o, "a mask of this shape");
  mx counts = mx_expand_dims(mx_greater(mask, mx_scalar(mask, 0)), MXI(1, 2)), added = masked_weights(o, m, counts);
  return bias ? mx_add(mx_astype(bias, DT_F32), added) : added;
}

static void mha_traced(op *o, mha *m, op_cache *c, size_t past_k, places at) {
  if (mx_dtype(m->a.q) == DT_F64) untraced(o, "float64");
  bool one_way = attr_i(o->n, "unidirectional", 0) != 0;
  if (one_way && mx_dim(m->a.k, 2) != m->rows) untraced(o, "unidirectional attention of fewer queries than keys");
  mx_attend_desc d = {.q = m->a.q, .k = m->a.k, .v = m->a.v, .mask = traced_mask(o, m, at), .causal = one_way,
                      .scale = (float)attn_scale(o, mx_dim(m->a.q, 3))};
  mx past = in(o, at.past_length);
  if (past && d.mask) untraced(o, "past_sequence_length beside a mask");
  if (past) d.past_len = mx_broadcast_to(mx_reshape(mx_astype(past, DT_I32), MXI(1)), MXI(m->batch));
  if (!mx_ok(o->s)) return;
  mx y = cached_attention(o, c, &d, past_k, 1);
  out(o, 0, attn_join(y));
}

static void mha_run(op *o, size_t bias, size_t past_k, places at) {
  mha m = {.heads = (int)attr_i(o->n, "num_heads", 1)};
  if (!mha_split(o, &m)) return;
  bool apart = in(o, M_K) && mx_ndim(in(o, M_K)) == 4;
  if (apart && in(o, past_k)) op_fail(o, "keys with their heads apart and a past");
  if (!add_biases(o, &m, in(o, bias), apart)) return;
  op_cache *c = trace_cache(o);
  if (c) {
    mha_traced(o, &m, c, past_k, at);
    return;
  }
  if (!mha_cache(o, &m, in(o, past_k), in(o, past_k + 1), at.past_length)) return;
  mha_finish(o, &m, at);
  out(o, 1, m.present_k);
  out(o, 2, m.present_v);
}

static void multi_head_attention(op *o) {
  mha_run(o, M_BIAS, M_PAST_K, (places){M_MASK, M_ADDED, M_PAST_LENGTH});
}
static void decoder_masked_attention(op *o) {
  mha_run(o, D_BIAS, D_PAST_K, (places){D_MASK, D_ADDED, D_PAST_LENGTH});
}

static const char *const mha_attrs[] = {"num_heads", "scale", "mask_filter_value", "unidirectional", NULL};
static const char *const decoder_attrs[] = {"num_heads", "scale", "mask_filter_value", "past_present_share_buffer", "output_qk",
                                            NULL};

static void mha_claim_common(claim *c, size_t past_k, size_t indirection, size_t mask, size_t past_length) {
  REQUIRE(c, !has_in(c, indirection), "cache_indirection of a beam search");
  REQUIRE(c, !has_out(c, 3), "output of the products (qk)");
  REQUIRE(c, has_in(c, past_k) == has_in(c, past_k + 1), "past_key and past_value must come together");
  REQUIRE(c, !has_in(c, past_length) || has_in(c, past_k), "past_sequence_length without a past");
  REQUIRE(c, in_rank(c, M_K) != 4 || !has_in(c, past_k), "keys with their heads apart and a past");
  require_types(c, mask, DTYPE_BIT(DT_I32));
  require_types(c, past_length, DTYPE_BIT(DT_I32));
}

static void mha_claim(claim *c) {
  static const size_t floats[] = {M_K, M_V, M_BIAS, M_ADDED, M_PAST_K, M_PAST_V};
  require_known(c, mha_attrs);
  types_like(c, floats, sizeof floats / sizeof *floats);
  if (!heads_ok(c)) return;
  mha_claim_common(c, M_PAST_K, M_INDIRECTION, M_MASK, M_PAST_LENGTH);
  CLAIM_GOES_ON(c);
  int64_t queries = in_dim(c, M_Q, 1), keys = in_dim(c, M_K, in_rank(c, M_K) == 4 ? 2 : 1);
  bool one_way = attr_i(c->n, "unidirectional", 0) != 0;
  REQUIRE(c, !one_way || queries < 0 || keys < 0 || queries == keys, "unidirectional attention of %lld queries to %lld new keys",
          (long long)queries, (long long)keys);
}

static void decoder_claim(claim *c) {
  static const size_t floats[] = {D_K, D_V, D_BIAS, D_ADDED, D_PAST_K, D_PAST_V};
  require_known(c, decoder_attrs);
  types_like(c, floats, sizeof floats / sizeof *floats);
  if (!heads_ok(c)) return;
  mha_claim_common(c, D_PAST_K, D_INDIRECTION, D_MASK, D_PAST_LENGTH);
  CLAIM_GOES_ON(c);
  REQUIRE(c, has_in(c, D_K) && has_in(c, D_V), "packed query, key and value");
  bool shares = attr_i(c->n, "past_present_share_buffer", 0) != 0;
  REQUIRE(c, !has_in(c, D_PAST_K) || (shares && has_in(c, D_PAST_LENGTH)),
          "a past needs past_present_share_buffer and past_sequence_length");
}

// ---- Attention ------------------------------------------------------------------------------------------------------------
enum { T_X, T_W, T_BIAS, T_MASK, T_PAST, T_ADDED, T_PAST_LENGTH };
static const char *const attention_attrs[] = {"num_heads", "scale", "mask_filter_value", "unidirectional", "qkv_hidden_sizes",
                                              "do_rotary", "past_present_share_buffer", "rotary_embedding_dim", NULL};

static void attention_claim(claim *c) {
  static const size_t floats[] = {T_W, T_BIAS, T_PAST, T_ADDED};
  require_known(c, attention_attrs);
  types_like(c, floats, sizeof floats / sizeof *floats);
  if (!heads_ok(c)) return;
  require_types(c, T_MASK, DTYPE_BIT(DT_I32));
  REQUIRE(c, !attr_i(c->n, "do_rotary", 0), "do_rotary");
  REQUIRE(c, !attr_i(c->n, "past_present_share_buffer", 0) && !has_in(c, T_PAST_LENGTH), "past_present_share_buffer");
  REQUIRE(c, in_rank(c, T_X) < 0 || in_rank(c, T_X) == 3, "input 0 has rank %d", in_rank(c, T_X));
  REQUIRE(c, in_rank(c, T_W) < 0 || in_rank(c, T_W) == 2, "input 1 has rank %d", in_rank(c, T_W));
  REQUIRE(c, in_rank(c, T_MASK) < 4, "mask_index has rank 4");
  int64_t heads = attr_i(c->n, "num_heads", 1);
  size_t n = 0;
  const int64_t *w = attr_ints(c->n, "qkv_hidden_sizes", &n);
  if (!n) return;
  REQUIRE(c, n == 3 && w[0] > 0 && w[2] > 0 && w[0] < 1 << 28 && w[2] < 1 << 28 && w[0] == w[1] && w[0] % heads == 0 &&
          w[2] % heads == 0, "qkv_hidden_sizes do not fit %lld heads", (long long)heads);
  REQUIRE(c, w[0] == w[2] || (!has_in(c, T_PAST) && !has_out(c, 1)), "a cache of keys and values of different sizes");
}

// Projects the input and splits it; false and the scope fails where it does not fit.
static bool attention_split(op *o, mha *m) {
  mx x = in(o, T_X), w = in(o, T_W), bias = in(o, T_BIAS);
  size_t n = 0;
  const int64_t *sizes = attr_ints(o->n, "qkv_hidden_sizes", &n);
  int width = mx_dim(w, 1), size = n ? (int)sizes[0] : width / 3, value_size = width - 2 * size;
  bool fits = mx_ndim(x) == 3 && mx_ndim(w) == 2 && mx_dim(x, 2) == mx_dim(w, 0) && size > 0 && size % m->heads == 0 &&
              (n ? value_size == sizes[2] : width % 3 == 0) && (!bias || (mx_ndim(bias) == 1 && mx_dim(bias, 0) == width));
  if (!fits) {
    op_fail(o, "weights [%d, %d] and bias do not fit an input of width %d and %d heads", mx_dim(w, 0), width, mx_dim(x, -1),
            m->heads);
    return false;
  }
  mx y = mx_linear(x, w, bias);
  m->a.q = attn_split(mx_slice_axis(y, 2, 0, size), m->heads);
  m->a.k = attn_split(mx_slice_axis(y, 2, size, 2 * size), m->heads);
  m->a.v = attn_split(mx_slice_axis(y, 2, 2 * size, width), m->heads);
  m->batch = mx_dim(x, 0);
  m->rows = mx_dim(x, 1);
  return true;
}

static mx half_of(mx past, int i) { return mx_squeeze(mx_slice_axis(past, 0, i, i + 1), MXI(0)); }

static void microsoft_attention(op *o) {
  mha m = {.heads = (int)attr_i(o->n, "num_heads", 1)};
  mx past = in(o, T_PAST);
  if (!attention_split(o, &m)) return;
  if (past && (mx_ndim(past) != 5 || mx_dim(past, 0) != 2)) {
    op_fail(o, "past must have shape [2, %d, %d, rows, head size]", m.batch, m.heads);
    return;
  }
  if (!mha_cache(o, &m, past ? half_of(past, 0) : NULL, past ? half_of(past, 1) : NULL, SIZE_MAX)) return;
  mha_finish(o, &m, (places){T_MASK, T_ADDED, SIZE_MAX});
  mx both[2] = {m.present_k, m.present_v};
  if (mx_ok(o->s) && wants(o, 1)) out(o, 1, mx_stack(o->s, both, 2, 0));
}

const op_row ops_mha[] = {
    OP("com.microsoft", "MultiHeadAttention", 1, ANY, mha_claim, multi_head_attention, .types = DTS_FLOAT,
       .host_in = IN(M_PAST_LENGTH), .traits = OP_KV, .past_in = M_PAST_K, .present_out = 1,
       .limits = "no beam search; no output of the products; unidirectional with as many keys as queries only"),
    OP("com.microsoft", "DecoderMaskedMultiHeadAttention", 1, ANY, decoder_claim, decoder_masked_attention,
       .types = DTS_FLOAT, .host_in = IN(D_PAST_LENGTH), .traits = OP_KV, .past_in = D_PAST_K, .present_out = 1,
       .limits = "no beam search; no packed inputs; no output of the products; a past shares its buffer"),
    OP("com.microsoft", "Attention", 1, ANY, attention_claim, microsoft_attention, .types = DTS_FLOAT, .traits = OP_KV,
       .limits = "no do_rotary; no shared buffer of the past; no mask of rank 4; queries as wide as keys"),
    {0}};
