// com.microsoft: repeated n-grams, and a hash of numbers.
#include <limits.h>
#include <math.h>

#include "base/mem.h"
#include "ops/matmul.h"

// Input i, int32 or int64, on the host; to be freed with mem_free. NULL on failure.
static int64_t *read_tokens(op *o, size_t i, size_t *n) {
  size_t count = mx_size(in(o, i));
  int64_t *v = mem_alloc((count + 1) * sizeof *v);
  if (!v) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %zu tokens", count);
  if (v && host_ints(o, i, v, count, n)) return v;
  mem_free(v);
  return NULL;
}

// ---- NGramRepeatBlock -----------------------------------------------------------------------------------------------------
enum { BLOCK_IDS, BLOCK_SCORES };

static bool equal(const int64_t *a, const int64_t *b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (a[i] != b[i]) return false;
  return true;
}

// Marks the tokens that would repeat an n-gram of ids[0, length).
static void ban(op *o, const int64_t *ids, int length, int64_t n, uint8_t *banned, int words) {
  for (int64_t i = 0; i + n <= length; i++) {
    int64_t token = ids[i + n - 1];
    if (!equal(ids + i, ids + length + 1 - n, n - 1)) continue;
    if (token < 0 || token >= words) {
      op_fail(o, "token %lld is out of range for %d scores", (long long)token, words);
      return;
    }
    banned[token] = 1;
  }
}

static void ngram_repeat_block(op *o) {
  mx ids = in(o, BLOCK_IDS), x = in(o, BLOCK_SCORES);
  if (mx_ndim(ids) != 2 || mx_ndim(x) != 2 || mx_dim(ids, 0) != mx_dim(x, 0)) {
    op_fail(o, "tokens of rank %d and scores of rank %d do not fit", mx_ndim(ids), mx_ndim(x));
    return;
  }
  int batch = mx_dim(x, 0), words = mx_dim(x, 1), length = mx_dim(ids, 1);
  int64_t n = attr_i(o->n, "ngram_size", 0);
  size_t count = 0;
  if (n > length || !mx_size(x)) {
    out(o, 0, x);
    return;
  }
  int64_t *v = read_tokens(o, BLOCK_IDS, &count);
  uint8_t *banned = v ? mem_alloc(mx_size(x)) : NULL;
  if (v && !banned) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %zu scores", mx_size(x));
  for (int b = 0; banned && b < batch && mx_ok(o->s); b++)
    ban(o, v + (size_t)b * (size_t)length, length, n, banned + (size_t)b * (size_t)words, words);
  if (mx_ok(o->s)) out(o, 0, mx_where(mx_from(o->s, banned, DT_BOOL, mx_shape(x)), mx_scalar(x, -(double)INFINITY), x));
  mem_free(banned);
  mem_free(v);
}

static void block_claim(claim *c) {
  require_types(c, BLOCK_IDS, DTYPE_BIT(DT_I64));
  CLAIM_GOES_ON(c);
  REQUIRE(c, attr_i(c->n, "ngram_size", 0) > 0, "ngram_size %lld", (long long)attr_i(c->n, "ngram_size", 0));
}

// ---- BifurcationDetector ----------------------------------------------------------------------------------------------------
enum { FORK_SOURCE, FORK_CURRENT, FORK_MATCH, FORK_PREDICTED };

// Where pattern[0, n) begins in text[from, length); -1 if it does not.
static int64_t find(const int64_t *text, int64_t from, int64_t length, const int64_t *pattern, int64_t n) {
  for (int64_t i = from; i + n <= length; i++)
    if (equal(text + i, pattern, n)) return i;
  return -1;
}

// The place behind the one match of the last n-gram of tokens in the source, for the longest n that tells it.
static int64_t suffix_match(const node *op_node, const int64_t *source, int64_t length, const int64_t *tokens, int64_t count) {
  int64_t match = -1, last = attr_i(op_node, "max_ngram_size", 3);
  for (int64_t n = attr_i(op_node, "min_ngram_size", 1); n <= last && n <= count; n++) {
    const int64_t *gram = tokens + count - n;
    int64_t at = find(source, 0, length, gram, n);
    if (at < 0) return match;
    match = at + n;
    if (match >= length) return match;
    if (find(source, at + 1, length, gram, n) >= 0) match = -1;
  }
  return match;
}

// How many predicted tokens are taken over: those that the source has too, and the one behind them. 0 after a failure.
static size_t taken_over(op *o, const int64_t *source, size_t length, const int64_t *predicted, size_t n) {
  int64_t match = 0;
  if (!host_int(o, FORK_MATCH, &match)) return 0;
  if (match < 0 || match > (int64_t)length || n != length + 1 - (size_t)match) {
    op_fail(o, "%zu predicted tokens from place %lld of %zu", n, (long long)match, length);
    return 0;
  }
  size_t same = 0;
  while (same + 1 < n && predicted[same] == source[(size_t)match + same]) same++;
  return same + 1;
}

