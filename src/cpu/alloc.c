#include "cpu/alloc.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

enum { LINE = 64 };

static atomic_long fail_after;  // 0 = off, n > 0 = the n-th allocation fails, -1 = all fail

void cpu_alloc_fail_after(long n) { atomic_store(&fail_after, n); }

static bool must_fail(void) {
  const long left = atomic_load_explicit(&fail_after, memory_order_relaxed);
  if (left == 0) return false;
  if (left > 0) atomic_store(&fail_after, left == 1 ? -1 : left - 1);
  return left <= 1;
}

void *cpu_alloc(size_t bytes) {
  if (bytes > SIZE_MAX - LINE || must_fail()) return NULL;
  const size_t rounded = (bytes + LINE - 1) / LINE * LINE;
  return aligned_alloc(LINE, rounded ? rounded : LINE);
}

void cpu_free(void *p) { free(p); }

bool cpu_alloc_add(size_t *total, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - LINE) return false;
  bytes = (bytes + LINE - 1) / LINE * LINE;
  return !__builtin_add_overflow(*total, bytes, total);
}
