// GroupQueryAttention of com.microsoft: attention over a cache of keys and values, with grouped heads.
#include "ops/attn.h"
#include "ops/cached.h"
#include "ops/index.h"

enum { G_Q, G_K, G_V, G_PAST_K, G_PAST_V, G_LENGTHS, G_TOTAL, G_COS, G_SIN, G_POSITIONS, G_BIAS, G_SINK, G_K_SCALE,
       G_V_SCALE, G_Q_NORM, G_K_NORM };
static const char *const gqa_attrs[] = {
    "num_heads", "kv_num_heads", "scale", "softcap", "do_rotary", "rotary_interleaved", "local_window_size",
    "smooth_softmax", "causal", "sliding_window_cache", "qk_output", "qk_norm_epsilon", "k_quant_type", "v_quant_type",
    "kv_cache_bit_width", NULL};

// ---- claiming -----------------------------------------------------------------------------------------------------------
static void gqa_claim_types(claim *c) {
  dtype t = in_type(c, G_Q);
  REQUIRE(c, !has_in(c, G_K_SCALE) && !has_in(c, G_V_SCALE), "a quantised cache");
  for (size_t i = G_K; i <= G_K_NORM; i++)
    if (i != G_LENGTHS && i != G_TOTAL && i != G_POSITIONS)
      REQUIRE(c, !has_in(c, i) || in_type(c, i) == t, "input %zu has type %s, the query %s", i,
              dtype_name(in_type(c, i)), dtype_name(t));
  require_types(c, G_LENGTHS, DTYPE_BIT(DT_I32) | DTYPE_BIT(DT_I64));
  require_types(c, G_TOTAL, DTYPE_BIT(DT_I32) | DTYPE_BIT(DT_I64));
}

static void gqa_claim_inputs(claim *c) {
  REQUIRE(c, has_in(c, G_LENGTHS) && has_in(c, G_TOTAL), "seqlens_k and total_sequence_length are needed");
  REQUIRE(c, has_in(c, G_K) == has_in(c, G_V), "key and value must come together");
  REQUIRE(c, has_in(c, G_PAST_K) == has_in(c, G_PAST_V), "past_key and past_value must come together");
  REQUIRE(c, has_in(c, G_Q_NORM) == has_in(c, G_K_NORM), "q_norm_weight and k_norm_weight must come together");
  bool rotary = attr_i(c->n, "do_rotary", 0) != 0;
  REQUIRE(c, !rotary || (has_in(c, G_COS) && has_in(c, G_SIN)), "do_rotary needs cos_cache and sin_cache");
  for (size_t i = G_Q; i <= G_V; i++)
    REQUIRE(c, in_rank(c, i) == 3 || in_rank(c, i) < 0, "input %zu has rank %d", i, in_rank(c, i));
  int64_t q = in_dim(c, G_Q, 1), k = in_dim(c, G_K, 1);
  REQUIRE(c, q < 0 || k < 0 || q == k, "%lld keys for %lld queries", (long long)k, (long long)q);
}

static void gqa_claim(claim *c) {
  require_known(c, gqa_attrs);
  gqa_claim_types(c);
  gqa_claim_inputs(c);
  CLAIM_GOES_ON(c);
  int64_t heads = attr_i(c->n, "num_heads", 0), kv_heads = attr_i(c->n, "kv_num_heads", 0);
  REQUIRE(c, heads > 0 && heads < 65536 && kv_heads > 0 && heads % kv_heads == 0, "%lld heads over %lld key heads",
          (long long)heads, (long long)kv_heads);
  int64_t window = attr_i(c->n, "local_window_size", -1);
  bool causal = attr_i(c->n, "causal", 1) != 0;
  REQUIRE(c, window == -1 || (window > 0 && causal), "local_window_size %lld", (long long)window);
  bool slides = attr_i(c->n, "sliding_window_cache", 0) != 0;
  REQUIRE(c, !slides || (window > 0 && has_in(c, G_PAST_K)), "sliding_window_cache needs a window and a past");
  REQUIRE(c, window < 1 << 30, "local_window_size %lld", (long long)window);
  REQUIRE(c, !attr_i(c->n, "qk_output", 0) && !has_out(c, 3), "output of the products (qk_output)");
}

