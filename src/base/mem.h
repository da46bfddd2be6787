// Memory. Invariant: what dies together is allocated together, in one arena; sizes that come from a model pass the
// checked products below. Every allocation of the C code goes through mem_alloc, so that tests can fail the n-th one.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool size_mul(size_t a, size_t b, size_t *out);  // false on overflow
bool size_add(size_t a, size_t b, size_t *out);  // false on overflow

// Elements of a shape; false on overflow or a negative dim. rank 0 gives 1.
bool dims_count(const int64_t *dims, int rank, size_t *out);

void *mem_alloc(size_t bytes);  // zeroed; NULL when out of memory; released with mem_free
void mem_free(void *p);         // NULL is fine

// Test hook: the n-th mem_alloc from now (1 = the next) and all later ones fail; 0 switches it off.
void mem_fail_after(long n);

typedef struct arena arena;
arena *arena_new(void);  // NULL when out of memory
void arena_free(arena *a);  // NULL is fine; releases everything allocated in it
// count * size zeroed bytes, 16-byte aligned; NULL on overflow or when out of memory.
void *arena_alloc(arena *a, size_t count, size_t size);
char *arena_str(arena *a, const char *s);  // a copy; NULL when out of memory or s is NULL
void *arena_copy(arena *a, const void *p, size_t bytes);
#define ARENA_NEW(a, type) ((type *)arena_alloc((a), 1, sizeof(type)))
#define ARENA_ARRAY(a, type, n) ((type *)arena_alloc((a), (n), sizeof(type)))
