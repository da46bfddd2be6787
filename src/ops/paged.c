// PagedAttention of com.microsoft: sequences one behind the other, their keys and values in blocks of a common cache.
// Lengths, block tables and slots are read on the host and checked before anything is moved.
#include <string.h>

#include "ops/attn.h"

enum { P_Q, P_K, P_V, P_KEY_CACHE, P_VALUE_CACHE, P_STARTS, P_PAST, P_TABLE, P_COS, P_SIN, P_SLOTS, P_SINK, P_Q_NORM, P_K_NORM,
       P_K_SCALE, P_V_SCALE, P_METADATA };
enum { MAX_NUMBERS = 1 << 24 };

typedef struct paged {
  mx q, k, v;                 // [1, H, tokens, D]
  mx key_rows, value_rows;    // the caches as [slots, Hkv, D]
  int heads, kv_heads, tokens, batch, blocks, block, table_width;
  int64_t *starts, *past, *table, *slots, *at;  // at: position of each token; slots: where it is written, -1 nowhere
} paged;

// ---- claiming -----------------------------------------------------------------------------------------------------------
static const char *const paged_attrs[] = {
    "num_heads", "kv_num_heads", "scale", "softcap", "do_rotary", "rotary_interleaved", "rotary_offset", "local_window_size", "is_causal",
    "kv_cache_layout", "k_cache_dtype", "v_cache_dtype", "k_quant_type", "v_quant_type", "qk_norm_epsilon", "v_head_size", NULL};

static bool text_is(const node *n, const char *name, const char *want) { return !strcmp(attr_s(n, name, want), want); }

static void paged_claim_inputs(claim *c) {
  dtype t = in_type(c, P_Q);
  REQUIRE(c, !has_in(c, P_K_SCALE) && !has_in(c, P_V_SCALE), "a quantised cache");
  for (size_t i = P_K; i <= P_K_NORM; i++)
    require_types(c, i, (i >= P_STARTS && i <= P_TABLE) || i == P_SLOTS ? DTYPE_BIT(DT_I32) : DTYPE_BIT(t));
  CLAIM_GOES_ON(c);
  REQUIRE(c, has_in(c, P_K) == has_in(c, P_V), "key and value must come together");
  REQUIRE(c, has_in(c, P_VALUE_CACHE) && text_is(c->n, "kv_cache_layout", "SEPARATE"), "kv_cache_layout is not SEPARATE");
  REQUIRE(c, has_out(c, 1) && has_out(c, 2), "caches without an output");
  REQUIRE(c, has_in(c, P_Q_NORM) == has_in(c, P_K_NORM), "q_norm_weight and k_norm_weight must come together");
}

static void paged_claim(claim *c) {
  require_known(c, paged_attrs);
  CLAIM_GOES_ON(c);
  paged_claim_inputs(c);
  CLAIM_GOES_ON(c);
  const char *own = in_type(c, P_Q) == DT_F16 ? "float16" : "bfloat16";
  REQUIRE(c, (text_is(c->n, "k_cache_dtype", "") || text_is(c->n, "k_cache_dtype", own)) &&
                 (text_is(c->n, "v_cache_dtype", "") || text_is(c->n, "v_cache_dtype", own)) && text_is(c->n, "k_quant_type", "NONE") &&
                 text_is(c->n, "v_quant_type", "NONE"),
          "a quantised cache");
  int64_t heads = attr_i(c->n, "num_heads", 0), kv = attr_i(c->n, "kv_num_heads", 0);
  REQUIRE(c, heads > 0 && heads < 65536 && kv > 0 && heads % kv == 0, "%lld heads over %lld key heads", (long long)heads, (long long)kv);
  REQUIRE(c, attr_i(c->n, "local_window_size", -1) == -1, "local_window_size");
  REQUIRE(c, !attr_i(c->n, "rotary_offset", 0), "rotary_offset");
  REQUIRE(c, !attr_has(c->n, "v_head_size"), "v_head_size");
  REQUIRE(c, !attr_i(c->n, "do_rotary", 0) || (has_in(c, P_COS) && has_in(c, P_SIN)), "do_rotary needs cos_cache and sin_cache");
}

// ---- inputs ---------------------------------------------------------------------------------------------------------------
static mx heads_apart(mx x, int heads) { return attn_split(mx_expand_dims(x, MXI(0)), heads); }