// ---- lengths ------------------------------------------------------------------------------------------------------------
enum { GQA_MAX_BATCH = 4096 };

typedef struct gqa_plan {
  int batch, rows, heads, kv_heads;  // rows: new tokens of each entry
  int total;                         // the longest entry, new tokens included
  int capacity;                      // rows of the present cache
  int past[GQA_MAX_BATCH];           // tokens before the new ones
  int resident[GQA_MAX_BATCH];       // those of them that the cache holds, from row 0 on; fewer in a sliding cache only
  int longest;                       // the greatest of resident
  bool first, uniform;               // first prompt: nothing is past; uniform: past is the same everywhere
  int window;                        // -1: none
  bool causal, slides;
  int entry;                         // of the batch, when a sliding cache is done entry by entry
  int64_t length[GQA_MAX_BATCH];     // seqlens_k: past and new tokens less one
  mx q, k, v;                        // [B, heads, rows, head size]
} gqa_plan;

// Rows of a sliding cache after `tokens`: all while they fit, then what compaction in steps of capacity - window + 1 leaves.
static int64_t slid_rows(int64_t tokens, int64_t capacity, int64_t window) {
  int64_t step = capacity - window + 1, over = tokens - capacity;
  return over <= 0 ? tokens : tokens - step * ((over + step - 1) / step);
}

static bool gqa_entry(op *o, gqa_plan *p, int b, int past_rows) {
  int64_t length = p->length[b] + 1, past = p->first ? 0 : length - p->rows;
  if (length < 1 || length > p->total) {
    op_fail(o, "seqlens_k[%d] is %lld with a total_sequence_length of %d", b, (long long)length - 1, p->total);
    return false;
  }
  int64_t resident = p->slides ? slid_rows(past, p->capacity, p->window) : past;
  if (past < 0 || resident > past_rows) {
    op_fail(o, "entry %d needs %lld past rows, the cache has %d", b, (long long)past, past_rows);
    return false;
  }
  p->past[b] = (int)past;
  p->resident[b] = (int)resident;
  if (p->resident[b] > p->longest) p->longest = p->resident[b];
  return true;
}

static bool gqa_lengths(op *o, gqa_plan *p) {
  int64_t total;
  size_t n = 0;
  int past_rows = in(o, G_PAST_K) ? mx_dim(in(o, G_PAST_K), 2) : 0;
  if (!host_int(o, G_TOTAL, &total) || !fits_int(o, total, &p->total)) return false;
  if (!host_ints(o, G_LENGTHS, p->length, GQA_MAX_BATCH, &n)) return false;
  if ((int)n != p->batch || p->total < p->rows) {
    op_fail(o, "%zu lengths and a total of %d for %d entries of %d new tokens", n, p->total, p->batch, p->rows);
    return false;
  }
  p->first = p->rows == p->total;
  p->capacity = p->slides || past_rows > p->total ? past_rows : p->total;
  if (p->slides && p->capacity < p->window) {
    op_fail(o, "a sliding cache of %d rows for a window of %d", p->capacity, p->window);
    return false;
  }
  p->uniform = true;
  for (int b = 0; b < p->batch; b++) {
    if (!gqa_entry(o, p, b, past_rows)) return false;
    p->uniform = p->uniform && p->past[b] == p->past[0];
  }
  return true;
}

