// com.microsoft: hashes of the n-grams that end at each token: NGramHashMapping, and VarlenNGramHashMapping over packed
// sequences of different lengths, where each begins is read on the host.
#include <limits.h>

#include "base/mem.h"
#include "ops/numeric.h"
#include "ops/op.h"

enum { H_IDS, H_FACTORS, H_SIZES };
enum { P_PAST = 3, P_OFFSETS, P_EOS, P_SEGMENTS };                                       // NGramHashMapping
enum { V_STARTS = 3, V_PAST, V_OFFSETS, V_EOS, V_SEGMENTS, V_PAST_SEGMENTS, V_CAPTURE };  // VarlenNGramHashMapping
enum { GRAMS_MAX = 64 };

typedef struct hashing {
  int grams, heads;      // the longest n-gram; hashes of each length
  size_t offsets, eos;   // inputs
  mx fill;               // rank 0: what stands for tokens that do not count
} hashing;

typedef struct tokens {
  mx ids, segments;  // [B, grams - 1 + length], those before the first come first; segments int32 or NULL
} tokens;

static hashing hashing_of(op *o, size_t offsets, size_t eos) {
  hashing h = {.grams = (int)attr_i(o->n, "max_ngram_size", 2), .heads = (int)attr_i(o->n, "n_head_per_ngram", 1), .offsets = offsets, .eos = eos};
  mx end = in(o, eos), shift = in(o, offsets);
  size_t all = (size_t)(h.grams - 1) * (size_t)h.heads;
  bool fits = mx_size(in(o, H_FACTORS)) >= (size_t)h.grams && mx_size(in(o, H_SIZES)) == all && (!shift || mx_size(shift) == all) &&
              (!end || mx_size(end) == 1);
  if (!fits) op_fail(o, "multipliers, sizes, offsets or eos do not fit n-grams up to %d and %d heads", h.grams, h.heads);
  h.fill = end ? mx_reshape(end, (mx_ints){0}) : mx_scalar_i64(o->s, attr_i(o->n, "pad_id", 0), mx_dtype(in(o, H_IDS)));
  return h;
}

static mx joined(mx a, mx b) {
  mx both[2] = {a, b};
  return mx_concatenate(mx_scope_of(a), both, 2, 1);
}

static mx entries(op *o, size_t i, int from, int to) { return mx_slice_axis(mx_reshape(in(o, i), MXI(-1)), 0, from, to); }

// Bool [B, all]: nothing before this token counts for it and for those behind it, as a segment begins here.
static mx breaks_of(const tokens *t) {
  int all = t->segments ? mx_dim(t->segments, 1) : 0;
  if (all < 2) return NULL;
  mx first = mx_full(mx_scope_of(t->segments), MXI(mx_dim(t->segments, 0), 1), 0, DT_BOOL);
  return joined(first, mx_not_equal(mx_slice_axis(t->segments, 1, 1, all), mx_slice_axis(t->segments, 1, 0, all - 1)));
}

// Hashes [B, length, (grams - 1) * heads].
static mx hashes(op *o, const hashing *h, const tokens *t) {
  int before = h->grams - 1, length = mx_dim(t->ids, 1) - before;
  mx breaks = breaks_of(t), mix = NULL, cut = NULL, parts[GRAMS_MAX];
  bool resets = in(o, h->eos) && attr_i(o->n, "reset_on_eos", 0);
  for (int shift = 0; shift <= before && mx_ok(o->s); shift++) {
    mx token = mx_slice_axis(t->ids, 1, before - shift, before - shift + length);
    mx ends[2] = {shift && resets ? mx_equal(token, h->fill) : NULL,
                  shift && breaks ? mx_slice_axis(breaks, 1, before - shift + 1, before - shift + 1 + length) : NULL};
    for (int i = 0; i < 2; i++)
      if (ends[i]) cut = cut ? mx_logical_or(cut, ends[i]) : ends[i];
    if (cut) token = mx_where(cut, h->fill, token);
    token = mx_mul(token, entries(o, H_FACTORS, shift, shift + 1));
    mix = mix ? mx_bitwise_xor(mix, token) : token;
    if (!shift) continue;
    int at = (shift - 1) * h->heads;
    mx hash = num_mod(mx_expand_dims(mix, MXI(2)), entries(o, H_SIZES, at, at + h->heads));
    parts[shift - 1] = in(o, h->offsets) ? mx_add(hash, entries(o, h->offsets, at, at + h->heads)) : hash;
  }
  return mx_ok(o->s) ? mx_concatenate(o->s, parts, (size_t)before, 2) : h->fill;
}

