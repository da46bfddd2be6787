// AVX-512 with VNNI: 16 columns to a panel. Build with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni.
#include "cpu/nbits_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { WIDTH = 16, TILE_ROWS = 8, GEMM_ROWS = 8, GEMM_PANELS = 3 };

static __mmask16 lanes(size_t count) { return (__mmask16)(count >= WIDTH ? 0xffffu : (1u << count) - 1u); }

// What turns packed bits of one block into q - zero. A weight stays where it is in its word: with the bits of 2^e above
// it, it is the float 2^e + q, and subtracting 2^e + zero is exact. base[i] is that number for weights at bit 4 * i.
typedef struct {
  __m512 base[4];
  __m512 zero;  // used when zero points are floats; base then holds 2^e alone
} decoder;

NBITS_INLINE decoder decoder_of(const cpu_nbits *w, size_t at, const bool float_zero) {
  decoder d;
  d.zero = float_zero ? _mm512_load_ps(w->float_zeros + at)
                      : _mm512_cvtepi32_ps(_mm512_load_si512((const void *)(w->zeros + at)));
  NBITS_UNROLL for (int i = 0; i < 4; i++) {
    d.base[i] = _mm512_set1_ps((float)(1 << (23 - 4 * i)));
    if (!float_zero) d.base[i] = _mm512_add_ps(d.base[i], d.zero);
  }
  return d;
}

// Weight j of each word as q - zero.
NBITS_INLINE __m512 decode(const decoder *d, __m512i word, const int bits, const int j, const bool float_zero) {
  const int position = 8 * (j & 3) + bits * (j >> 2), low = position & 12;
  const __m512i mask = _mm512_set1_epi32(((1 << bits) - 1) << low);
  const __m512i power = _mm512_set1_epi32((NBITS_EXPONENT_OF_1 - low) << 23);
  const __m512i shifted = position == low ? word : _mm512_srlv_epi32(word, _mm512_set1_epi32(position - low));
  const __m512i both = _mm512_ternarylogic_epi32(shifted, mask, power, 0xEA);  // (shifted & mask) | power
  const __m512 value = _mm512_sub_ps(_mm512_castsi512_ps(both), d->base[low / 4]);
  return float_zero ? _mm512_sub_ps(value, d->zero) : value;
}

NBITS_INLINE void few_tile(const cpu_nbits *w, size_t panel, const float *x, size_t ldx, const float *bias, float *y,
                           const int rows, const int bits, const bool float_zero) {
  const int chains = rows == 1 ? 4 : rows <= 4 ? 2 : 1;  // independent sums a row hide the latency of a multiply-add
  const int per_word = 32 / bits, words = NBITS_RUN / per_word;
  const uint32_t *q = nbits_words(w, panel, 0, WIDTH);
  const __mmask16 mask = lanes(nbits_columns(w, panel, WIDTH));
  const __m512 start = bias ? _mm512_maskz_loadu_ps(mask, bias + panel * WIDTH) : _mm512_setzero_ps();
  __m512 total[TILE_ROWS], sum[TILE_ROWS][4];
  NBITS_UNROLL for (int r = 0; r < rows; r++) total[r] = start;
  for (size_t b = 0; b < w->blocks; b++) {
    const size_t at = nbits_at(w, panel, b, WIDTH), runs = nbits_runs(w, b);
    const decoder d = decoder_of(w, at, float_zero);
    const float *a = x + b * w->block;
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      NBITS_UNROLL for (int c = 0; c < chains; c++) sum[r][c] = _mm512_setzero_ps();
    }
    for (size_t run = 0; run < runs; run++, a += NBITS_RUN) {
      NBITS_UNROLL for (int g = 0; g < words; g++, q += WIDTH) {
        const __m512i word = _mm512_load_si512((const void *)q);
        NBITS_UNROLL for (int j = 0; j < per_word; j++) {
          const __m512 v = decode(&d, word, bits, j, float_zero);
          NBITS_UNROLL for (int r = 0; r < rows; r++) {
            const __m512 value = _mm512_set1_ps(a[(size_t)r * ldx + (size_t)(g * per_word + j)]);
            sum[r][j % chains] = _mm512_fmadd_ps(v, value, sum[r][j % chains]);
          }
        }
      }
    }
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      NBITS_UNROLL for (int c = 1; c < chains; c++) sum[r][0] = _mm512_add_ps(sum[r][0], sum[r][c]);
      total[r] = _mm512_fmadd_ps(sum[r][0], _mm512_load_ps(w->scales + at), total[r]);
    }
  }
  NBITS_UNROLL for (int r = 0; r < rows; r++) {
    _mm512_mask_storeu_ps(y + (size_t)r * w->n + panel * WIDTH, mask, total[r]);
  }
}