// ---- query, key, value --------------------------------------------------------------------------------------------------
static bool gqa_split(op *o, gqa_plan *p) {
  mx q = in(o, G_Q), k = in(o, G_K), v = in(o, G_V);
  int groups = p->heads + 2 * p->kv_heads, width = mx_dim(q, 2);
  if (mx_ndim(q) != 3 || width % (k ? p->heads : groups)) {
    op_fail(o, "a query of rank %d and width %d does not split into heads", mx_ndim(q), width);
    return false;
  }
  if (!k) attn_unpack(&q, &k, &v, p->heads, p->kv_heads, width / groups);
  p->batch = mx_dim(q, 0);
  p->rows = mx_dim(q, 1);
  int size = mx_dim(q, 2) / p->heads;
  if (mx_ndim(k) != 3 || mx_ndim(v) != 3 || mx_dim(k, 1) != p->rows || mx_dim(v, 1) != p->rows ||
      mx_dim(k, 2) != p->kv_heads * size || mx_dim(v, 2) % p->kv_heads) {
    op_fail(o, "keys [%d, %d] and values [%d, %d] do not fit %d queries of head size %d", mx_dim(k, 1), mx_dim(k, 2),
            mx_dim(v, 1), mx_dim(v, 2), p->rows, size);
    return false;
  }
  p->q = attn_split(q, p->heads);
  p->k = attn_split(k, p->kv_heads);
  p->v = attn_split(v, p->kv_heads);
  if (in(o, G_Q_NORM)) {
    float eps = attr_f(o->n, "qk_norm_epsilon", 1e-6f);
    p->q = mx_rms_norm(p->q, in(o, G_Q_NORM), eps);
    p->k = mx_rms_norm(p->k, in(o, G_K_NORM), eps);
  }
  return mx_ok(o->s);
}

// ---- rotary positions ---------------------------------------------------------------------------------------------------
enum { GQA_MAX_POSITIONS = 1 << 20 };

static mx cache_rows(mx cache, mx positions) { return mx_take(cache, positions, 0); }

// The position of each new token; false after a failure. One run of positions gives *start, else *each as int32 [B, rows].
static bool gqa_positions(op *o, const gqa_plan *p, int limit, int64_t *start, mx *each) {
  size_t n = (size_t)p->batch * (size_t)p->rows, given = 0;
  *start = p->past[0];
  if (!in(o, G_POSITIONS) && p->uniform && p->past[0] + p->rows <= limit) return true;
  int64_t *v = n < GQA_MAX_POSITIONS ? mem_alloc((n + 1) * sizeof *v) : NULL;
  if (!v) op_fail(o, "no memory for %zu positions", n);
  bool ok = v != NULL;
  for (size_t i = 0; ok && i < n; i++) v[i] = p->past[i / (size_t)p->rows] + (int64_t)(i % (size_t)p->rows);
  if (ok && in(o, G_POSITIONS)) {
    ok = host_ints(o, G_POSITIONS, v, n, &given) && (given == n || (p->first && given > 0));
    // The first prompt is numbered from the first element alone.
    for (size_t i = p->first ? 1 : n; ok && i < n; i++) v[i] = v[0] + (int64_t)(i % (size_t)p->rows);
    if (!ok) op_fail(o, "%zu position_ids for %zu tokens", given, n);
  }
  for (size_t i = 0; ok && i < n; i++)
    if (v[i] < 0 || v[i] >= limit) {
      op_fail(o, "position %lld is not in the %d rows of cos_cache", (long long)v[i], limit);
      ok = false;
    }
  if (ok) *each = mx_reshape(mx_i64s(o->s, v, (int)n), MXI(p->batch, p->rows));
  mem_free(v);
  return ok;
}

static bool gqa_tables_fit(op *o, const gqa_plan *p) {
  mx cos = in(o, G_COS), sin = in(o, G_SIN);
  int size = mx_dim(p->q, 3);
  if (mx_ndim(cos) == 2 && mx_ndim(sin) == 2 && mx_dim(sin, 0) == mx_dim(cos, 0) && mx_dim(sin, 1) == mx_dim(cos, 1) &&
      2 * mx_dim(cos, 1) <= size)
    return true;
  op_fail(o, "cos_cache and sin_cache must be two [positions, up to %d] tensors", size / 2);
  return false;
}

