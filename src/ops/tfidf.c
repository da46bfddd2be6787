// TfIdfVectorizer over integers: counts of the n-grams of a pool, on the host, as the work is search and not arithmetic.
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ops/index.h"

typedef struct gram {
  const int64_t *token;  // of the node's attribute
  int64_t n, column;
} gram;

typedef struct pool {
  arena *mem;
  gram *grams;  // sorted
  size_t n;
  int64_t columns;
  bool in_order;  // the i-th gram counts in column i
} pool;

static int by_tokens(const void *x, const void *y) {
  const gram *a = x, *b = y;
  if (a->n != b->n) return a->n < b->n ? -1 : 1;
  for (int64_t i = 0; i < a->n; i++)
    if (a->token[i] != b->token[i]) return a->token[i] < b->token[i] ? -1 : 1;
  return 0;
}

// Cuts the pool into grams: those of one token, then of two and so on, from the places that ngram_counts names.
static const char *pool_fill(pool *p, const node *n) {
  size_t n_tokens = 0, n_starts = 0, n_columns = 0, at = 0;
  const int64_t *token = attr_ints(n, "pool_int64s", &n_tokens), *start = attr_ints(n, "ngram_counts", &n_starts);
  const int64_t *column = attr_ints(n, "ngram_indexes", &n_columns);
  if (!token || !start || !column) return "there is no pool of integers";
  p->grams = ARENA_ARRAY(p->mem, gram, n_columns + 1);
  if (!p->grams) return "out of memory for the pool";
  p->in_order = true;
  for (size_t i = 0; i < n_starts; i++) {
    int64_t from = start[i], to = i + 1 < n_starts ? start[i + 1] : (int64_t)n_tokens, size = (int64_t)i + 1;
    if (from < 0 || to < from || to > (int64_t)n_tokens || (to - from) % size) return "ngram_counts does not fit the pool";
    for (; from < to; from += size, at++) {
      if (at == n_columns || column[at] < 0 || column[at] >= 1 << 28) return "ngram_indexes does not fit the pool";
      p->grams[at] = (gram){token + from, size, column[at]};
      p->in_order = p->in_order && column[at] == (int64_t)at;
      if (column[at] >= p->columns) p->columns = column[at] + 1;
    }
  }
  if (at == 0 || at != n_columns) return "ngram_indexes does not fit the pool";
  p->n = at;
  qsort(p->grams, p->n, sizeof *p->grams, by_tokens);
  for (size_t i = 1; i < p->n; i++)
    if (!by_tokens(&p->grams[i - 1], &p->grams[i])) return "an n-gram is there twice";
  return NULL;
}

static pool *pool_new(const node *n, const char **why) {
  arena *mem = arena_new();
  pool *p = mem ? ARENA_NEW(mem, pool) : NULL;
  *why = "out of memory for the pool";
  if (p) {
    p->mem = mem;
    *why = pool_fill(p, n);
  }
  if (!*why) return p;
  arena_free(mem);
  return NULL;
}

static void pool_free(void *p) {
  if (p) arena_free(((pool *)p)->mem);
}

static void *pool_prepare(const node *n, mx_device d, err *e) {
  const char *why;
  (void)d;
  pool *p = pool_new(n, &why);
  if (!p) FAIL(e, ERR_NO_MEMORY, "%s", why);
  return p;
}

// Counts the grams of one row: of each length, with every number of tokens skipped between two.
static void count_row(const op *o, const pool *p, const int64_t *row, int64_t length, int64_t *gathered, float *counts) {
  int64_t least = attr_i(o->n, "min_gram_length", 1), most = attr_i(o->n, "max_gram_length", 1), skips = attr_i(o->n, "max_skip_count", 0);
  for (int64_t size = least; size <= most && size <= length; size++)
    for (int64_t step = 1; step <= (size == 1 ? 1 : skips + 1) && step * (size - 1) < length; step++)
      for (int64_t at = 0; at + step * (size - 1) < length; at++) {
        for (int64_t i = 0; i < size; i++) gathered[i] = row[at + i * step];
        gram want = {gathered, size, 0};
        const gram *found = bsearch(&want, p->grams, p->n, sizeof want, by_tokens);
        if (found) counts[found->column] += 1;
      }
}

static void weigh(const op *o, float *counts, int64_t columns) {
  size_t n = 0;
  const float *w = attr_floats(o->n, "weights", &n);
  const char *mode = attr_s(o->n, "mode", "TF");
  for (int64_t c = 0; c < columns; c++) {
    float weight = w ? w[c] : 1;
    if (!strcmp(mode, "IDF")) counts[c] = counts[c] > 0 ? weight : 0;
    if (!strcmp(mode, "TFIDF")) counts[c] *= weight;
  }
}

static void tfidf(op *o) {
  const pool *p = o->prepared;
  mx x = in(o, 0);
  size_t tokens = mx_size(x), n = 0, cells = 0;
  int rank = mx_ndim(x);
  if (rank > 2) op_fail(o, "the input has rank %d, not 1 or 2", rank);
  int64_t rows = rank == 2 ? mx_dim(x, 0) : 1, length = rank == 2 ? mx_dim(x, 1) : (int64_t)tokens;
  bool fits = size_mul((size_t)rows, (size_t)p->columns, &cells) && cells < 1u << 30;
  int64_t *v = mx_ok(o->s) ? mem_alloc((tokens + (size_t)length + 1) * sizeof *v) : NULL;
  float *counts = fits ? mem_alloc((cells + 1) * sizeof *counts) : NULL;
  if (!v || !counts) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %lld rows of counts", (long long)rows);
  if (v && counts && host_ints(o, 0, v, tokens, &n)) {
    for (int64_t r = 0; r < rows; r++) {
      count_row(o, p, v + r * length, length, v + tokens, counts + r * p->columns);
      weigh(o, counts + r * p->columns, p->columns);
    }
    out(o, 0, mx_from(o->s, counts, DT_F32, rank == 2 ? MXI((int)rows, (int)p->columns) : MXI((int)p->columns)));
  }
  mem_free(v);
  mem_free(counts);
}

static void tfidf_claim(claim *c) {
  const char *why, *mode = attr_s(c->n, "mode", "TF");
  size_t weights = 0;
  bool weighed = attr_floats(c->n, "weights", &weights) != NULL;
  REQUIRE(c, !strcmp(mode, "TF") || !strcmp(mode, "IDF") || !strcmp(mode, "TFIDF"), "mode '%s'", mode);
  REQUIRE(c, attr_i(c->n, "min_gram_length", 1) >= 1, "min_gram_length is below 1");
  pool *p = pool_new(c->n, &why);
  REQUIRE(c, p, "%s", why);
  bool fits = !weighed || (p->in_order && weights == (size_t)p->columns);
  pool_free(p);
  REQUIRE(c, fits, "weights with n-grams that do not count in their order");
}

const op_row ops_tfidf[] = {OP("", "TfIdfVectorizer", 9, ANY, tfidf_claim, tfidf,
                               .types = DTYPE_BIT(DT_I32) | DTYPE_BIT(DT_I64), .host_in = IN(0),
                               .traits = OP_NO_TRACE | OP_CHEAP, .prepare = pool_prepare, .unprepare = pool_free,
                               .limits = "integer n-grams, each column one; weights with n-grams in their order only"),
                            {0}};