NBITS_INLINE void few_rows(const cpu_nbits *w, size_t panel, size_t rows, const float *x, size_t ldx, const float *bias,
                           float *y, const int bits, const bool float_zero) {
  switch (rows) {
    case 1: few_tile(w, panel, x, ldx, bias, y, 1, bits, float_zero); break;
    case 2: few_tile(w, panel, x, ldx, bias, y, 2, bits, float_zero); break;
    case 3: few_tile(w, panel, x, ldx, bias, y, 3, bits, float_zero); break;
    case 4: few_tile(w, panel, x, ldx, bias, y, 4, bits, float_zero); break;
    case 5: few_tile(w, panel, x, ldx, bias, y, 5, bits, float_zero); break;
    case 6: few_tile(w, panel, x, ldx, bias, y, 6, bits, float_zero); break;
    case 7: few_tile(w, panel, x, ldx, bias, y, 7, bits, float_zero); break;
    default: few_tile(w, panel, x, ldx, bias, y, 8, bits, float_zero); break;
  }
}

static void few(const cpu_nbits *w, size_t panel, size_t rows, const float *x, size_t ldx, const float *bias,
                float *y) {
  switch (w->bits * 2 + (w->float_zeros != NULL)) {
    case 4: few_rows(w, panel, rows, x, ldx, bias, y, 2, false); break;
    case 5: few_rows(w, panel, rows, x, ldx, bias, y, 2, true); break;
    case 8: few_rows(w, panel, rows, x, ldx, bias, y, 4, false); break;
    case 9: few_rows(w, panel, rows, x, ldx, bias, y, 4, true); break;
    case 16: few_rows(w, panel, rows, x, ldx, bias, y, 8, false); break;
    default: few_rows(w, panel, rows, x, ldx, bias, y, 8, true); break;
  }
}

NBITS_INLINE void expand_blocks(const cpu_nbits *w, size_t panel, size_t first, size_t end, float *out, size_t ld,
                                const int bits, const bool float_zero) {
  const int per_word = 32 / bits;
  for (size_t b = first; b < end; b++) {
    const size_t at = nbits_at(w, panel, b, WIDTH);
    const uint32_t *q = nbits_words(w, panel, b, WIDTH);
    const decoder d = decoder_of(w, at, float_zero);
    const __m512 scale = _mm512_load_ps(w->scales + at);
    for (size_t k = 0; k < w->block; k += (size_t)per_word, q += WIDTH) {
      const __m512i word = _mm512_load_si512((const void *)q);
      NBITS_UNROLL for (int j = 0; j < per_word; j++, out += ld) {
        _mm512_store_ps(out, _mm512_mul_ps(decode(&d, word, bits, j, float_zero), scale));
      }
    }
  }
}

static void expand(const cpu_nbits *w, size_t panel, size_t first, size_t end, float *out, size_t ld) {
  switch (w->bits * 2 + (w->float_zeros != NULL)) {
    case 4: expand_blocks(w, panel, first, end, out, ld, 2, false); break;
    case 5: expand_blocks(w, panel, first, end, out, ld, 2, true); break;
    case 8: expand_blocks(w, panel, first, end, out, ld, 4, false); break;
    case 9: expand_blocks(w, panel, first, end, out, ld, 4, true); break;
    case 16: expand_blocks(w, panel, first, end, out, ld, 8, false); break;
    default: expand_blocks(w, panel, first, end, out, ld, 8, true); break;
  }
}

NBITS_INLINE void gemm_tile(size_t columns, size_t k, const float *x, size_t ldx, const float *b, bool add,
                            const float *bias, float *y, size_t ldy, const int rows) {
  __m512 sum[GEMM_ROWS][GEMM_PANELS];
  __mmask16 mask[GEMM_PANELS];
  NBITS_UNROLL for (int p = 0; p < GEMM_PANELS; p++) {
    const size_t from = (size_t)p * WIDTH;
    mask[p] = columns > from ? lanes(columns - from) : 0;
    const __m512 start = bias ? _mm512_maskz_loadu_ps(mask[p], bias + from) : _mm512_setzero_ps();
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      sum[r][p] = add ? _mm512_maskz_loadu_ps(mask[p], y + (size_t)r * ldy + from) : start;
    }
  }
  for (size_t i = 0; i < k; i++, b += WIDTH * GEMM_PANELS) {
    __m512 v[GEMM_PANELS];
    NBITS_UNROLL for (int p = 0; p < GEMM_PANELS; p++) v[p] = _mm512_load_ps(b + p * WIDTH);
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      const __m512 value = _mm512_set1_ps(x[(size_t)r * ldx + i]);
      NBITS_UNROLL for (int p = 0; p < GEMM_PANELS; p++) sum[r][p] = _mm512_fmadd_ps(value, v[p], sum[r][p]);
    }
  }
  NBITS_UNROLL for (int r = 0; r < rows; r++) {
    NBITS_UNROLL for (int p = 0; p < GEMM_PANELS; p++) {
      _mm512_mask_storeu_ps(y + (size_t)r * ldy + p * WIDTH, mask[p], sum[r][p]);
    }
  }
}

