// Fork-join without threads of its own. Invariant: cpu_pool_run returns after every part has run exactly once; the
// kernels never start a thread, they run on the host's pool through `fork`, or on the caller when there is none.
#pragma once
#include <stddef.h>

// One part of the work, part in [0, parts). Parts of one run may run in any order and at the same time.
typedef void (*cpu_part_fn)(void *ctx, int part, int parts);

typedef struct cpu_pool {
  int threads;  // how many parts can run at once; 0 and 1 mean the caller alone
  // Calls fn(ctx, p, parts) once for each p and waits for all of them. NULL = the caller runs all parts itself.
  void (*fork)(void *host, int parts, cpu_part_fn fn, void *ctx);
  void *host;  // handed to fork; not owned
} cpu_pool;

// The parts worth making: threads, or 1 without a fork. pool may be NULL.
int cpu_pool_parts(const cpu_pool *pool);

// Runs fn for parts 0..parts-1. pool may be NULL (the caller runs all).
void cpu_pool_run(const cpu_pool *pool, int parts, cpu_part_fn fn, void *ctx);

// One item of many; `part` < cpu_pool_parts(pool), and no two items run at the same time with the same part.
typedef void (*cpu_item_fn)(void *ctx, size_t item, int part);

// Runs fn for items 0..items-1; a part that is done early takes the next item.
void cpu_pool_each(const cpu_pool *pool, size_t items, cpu_item_fn fn, void *ctx);
