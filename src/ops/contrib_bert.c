// com.microsoft: relative positions, and batches of sequences with their padding taken out and put back.
#include <math.h>

#include "base/mem.h"
#include "ops/index.h"
#include "ops/numeric.h"

// ---- RelativePositionBias ---------------------------------------------------------------------------------------------
enum { POSITION_TABLE, POSITION_QUERIES, POSITION_KEYS };

// The bucket of key minus query: single distances first, then ranges that widen with the logarithm.
static int bucket(int64_t distance, int buckets, int64_t far, bool both) {
  int first = 0;
  if (both) buckets /= 2;
  if (both && distance > 0) first = buckets;
  if (distance < 0) distance = -distance;
  int exact = buckets / 2;
  if (distance < exact) return first + (int)distance;
  float share = logf((float)distance / (float)exact) / logf((float)far / (float)exact);
  float at = (float)exact + floorf(share * (float)(buckets - exact));
  return first + (at < (float)(buckets - 1) ? (int)at : buckets - 1);
}

// Numbers of the buckets of all distances from 1 - n to n - 1, int32 [2 n - 1].
static mx buckets_of(op *o, int n, int buckets) {
  int64_t far = attr_i(o->n, "max_distance", 128);
  bool both = attr_i(o->n, "is_bidirectional", 0) != 0;
  int32_t *v = mem_alloc(2 * (size_t)n * sizeof *v);
  if (!v) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d positions", n);
  for (int i = 0; i < 2 * n - 1; i++) v[i] = bucket(i - (n - 1), buckets, far, both);
  mx x = mx_from(o->s, v, DT_I32, MXI(2 * n - 1));
  mem_free(v);
  return x;
}

// The table is read as [heads, buckets], though its shape says [buckets, heads].
static void relative_position_bias(op *o) {
  mx table = in(o, POSITION_TABLE);
  int64_t queries = 0, keys = 0;
  int buckets = mx_dim(table, 0), heads = mx_dim(table, 1);
  if (!host_int(o, POSITION_QUERIES, &queries) || !host_int(o, POSITION_KEYS, &keys)) return;
  if (queries != keys || queries < 1 || queries > 1 << 15)
    op_fail(o, "%lld queries and %lld keys; the lengths must be equal", (long long)queries, (long long)keys);
  if (mx_ndim(table) != 2 || buckets < 4 || attr_i(o->n, "max_distance", 128) <= buckets / 2)
    op_fail(o, "%d buckets do not fit the distances", buckets);
  if (!mx_ok(o->s)) return;
  int n = (int)queries;
  mx by_distance = mx_take(mx_reshape(table, MXI(heads, buckets)), buckets_of(o, n, buckets), 1);
  mx at = mx_arange(o->s, 0, n, 1, DT_I32);
  mx distance = mx_sub(mx_add(at, mx_scalar(at, n - 1)), mx_reshape(at, MXI(n, 1)));
  out(o, 0, mx_expand_dims(mx_take(by_distance, distance, 1), MXI(0)));
}

// ---- GatedRelativePositionBias ----------------------------------------------------------------------------------------
enum { GATED_QUERY, GATED_QUERY_BIAS, GATED_POSITIONS, GATED_WEIGHT, GATED_BIAS, GATED_SCALE, GATED_OFFSETS };

static void gated_position_bias(op *o) {
  mx q = mx_add(f32_up(in(o, GATED_QUERY)), f32_up(in(o, GATED_QUERY_BIAS))), w = f32_up(in(o, GATED_WEIGHT));
  int64_t heads = attr_i(o->n, "num_heads", 0);
  if (mx_ndim(q) != 3 || heads < 1 || heads > mx_dim(q, 2) || mx_dim(q, 2) % heads || mx_ndim(w) != 2 || mx_dim(w, 1) % 2)
    op_fail(o, "the query or the weight does not fit %lld heads", (long long)heads);
  if (!mx_ok(o->s)) return;
  int n = (int)heads, size = mx_dim(q, 2) / n, batch = mx_dim(q, 0), length = mx_dim(q, 1);
  q = mx_transpose(mx_reshape(q, MXI(batch, length, n, size)), MXI(0, 2, 1, 3));
  mx both = mx_add(mx_matmul(q, w), f32_up(in(o, GATED_BIAS)));
  both = num_sigmoid(mx_sum(mx_reshape(both, MXI(batch, n, length, 2, mx_dim(w, 1) / 2)), MXI(4), false));
  mx u = mx_slice_axis(both, 3, 0, 1), r = mx_slice_axis(both, 3, 1, 2);
  mx gate = num_plus(mx_mul(u, num_plus(mx_mul(r, f32_up(in(o, GATED_SCALE))), -1)), 2);
  out(o, 0, mx_mul(gate, f32_up(in(o, GATED_POSITIONS))));
}

static void gated_claim(claim *c) {
  REQUIRE(c, !has_in(c, GATED_OFFSETS), "the query comes without its padding");
  REQUIRE(c, in_rank(c, GATED_QUERY) < 0 || in_rank(c, GATED_QUERY) == 3, "the query has rank %d", in_rank(c, GATED_QUERY));
}