static void gemm(size_t rows, size_t columns, size_t k, const float *x, size_t ldx, const float *b, bool add,
                 const float *bias, float *y, size_t ldy) {
  switch (rows) {
    case 1: gemm_tile(columns, k, x, ldx, b, add, bias, y, ldy, 1); break;
    case 2: gemm_tile(columns, k, x, ldx, b, add, bias, y, ldy, 2); break;
    case 3: gemm_tile(columns, k, x, ldx, b, add, bias, y, ldy, 3); break;
    case 4: gemm_tile(columns, k, x, ldx, b, add, bias, y, ldy, 4); break;
    case 5: gemm_tile(columns, k, x, ldx, b, add, bias, y, ldy, 5); break;
    case 6: gemm_tile(columns, k, x, ldx, b, add, bias, y, ldy, 6); break;
    case 7: gemm_tile(columns, k, x, ldx, b, add, bias, y, ldy, 7); break;
    default: gemm_tile(columns, k, x, ldx, b, add, bias, y, ldy, 8); break;
  }
}

static bool quantise(const cpu_nbits *w, const float *x, const nbits_rows *rows, size_t row) {
  const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
  for (size_t b = 0; b < w->blocks; b++, x += w->block) {
    const size_t count = nbits_block_k(w, b), at = row * w->blocks + b;
    int8_t *q = rows->q + row * rows->stride + b * w->block;
    // As integers, absolute values of floats keep their order, with infinity and then NaN on top.
    __m512i greatest = _mm512_setzero_si512();
    for (size_t i = 0; i < count; i += WIDTH) {
      const __m512i v = _mm512_castps_si512(_mm512_maskz_loadu_ps(lanes(count - i), x + i));
      greatest = _mm512_max_epi32(greatest, _mm512_and_si512(v, no_sign));
    }
    float inverse;
    if (!nbits_block_scale((uint32_t)_mm512_reduce_max_epi32(greatest), &rows->scale[at], &inverse)) return false;
    __m512i sum = _mm512_setzero_si512();
    for (size_t i = 0; i < w->block; i += WIDTH) {
      const __m512 v = _mm512_maskz_loadu_ps(i < count ? lanes(count - i) : 0, x + i);
      const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(v, _mm512_set1_ps(inverse)));
      sum = _mm512_add_epi32(sum, rounded);
      _mm_storeu_si128((__m128i *)(void *)(q + i), _mm512_cvtepi32_epi8(rounded));
    }
    rows->minus_sum[at] = -_mm512_reduce_add_epi32(sum);
  }
  return true;
}

NBITS_INLINE __m512i dot(__m512i sum, __m512i weights, const int8_t *a) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  return _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(four));
}

// sum[rows] += the products of one run of 16, over `chains` sums a row; returns the words after it.
NBITS_INLINE const uint32_t *int8_run(const uint32_t *q, const int8_t *a, size_t stride, __m512i sum[TILE_ROWS][2],
                                      const int rows, const int chains, const int bits) {
  const int per_byte = 8 / bits;
  NBITS_UNROLL for (int g = 0; g < 4; g++) {
    const int in_word = g % per_byte;
    const __m512i word = _mm512_load_si512((const void *)q);
    const __m512i shifted = in_word ? _mm512_srlv_epi32(word, _mm512_set1_epi32(in_word * bits)) : word;
    const __m512i part = bits == 8 ? word : _mm512_and_si512(shifted, _mm512_set1_epi8((char)((1 << bits) - 1)));
    if (in_word == per_byte - 1) q += WIDTH;
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      sum[r][g % chains] = dot(sum[r][g % chains], part, a + (size_t)r * stride + 4 * g);
    }
  }
  return q;
}

