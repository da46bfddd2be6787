// DynamicSparseAttention of com.microsoft: attention to the keys that indices select, of the cache or of a sequence beside it.
#include <string.h>

#include "base/mem.h"
#include "ops/attn.h"

enum { S_Q, S_K, S_V, S_PAST_K, S_PAST_V, S_AUX_K, S_AUX_V, S_INDICES, S_COUNTS, S_LENGTHS, S_TOTAL, S_COS, S_SIN, S_POSITIONS, S_Q_NORM,
       S_K_NORM, S_SINK };
enum { MAX_TOKENS = 1 << 20 };

typedef struct selection {
  mx q, k, v;  // [B, heads, rows, size]
  int batch, rows, heads, kv_heads, size, total, capacity, end;  // end: rows of the cache that are read
  int64_t *past;  // tokens before the new ones, [B]
} selection;

// ---- claiming -----------------------------------------------------------------------------------------------------------
static bool says(const node *n, const char *name, const char *dflt, const char *want) { return !strcmp(attr_s(n, name, dflt), want); }
static bool is_local(const node *n) { return says(n, "attention_mode", "selected_only", "local_plus_selected"); }

static void claim_inputs(claim *c) {
  dtype t = in_type(c, S_Q);
  for (size_t i = S_K; i <= S_SINK; i++)
    require_types(c, i, i >= S_INDICES && i <= S_TOTAL ? DTYPE_BIT(DT_I32) : DTYPE_BIT(i == S_POSITIONS ? DT_I64 : t));
  CLAIM_GOES_ON(c);
  for (size_t i = S_INDICES; i <= S_TOTAL; i++) REQUIRE(c, has_in(c, i), "input %zu is missing", i);
  REQUIRE(c, has_in(c, S_K) == has_in(c, S_V), "key and value must come together");
  REQUIRE(c, has_in(c, S_PAST_K) == has_in(c, S_PAST_V), "past_key and past_value must come together");
  REQUIRE(c, has_in(c, S_Q_NORM) == has_in(c, S_K_NORM), "q_norm_weight and k_norm_weight must come together");
  REQUIRE(c, !attr_i(c->n, "do_rotary", 0) || (has_in(c, S_COS) && has_in(c, S_SIN)), "do_rotary needs cos_cache and sin_cache");
}

static void selected_claim(claim *c) {
  const node *n = c->n;
  claim_inputs(c);
  CLAIM_GOES_ON(c);
  int64_t heads = attr_i(n, "num_heads", 0), kv = attr_i(n, "kv_num_heads", 0), window = attr_i(n, "local_window_size", -1);
  bool local = is_local(n), auxiliary = says(n, "selected_kv_source", "main", "auxiliary");
  REQUIRE(c, heads > 0 && heads < 65536 && kv > 0 && heads % kv == 0, "%lld heads over %lld key heads", (long long)heads, (long long)kv);
  REQUIRE(c, local || says(n, "attention_mode", "selected_only", "selected_only"), "attention_mode '%s'", attr_s(n, "attention_mode", ""));
  REQUIRE(c, local == auxiliary, "selected_kv_source '%s' with this attention_mode", attr_s(n, "selected_kv_source", "main"));
  REQUIRE(c, attr_i(n, "is_causal", 1) == 1, "is_causal is 0");
  REQUIRE(c, !local || (window > 0 && window < 1 << 30), "local_window_size %lld", (long long)window);
  REQUIRE(c, !local || (has_in(c, S_AUX_K) && (has_in(c, S_AUX_V) || attr_i(n, "auxiliary_kv_shared", 0))), "auxiliary keys or values are missing");
  int64_t offset = attr_i(n, "rotary_offset", 0);
  REQUIRE(c, offset >= 0 && offset < 1 << 20, "rotary_offset %lld", (long long)offset);
}

