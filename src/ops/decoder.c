// com.microsoft: attention that projects its inputs itself: DecoderAttention, with sequences first, and LongformerAttention.
#include <math.h>

#include "ops/attn.h"
#include "ops/numeric.h"

// ---- DecoderAttention -----------------------------------------------------------------------------------------------------
enum { D_QUERY, D_KEY, D_Q_WEIGHT, D_KV_WEIGHT, D_BIAS, D_PADDING, D_KEY_CACHE, D_VALUE_CACHE, D_STATIC, D_PAST, D_STATE, D_PADDED };

typedef struct decoder {
  int heads, width;
  bool is_static, cached, padded;  // keys are another sequence's; the cache is used; there is a mask of padding
} decoder;

static bool flag(op *o, size_t i) {
  int64_t v = 0;
  return host_int(o, i, &v) && v != 0;
}

static bool is_matrix(mx x, int rows, int columns) { return mx_ndim(x) == 2 && mx_dim(x, 0) == rows && mx_dim(x, 1) == columns; }

static bool decoder_inputs(op *o, decoder *d) {
  mx q = in(o, D_QUERY), key = in(o, D_KEY), bias = in(o, D_BIAS);
  int w = d->width = mx_dim(q, 2);
  d->heads = (int)attr_i(o->n, "num_heads", 1);
  d->is_static = flag(o, D_STATIC);
  bool past = flag(o, D_PAST), state = flag(o, D_STATE);
  d->cached = past && state;
  d->padded = flag(o, D_PADDED);
  bool fits = mx_ndim(q) == 3 && mx_ndim(key) == 3 && w > 0 && w % d->heads == 0 && mx_dim(key, 1) == mx_dim(q, 1) && mx_dim(key, 2) == w &&
              is_matrix(in(o, D_Q_WEIGHT), w, w) && is_matrix(in(o, D_KV_WEIGHT), w, 2 * w) && mx_ndim(bias) == 1 && mx_dim(bias, 0) == 3 * w;
  if (mx_ok(o->s) && !fits) op_fail(o, "query, key, weights and bias do not fit %d heads", d->heads);
  if (mx_ok(o->s) && d->cached && (!in(o, D_KEY_CACHE) || !in(o, D_VALUE_CACHE))) op_fail(o, "use_past without a cache");
  if (mx_ok(o->s) && d->padded && !in(o, D_PADDING)) op_fail(o, "has_key_padding_mask without a mask");
  return mx_ok(o->s);
}

// x [S, B, width] times w, plus bias [from, from + columns), in heads: [B, H, S, D].
static mx projected(op *o, const decoder *d, mx x, mx w, int from) {
  mx bias = mx_slice_axis(in(o, D_BIAS), 0, from, from + d->width);
  return attn_split(mx_transpose(mx_linear(x, w, bias), MXI(1, 0, 2)), d->heads);
}

static mx with_cache(op *o, const decoder *d, size_t i, mx fresh, mx like) {
  mx cache = d->cached ? in(o, i) : NULL;
  if (!cache) return fresh;
  for (int a = 0; a < 4; a++)
    if (a != 2 && (mx_ndim(cache) != 4 || mx_dim(cache, a) != mx_dim(like, a))) return op_fail(o, "input %zu does not fit the query", i);
  return d->is_static ? cache : attn_append(cache, fresh);
}

static void decoder_attention(op *o) {
  decoder d;
  if (!decoder_inputs(o, &d)) return;
  int w = d.width;
  mx from = d.is_static ? in(o, D_KEY) : in(o, D_QUERY), kv = in(o, D_KV_WEIGHT);
  attn a = {.q = projected(o, &d, in(o, D_QUERY), in(o, D_Q_WEIGHT), 0), .scale = attn_scale(o, w / d.heads), .guarded = d.padded};
  bool fresh = !d.is_static || !d.cached;
  a.k = with_cache(o, &d, D_KEY_CACHE, fresh ? projected(o, &d, from, mx_slice_axis(kv, 1, 0, w), w) : NULL, a.q);
  a.v = with_cache(o, &d, D_VALUE_CACHE, fresh ? projected(o, &d, from, mx_slice_axis(kv, 1, w, 2 * w), 2 * w) : NULL, a.q);
  if (!mx_ok(o->s)) return;
  int batch = mx_dim(a.q, 0), keys = mx_dim(a.k, 2);
  if (mx_dim(a.v, 2) != keys) op_fail(o, "caches of %d keys and %d values", keys, mx_dim(a.v, 2));
  if (d.padded && !is_matrix(in(o, D_PADDING), batch, keys)) op_fail(o, "key_padding_mask must have shape [%d, %d]", batch, keys);
  if (!mx_ok(o->s)) return;
  if (d.padded) a.seen = mx_reshape(mx_logical_not(in(o, D_PADDING)), MXI(batch, 1, 1, keys));
  out(o, 0, mx_transpose(attn_join(attn_apply(&a)), MXI(1, 0, 2)));
  out(o, 1, a.k);
  out(o, 2, a.v);
}