static void gqa_rotate(op *o, gqa_plan *p) {
  mx cos = in(o, G_COS), sin = in(o, G_SIN), each = NULL;
  int64_t start;
  if (!gqa_tables_fit(o, p) || !gqa_positions(o, p, mx_dim(cos, 0), &start, &each)) return;
  if (each) {  // [B, 1, rows, half]
    cos = mx_expand_dims(cache_rows(cos, each), MXI(1));
    sin = mx_expand_dims(cache_rows(sin, each), MXI(1));
  } else {
    cos = mx_slice_axis(cos, 0, (int)start, (int)start + p->rows);
    sin = mx_slice_axis(sin, 0, (int)start, (int)start + p->rows);
  }
  bool interleaved = attr_i(o->n, "rotary_interleaved", 0) != 0;
  p->q = attn_rotate(p->q, cos, sin, interleaved);
  p->k = attn_rotate(p->k, cos, sin, interleaved);
}

// ---- the cache ------------------------------------------------------------------------------------------------------------
static mx rows_padded(mx x, int rows) {
  int missing = rows - mx_dim(x, 2);
  return missing > 0 ? mx_pad(x, MXI(2), MXI(0), MXI(missing), mx_scalar(x, 0), "constant") : x;
}

static mx rows_put(mx cache, mx fresh, int b0, int b1, int at) {
  mx_ints s = mx_shape(fresh);
  return mx_slice_update(cache, mx_slice_axis(fresh, 0, b0, b1), MXI(b0, 0, at, 0), MXI(b1, s.v[1], at + s.v[2], s.v[3]),
                         MXI(1, 1, 1, 1));
}

// One entry of a sliding cache: past and new rows are all read, then the newest are kept.
static mx gqa_slid(const gqa_plan *p, mx past, mx fresh, mx *used) {
  mx parts[2] = {mx_slice_axis(past, 2, 0, p->resident[0]), fresh};
  *used = mx_concatenate(mx_scope_of(fresh), parts, 2, 2);
  int64_t tokens = p->length[0] + 1, rows = p->resident[0] + tokens - p->past[0];
  int64_t kept = slid_rows(tokens, p->capacity, p->window);
  return rows_padded(mx_slice_axis(*used, 2, (int)(rows - kept), (int)rows), p->capacity);
}

// The present cache: the past rows of each entry, then its new ones. *used: the part that attention reads.
static mx gqa_present(const gqa_plan *p, mx past, mx fresh, mx *used) {
  int end = p->longest + p->rows;
  bool grows = p->uniform && p->capacity == end && (!past || mx_dim(past, 2) <= end);
  if (grows) {
    mx parts[2] = {NULL, fresh};
    if (p->longest) parts[0] = mx_slice_axis(past, 2, 0, p->longest);
    *used = parts[0] ? mx_concatenate(mx_scope_of(fresh), parts, 2, 2) : fresh;
    return *used;
  }
  mx cache = rows_padded(past ? past : mx_slice_axis(fresh, 2, 0, 0), p->capacity);
  if (p->uniform) cache = rows_put(cache, fresh, 0, p->batch, p->past[0]);
  else
    for (int b = 0; b < p->batch; b++) cache = rows_put(cache, fresh, b, b + 1, p->past[b]);
  *used = end < p->capacity ? mx_slice_axis(cache, 2, 0, end) : cache;
  return cache;
}

// ---- masks and products -----------------------------------------------------------------------------------------------------
static mx column(mx_scope *s, const int64_t *v, int n) { return mx_reshape(mx_i64s(s, v, n), MXI(n, 1, 1, 1)); }

