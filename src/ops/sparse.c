// SparseAttention of com.microsoft: causal attention over a cache of fixed size, to the blocks of keys that a layout allows.
// Lengths and layouts are read on the host.
#include <math.h>

#include "ops/attn.h"

enum { S_Q, S_K, S_V, S_PAST_K, S_PAST_V, S_ROWS, S_COLUMNS, S_TOTAL, S_LENGTHS, S_COS, S_SIN };
enum { MAX_BATCH = 4096, MAX_CELLS = 1 << 24 };

typedef struct sparse {
  attn a;
  int batch, rows, heads, kv_heads, capacity, total, block;
  int64_t past[MAX_BATCH];  // rows before the new ones
} sparse;

// ---- inputs ---------------------------------------------------------------------------------------------------------------
static bool sparse_split(op *o, sparse *p) {
  mx q = in(o, S_Q), k = in(o, S_K), v = in(o, S_V), past = in(o, S_PAST_K), past_v = in(o, S_PAST_V);
  int groups = p->heads + (k ? 0 : 2 * p->kv_heads), width = mx_dim(q, -1), size = width / groups;
  bool fits = mx_ndim(q) == 3 && size && width % groups == 0;
  if (fits && !k) attn_unpack(&q, &k, &v, p->heads, p->kv_heads, size);
  p->batch = mx_dim(q, 0);
  p->rows = mx_dim(q, 1);
  p->capacity = mx_dim(past, 2);
  const int shape[3] = {p->batch, p->rows, p->kv_heads * size};
  fits = fits && mx_ndim(k) == 3 && mx_ndim(v) == 3 && mx_ndim(past) == 4 && mx_ndim(past_v) == 4 && mx_dim(past, 0) == p->batch &&
         mx_dim(past, 1) == p->kv_heads && mx_dim(past, 3) == size;
  for (int i = 0; i < 3 && fits; i++) fits = mx_dim(k, i) == shape[i] && mx_dim(v, i) == shape[i];
  for (int i = 0; i < 4 && fits; i++) fits = mx_dim(past, i) == mx_dim(past_v, i);
  if (!fits) {
    op_fail(o, "query of width %d, keys, values and caches do not fit %d and %d heads", width, p->heads, p->kv_heads);
    return false;
  }
  p->a = (attn){.q = attn_split(q, p->heads), .k = attn_split(k, p->kv_heads), .v = attn_split(v, p->kv_heads)};
  p->a.scale = attn_scale(o, size);
  return true;
}

static bool sparse_lengths(op *o, sparse *p) {
  int64_t total, lengths[MAX_BATCH];
  size_t n = 0;
  if (!host_int(o, S_TOTAL, &total) || !host_ints(o, S_LENGTHS, lengths, MAX_BATCH, &n)) return false;
  if ((int)n != p->batch || total < p->rows || total > p->capacity) {
    op_fail(o, "%zu lengths and a total of %lld for %d entries of %d new tokens and %d rows", n, (long long)total, p->batch, p->rows,
            p->capacity);
    return false;
  }
  p->total = (int)total;
  for (size_t b = 0; b < n; b++) {
    p->past[b] = total == p->rows ? 0 : lengths[b] - p->rows;  // a first prompt may be padded on the right
    if (lengths[b] < 1 || lengths[b] > total || p->past[b] < 0) {
      op_fail(o, "key_total_sequence_lengths[%zu] is %lld with a total of %d", b, (long long)lengths[b], p->total);
      return false;
    }
  }
  return true;
}

// Position of each new token, int64 [B, rows].
static mx token_positions(op *o, const sparse *p) {
  mx row = mx_reshape(mx_arange(o->s, 0, p->rows, 1, DT_I64), MXI(1, p->rows));
  return mx_add(mx_reshape(mx_i64s(o->s, p->past, p->batch), MXI(p->batch, 1)), row);
}

