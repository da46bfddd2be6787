// Products with block-quantised weights, as com.microsoft MatMulNBits defines them: y = x * w^T + bias, where
// w[n][k] = (q[n][k] - zero[n][k / block]) * scale[n][k / block].
// Invariant: a packed cpu_nbits is never written after cpu_nbits_pack, so any number of threads may multiply with it at
// the same time; what a product needs besides is allocated in that call and released before it returns.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/pool.h"

typedef struct cpu_nbits cpu_nbits;

// The instruction set of the kernels. AUTO takes the last one that this CPU runs; the others are there for tests.
typedef enum { CPU_NBITS_AUTO, CPU_NBITS_SCALAR, CPU_NBITS_AVX2, CPU_NBITS_AVX512 } cpu_nbits_isa;

// Weights in the operator's own layout; nothing is kept after packing. blocks = ceil(k / block).
typedef struct {
  size_t n, k;           // w is [n, k]
  int bits;              // 2, 4 or 8
  int block;             // weights to a scale along k: a power of two from 16 to 256
  const uint8_t *q;      // [n, blocks, block * bits / 8], lowest bits first; the last block is padded
  const float *scales;   // [n, blocks]
  const uint8_t *zeros;  // [n, ceil(blocks * bits / 8)], lowest bits first; NULL = 2^(bits - 1) everywhere
  const float *float_zeros;  // [n, blocks]; NULL = none. When given, zeros is not read.
} cpu_nbits_source;

bool cpu_nbits_isa_runs(cpu_nbits_isa isa);          // can this CPU run it
bool cpu_nbits_accepts(int bits, int block);         // is there a kernel for this form

// Weights packed for the kernels of isa; free with cpu_nbits_free. NULL when out of memory, when a size overflows, or
// when the form or the isa is not supported (ask the two functions above to tell).
cpu_nbits *cpu_nbits_pack(const cpu_nbits_source *source, cpu_nbits_isa isa);
void cpu_nbits_free(cpu_nbits *w);  // NULL is fine
cpu_nbits_isa cpu_nbits_packed_for(const cpu_nbits *w);

// y[m, n] = x[m, k] * w^T + bias[n]; rows contiguous, y must not overlap x, bias may be NULL, pool may be NULL.
// accuracy_level 4 rounds each row of x to int8 by blocks of w's block size; every other level computes in f32.
// A row of x that holds NaN or infinity is computed in f32 at every level, so it ends as f32 arithmetic ends it; at
// level 4 a block of x below 1e-36 in absolute value counts as zero.
// Returns 0, or -1 when out of memory (then y is undefined).
int cpu_nbits_matmul(const cpu_pool *pool, const cpu_nbits *w, int accuracy_level, size_t m, const float *x,
                     const float *bias, float *y);