// Which keys each query sees, bool, broadcast to [B, H, rows, keys]; NULL when it sees all.
static mx gqa_mask(op *o, const gqa_plan *p, int keys) {
  bool all = p->window < 0 || p->window >= keys, padded = false;
  int64_t at[GQA_MAX_BATCH], end[GQA_MAX_BATCH];
  for (int b = 0; b < p->batch; b++) {
    at[b] = p->resident[b];
    end[b] = p->length[b] + 1;
    padded = padded || end[b] < keys;
  }
  if (p->uniform && all && (p->causal ? p->rows == 1 : !padded)) return NULL;
  mx key = mx_reshape(mx_arange(o->s, 0, keys, 1, DT_I64), MXI(1, 1, 1, keys));
  if (!p->causal) return mx_less(key, column(o->s, end, p->batch));
  mx query = mx_reshape(mx_arange(o->s, 0, p->rows, 1, DT_I64), MXI(1, 1, p->rows, 1));
  query = mx_add(query, column(o->s, at, p->uniform ? 1 : p->batch));
  mx seen = mx_less_equal(key, query);
  if (all) return seen;
  return mx_logical_and(seen, mx_greater(key, mx_sub(query, mx_scalar(query, p->window))));
}

static mx gqa_bias(op *o, const gqa_plan *p, int first_key, int keys) {
  mx bias = in(o, G_BIAS);
  if (!bias) return NULL;
  if (p->slides) first_key += p->past[0] - p->resident[0];  // its columns are numbered by token
  if (p->slides && mx_dim(bias, 0) > 1) bias = mx_slice_axis(bias, 0, p->entry, p->entry + 1);
  if (mx_ndim(bias) != 4 || mx_dim(bias, 2) != p->rows || mx_dim(bias, 3) < first_key + keys)
    return op_fail(o, "attention_bias must have shape [batch or 1, heads or 1, %d, %d]", p->rows, p->total);
  return mx_slice_axis(bias, 3, first_key, first_key + keys);
}

// A logit that only takes part in the softmax's sum, one a head: [1, H, 1, 1] float32; NULL if there is none.
static mx gqa_sink(op *o, const gqa_plan *p) {
  if (in(o, G_SINK)) return mx_reshape(mx_astype(in(o, G_SINK), DT_F32), MXI(1, p->heads, 1, 1));
  if (attr_i(o->n, "smooth_softmax", 0) != 1) return NULL;
  return mx_full(o->s, MXI(1, p->heads, 1, 1), 0, DT_F32);
}

static mx gqa_attend(op *o, const gqa_plan *p, mx k, mx v) {
  int keys = mx_dim(k, 2), first_key = 0;
  mx seen = NULL;
  if (p->uniform && p->causal && p->rows == 1 && p->window > 0 && p->window < keys) {
    first_key = keys - p->window;  // one query: the window is a slice
    k = mx_slice_axis(k, 2, first_key, keys);
    v = mx_slice_axis(v, 2, first_key, keys);
    keys = p->window;
  } else seen = gqa_mask(o, p, keys);
  attn a = {.q = p->q, .k = k, .v = v, .seen = seen};
  a.scale = attn_scale(o, mx_dim(p->q, 3));
  a.cap = (double)attr_f(o->n, "softcap", 0);
  a.bias = gqa_bias(o, p, first_key, keys);
  a.sink = gqa_sink(o, p);
  return attn_apply(&a);
}

typedef struct gqa_result {
  mx y, k, v;  // [B, rows, heads * head size], present key and value
} gqa_result;

static gqa_result gqa_compute(op *o, const gqa_plan *p, mx past_k, mx past_v) {
  mx used_k, used_v;
  mx (*present)(const gqa_plan *, mx, mx, mx *) = p->slides ? gqa_slid : gqa_present;
  gqa_result r = {.k = present(p, past_k, p->k, &used_k), .v = present(p, past_v, p->v, &used_v)};
  mx_ints shape = MXI(p->batch, p->rows, p->heads * mx_dim(p->v, 3));
  if (!p->batch || !p->rows) r.y = mx_full(o->s, shape, 0, mx_dtype(p->q));
  else r.y = attn_join(gqa_attend(o, p, used_k, used_v));
  return r;
}

