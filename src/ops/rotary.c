// RotaryEmbedding of ai.onnx and of com.microsoft, MRotaryEmbedding and GemmaRotaryEmbedding.
#include <limits.h>

#include "ops/attn.h"

typedef struct rotary {
  mx x;         // [B, H, S, D]
  bool flat;    // the input was [B, S, H * D]
  mx cos, sin;  // broadcast to [B, H, S, half]
} rotary;

// ---- input --------------------------------------------------------------------------------------------------------------
// Channels that are turned, by the attribute; 0: all of a head.
static int64_t turned(const node *n) { return attr_i(n, "rotary_embedding_dim", 0); }

// Splits input 0. half: of the channels that the caches turn, for an input that does not name its heads.
static bool rotary_input(op *o, rotary *r, int half) {
  mx x = in(o, 0);
  int64_t heads = attr_i(o->n, "num_heads", 0);
  r->flat = mx_ndim(x) == 3;
  if (r->flat && !heads && !turned(o->n) && half && mx_dim(x, 2) % (2 * half) == 0) heads = mx_dim(x, 2) / (2 * half);
  bool splits = mx_ndim(x) == 4 || (r->flat && heads > 0 && mx_dim(x, 2) % heads == 0);
  if (!splits) {
    op_fail(o, "input of rank %d and width %d does not split into %lld heads", mx_ndim(x), mx_dim(x, -1), (long long)heads);
    return false;
  }
  r->x = r->flat ? attn_split(x, (int)heads) : x;
  int size = mx_dim(r->x, 3);
  int64_t want = turned(o->n) ? turned(o->n) : size;
  if (!half || 2 * half > size || 2 * (int64_t)half != want) {
    op_fail(o, "caches of width %d do not fit %lld turned channels of %d", half, (long long)want, size);
    return false;
  }
  return true;
}

static void rotary_output(op *o, const rotary *r) {
  mx y = attn_rotate(r->x, r->cos, r->sin, attr_i(o->n, "interleaved", 0) != 0);
  if (mx_ok(o->s)) out(o, 0, r->flat ? attn_join(y) : y);
}

static bool same_shape(mx a, mx b) {
  mx_ints x = mx_shape(a), y = mx_shape(b);
  for (int i = 0; i < x.n && x.n == y.n; i++)
    if (x.v[i] != y.v[i]) return false;
  return x.n == y.n;
}

// ---- positions ------------------------------------------------------------------------------------------------------------
enum { MAX_POSITIONS = 1 << 24 };

// Input i, one start or a position for each token; int64 [B, S], or [streams, B, S], once each is found in [0, limit).
static mx positions(op *o, size_t i, int streams, int batch, int rows, int limit) {
  int64_t want = (int64_t)streams * batch * rows;
  mx at = in(o, i);
  size_t n = mx_size(at), got = 0;
  bool start = streams == 1 && n == 1 && mx_ndim(at) == 1;
  mx_ints shape = streams > 1 ? MXI(streams, batch, rows) : MXI(batch, rows);
  bool fits = mx_ndim(at) == shape.n && want < MAX_POSITIONS && (int64_t)n == want;
  for (int a = 0; a < shape.n && fits; a++) fits = mx_dim(at, a) == shape.v[a];
  if (!start && !fits) return op_fail(o, "position_ids of rank %d hold %zu numbers for %lld tokens", mx_ndim(at), n, (long long)want);
  int64_t *v = mem_alloc((n + 1) * sizeof *v);
  if (!v) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
  bool ok = host_ints(o, i, v, n, &got);
  int64_t last = start ? limit - rows : limit - 1, first = ok && start ? v[0] : 0;
  for (size_t k = 0; ok && k < n; k++) {
    ok = v[k] >= 0 && v[k] <= last;
    if (!ok) op_fail(o, "position %lld is out of range for %d rows of cos_cache", (long long)v[k], limit);
  }
  mem_free(v);
  if (!ok) return op_fail(o, "position_ids cannot be read");
  if (!start) return at;
  return mx_reshape(mx_arange(o->s, (double)first, (double)first + rows, 1, DT_I64), MXI(1, rows));
}

// ---- ai.onnx --------------------------------------------------------------------------------------------------------------
enum { X_IN, X_COS, X_SIN, X_POSITIONS };

