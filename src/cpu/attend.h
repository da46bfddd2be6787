// Attention of new rows over a cache and over themselves, on the host. Invariant: a row of the cache that no query sees is
// never part of a result, whatever it holds.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/pool.h"

typedef enum { CPU_F32 = 0, CPU_F16, CPU_BF16 } cpu_float;

typedef enum { CPU_MASK_BOOL = 0, CPU_MASK_F32, CPU_MASK_TYPE } cpu_mask;  // bytes, floats, of q's type

typedef struct cpu_rows {  // [batch, heads, rows, size]
  const void *p;           // NULL: there are none
  int64_t stride[4];       // in elements
} cpu_rows;

typedef struct cpu_attend {
  int64_t batch, heads, kv_heads, rows, size, value_size, past;
  cpu_float type;              // of q, k, v, the past and y
  cpu_rows q, k, v, past_k, past_v;
  const int32_t *past_len;     // [batch]: valid rows of the past, brought into [0, past]; NULL: all
  cpu_rows mask;               // broadcast to [batch, heads, rows, >= past_len + rows] by strides of 0; see mx_attend
  cpu_mask mask_kind;
  int64_t columns;             // of the mask; a key beyond them is not seen
  const float *sink;           // [heads] or NULL
  float scale, cap;
  int64_t window;              // 0: none
  bool causal;
  void *y;                     // [batch, heads, rows, value_size], row-major
} cpu_attend;

typedef enum { CPU_ATTEND_AUTO = 0, CPU_ATTEND_PLAIN, CPU_ATTEND_AVX2, CPU_ATTEND_AVX512 } cpu_attend_isa;
bool cpu_attend_has(cpu_attend_isa isa);  // on this machine, in this build
// False when out of memory. pool may be NULL.
bool cpu_attend_run(const cpu_pool *pool, const cpu_attend *a, cpu_attend_isa isa);