static mx one(mx x, int b) { return mx_slice_axis(x, 0, b, b + 1); }

// A sliding cache holds other rows in each entry: entries are done one by one.
static gqa_result gqa_entries(op *o, gqa_plan *p) {
  size_t n = (size_t)p->batch;
  mx *ys = mem_alloc(3 * n * sizeof *ys);
  gqa_plan *each = mem_alloc(sizeof *each);
  gqa_result all = {0};
  if (!ys || !each) mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
  for (int b = 0; ys && each && b < p->batch && mx_ok(o->s); b++) {
    *each = *p;
    each->batch = 1;
    each->entry = b;
    each->past[0] = p->past[b];
    each->resident[0] = each->longest = p->resident[b];
    each->length[0] = p->length[b];
    each->uniform = true;
    each->q = one(p->q, b);
    each->k = one(p->k, b);
    each->v = one(p->v, b);
    gqa_result r = gqa_compute(o, each, one(in(o, G_PAST_K), b), one(in(o, G_PAST_V), b));
    ys[b] = r.y;
    ys[n + (size_t)b] = r.k;
    ys[2 * n + (size_t)b] = r.v;
  }
  if (mx_ok(o->s))
    all = (gqa_result){mx_concatenate(o->s, ys, n, 0), mx_concatenate(o->s, ys + n, n, 0), mx_concatenate(o->s, ys + 2 * n, n, 0)};
  mem_free(each);
  mem_free(ys);
  return all;
}

static void gqa_run(op *o, gqa_plan *p) {
  bool apart = p->slides && p->batch > 1;
  gqa_result r = apart ? gqa_entries(o, p) : gqa_compute(o, p, in(o, G_PAST_K), in(o, G_PAST_V));
  if (!mx_ok(o->s)) return;
  out(o, 0, r.y);
  out(o, 1, r.k);
  out(o, 2, r.v);
}

// ---- in a trace: lengths and positions are data ---------------------------------------------------------------------------
// Tokens before the new ones, int32 [B].
static mx past_tokens(op *o, const gqa_plan *p, const op_cache *c) {
  if (!c || c->first) return mx_full(o->s, MXI(p->batch), 0, DT_I32);
  mx lengths = mx_astype(in(o, G_LENGTHS), DT_I32);
  if (mx_size(lengths) != (size_t)p->batch) return op_fail(o, "%zu lengths for %d entries", mx_size(lengths), p->batch);
  return mx_sub(mx_reshape(lengths, MXI(p->batch)), mx_scalar(lengths, p->rows - 1));
}

// int32 [B, rows].
static mx token_positions(op *o, const gqa_plan *p, const op_cache *c, mx past) {
  mx given = in(o, G_POSITIONS), base = mx_expand_dims(past, MXI(1));
  bool first = !c || c->first;
  if (given && !first) return mx_reshape(mx_astype(given, DT_I32), MXI(p->batch, p->rows));
  // The first prompt is numbered from the first element alone.
  if (given) base = mx_add(base, mx_slice_axis(mx_reshape(mx_astype(given, DT_I32), MXI((int)mx_size(given))), 0, 0, 1));
  return mx_add(base, mx_reshape(mx_arange(o->s, 0, p->rows, 1, DT_I32), MXI(1, p->rows)));
}

static void traced_rotate(op *o, gqa_plan *p, const op_cache *c, mx past) {
  mx cos = in(o, G_COS), sin = in(o, G_SIN);
  if (!gqa_tables_fit(o, p)) return;
  mx at = index_below(o, token_positions(o, p, c, past), mx_dim(cos, 0), "position");
  cos = mx_expand_dims(cache_rows(cos, at), MXI(1));
  sin = mx_expand_dims(cache_rows(sin, at), MXI(1));
  bool interleaved = attr_i(o->n, "rotary_interleaved", 0) != 0;
  p->q = attn_rotate(p->q, cos, sin, interleaved);
  p->k = attn_rotate(p->k, cos, sin, interleaved);
}

