// Portable C: 8 columns to a panel, written so that a compiler can vectorise over them.
#include <math.h>
#include <string.h>

#include "cpu/nbits_kernels.h"

enum { WIDTH = 8, TILE_ROWS = 4 };

static void store(const cpu_nbits *w, size_t panel, size_t rows, float total[TILE_ROWS][WIDTH], const float *bias,
                  float *y) {
  const size_t columns = nbits_columns(w, panel, WIDTH);
  for (size_t r = 0; r < rows; r++) {
    for (size_t c = 0; c < columns; c++) {
      y[r * w->n + panel * WIDTH + c] = total[r][c] + (bias ? bias[panel * WIDTH + c] : 0.0f);
    }
  }
}

static unsigned position(unsigned j, unsigned bits) { return 8 * (j % 4) + bits * (j / 4); }

static void few(const cpu_nbits *w, size_t panel, size_t rows, const float *x, size_t ldx, const float *bias,
                float *y) {
  const unsigned bits = (unsigned)w->bits, per_word = 32 / bits, mask = (1u << bits) - 1;
  float total[TILE_ROWS][WIDTH] = {{0}};
  for (size_t b = 0; b < w->blocks; b++) {
    const size_t at = nbits_at(w, panel, b, WIDTH), count = nbits_runs(w, b) * NBITS_RUN;
    const uint32_t *q = nbits_words(w, panel, b, WIDTH);
    float zero[WIDTH], sum[TILE_ROWS][WIDTH] = {{0}};
    for (size_t c = 0; c < WIDTH; c++) zero[c] = w->float_zeros ? w->float_zeros[at + c] : (float)w->zeros[at + c];
    for (size_t k = 0; k < count; k++) {
      const uint32_t *word = q + k / per_word * WIDTH;
      const unsigned shift = position((unsigned)k % per_word, bits);
      float v[WIDTH];
      for (int c = 0; c < WIDTH; c++) v[c] = (float)(int32_t)((word[c] >> shift) & mask) - zero[c];
      for (size_t r = 0; r < rows; r++) {
        const float a = x[r * ldx + b * w->block + k];
        for (int c = 0; c < WIDTH; c++) sum[r][c] += v[c] * a;
      }
    }
    for (size_t r = 0; r < rows; r++) {
      for (int c = 0; c < WIDTH; c++) total[r][c] += sum[r][c] * w->scales[at + (size_t)c];
    }
  }
  store(w, panel, rows, total, bias, y);
}

static bool quantise(const cpu_nbits *w, const float *x, const nbits_rows *rows, size_t row) {
  for (size_t b = 0; b < w->blocks; b++, x += w->block) {
    const size_t count = nbits_block_k(w, b), at = row * w->blocks + b;
    int8_t *q = rows->q + row * rows->stride + b * w->block;
    uint32_t greatest = 0;
    for (size_t i = 0; i < count; i++) {
      uint32_t magnitude;
      memcpy(&magnitude, x + i, sizeof(magnitude));
      magnitude &= 0x7fffffffu;
      greatest = magnitude > greatest ? magnitude : greatest;
    }
    float inverse;
    if (!nbits_block_scale(greatest, &rows->scale[at], &inverse)) return false;
    int32_t sum = 0;
    for (size_t i = 0; i < count; i++) {
      q[i] = (int8_t)rintf(x[i] * inverse);
      sum += q[i];
    }
    memset(q + count, 0, w->block - count);
    rows->minus_sum[at] = -sum;
  }
  return true;
}

static void int8(const cpu_nbits *w, size_t panel, size_t rows, const nbits_rows *x, size_t row, const float *bias,
                 float *y) {
  const unsigned bits = (unsigned)w->bits, per_word = 32 / bits, mask = (1u << bits) - 1;
  float total[TILE_ROWS][WIDTH] = {{0}};
  for (size_t b = 0; b < w->blocks; b++) {
    const size_t at = nbits_at(w, panel, b, WIDTH);
    const uint32_t *q = nbits_words(w, panel, b, WIDTH);
    int32_t sum[TILE_ROWS][WIDTH] = {{0}};
    for (size_t k = 0; k < w->block; k++) {
      const uint32_t *word = q + k / per_word * WIDTH;
      const unsigned shift = position((unsigned)k % per_word, bits);
      for (size_t r = 0; r < rows; r++) {
        const int32_t a = x->q[(row + r) * x->stride + b * w->block + k];
        for (int c = 0; c < WIDTH; c++) sum[r][c] += (int32_t)((word[c] >> shift) & mask) * a;
      }
    }
    for (size_t r = 0; r < rows; r++) {
      const size_t i = (row + r) * w->blocks + b;
      const int32_t minus = x->minus_sum[i];
      for (size_t c = 0; c < WIDTH; c++) {
        const float v = w->float_zeros ? (float)sum[r][c] + w->float_zeros[at + c] * (float)minus
                                       : (float)(sum[r][c] + w->zeros[at + c] * minus);
        total[r][c] += v * w->scales[at + c] * x->scale[i];
      }
    }
  }
  store(w, panel, rows, total, bias, y);
}

const nbits_kernels nbits_kernels_scalar = {
    .isa = CPU_NBITS_SCALAR, .width = WIDTH, .tile_rows = TILE_ROWS, .few = few, .quantise = quantise, .int8 = int8};