static void onnx_rotary(op *o) {
  rotary r = {0};
  mx cos = in(o, X_COS), sin = in(o, X_SIN);
  bool looked_up = in(o, X_POSITIONS) != NULL;
  if (!same_shape(cos, sin) || mx_ndim(cos) != (looked_up ? 2 : 3)) {
    op_fail(o, "cos_cache of rank %d and sin_cache of rank %d", mx_ndim(cos), mx_ndim(sin));
    return;
  }
  if (!rotary_input(o, &r, mx_dim(cos, -1))) return;
  int batch = mx_dim(r.x, 0), rows = mx_dim(r.x, 2);
  if (looked_up) {
    mx at = positions(o, X_POSITIONS, 1, batch, rows, mx_dim(cos, 0));
    if (!mx_ok(o->s)) return;
    cos = mx_take(cos, at, 0);
    sin = mx_take(sin, at, 0);
  } else if (mx_dim(cos, 0) != batch || mx_dim(cos, 1) != rows) {
    op_fail(o, "caches [%d, %d] for %d entries of %d tokens", mx_dim(cos, 0), mx_dim(cos, 1), batch, rows);
    return;
  }
  r.cos = mx_expand_dims(cos, MXI(1));
  r.sin = mx_expand_dims(sin, MXI(1));
  rotary_output(o, &r);
}

static void claim_caches(claim *c, size_t cos) {
  dtype t = in_type(c, 0);
  require_types(c, cos, DTYPE_BIT(t));
  require_types(c, cos + 1, DTYPE_BIT(t));
  CLAIM_GOES_ON(c);
  int64_t heads = attr_i(c->n, "num_heads", 0), dim = turned(c->n);
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) == 3 || in_rank(c, 0) == 4, "input 0 has rank %d", in_rank(c, 0));
  REQUIRE(c, heads >= 0 && heads < 65536, "%lld heads", (long long)heads);
  REQUIRE(c, dim >= 0 && dim < INT_MAX && dim % 2 == 0, "rotary_embedding_dim %lld", (long long)dim);
}

static void onnx_rotary_claim(claim *c) {
  claim_caches(c, X_COS);
  require_types(c, X_POSITIONS, DTYPE_BIT(DT_I64));
}

// ---- com.microsoft ----------------------------------------------------------------------------------------------------------
enum { R_X, R_POSITIONS, R_COS, R_SIN };

static bool caches_fit(op *o) {
  if (mx_ndim(in(o, R_COS)) == 2 && same_shape(in(o, R_COS), in(o, R_SIN))) return true;
  op_fail(o, "cos_cache and sin_cache must be two [positions, half] tensors");
  return false;
}

static void rotary_embedding(op *o) {
  rotary r = {0};
  mx cos = in(o, R_COS), sin = in(o, R_SIN);
  if (!caches_fit(o) || !rotary_input(o, &r, mx_dim(cos, 1))) return;
  mx at = positions(o, R_POSITIONS, 1, mx_dim(r.x, 0), mx_dim(r.x, 2), mx_dim(cos, 0));
  if (!mx_ok(o->s)) return;
  r.cos = mx_expand_dims(mx_take(cos, at, 0), MXI(1));
  r.sin = mx_expand_dims(mx_take(sin, at, 0), MXI(1));
  rotary_output(o, &r);
}

static void rotary_embedding_claim(claim *c) {
  claim_caches(c, R_COS);
  require_types(c, R_POSITIONS, DTYPE_BIT(DT_I64));
  CLAIM_GOES_ON(c);
  REQUIRE(c, attr_f(c->n, "scale", 1) == 1, "scale %g", (double)attr_f(c->n, "scale", 1));
  REQUIRE(c, !attr_i(c->n, "is_packed_batching", 0), "is_packed_batching");
}

// ---- MRotaryEmbedding -------------------------------------------------------------------------------------------------------
enum { STREAMS = 3, MAX_HALF = 1 << 16 };

// Which of the three streams turns each pair of channels, int32 [1, 1, 1, half].
static mx stream_of(op *o, int half) {
  size_t n;
  const int64_t *section = attr_ints(o->n, "mrope_section", &n);
  if (section[0] + section[1] + section[2] != half || half > MAX_HALF)
    return op_fail(o, "mrope_section does not add up to %d", half);
  int64_t *v = mem_alloc((size_t)half * sizeof *v);
  if (!v) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
  bool woven = attr_i(o->n, "mrope_layout", 0) == 1;
  for (int i = 0; i < half; i++)
    if (woven) v[i] = i % STREAMS && i < section[i % STREAMS] * STREAMS ? i % STREAMS : 0;
    else v[i] = i < section[0] ? 0 : i < section[0] + section[1] ? 1 : 2;
  mx which = mx_reshape(mx_i64s(o->s, v, half), MXI(1, 1, 1, half));
  mem_free(v);
  return which;
}

