#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

bool size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
bool size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

bool dims_count(const int64_t *dims, int rank, size_t *out) {
  size_t n = 1;
  for (int i = 0; i < rank; i++)
    if (dims[i] < 0 || !size_mul(n, (size_t)dims[i], &n)) return false;
  *out = n;
  return true;
}

static atomic_long fail_in = 0;  // allocations left before failure; 0 = off

void mem_fail_after(long n) { atomic_store(&fail_in, n); }

static bool injected_failure(void) {
  if (atomic_load_explicit(&fail_in, memory_order_relaxed) == 0) return false;
  long left = atomic_load(&fail_in);
  while (left > 1)
    if (atomic_compare_exchange_weak(&fail_in, &left, left - 1)) return false;
  return left == 1;
}

void *mem_alloc(size_t bytes) { return injected_failure() ? NULL : calloc(1, bytes ? bytes : 1); }
void mem_free(void *p) { free(p); }

enum { BLOCK_BYTES = 16 * 1024, ALIGN = 16 };

typedef struct block {
  struct block *next;
  size_t used, size;
  _Alignas(ALIGN) unsigned char data[];
} block;

struct arena {
  block *head;
};

arena *arena_new(void) { return mem_alloc(sizeof(arena)); }

void arena_free(arena *a) {
  if (!a) return;
  for (block *b = a->head; b;) {
    block *next = b->next;
    mem_free(b);
    b = next;
  }
  mem_free(a);
}

static block *block_new(size_t bytes) {
  size_t total;
  size_t payload = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
  if (!size_add(payload, sizeof(block), &total)) return NULL;
  block *b = mem_alloc(total);
  if (b) b->size = payload;
  return b;
}

void *arena_alloc(arena *a, size_t count, size_t size) {
  size_t bytes;
  if (!size_mul(count, size, &bytes) || !size_add(bytes, ALIGN - 1, &bytes)) return NULL;
  bytes &= ~(size_t)(ALIGN - 1);
  if (!a->head || a->head->size - a->head->used < bytes) {
    block *b = block_new(bytes);
    if (!b) return NULL;
    b->next = a->head;
    a->head = b;
  }
  void *p = a->head->data + a->head->used;
  a->head->used += bytes;
  return p;
}

void *arena_copy(arena *a, const void *p, size_t bytes) {
  void *q = arena_alloc(a, bytes, 1);
  if (q && bytes) memcpy(q, p, bytes);
  return q;
}

char *arena_str(arena *a, const char *s) { return s ? arena_copy(a, s, strlen(s) + 1) : NULL; }