// ---- RemovePadding, RestorePadding ------------------------------------------------------------------------------------
typedef struct tokens {
  int32_t *offset, *starts;  // [batch * length], those that are there first; [batch + 1]
  int total, longest;
} tokens;

static bool tokens_read(op *o, int batch, int length, const int64_t *counts, tokens *t) {
  int late = 0;
  for (int b = 0; b < batch; b++) {
    if (counts[b] < 0 || counts[b] > length) op_fail(o, "%lld tokens in a sequence of %d", (long long)counts[b], length);
    if (!mx_ok(o->s)) return false;
    late += (int)counts[b];
    if (counts[b] > t->longest) t->longest = (int)counts[b];
    t->starts[b + 1] = late;
  }
  t->total = late;
  for (int b = 0, early = 0; b < batch; b++)
    for (int i = 0; i < length; i++) t->offset[i < counts[b] ? early++ : late++] = b * length + i;
  return true;
}

static void remove_with(op *o, mx x, const tokens *t) {
  int batch = mx_dim(x, 0), length = mx_dim(x, 1), size = mx_dim(x, 2);
  mx offsets = mx_from(o->s, t->offset, DT_I32, MXI(batch * length)), rows = mx_reshape(x, MXI(batch * length, size));
  bool some = t->total > 0 && size > 0;
  out(o, 0, some ? mx_take(rows, mx_slice_axis(offsets, 0, 0, t->total), 0) : mx_full(o->s, MXI(t->total, size), 0, mx_dtype(x)));
  out(o, 1, mx_reshape(offsets, MXI(batch, length)));
  out(o, 2, mx_from(o->s, t->starts, DT_I32, MXI(batch + 1)));
  int32_t longest = t->longest;
  out(o, 3, mx_from(o->s, &longest, DT_I32, MXI(1)));
}

static void remove_padding(op *o) {
  mx x = in(o, 0);
  int batch = mx_dim(x, 0), length = mx_dim(x, 1);
  size_t n = 0, cells = 0, bytes = 0;
  if (mx_ndim(x) != 3) op_fail(o, "the input has rank %d, not 3", mx_ndim(x));
  bool fits = size_mul((size_t)batch, (size_t)length, &cells) && cells < 1u << 30 && size_mul(cells + (size_t)batch + 2, 16, &bytes);
  int64_t *counts = fits ? mem_alloc(bytes) : NULL;  // and behind them the offsets and the starts
  if (!counts) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d sequences of %d", batch, length);
  if (mx_ok(o->s) && host_ints(o, 1, counts, (size_t)batch, &n) && n == (size_t)batch) {
    int32_t *offset = (int32_t *)(counts + batch);
    tokens t = {.offset = offset, .starts = offset + cells};
    if (tokens_read(o, batch, length, counts, &t)) remove_with(o, x, &t);
  } else if (mx_ok(o->s)) {
    op_fail(o, "%zu token counts for %d sequences", n, batch);
  }
  mem_free(counts);
}

static void restore_padding(op *o) {
  mx x = in(o, 0), offsets = in(o, 1);
  if (mx_ndim(x) != 2 || mx_ndim(offsets) != 2) op_fail(o, "input of rank %d, offsets of rank %d; both must be 2", mx_ndim(x), mx_ndim(offsets));
  int rows = (int)mx_size(offsets), total = mx_dim(x, 0), size = mx_dim(x, 1);
  if (total > rows) op_fail(o, "%d tokens for %d places", total, rows);
  mx at = mx_ok(o->s) ? index_checked(o, 1, &rows, 1) : x;
  if (!mx_ok(o->s)) return;
  mx y = mx_full(o->s, MXI(rows, size), 0, mx_dtype(x));
  if (mx_size(x)) {
    mx places = mx_slice_axis(mx_reshape(at, MXI(rows)), 0, 0, total);
    y = mx_scatter(y, &places, 1, mx_expand_dims(x, MXI(1)), MXI(0), MX_SET);
  }
  out(o, 0, mx_reshape(y, MXI(mx_dim(offsets, 0), mx_dim(offsets, 1), size)));
}

const op_row ops_contrib_bert[] = {
    OP("com.microsoft", "RelativePositionBias", 1, ANY, NULL, relative_position_bias, .types = DTS_FLOAT,
       .host_in = IN(POSITION_QUERIES) | IN(POSITION_KEYS)),
    OP("com.microsoft", "GatedRelativePositionBias", 1, ANY, gated_claim, gated_position_bias, .types = DTS_FLOAT,
       .limits = "no token_offset; a query of rank 3"),
    OP("com.microsoft", "RemovePadding", 1, ANY, NULL, remove_padding, .types = DTS_FLOAT, .host_in = IN(1),
       .traits = OP_NO_TRACE),
    OP("com.microsoft", "RestorePadding", 1, ANY, NULL, restore_padding, .types = DTS_FLOAT, .host_in = IN(1),
       .traits = OP_CHEAP),
    {0}};