static bool sparse_rotate(op *o, sparse *p, mx at) {
  mx cos = in(o, S_COS), sin = in(o, S_SIN);
  if (!attr_i(o->n, "do_rotary", 0)) return true;
  bool fits = mx_ndim(cos) == 2 && mx_ndim(sin) == 2 && mx_dim(cos, 0) == mx_dim(sin, 0) && mx_dim(cos, 1) == mx_dim(sin, 1) &&
              2 * mx_dim(cos, 1) <= mx_dim(p->a.q, 3);
  for (int b = 0; b < p->batch && fits; b++) fits = p->past[b] + p->rows <= mx_dim(cos, 0);
  if (!fits) {
    op_fail(o, "cos_cache and sin_cache must be two [positions, up to %d] tensors", mx_dim(p->a.q, 3) / 2);
    return false;
  }
  cos = mx_expand_dims(mx_take(cos, at, 0), MXI(1));
  sin = mx_expand_dims(mx_take(sin, at, 0), MXI(1));
  bool interleaved = attr_i(o->n, "rotary_interleaved", 0) != 0;
  p->a.q = attn_rotate(p->a.q, cos, sin, interleaved);
  p->a.k = attn_rotate(p->a.k, cos, sin, interleaved);
  return true;
}

// ---- layouts ----------------------------------------------------------------------------------------------------------------
// Fills cells [layouts, blocks, blocks] from the compressed rows; false where they point outside.
static bool read_layouts(const int64_t *rows, const int64_t *columns, int layouts, int blocks, int entries, uint8_t *cells) {
  for (int l = 0; l < layouts; l++) {
    const int64_t *r = rows + (int64_t)l * (blocks + 1), *c = columns + (int64_t)l * entries;
    for (int i = 0; i < blocks; i++) {
      if (r[i] < 0 || r[i + 1] < r[i] || r[i + 1] > entries) return false;
      for (int64_t k = r[i]; k < r[i + 1]; k++) {
        if (c[k] < 0 || c[k] >= blocks) return false;
        cells[((int64_t)l * blocks + i) * blocks + c[k]] = 1;
      }
    }
  }
  return true;
}

// Bool [layouts, blocks, blocks]: which blocks of keys a block of queries sees.
static mx layouts_of(op *o, const sparse *p) {
  mx rows = in(o, S_ROWS), columns = in(o, S_COLUMNS);
  int layouts = mx_dim(rows, 0), blocks = mx_dim(rows, 1) - 1, entries = mx_dim(columns, 1);
  if (mx_ndim(rows) != 2 || mx_ndim(columns) != 2 || layouts < 1 || mx_dim(columns, 0) != layouts || p->heads % layouts || blocks < 1 ||
      (int64_t)blocks * p->block < p->total || (int64_t)layouts * blocks * blocks > MAX_CELLS)
    return op_fail(o, "block_row_indices [%d, %d] do not fit %d heads and %d keys in blocks of %d", layouts, blocks + 1, p->heads, p->total,
                   p->block);
  size_t n_rows = mx_size(rows), n_columns = mx_size(columns), got = 0, cells = (size_t)layouts * (size_t)blocks * (size_t)blocks;
  int64_t *v = mem_alloc((n_rows + n_columns + 1) * sizeof *v);
  uint8_t *seen = mem_alloc(cells);
  mx layout = NULL;
  if (!v || !seen) mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
  else if (host_ints(o, S_ROWS, v, n_rows, &got) && host_ints(o, S_COLUMNS, v + n_rows, n_columns, &got)) {
    if (read_layouts(v, v + n_rows, layouts, blocks, entries, seen)) layout = mx_from(o->s, seen, DT_BOOL, MXI(layouts, blocks, blocks));
    else op_fail(o, "block_row_indices and block_col_indices point outside of %d blocks", blocks);
  }
  mem_free(seen);
  mem_free(v);
  return layout;
}

// Bool [B, H, rows, keys]: at or before the query, and in a block that its head's layout allows.
static mx sparse_seen(op *o, const sparse *p, mx at) {
  mx layout = layouts_of(o, p);
  if (!layout || !mx_ok(o->s)) return NULL;
  int layouts = mx_dim(layout, 0);
  mx size = mx_scalar_i64(o->s, p->block, DT_I64), key = mx_arange(o->s, 0, p->total, 1, DT_I64);
  mx cells = mx_take(layout, mx_floor_div(mx_reshape(at, MXI(-1)), size), 1);  // [layouts, B * rows, blocks]
  cells = mx_take(cells, mx_floor_div(key, size), 2);
  cells = mx_transpose(mx_reshape(cells, MXI(layouts, p->batch, p->rows, p->total)), MXI(1, 0, 2, 3));
  mx before = mx_less_equal(mx_reshape(key, MXI(1, 1, 1, p->total)), mx_reshape(at, MXI(p->batch, 1, p->rows, 1)));
  return mx_logical_and(mx_tile(cells, MXI(1, p->heads / layouts, 1, 1)), before);
}