static void decoder_claim(claim *c) {
  require_known(c, (const char *const[]){"mask_filter_value", "num_heads", NULL});
  dtype t = in_type(c, D_QUERY);
  for (size_t i = D_KEY; i <= D_PADDED; i++) require_types(c, i, i == D_PADDING || i >= D_STATIC ? DTS_BOOL : DTYPE_BIT(t));
  CLAIM_GOES_ON(c);
  int64_t heads = attr_i(c->n, "num_heads", 0);
  REQUIRE(c, heads > 0 && heads < 65536, "%lld heads", (long long)heads);
}

// ---- LongformerAttention ----------------------------------------------------------------------------------------------------
enum { W_X, W_WEIGHT, W_BIAS, W_MASK, W_GLOBAL_WEIGHT, W_GLOBAL_BIAS, W_GLOBAL };

static bool longformer_fits(op *o, int heads) {
  mx x = in(o, W_X), mask = in(o, W_MASK), global = in(o, W_GLOBAL);
  int b = mx_dim(x, 0), s = mx_dim(x, 1), w = mx_dim(x, 2);
  bool fits = mx_ndim(x) == 3 && w > 0 && w % heads == 0 && is_matrix(mask, b, s) && is_matrix(global, b, s);
  for (size_t i = W_WEIGHT; fits && i <= W_GLOBAL_WEIGHT; i += W_GLOBAL_WEIGHT - W_WEIGHT)
    fits = is_matrix(in(o, i), w, 3 * w) && mx_ndim(in(o, i + 1)) == 1 && mx_dim(in(o, i + 1), 0) == 3 * w;
  if (!fits) op_fail(o, "input, weights, mask and flags do not fit %d heads", heads);
  return fits;
}

static attn projections(op *o, size_t weight, int heads) {
  int w = mx_dim(in(o, W_X), 2);
  mx y = mx_linear(in(o, W_X), in(o, weight), in(o, weight + 1));
  return (attn){.q = attn_split(mx_slice_axis(y, 2, 0, w), heads),
                .k = attn_split(mx_slice_axis(y, 2, w, 2 * w), heads),
                .v = attn_split(mx_slice_axis(y, 2, 2 * w, 3 * w), heads),
                .scale = 1 / sqrt((double)(w / heads))};
}

// A token sees those within the window and the global ones; a global token, with projections of its own, sees all. The
// products are made whole: the window bounds what is seen, not the work.
static void longformer(op *o) {
  int heads = (int)attr_i(o->n, "num_heads", 1);
  if (!longformer_fits(o, heads)) return;
  mx x = in(o, W_X), zero = mx_scalar(in(o, W_GLOBAL), 0), global = mx_not_equal(in(o, W_GLOBAL), zero);
  int b = mx_dim(x, 0), s = mx_dim(x, 1);
  mx at = mx_arange(o->s, 0, s, 1, DT_I32), distance = mx_abs(mx_sub(at, mx_reshape(at, MXI(s, 1))));
  mx near = mx_less_equal(distance, mx_scalar_i64(o->s, attr_i(o->n, "window", 0), DT_I32));
  attn local = projections(o, W_WEIGHT, heads), all = projections(o, W_GLOBAL_WEIGHT, heads);
  local.seen = mx_logical_or(mx_reshape(near, MXI(1, 1, s, s)), mx_reshape(global, MXI(b, 1, 1, s)));
  local.bias = all.bias = mx_reshape(in(o, W_MASK), MXI(b, 1, 1, s));
  mx y = attn_join(attn_apply(&local)), z = attn_join(attn_apply(&all));
  out(o, 0, mx_where(mx_reshape(global, MXI(b, s, 1)), z, y));
}

static void longformer_claim(claim *c) {
  require_known(c, (const char *const[]){"num_heads", "window", NULL});
  dtype t = in_type(c, W_X);
  for (size_t i = W_WEIGHT; i <= W_GLOBAL_BIAS; i++) require_types(c, i, DTYPE_BIT(t));
  require_types(c, W_GLOBAL, DTYPE_BIT(DT_I32));
  CLAIM_GOES_ON(c);
  int64_t heads = attr_i(c->n, "num_heads", 0), window = attr_i(c->n, "window", 0);
  REQUIRE(c, heads > 0 && heads < 65536, "%lld heads", (long long)heads);
  REQUIRE(c, window > 0 && window < 1 << 30, "window %lld", (long long)window);
}

#define MS "com.microsoft"
const op_row ops_decoder[] = {
    OP(MS, "DecoderAttention", 1, ANY, decoder_claim, decoder_attention, .types = DTS_FLOAT,
       .host_in = IN(D_STATIC) | IN(D_PAST) | IN(D_STATE) | IN(D_PADDED), .traits = OP_KV),
    OP(MS, "LongformerAttention", 1, ANY, longformer_claim, longformer, .types = DTS_FLOAT,
       .limits = "a window below 2^30"),
    {0}};
