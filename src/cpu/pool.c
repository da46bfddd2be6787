#include "cpu/pool.h"

#include <stdatomic.h>

int cpu_pool_parts(const cpu_pool *pool) {
  return pool && pool->fork && pool->threads > 1 ? pool->threads : 1;
}

void cpu_pool_run(const cpu_pool *pool, int parts, cpu_part_fn fn, void *ctx) {
  if (parts > 1 && cpu_pool_parts(pool) > 1) {
    pool->fork(pool->host, parts, fn, ctx);
    return;
  }
  for (int part = 0; part < parts; part++) fn(ctx, part, parts);
}

typedef struct {
  atomic_size_t next;
  size_t items;
  cpu_item_fn fn;
  void *ctx;
} each_job;

static void each_part(void *ctx, int part, int parts) {
  (void)parts;
  each_job *job = ctx;
  for (;;) {
    const size_t item = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
    if (item >= job->items) return;
    job->fn(job->ctx, item, part);
  }
}

void cpu_pool_each(const cpu_pool *pool, size_t items, cpu_item_fn fn, void *ctx) {
  each_job job = {.items = items, .fn = fn, .ctx = ctx};
  atomic_init(&job.next, 0);
  const int threads = cpu_pool_parts(pool);
  const int parts = items < (size_t)threads ? (int)items : threads;
  cpu_pool_run(pool, parts, each_part, &job);
}