static void bifurcation_detector(op *o) {
  size_t length = 0, count = 0, n = 0, taken = 0;
  int64_t *source = read_tokens(o, FORK_SOURCE, &length), *predicted = NULL;
  int64_t *tokens = mem_alloc((mx_size(in(o, FORK_CURRENT)) + mx_size(in(o, FORK_SOURCE)) + 2) * sizeof *tokens);
  if (!tokens) mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
  bool ok = source && tokens && host_ints(o, FORK_CURRENT, tokens, mx_size(in(o, FORK_CURRENT)), &count);
  if (ok && in(o, FORK_PREDICTED)) {
    predicted = read_tokens(o, FORK_PREDICTED, &n);
    if (predicted) taken = taken_over(o, source, length, predicted, n);
    ok = mx_ok(o->s);
  }
  for (size_t i = 0; ok && i < taken; i++) tokens[count++] = predicted[i];
  if (ok) {
    int64_t match = suffix_match(o->n, source, (int64_t)length, tokens, (int64_t)count);
    out(o, 0, count ? mx_i64s(o->s, tokens, (int)count) : mx_full(o->s, MXI(0), 0, DT_I64));
    out(o, 1, mx_reshape(mx_i64s(o->s, &match, 1), mx_shape(in(o, FORK_MATCH))));
  }
  mem_free(source);
  mem_free(predicted);
  mem_free(tokens);
}

static void fork_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) == 1, "tokens of rank %d", in_rank(c, 0));
  REQUIRE(c, attr_i(c->n, "min_ngram_size", 1) > 0, "min_ngram_size %lld", (long long)attr_i(c->n, "min_ngram_size", 1));
}

// ---- MurmurHash3 ------------------------------------------------------------------------------------------------------------
// The 32-bit hash for 32-bit machines, of the 4 or 8 bytes of each element.
static mx word(mx like, uint32_t v) { return mx_scalar_i64(mx_scope_of(like), v, DT_U32); }
static mx times(mx x, uint32_t v) { return mx_mul(x, word(x, v)); }
static mx turned(mx x, unsigned by) { return mx_bitwise_or(mx_left_shift(x, word(x, by)), mx_right_shift(x, word(x, 32 - by))); }
static mx folded(mx x, unsigned by) { return mx_bitwise_xor(x, mx_right_shift(x, word(x, by))); }

static mx mixed_in(mx h, mx k) {
  k = times(turned(times(k, 0xcc9e2d51u), 15), 0x1b873593u);
  h = turned(mx_bitwise_xor(h, k), 13);
  return mx_add(times(h, 5), word(h, 0xe6546b64u));
}

static void murmur_hash(op *o) {
  mx x = in(o, 0);
  int bytes = (int)dtype_size(mx_dtype(x));
  mx bits = mx_view(x, bytes == 8 ? DT_U64 : DT_U32);
  mx low = mx_astype(bytes == 8 ? mx_bitwise_and(bits, mx_scalar_i64(o->s, 0xffffffff, DT_U64)) : bits, DT_U32);
  mx h = mixed_in(mx_broadcast_to(word(low, (uint32_t)attr_i(o->n, "seed", 0)), mx_shape(x)), low);
  if (bytes == 8) h = mixed_in(h, mx_astype(mx_right_shift(bits, mx_scalar_i64(o->s, 32, DT_U64)), DT_U32));
  h = mx_bitwise_xor(h, word(h, (uint32_t)bytes));
  h = folded(times(folded(times(folded(h, 16), 0x85ebca6bu), 13), 0xc2b2ae35u), 16);
  out(o, 0, want_type(o, 0) == DT_I32 ? mx_view(h, DT_I32) : h);
}

#define MS "com.microsoft"
const op_row ops_ngram[] = {
    OP(MS, "NGramRepeatBlock", 1, ANY, block_claim, ngram_repeat_block, .types = DTYPE_BIT(DT_F32),
       .typed_in = IN(BLOCK_SCORES), .host_in = IN(BLOCK_IDS), .traits = OP_NO_TRACE, .limits = "a positive ngram_size"),
    OP(MS, "BifurcationDetector", 1, ANY, fork_claim, bifurcation_detector, .types = DTYPE_BIT(DT_I64),
       .typed_in = ALL_IN, .host_in = IN(0) | IN(1) | IN(2) | IN(3), .traits = OP_NO_TRACE,
       .limits = "tokens of rank 1; a positive min_ngram_size"),
    OP(MS, "MurmurHash3", 1, ANY, NULL, murmur_hash, .types = DTS_WIDE_INT | DTYPE_BIT(DT_F32) | DTYPE_BIT(DT_F64)),
    {0}};