static bool paged_split(op *o, paged *p) {
  mx q = in(o, P_Q), k = in(o, P_K), v = in(o, P_V), kc = in(o, P_KEY_CACHE), vc = in(o, P_VALUE_CACHE);
  int groups = p->heads + (k ? 0 : 2 * p->kv_heads), width = mx_dim(q, -1), size = width / groups;
  bool fits = mx_ndim(q) == 2 && size && width % groups == 0;
  if (fits && !k) attn_unpack(&q, &k, &v, p->heads, p->kv_heads, size);
  p->tokens = mx_dim(q, 0);
  p->blocks = mx_dim(kc, 0);
  p->block = mx_dim(kc, 1);
  fits = fits && mx_ndim(k) == 2 && mx_ndim(v) == 2 && mx_dim(k, 0) == p->tokens && mx_dim(v, 0) == p->tokens &&
         mx_dim(k, 1) == p->kv_heads * size && mx_dim(v, 1) == p->kv_heads * size && mx_ndim(kc) == 4 && mx_ndim(vc) == 4 && p->block > 0 &&
         mx_dim(kc, 2) == p->kv_heads && mx_dim(kc, 3) == size && (int64_t)p->blocks * p->block < MAX_NUMBERS;
  for (int i = 0; i < 4 && fits; i++) fits = mx_dim(kc, i) == mx_dim(vc, i);
  if (!fits) {
    op_fail(o, "query of width %d, keys, values and caches do not fit %d and %d heads", width, p->heads, p->kv_heads);
    return false;
  }
  p->q = heads_apart(q, p->heads);
  p->k = heads_apart(k, p->kv_heads);
  p->v = heads_apart(v, p->kv_heads);
  p->key_rows = mx_flatten(kc, 0, 1);
  p->value_rows = mx_flatten(vc, 0, 1);
  return true;
}

// Input i as exactly n host integers, to be freed with mem_free; NULL on failure.
static int64_t *numbers(op *o, size_t i, size_t n) {
  size_t got = 0;
  int64_t *v = n < MAX_NUMBERS ? mem_alloc((n + 1) * sizeof *v) : NULL;
  if (!v) op_fail(o, "no memory for %zu numbers of input %zu", n, i);
  bool ok = v && host_ints(o, i, v, n, &got);
  if (ok && got == n) return v;
  if (ok) op_fail(o, "input %zu holds %zu numbers instead of %zu", i, got, n);
  mem_free(v);
  return NULL;
}

static bool paged_numbers(op *o, paged *p) {
  mx table = in(o, P_TABLE);
  p->batch = mx_dim(in(o, P_PAST), 0);
  p->table_width = mx_dim(table, 1);
  size_t b = (size_t)p->batch, n = (size_t)p->tokens;
  if (mx_ndim(table) != 2 || mx_dim(table, 0) != p->batch || !n || n >= MAX_NUMBERS) {
    op_fail(o, "block_table of %d rows for %d entries and %zu tokens", mx_dim(table, 0), p->batch, n);
    return false;
  }
  p->starts = numbers(o, P_STARTS, b + 1);
  p->past = p->starts ? numbers(o, P_PAST, b) : NULL;
  p->table = p->past ? numbers(o, P_TABLE, mx_size(table)) : NULL;
  if (p->table) p->slots = in(o, P_SLOTS) ? numbers(o, P_SLOTS, n) : mem_alloc(n * sizeof *p->slots);
  if (p->slots) p->at = mem_alloc(n * sizeof *p->at);
  if (!p->at) op_fail(o, "lengths and tables of %d entries cannot be read", p->batch);
  return p->at != NULL;
}

// The slot of entry b's row j; -1 where its table does not tell.
static int64_t slot_of(const paged *p, int b, int64_t j) {
  int64_t column = j / p->block;
  if (column >= p->table_width) return -1;
  int64_t block = p->table[(int64_t)b * p->table_width + column];
  return block < 0 || block >= p->blocks ? -1 : block * p->block + j % p->block;
}

static bool paged_places(op *o, paged *p) {
  bool given = in(o, P_SLOTS) != NULL, ok = p->starts[0] == 0 && p->starts[p->batch] == p->tokens;
  for (int b = 0; b < p->batch && ok; b++) {
    int64_t from = p->starts[b], to = p->starts[b + 1];
    ok = from <= to && to <= p->tokens && p->past[b] >= 0 && p->past[b] + to - from < MAX_NUMBERS;
    for (int64_t i = from; i < to && ok; i++) p->at[i] = p->past[b] + i - from;
    for (int64_t j = 0; from < to && ok && j < p->past[b] + to - from; j++) ok = slot_of(p, b, j) >= 0;
    for (int64_t i = from; i < to && ok; i++) {
      if (!given) p->slots[i] = slot_of(p, b, p->at[i]);
      ok = p->slots[i] >= -1 && p->slots[i] < (int64_t)p->blocks * p->block;
    }
    if (!ok) op_fail(o, "past_seqlens, block_table or slot_mapping of entry %d point outside of %d blocks", b, p->blocks);
  }
  if (!ok && mx_ok(o->s)) op_fail(o, "cumulative_sequence_length does not rise from 0 to the %d tokens", p->tokens);
  return ok;
}