// ---- query, key, value and their places -----------------------------------------------------------------------------------
static bool split(op *o, selection *s) {
  mx q = in(o, S_Q), k = in(o, S_K), v = in(o, S_V);
  int groups = s->heads + (k ? 0 : 2 * s->kv_heads), width = mx_dim(q, 2), size = s->size = width / groups;
  bool fits = mx_ndim(q) == 3 && size && width % groups == 0;
  if (fits && !k) attn_unpack(&q, &k, &v, s->heads, s->kv_heads, size);
  s->batch = mx_dim(q, 0);
  s->rows = mx_dim(q, 1);
  fits = fits && mx_ndim(k) == 3 && mx_ndim(v) == 3 && mx_dim(k, 2) == s->kv_heads * size && mx_dim(v, 2) == s->kv_heads * size &&
         mx_dim(k, 1) == s->rows && mx_dim(v, 1) == s->rows && mx_dim(k, 0) == s->batch && mx_dim(v, 0) == s->batch;
  if (!fits) return op_fail(o, "query of width %d, keys and values do not split into %d and %d heads", width, s->heads, s->kv_heads), false;
  s->q = attn_split(q, s->heads);
  s->k = attn_split(k, s->kv_heads);
  s->v = attn_split(v, s->kv_heads);
  if (!in(o, S_Q_NORM)) return true;
  float eps = attr_f(o->n, "qk_norm_epsilon", 1e-6f);
  s->q = mx_rms_norm(s->q, in(o, S_Q_NORM), eps);
  s->k = mx_rms_norm(s->k, in(o, S_K_NORM), eps);
  return mx_ok(o->s);
}

static bool cache_fits(const selection *s, mx cache, int rows) {
  return !cache || (mx_ndim(cache) == 4 && mx_dim(cache, 0) == s->batch && mx_dim(cache, 1) == s->kv_heads && mx_dim(cache, 3) == s->size &&
                    (rows < 0 || mx_dim(cache, 2) == rows));
}

static bool lengths(op *o, selection *s) {
  mx past = in(o, S_PAST_K);
  int64_t total = 0;
  size_t n = 0;
  int held = past ? mx_dim(past, 2) : 0;
  if (!host_int(o, S_TOTAL, &total) || !fits_int(o, total, &s->total)) return false;
  if (!cache_fits(s, past, -1) || !cache_fits(s, in(o, S_PAST_V), held)) return op_fail(o, "the past does not fit the query"), false;
  s->capacity = held > s->total ? held : s->total;
  s->past = mem_alloc(((size_t)s->batch + 1) * sizeof *s->past);
  if (!s->past) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d lengths", s->batch), false;
  if (!host_ints(o, S_LENGTHS, s->past, (size_t)s->batch, &n)) return false;
  bool fits = n == (size_t)s->batch;
  for (int b = 0; b < s->batch && fits; b++) {
    s->past[b] += 1 - s->rows;
    fits = s->past[b] >= 0 && s->past[b] <= held && s->past[b] + s->rows <= s->total;
    if (fits && s->past[b] + s->rows > s->end) s->end = (int)s->past[b] + s->rows;
  }
  if (!fits) op_fail(o, "seqlens_k does not fit %d new tokens, %d past rows and a total of %d", s->rows, held, s->total);
  return fits;
}

// The position of each new token, int32 [B, rows], checked against the rows of the caches of angles.
static mx positions(op *o, const selection *s, int limit) {
  size_t n = (size_t)s->batch * (size_t)s->rows, got = n;
  int64_t *v = n < MAX_TOKENS ? mem_alloc((n + 1) * sizeof *v) : NULL;
  bool ok = v && (!in(o, S_POSITIONS) || (host_ints(o, S_POSITIONS, v, n, &got) && got == n));
  if (!ok && mx_ok(o->s)) op_fail(o, "position_ids do not fit %zu tokens", n);
  for (size_t i = 0; ok && i < n; i++) {
    if (!in(o, S_POSITIONS)) v[i] = s->past[i / (size_t)s->rows] + (int64_t)(i % (size_t)s->rows);
    ok = v[i] >= 0 && v[i] < limit;
    if (!ok) op_fail(o, "position %lld is not in the %d rows of cos_cache", (long long)v[i], limit);
  }
  mx at = ok ? mx_reshape(mx_i64s(o->s, v, (int)n), MXI(s->batch, s->rows)) : NULL;
  mem_free(v);
  return at;
}