// ---- NGramHashMapping -------------------------------------------------------------------------------------------------------
static bool is_matrix(mx x, int rows, int columns) { return mx_ndim(x) == 2 && mx_dim(x, 0) == rows && mx_dim(x, 1) == columns; }

static void ngram_hash(op *o) {
  hashing h = hashing_of(o, P_OFFSETS, P_EOS);
  mx ids = in(o, H_IDS), past = in(o, P_PAST), segments = in(o, P_SEGMENTS);
  int batch = mx_dim(ids, 0), length = mx_dim(ids, 1), before = h.grams - 1;
  bool fits = mx_ndim(ids) == 2 && (!past || is_matrix(past, batch, before)) && (!segments || is_matrix(segments, batch, length));
  if (mx_ok(o->s) && !fits) op_fail(o, "past_ids or segment_ids do not fit input_ids of rank %d", mx_ndim(ids));
  if (!mx_ok(o->s)) return;
  tokens t = {.ids = joined(past ? past : mx_broadcast_to(h.fill, MXI(batch, before)), ids)};
  if (segments && length)  // what is past belongs to the first token's segment
    t.segments = joined(mx_broadcast_to(mx_slice_axis(segments, 1, 0, 1), MXI(batch, before)), segments);
  out(o, 0, hashes(o, &h, &t));
  out(o, 1, mx_slice_axis(t.ids, 1, length, length + before));
}

static void hash_claim(claim *c) {
  dtype t = in_type(c, H_IDS);
  int64_t grams = attr_i(c->n, "max_ngram_size", 0), heads = attr_i(c->n, "n_head_per_ngram", 0);
  require_in_types(c, DTYPE_BIT(t) | DTYPE_BIT(DT_I32));
  CLAIM_GOES_ON(c);
  REQUIRE(c, grams >= 2 && grams <= GRAMS_MAX, "max_ngram_size %lld", (long long)grams);
  REQUIRE(c, heads > 0 && heads < 1 << 20, "n_head_per_ngram %lld", (long long)heads);
}

// ---- VarlenNGramHashMapping -------------------------------------------------------------------------------------------------
typedef struct sequences {
  int64_t *starts, *captured;  // [batch + 1], [batch] or NULL
  int batch, total, capacity;
  mx *parts;                   // results of each sequence: hashes, ids, segments, states
} sequences;

enum { PARTS = 4 };

static bool sequences_read(op *o, sequences *q, int before) {
  mx past = in(o, V_PAST), segments = in(o, V_SEGMENTS), old = in(o, V_PAST_SEGMENTS);
  size_t n = 0, want = mx_size(in(o, V_STARTS));
  q->total = (int)mx_size(in(o, H_IDS));
  q->batch = (int)want - 1;
  q->capacity = (int)attr_i(o->n, "state_update_capacity", 0);
  bool fits = want > 0 && mx_ndim(in(o, H_IDS)) == 1 && (!past || is_matrix(past, q->batch, before)) &&
              (!segments || mx_size(segments) == (size_t)q->total) && (!old || is_matrix(old, q->batch, before));
  if (!fits) return op_fail(o, "the inputs do not fit %d tokens of %d sequences", q->total, q->batch), false;
  q->starts = mem_alloc(want * sizeof *q->starts);
  q->captured = mem_alloc(want * sizeof *q->captured);
  q->parts = mem_alloc(want * PARTS * sizeof *q->parts);
  if (!q->starts || !q->captured || !q->parts) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d sequences", q->batch), false;
  if (!host_ints(o, V_STARTS, q->starts, want, &n)) return false;
  bool rises = q->starts[0] == 0 && q->starts[q->batch] == q->total;
  for (int b = 0; rises && b < q->batch; b++) rises = q->starts[b + 1] >= q->starts[b];
  if (!rises) return op_fail(o, "cumulative_sequence_length does not rise from 0 to %d", q->total), false;
  if (!q->capacity) return true;
  if (mx_size(in(o, V_CAPTURE)) != (size_t)q->batch) return op_fail(o, "capture_count must hold %d numbers", q->batch), false;
  return host_ints(o, V_CAPTURE, q->captured, want, &n);
}