// The integer sum of a block begins at -zero * sum(x), which a 16-bit dot product forms exactly. Blocks are taken
// whole: past k, x is zero.
NBITS_INLINE void int8_tile(const cpu_nbits *w, size_t panel, const nbits_rows *x, size_t row, const float *bias,
                            float *y, const int rows, const int bits, const bool float_zero) {
  const int chains = rows <= 2 ? 2 : 1;
  const uint32_t *q = nbits_words(w, panel, 0, WIDTH);
  const __mmask16 mask = lanes(nbits_columns(w, panel, WIDTH));
  const __m512 start = bias ? _mm512_maskz_loadu_ps(mask, bias + panel * WIDTH) : _mm512_setzero_ps();
  const float *scale = x->scale + row * w->blocks;
  const int32_t *minus_sum = x->minus_sum + row * w->blocks;
  __m512 total[TILE_ROWS];
  __m512i sum[TILE_ROWS][2];
  NBITS_UNROLL for (int r = 0; r < rows; r++) total[r] = start;
  for (size_t b = 0; b < w->blocks; b++) {
    const size_t at = nbits_at(w, panel, b, WIDTH), runs = w->block / NBITS_RUN;
    const int8_t *a = x->q + row * x->stride + b * w->block;
    const __m512i none = _mm512_setzero_si512();
    const __m512i zero = float_zero ? none : _mm512_load_si512((const void *)(w->zeros + at));
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      const __m512i minus = _mm512_set1_epi32(minus_sum[(size_t)r * w->blocks + b]);
      sum[r][0] = float_zero ? none : _mm512_dpwssd_epi32(none, zero, minus);
      sum[r][1] = none;
    }
    for (size_t run = 0; run < runs; run++, a += NBITS_RUN) q = int8_run(q, a, x->stride, sum, rows, chains, bits);
    const __m512 ws = _mm512_load_ps(w->scales + at);
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      const size_t i = (size_t)r * w->blocks + b;
      __m512 v = _mm512_cvtepi32_ps(chains == 2 ? _mm512_add_epi32(sum[r][0], sum[r][1]) : sum[r][0]);
      if (float_zero) v = _mm512_fmadd_ps(_mm512_load_ps(w->float_zeros + at), _mm512_set1_ps((float)minus_sum[i]), v);
      total[r] = _mm512_fmadd_ps(_mm512_mul_ps(v, ws), _mm512_set1_ps(scale[i]), total[r]);
    }
  }
  NBITS_UNROLL for (int r = 0; r < rows; r++) {
    _mm512_mask_storeu_ps(y + (size_t)r * w->n + panel * WIDTH, mask, total[r]);
  }
}

NBITS_INLINE void int8_rows(const cpu_nbits *w, size_t panel, size_t rows, const nbits_rows *x, size_t row,
                            const float *bias, float *y, const int bits, const bool float_zero) {
  switch (rows) {
    case 1: int8_tile(w, panel, x, row, bias, y, 1, bits, float_zero); break;
    case 2: int8_tile(w, panel, x, row, bias, y, 2, bits, float_zero); break;
    case 3: int8_tile(w, panel, x, row, bias, y, 3, bits, float_zero); break;
    case 4: int8_tile(w, panel, x, row, bias, y, 4, bits, float_zero); break;
    case 5: int8_tile(w, panel, x, row, bias, y, 5, bits, float_zero); break;
    case 6: int8_tile(w, panel, x, row, bias, y, 6, bits, float_zero); break;
    case 7: int8_tile(w, panel, x, row, bias, y, 7, bits, float_zero); break;
    default: int8_tile(w, panel, x, row, bias, y, 8, bits, float_zero); break;
  }
}

static void int8(const cpu_nbits *w, size_t panel, size_t rows, const nbits_rows *x, size_t row, const float *bias,
                 float *y) {
  switch (w->bits * 2 + (w->float_zeros != NULL)) {
    case 4: int8_rows(w, panel, rows, x, row, bias, y, 2, false); break;
    case 5: int8_rows(w, panel, rows, x, row, bias, y, 2, true); break;
    case 8: int8_rows(w, panel, rows, x, row, bias, y, 4, false); break;
    case 9: int8_rows(w, panel, rows, x, row, bias, y, 4, true); break;
    case 16: int8_rows(w, panel, rows, x, row, bias, y, 8, false); break;
    default: int8_rows(w, panel, rows, x, row, bias, y, 8, true); break;
  }
}

const nbits_kernels nbits_kernels_avx512 = {.isa = CPU_NBITS_AVX512,
                                            .width = WIDTH,
                                            .tile_rows = TILE_ROWS,
                                            .gemm_rows = GEMM_ROWS,
                                            .gemm_panels = GEMM_PANELS,
                                            .gemm_from = 9,
                                            .few = few,
                                            .expand = expand,
                                            .gemm = gemm,
                                            .quantise = quantise,
                                            .int8 = int8};
#endif