// cache [positions, half] at [3, B, S], of which each channel takes its own stream: [B, 1, S, half].
static mx woven_rows(mx cache, mx at, mx which) {
  mx rows = mx_take(cache, at, 0);  // [3, B, S, half]
  mx_ints s = mx_shape(rows);
  mx chosen = mx_take_along_axis(rows, mx_broadcast_to(which, MXI(1, s.v[1], s.v[2], s.v[3])), 0);
  return mx_reshape(chosen, MXI(s.v[1], 1, s.v[2], s.v[3]));
}

static void m_rotary(op *o) {
  rotary r = {0};
  mx cos = in(o, R_COS), sin = in(o, R_SIN);
  if (!caches_fit(o) || !rotary_input(o, &r, mx_dim(cos, 1))) return;
  mx which = stream_of(o, mx_dim(cos, 1));
  mx at = positions(o, R_POSITIONS, STREAMS, mx_dim(r.x, 0), mx_dim(r.x, 2), mx_dim(cos, 0));
  if (!mx_ok(o->s)) return;
  if (!mx_size(r.x)) {
    out(o, 0, in(o, R_X));
    return;
  }
  r.cos = woven_rows(cos, at, which);
  r.sin = woven_rows(sin, at, which);
  rotary_output(o, &r);
}

static void m_rotary_claim(claim *c) {
  rotary_embedding_claim(c);
  CLAIM_GOES_ON(c);
  size_t n = 0;
  const int64_t *v = attr_ints(c->n, "mrope_section", &n);
  REQUIRE(c, n == STREAMS && v[0] >= 0 && v[1] >= 0 && v[2] >= 0 && v[0] <= MAX_HALF && v[1] <= MAX_HALF && v[2] <= MAX_HALF,
          "mrope_section must hold three sizes");
  int64_t layout = attr_i(c->n, "mrope_layout", 0);
  REQUIRE(c, layout == 0 || layout == 1, "mrope_layout %lld", (long long)layout);
}

// ---- GemmaRotaryEmbedding ---------------------------------------------------------------------------------------------------
static void gemma_rotary(op *o) {
  mx angle = in(o, 0);
  for (size_t i = 0; i < 2; i++) {
    mx x = in(o, 1 + 2 * i), half_turned = in(o, 2 + 2 * i);
    if (mx_ndim(angle) != 3 || mx_ndim(x) != 4 || !same_shape(x, half_turned) || mx_dim(x, 0) != mx_dim(angle, 0) ||
        mx_dim(x, 2) != mx_dim(angle, 1) || mx_dim(x, 3) != mx_dim(angle, 2)) {
      op_fail(o, "states of rank %d and angles of rank %d do not fit", mx_ndim(x), mx_ndim(angle));
      return;
    }
    mx cos = mx_astype(mx_cos(mx_expand_dims(angle, MXI(1))), mx_dtype(x));
    mx sin = mx_astype(mx_sin(mx_expand_dims(angle, MXI(1))), mx_dtype(x));
    out(o, i, mx_add(mx_mul(f32_up(x), f32_up(cos)), mx_mul(f32_up(half_turned), f32_up(sin))));
  }
}

static void gemma_claim(claim *c) {
  for (size_t i = 1; i <= 4; i++) require_types(c, i, DTYPE_BIT(DT_F16));
}

const op_row ops_rotary[] = {
    OP("", "RotaryEmbedding", 23, ANY, onnx_rotary_claim, onnx_rotary, .types = DTS_FLOAT, .host_in = IN(X_POSITIONS),
       .limits = "data of rank 3 or 4; an even rotary_embedding_dim"),
    OP("com.microsoft", "RotaryEmbedding", 1, ANY, rotary_embedding_claim, rotary_embedding, .types = DTS_FLOAT,
       .host_in = IN(R_POSITIONS), .limits = "data of rank 3 or 4; scale is 1; no is_packed_batching"),
    OP("com.microsoft", "MRotaryEmbedding", 1, ANY, m_rotary_claim, m_rotary, .types = DTS_FLOAT,
       .host_in = IN(R_POSITIONS),
       .limits = "data of rank 3 or 4; scale is 1; no is_packed_batching; mrope_layout is 0 or 1"),
    OP("com.microsoft", "GemmaRotaryEmbedding", 1, ANY, gemma_claim, gemma_rotary, .types = DTYPE_BIT(DT_F32)),
    {0}};
