#include "run/cache.h"

#include <string.h>

#include "cpu/pool.h"

enum { WORTH_A_FORK = 1 << 18 };

static const tensor *past_of(const layout *l, const run_io *io, size_t i, size_t *c) {
  *c = (size_t)l->cache_of[i];
  const cache_node *k = &l->caches[*c];
  return &io->in[k->past[k->present[0] == i ? 0 : 1]];
}

static int64_t place_of(const int32_t *places, size_t n, int64_t b, int64_t behind) {
  int32_t at = places[n == 1 ? 0 : b];
  return at == CACHE_BEHIND ? behind : at;
}

bool cache_places_fit(const layout *l, const facts *f, const run_io *io, size_t c, const int32_t *places, size_t n) {
  const tensor *past = &io->in[l->caches[c].past[0]];
  if (n != 1 && n != (size_t)past->dims[0]) return false;
  int64_t held = past->dims[CACHE_ROWS];
  if (n == 1 && places[0] == CACHE_BEHIND) return f->past == held;
  if (f->past < held) held = f->past;
  for (size_t b = 0; b < n; b++)
    if (places[b] < 0 || places[b] > held || places[b] + f->rows > f->total) return false;
  return true;
}

typedef struct copy_job {
  const char *past, *rows;
  char *to;
  int64_t heads, old, fresh, all;  // rows of each head: of the past, new ones, of the present
  size_t row;                      // bytes
  const int32_t *places;
  size_t n;
  bool in_place;
} copy_job;

static void copy_head(void *ctx, size_t item, int part) {
  (void)part;
  const copy_job *j = ctx;
  int64_t k = (int64_t)item;
  size_t row = j->row;
  char *to = j->to + (size_t)(k * j->all) * row;
  if (!j->in_place) {
    if (j->old) memcpy(to, j->past + (size_t)(k * j->old) * row, (size_t)j->old * row);
    memset(to + (size_t)j->old * row, 0, (size_t)(j->all - j->old) * row);
  }
  int64_t at = place_of(j->places, j->n, k / j->heads, j->old);
  memcpy(to + (size_t)at * row, j->rows + (size_t)(k * j->fresh) * row, (size_t)j->fresh * row);
}

bool cache_write(const layout *l, const run_io *io, size_t i, const void *rows, const int64_t dims[4], size_t element,
                 const int32_t *places, size_t n, err *e) {
  size_t c;
  const tensor *past = past_of(l, io, i, &c);
  copy_job j = {.past = past->data, .rows = rows, .heads = dims[1], .old = past->dims[CACHE_ROWS], .fresh = dims[CACHE_ROWS],
                .all = past->dims[CACHE_ROWS], .row = (size_t)dims[3] * element, .places = places, .n = n};
  for (int64_t b = 0; b < dims[0]; b++) {
    int64_t end = place_of(places, n, b, j.old) + j.fresh;
    if (end > j.all) j.all = end;
  }
  int64_t shape[4] = {dims[0], dims[1], j.all, dims[3]};
  j.to = io->output(io->host, i, shape, 4, e);
  if (!err_ok(e)) return false;
  size_t heads = (size_t)(dims[0] * dims[1]);
  if (!heads || !j.row || !j.all) return true;
  j.in_place = j.to == j.past && j.all == j.old;
  size_t bytes = heads * (size_t)(j.in_place ? j.fresh : j.all) * j.row;
  if (io->counted) COUNT(io->counted, bytes_copied, bytes);
  cpu_pool_each(bytes > WORTH_A_FORK ? io->pool : NULL, heads, copy_head, &j);
  return true;
}