// The ids before and up to each of the first tokens, [1, capacity, before]; what is not asked for is padding.
static mx states_of(op *o, const sequences *q, int b, mx ids, int before) {
  int64_t count = q->captured[b], length = mx_dim(ids, 1) - before;
  mx rows[8], pad = mx_scalar_i64(o->s, attr_i(o->n, "pad_id", 0), mx_dtype(ids));
  if (count > length) count = length;
  for (int i = 0; i < q->capacity; i++)
    rows[i] = i < count ? mx_slice_axis(ids, 1, i + 1, i + 1 + before) : mx_broadcast_to(pad, MXI(1, before));
  return mx_stack(o->s, rows, (size_t)q->capacity, 1);
}

static void one_sequence(op *o, const hashing *h, sequences *q, int b) {
  int from = (int)q->starts[b], to = (int)q->starts[b + 1], before = h->grams - 1, n = q->batch;
  mx ids = mx_expand_dims(mx_slice_axis(in(o, H_IDS), 0, from, to), MXI(0)), past = in(o, V_PAST), segments = in(o, V_SEGMENTS);
  tokens t = {.ids = joined(past ? mx_slice_axis(past, 0, b, b + 1) : mx_broadcast_to(h->fill, MXI(1, before)), ids)};
  if (segments) {
    mx here = mx_reshape(mx_slice_axis(mx_reshape(segments, MXI(-1)), 0, from, to), MXI(1, to - from)), old = in(o, V_PAST_SEGMENTS);
    mx same = to > from ? mx_slice_axis(here, 1, 0, 1) : mx_full(o->s, MXI(1, 1), 0, DT_I32);
    t.segments = joined(old ? mx_slice_axis(old, 0, b, b + 1) : mx_broadcast_to(same, MXI(1, before)), here);
    q->parts[2 * n + b] = mx_slice_axis(t.segments, 1, to - from, to - from + before);
  }
  q->parts[b] = mx_squeeze(hashes(o, h, &t), MXI(0));
  q->parts[n + b] = mx_slice_axis(t.ids, 1, to - from, to - from + before);
  if (q->capacity) q->parts[3 * n + b] = states_of(o, q, b, t.ids, before);
}

static void varlen_ngram_hash(op *o) {
  hashing h = hashing_of(o, V_OFFSETS, V_EOS);
  sequences q = {0};
  if (mx_ok(o->s) && sequences_read(o, &q, h.grams - 1)) {
    size_t n = (size_t)q.batch;
    for (int b = 0; b < q.batch && mx_ok(o->s); b++) one_sequence(o, &h, &q, b);
    if (!n) op_fail(o, "there is no sequence");
    for (size_t i = 0; i < PARTS && mx_ok(o->s); i++)
      if (q.parts[i * n]) out(o, i, mx_concatenate(o->s, q.parts + i * n, n, 0));
  }
  mem_free(q.starts);
  mem_free(q.captured);
  mem_free(q.parts);
}

static void varlen_claim(claim *c) {
  int64_t capacity = attr_i(c->n, "state_update_capacity", 0);
  hash_claim(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, capacity >= 0 && capacity <= 8, "state_update_capacity %lld", (long long)capacity);
  REQUIRE(c, (capacity > 0) == has_in(c, V_CAPTURE), "capture_count and state_update_capacity must come together");
  REQUIRE(c, has_in(c, V_SEGMENTS) || !has_out(c, 2), "present_segment_ids without segment_ids");
  REQUIRE(c, capacity || !has_out(c, 3), "state_update without state_update_capacity");
}

#define MS "com.microsoft"
const op_row ops_ngram_hash[] = {
    OP(MS, "NGramHashMapping", 1, ANY, hash_claim, ngram_hash, .types = DTYPE_BIT(DT_I32) | DTYPE_BIT(DT_I64),
       .limits = "n-grams of 64 tokens at most"),
    OP(MS, "VarlenNGramHashMapping", 1, ANY, varlen_claim, varlen_ngram_hash,
       .types = DTYPE_BIT(DT_I32) | DTYPE_BIT(DT_I64), .host_in = IN(V_STARTS) | IN(V_CAPTURE), .traits = OP_NO_TRACE,
       .limits = "n-grams of 64 tokens at most; a state_update_capacity of 8 at most"),
    {0}};