// The bias; without the causal rule the padding of a first prompt is masked too.
static mx traced_mask(op *o, const gqa_plan *p, const op_cache *c) {
  mx bias = in(o, G_BIAS);
  if (bias && (mx_ndim(bias) != 4 || mx_dim(bias, 2) != p->rows)) return untraced(o, "an attention_bias of this shape");
  if (p->causal || (c && !c->first)) return bias;
  if (bias) return untraced(o, "a first prompt with attention_bias and without the causal rule");
  mx lengths = mx_reshape(mx_astype(in(o, G_LENGTHS), DT_I32), MXI(p->batch, 1, 1, 1));
  return mx_less_equal(mx_reshape(mx_arange(o->s, 0, p->rows, 1, DT_I32), MXI(1, 1, 1, p->rows)), lengths);
}

static void gqa_traced(op *o, gqa_plan *p) {
  op_cache *c = trace_cache(o);
  if (p->slides) untraced(o, "a sliding cache");
  if (mx_dtype(p->q) == DT_F64) untraced(o, "float64");
  if (!c && in(o, G_PAST_K)) untraced(o, "a cache inside the group");
  if (!c) trace_require(o, mx_equal(mx_astype(in(o, G_TOTAL), DT_I32), mx_scalar_i64(o->s, p->rows, DT_I32)));
  mx past = past_tokens(o, p, c);
  if (attr_i(o->n, "do_rotary", 0)) traced_rotate(o, p, c, past);
  mx sink = gqa_sink(o, p);
  mx_attend_desc d = {.q = p->q, .k = p->k, .v = p->v, .past_len = c ? past : NULL, .mask = traced_mask(o, p, c),
                      .sink = sink ? mx_reshape(sink, MXI(p->heads)) : NULL,
                      .scale = (float)attn_scale(o, mx_dim(p->q, 3)), .cap = attr_f(o->n, "softcap", 0),
                      .window = p->window > 0 ? p->window : 0, .causal = p->causal};
  if (!mx_ok(o->s)) return;
  mx y = c ? cached_attention(o, c, &d, G_PAST_K, 1) : mx_attend(&d);
  out(o, 0, attn_join(y));
  if (c) return;
  out(o, 1, p->k);
  out(o, 2, p->v);
}

static void gqa(op *o) {
  gqa_plan *p = mem_alloc(sizeof *p);
  if (!p) {
    mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
    return;
  }
  p->heads = (int)attr_i(o->n, "num_heads", 1);
  p->kv_heads = (int)attr_i(o->n, "kv_num_heads", 1);
  p->window = (int)attr_i(o->n, "local_window_size", -1);
  p->causal = attr_i(o->n, "causal", 1) != 0;
  p->slides = attr_i(o->n, "sliding_window_cache", 0) != 0;
  bool fits = gqa_split(o, p) && attn_past_fits(o, G_PAST_K, G_PAST_K, p->k) &&
              attn_past_fits(o, G_PAST_V, G_PAST_K, p->v);
  if (fits && in_trace(o)) {
    gqa_traced(o, p);
  } else if (fits && gqa_lengths(o, p)) {
    if (attr_i(o->n, "do_rotary", 0)) gqa_rotate(o, p);
    gqa_run(o, p);
  }
  mem_free(p);
}

const op_row ops_gqa[] = {OP("com.microsoft", "GroupQueryAttention", 1, ANY, gqa_claim, gqa, .types = DTS_FLOAT,
                             .host_in = IN(G_LENGTHS) | IN(G_TOTAL) | IN(G_POSITIONS), .traits = OP_KV,
                             .past_in = G_PAST_K, .present_out = 1,
                             .limits = "no quantised cache; no output of the products; inputs of rank 3; a window needs causal"),
                          {0}};