static mx turned(op *o, mx x, mx cos, mx sin) {
  int offset = (int)attr_i(o->n, "rotary_offset", 0), size = mx_dim(x, 3);
  bool interleaved = attr_i(o->n, "rotary_interleaved", 0) != 0;
  if (!offset) return attn_rotate(x, cos, sin, interleaved);
  mx parts[2] = {mx_slice_axis(x, 3, 0, offset), attn_rotate(mx_slice_axis(x, 3, offset, size), cos, sin, interleaved)};
  return mx_concatenate(o->s, parts, 2, 3);
}

static bool rotate(op *o, selection *s) {
  mx cos = in(o, S_COS), sin = in(o, S_SIN);
  int64_t offset = attr_i(o->n, "rotary_offset", 0);
  bool fits = mx_ndim(cos) == 2 && mx_ndim(sin) == 2 && mx_dim(sin, 0) == mx_dim(cos, 0) && mx_dim(sin, 1) == mx_dim(cos, 1) &&
              offset + 2 * (int64_t)mx_dim(cos, 1) <= s->size;
  if (!fits) return op_fail(o, "cos_cache and sin_cache do not fit heads of %d", s->size), false;
  mx at = positions(o, s, mx_dim(cos, 0));
  if (!at) return false;
  cos = mx_expand_dims(mx_take(cos, at, 0), MXI(1));
  sin = mx_expand_dims(mx_take(sin, at, 0), MXI(1));
  s->q = turned(o, s->q, cos, sin);
  s->k = turned(o, s->k, cos, sin);
  return mx_ok(o->s);
}

// ---- the cache and what is seen of it -------------------------------------------------------------------------------------
static mx present(const selection *s, mx past, mx fresh) {
  mx cache = past ? past : mx_slice_axis(fresh, 2, 0, 0);
  int missing = s->capacity - mx_dim(cache, 2);
  if (missing > 0) cache = mx_pad(cache, MXI(2), MXI(0), MXI(missing), mx_scalar(cache, 0), "constant");
  for (int b = 0; b < s->batch && s->rows; b++) {
    int at = (int)s->past[b];
    cache = mx_slice_update(cache, mx_slice_axis(fresh, 0, b, b + 1), MXI(b, 0, at, 0), MXI(b + 1, s->kv_heads, at + s->rows, s->size),
                            MXI(1, 1, 1, 1));
  }
  return cache;
}

// Bool [B, 1, rows, keys]: keys up to each query, of which a window is seen (window < 0: all).
static mx causal(op *o, const selection *s, int64_t window) {
  mx key = mx_reshape(mx_arange(o->s, 0, s->end, 1, DT_I64), MXI(1, 1, 1, s->end));
  mx query = mx_reshape(mx_arange(o->s, 0, s->rows, 1, DT_I64), MXI(1, 1, s->rows, 1));
  query = mx_add(query, mx_reshape(mx_i64s(o->s, s->past, s->batch), MXI(s->batch, 1, 1, 1)));
  mx seen = mx_less_equal(key, query);
  return window < 0 ? seen : mx_logical_and(seen, mx_greater(key, mx_sub(query, mx_scalar_i64(o->s, window, DT_I64))));
}