// ---- running ----------------------------------------------------------------------------------------------------------------
static mx present_of(const sparse *p, mx cache, mx fresh) {
  mx_ints s = mx_shape(fresh);
  for (int b = 0; b < p->batch; b++) {
    int at = (int)p->past[b];
    cache = mx_slice_update(cache, mx_slice_axis(fresh, 0, b, b + 1), MXI(b, 0, at, 0), MXI(b + 1, s.v[1], at + s.v[2], s.v[3]),
                            MXI(1, 1, 1, 1));
  }
  return cache;
}

static void sparse_run(op *o, sparse *p) {
  if (!p->batch || !p->rows) {
    op_fail(o, "%d entries of %d new tokens", p->batch, p->rows);
    return;
  }
  mx at = token_positions(o, p);
  if (!sparse_rotate(o, p, at)) return;
  p->a.seen = sparse_seen(o, p, at);
  if (!mx_ok(o->s)) return;
  mx k = present_of(p, in(o, S_PAST_K), p->a.k), v = present_of(p, in(o, S_PAST_V), p->a.v);
  p->a.k = mx_slice_axis(k, 2, 0, p->total);
  p->a.v = mx_slice_axis(v, 2, 0, p->total);
  p->a.guarded = true;
  out(o, 0, attn_join(attn_apply(&p->a)));
  out(o, 1, k);
  out(o, 2, v);
}

static void sparse_attention(op *o) {
  sparse *p = mem_alloc(sizeof *p);
  if (!p) {
    mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
    return;
  }
  p->heads = (int)attr_i(o->n, "num_heads", 1);
  p->kv_heads = (int)attr_i(o->n, "kv_num_heads", 1);
  p->block = (int)attr_i(o->n, "sparse_block_size", 1);
  if (sparse_split(o, p) && sparse_lengths(o, p)) sparse_run(o, p);
  mem_free(p);
}

static const char *const sparse_attrs[] = {"num_heads", "kv_num_heads", "sparse_block_size", "scale", "do_rotary", "rotary_interleaved",
                                           NULL};

static void sparse_claim(claim *c) {
  require_known(c, sparse_attrs);
  dtype t = in_type(c, S_Q);
  for (size_t i = S_K; i <= S_SIN; i++) require_types(c, i, i >= S_ROWS && i <= S_LENGTHS ? DTYPE_BIT(DT_I32) : DTYPE_BIT(t));
  CLAIM_GOES_ON(c);
  REQUIRE(c, has_in(c, S_K) == has_in(c, S_V), "key and value must come together");
  bool rotary = attr_i(c->n, "do_rotary", 0) != 0;
  REQUIRE(c, !rotary || (has_in(c, S_COS) && has_in(c, S_SIN)), "do_rotary needs cos_cache and sin_cache");
  int64_t heads = attr_i(c->n, "num_heads", 0), kv = attr_i(c->n, "kv_num_heads", 0), block = attr_i(c->n, "sparse_block_size", 0);
  REQUIRE(c, heads > 0 && heads < 65536 && kv > 0 && heads % kv == 0, "%lld heads over %lld key heads", (long long)heads, (long long)kv);
  REQUIRE(c, block > 0 && block < 1 << 20, "sparse_block_size %lld", (long long)block);
}

const op_row ops_sparse[] = {OP("com.microsoft", "SparseAttention", 1, ANY, sparse_claim, sparse_attention,
                                .types = DTS_FLOAT, .host_in = IN(S_ROWS) | IN(S_COLUMNS) | IN(S_TOTAL) | IN(S_LENGTHS),
                                .traits = OP_KV, .limits = "key and value come together; a sparse_block_size below 2^20"),
                             {0}};
