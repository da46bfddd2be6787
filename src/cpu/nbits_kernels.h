// What nbits.c and the kernels of one instruction set share. Invariant: the packed form depends on the kernels only
// by their panel width. A panel is `width` columns of the product (rows of w); its blocks follow each other, and a
// block is block * bits / 32 groups of `width` words, one word a column with 32 / bits weights. Weight j of a word sits
// at bit 8 * (j % 4) + bits * (j / 4): a byte of each of four neighbours along k, as 8-bit dot products want it.
// Weights past k are zero bits; columns past n are zero bits with scale 0.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/nbits.h"

#define NBITS_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define NBITS_UNROLL _Pragma("unroll")
#else
#define NBITS_UNROLL _Pragma("GCC unroll 32")
#endif

enum {
  NBITS_RUN = 16,            // weights along k that kernels take at a time; divides every block
  NBITS_MAX_ROWS = 8,        // no kernel takes more rows of x at a time
  NBITS_EXPONENT_OF_1 = 150  // float exponent under which the lowest mantissa bit is worth 1
};

// Rows of x rounded to int8. Row r, block b: x ~ scale * q.
typedef struct {
  size_t stride;       // bytes from a row to the next: blocks * block, padded with zeros
  int8_t *q;           // [m, stride]
  float *scale;        // [m, blocks]
  int32_t *minus_sum;  // [m, blocks], minus the sum of q; fits 16 bits (256 * 127)
} nbits_rows;

typedef struct {
  cpu_nbits_isa isa;
  size_t width;        // columns in a panel
  size_t tile_rows;    // rows that few and int8 take at most
  size_t gemm_rows;    // rows that gemm takes at most; 0 = no gemm, use few for any m
  size_t gemm_panels;  // panels that gemm takes at a time
  size_t gemm_from;    // gemm pays from this many rows
  // y[rows, panel] in f32 straight from packed weights. x needs readable values up to a multiple of 16 along k.
  void (*few)(const cpu_nbits *w, size_t panel, size_t rows, const float *x, size_t ldx, const float *bias, float *y);
  // The weights of blocks [first, end) of a panel as f32: out[k][ld], k from 0, `width` values a row.
  void (*expand)(const cpu_nbits *w, size_t panel, size_t first, size_t end, float *out, size_t ld);
  // y[rows, columns] (+)= x[rows, k] * b[k, width * gemm_panels]. add false starts from bias (or 0 when it is NULL).
  void (*gemm)(size_t rows, size_t columns, size_t k, const float *x, size_t ldx, const float *b, bool add,
               const float *bias, float *y, size_t ldy);
  // Rounds row r of x (k values) into rows; false when it holds NaN or infinity (then the row is not usable).
  bool (*quantise)(const cpu_nbits *w, const float *x, const nbits_rows *rows, size_t r);
  // y[rows, panel] from rounded rows r.., written at y's row 0.
  void (*int8)(const cpu_nbits *w, size_t panel, size_t rows, const nbits_rows *x, size_t r, const float *bias,
               float *y);
} nbits_kernels;

struct cpu_nbits {
  const nbits_kernels *kernels;
  size_t n, k, block, blocks, panels;
  int bits;
  uint32_t *words;     // [panels, blocks, block * bits / 32, width]
  float *scales;       // [panels, blocks, width]
  int32_t *zeros;      // [panels, blocks, width]; NULL when the zero points are floats
  float *float_zeros;  // [panels, blocks, width] or NULL
};

// Index of (panel, block, column 0) in scales and zeros.
static inline size_t nbits_at(const cpu_nbits *w, size_t panel, size_t block, size_t width) {
  return (panel * w->blocks + block) * width;
}

static inline const uint32_t *nbits_words(const cpu_nbits *w, size_t panel, size_t block, size_t width) {
  return w->words + nbits_at(w, panel, block, width) * (w->block * (size_t)w->bits / 32);
}

// Values of x that belong to a block.
static inline size_t nbits_block_k(const cpu_nbits *w, size_t block) {
  const size_t left = w->k - block * w->block;
  return left < w->block ? left : w->block;
}

// Runs of 16 in a block that hold any value.
static inline size_t nbits_runs(const cpu_nbits *w, size_t block) {
  return (nbits_block_k(w, block) + NBITS_RUN - 1) / NBITS_RUN;
}

// Columns of a panel that exist.
static inline size_t nbits_columns(const cpu_nbits *w, size_t panel, size_t width) {
  const size_t left = w->n - panel * width;
  return left < width ? left : width;
}

// Rounding of one block from the bits of its greatest absolute value; shared so that all kernels round alike.
// Not finite gives false. *inverse turns x into q, *scale turns q back.
static inline bool nbits_block_scale(uint32_t greatest_bits, float *scale, float *inverse) {
  union {
    uint32_t bits;
    float value;
  } greatest = {.bits = greatest_bits};
  if (greatest_bits >= 0x7f800000u) return false;
  const bool any = greatest.value >= 1e-36f;  // below, 127 / greatest would overflow
  *scale = any ? greatest.value / 127.0f : 0.0f;
  *inverse = any ? 127.0f / greatest.value : 0.0f;
  return true;
}

extern const nbits_kernels nbits_kernels_scalar;
#if defined(__x86_64__)
extern const nbits_kernels nbits_kernels_avx2;
extern const nbits_kernels nbits_kernels_avx512;
#endif