// ---- running ----------------------------------------------------------------------------------------------------------------
static bool paged_turn(op *o, paged *p) {
  if (in(o, P_Q_NORM)) {
    float eps = attr_f(o->n, "qk_norm_epsilon", 1e-6f);
    p->q = mx_rms_norm(p->q, in(o, P_Q_NORM), eps);
    p->k = mx_rms_norm(p->k, in(o, P_K_NORM), eps);
  }
  if (!attr_i(o->n, "do_rotary", 0)) return true;
  mx cos = in(o, P_COS), sin = in(o, P_SIN), at = mx_i64s(o->s, p->at, p->tokens);
  bool fits = mx_ndim(cos) == 2 && mx_ndim(sin) == 2 && mx_dim(cos, 0) == mx_dim(sin, 0) && mx_dim(cos, 1) == mx_dim(sin, 1) &&
              2 * mx_dim(cos, 1) <= mx_dim(p->q, 3);
  for (int i = 0; i < p->tokens && fits; i++) fits = p->at[i] < mx_dim(cos, 0);
  if (!fits) {
    op_fail(o, "cos_cache and sin_cache must be two [positions, up to %d] tensors", mx_dim(p->q, 3) / 2);
    return false;
  }
  bool interleaved = attr_i(o->n, "rotary_interleaved", 0) != 0;
  cos = mx_take(cos, at, 0);
  sin = mx_take(sin, at, 0);
  p->q = attn_rotate(p->q, cos, sin, interleaved);
  p->k = attn_rotate(p->k, cos, sin, interleaved);
  return true;
}

// The rows of a cache with the new tokens [1, Hkv, tokens, D] in their slots.
static mx written(op *o, const paged *p, mx rows, mx fresh) {
  int64_t *v = mem_alloc(2 * (size_t)p->tokens * sizeof *v);
  int n = 0;
  if (!v) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
  for (int i = 0; i < p->tokens; i++) {
    if (p->slots[i] < 0) continue;
    v[n] = p->slots[i];
    v[p->tokens + n++] = i;
  }
  if (n) {
    mx slots = mx_i64s(o->s, v, n), which = mx_i64s(o->s, v + p->tokens, n);
    mx kept = mx_take(mx_squeeze(fresh, MXI(0)), which, 1);  // [Hkv, n, D]
    kept = mx_expand_dims(mx_transpose(kept, MXI(1, 0, 2)), MXI(1));
    rows = mx_scatter(rows, &slots, 1, kept, MXI(0), MX_SET);
  }
  mem_free(v);
  return rows;
}

static mx gathered(mx rows, mx slots) { return mx_expand_dims(mx_transpose(mx_take(rows, slots, 0), MXI(1, 0, 2)), MXI(0)); }

static mx entry_result(op *o, const paged *p, int b) {
  int from = (int)p->starts[b], to = (int)p->starts[b + 1], past = (int)p->past[b], keys = past + to - from;
  int64_t *v = mem_alloc((size_t)keys * sizeof *v);
  if (!v) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
  for (int j = 0; j < keys; j++) v[j] = slot_of(p, b, j);
  mx slots = mx_i64s(o->s, v, keys);
  mem_free(v);
  attn a = {.q = mx_slice_axis(p->q, 2, from, to), .k = gathered(p->key_rows, slots), .v = gathered(p->value_rows, slots)};
  a.scale = attn_scale(o, mx_dim(p->q, 3));
  a.cap = (double)attr_f(o->n, "softcap", 0);
  if (attr_i(o->n, "is_causal", 1)) a.seen = attn_causal(o->s, to - from, keys, past);
  if (in(o, P_SINK)) a.sink = mx_reshape(in(o, P_SINK), MXI(1, p->heads, 1, 1));
  return attn_join(attn_apply(&a));
}

static void paged_run(op *o, paged *p) {
  if (!paged_places(o, p) || !paged_turn(o, p)) return;
  p->key_rows = written(o, p, p->key_rows, p->k);
  p->value_rows = written(o, p, p->value_rows, p->v);
  mx *ys = mem_alloc(((size_t)p->batch + 1) * sizeof *ys);
  size_t n = 0;
  if (!ys) mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
  for (int b = 0; ys && b < p->batch && mx_ok(o->s); b++)
    if (p->starts[b] < p->starts[b + 1]) ys[n++] = entry_result(o, p, b);
  if (mx_ok(o->s)) {
    out(o, 0, mx_squeeze(mx_concatenate(o->s, ys, n, 1), MXI(0)));
    out(o, 1, mx_reshape(p->key_rows, mx_shape(in(o, P_KEY_CACHE))));
    out(o, 2, mx_reshape(p->value_rows, mx_shape(in(o, P_VALUE_CACHE))));
  }
  mem_free(ys);
}

static void paged_attention(op *o) {
  paged p = {.heads = (int)attr_i(o->n, "num_heads", 1), .kv_heads = (int)attr_i(o->n, "kv_num_heads", 1)};
  if (paged_split(o, &p) && paged_numbers(o, &p)) paged_run(o, &p);
  mem_free(p.starts);
  mem_free(p.past);
  mem_free(p.table);
  mem_free(p.slots);
  mem_free(p.at);
}

const op_row ops_paged[] = {OP("com.microsoft", "PagedAttention", 1, ANY, paged_claim, paged_attention,
                               .types = DTS_FLOAT, .host_in = IN(P_STARTS) | IN(P_PAST) | IN(P_TABLE) | IN(P_SLOTS),
                               .traits = OP_KV,
                               .limits = "no quantised cache; no local_window_size, rotary_offset or v_head_size; kv_cache_layout is SEPARATE"),
                            {0}};