// Bool [B, 1, rows, keys]: what the first selected_counts indices of each row name; an index out of range names nothing.
static mx chosen(op *o, const selection *s, int keys) {
  mx at = in(o, S_INDICES), count = in(o, S_COUNTS);
  int tokens = s->batch * s->rows;
  if (mx_ndim(at) != 2 || mx_dim(at, 0) != tokens || mx_size(count) != (size_t)tokens)
    return op_fail(o, "selected_indices or selected_counts do not fit %d tokens", tokens);
  int width = mx_dim(at, 1);
  mx marks = mx_full(o->s, MXI(tokens, keys + 1), 0, DT_I32), last = mx_scalar_i64(o->s, keys, DT_I32);
  if (width) {
    mx valid = mx_less(mx_arange(o->s, 0, width, 1, DT_I32), mx_reshape(count, MXI(tokens, 1)));
    valid = mx_logical_and(valid, mx_logical_and(mx_greater_equal(at, mx_scalar(at, 0)), mx_less(at, last)));
    at = mx_where(valid, at, last);
    marks = mx_put_along_axis(marks, at, mx_broadcast_to(mx_scalar_i64(o->s, 1, DT_I32), MXI(tokens, width)), 1);
  }
  marks = mx_slice_axis(marks, 1, 0, keys);
  return mx_reshape(mx_not_equal(marks, mx_scalar(marks, 0)), MXI(s->batch, 1, s->rows, keys));
}

static mx sink_of(op *o, const selection *s) {
  mx sink = in(o, S_SINK);
  if (sink && mx_size(sink) != (size_t)s->heads) return op_fail(o, "head_sink must hold %d numbers", s->heads);
  if (sink) return mx_reshape(mx_astype(sink, DT_F32), MXI(1, s->heads, 1, 1));
  return attr_i(o->n, "smooth_softmax", 0) ? mx_full(o->s, MXI(1, s->heads, 1, 1), 0, DT_F32) : NULL;
}

static mx after(mx a, mx b, int axis) {
  mx both[2] = {a, b};
  return mx_concatenate(mx_scope_of(a), both, 2, axis);
}

static void attend(op *o, const selection *s) {
  mx k = present(s, in(o, S_PAST_K), s->k), v = present(s, in(o, S_PAST_V), s->v), sink = sink_of(o, s);
  attn a = {.q = s->q, .k = mx_slice_axis(k, 2, 0, s->end), .v = mx_slice_axis(v, 2, 0, s->end), .scale = attn_scale(o, s->size), .sink = sink, .guarded = true};
  if (is_local(o->n)) {
    mx more = in(o, S_AUX_K), values = attr_i(o->n, "auxiliary_kv_shared", 0) && !in(o, S_AUX_V) ? more : in(o, S_AUX_V);
    if (!cache_fits(s, more, -1) || !cache_fits(s, values, mx_dim(more, 2))) op_fail(o, "the auxiliary keys or values do not fit the query");
    if (!mx_ok(o->s)) return;
    a.seen = after(causal(o, s, attr_i(o->n, "local_window_size", -1)), chosen(o, s, mx_dim(more, 2)), 3);
    a.k = after(a.k, more, 2);
    a.v = after(a.v, values, 2);
  } else {
    a.seen = mx_logical_and(causal(o, s, -1), chosen(o, s, s->end));
  }
  out(o, 0, mx_ok(o->s) ? attn_join(attn_apply(&a)) : s->q);
  out(o, 1, k);
  out(o, 2, v);
}

static void selected(op *o) {
  selection s = {.heads = (int)attr_i(o->n, "num_heads", 1), .kv_heads = (int)attr_i(o->n, "kv_num_heads", 1)};
  if (split(o, &s) && lengths(o, &s) && (!attr_i(o->n, "do_rotary", 0) || rotate(o, &s))) attend(o, &s);
  mem_free(s.past);
}

const op_row ops_selected[] = {OP("com.microsoft", "DynamicSparseAttention", 1, ANY, selected_claim, selected,
                                  .types = DTS_FLOAT, .host_in = IN(S_LENGTHS) | IN(S_TOTAL) | IN(S_POSITIONS),
                                  .traits = OP_KV | OP_NO_TRACE,
                                  .limits = "causal; attention_mode and selected_kv_source fit together; caches and indices are given"),
                               {0}};
