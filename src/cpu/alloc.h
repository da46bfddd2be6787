// Memory of the CPU kernels. Invariant: every block starts on a 64-byte line and is released with cpu_free.
#pragma once
#include <stdbool.h>
#include <stddef.h>

void *cpu_alloc(size_t bytes);  // not cleared; NULL when out of memory
void cpu_free(void *p);         // NULL is fine

// *total += count * size, rounded up to 64 bytes; false on overflow. Lays out the pieces of one block.
bool cpu_alloc_add(size_t *total, size_t count, size_t size);

// Test hook: the n-th cpu_alloc from now (1 = the next) and all later ones fail; 0 switches it off.
void cpu_alloc_fail_after(long n);
