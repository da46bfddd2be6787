// AVX2 with FMA: 8 columns to a panel. Build with -mavx2 -mfma.
#include "cpu/nbits_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { WIDTH = 8, TILE_ROWS = 4, GEMM_ROWS = 6, GEMM_PANELS = 2 };

// All ones in the first `count` lanes.
static __m256i lanes(size_t count) {
  static const int32_t ones_then_zeros[2 * WIDTH] = {-1, -1, -1, -1, -1, -1, -1, -1};
  const size_t used = count < WIDTH ? count : WIDTH;
  return _mm256_loadu_si256((const __m256i *)(const void *)(ones_then_zeros + WIDTH - used));
}

static __m256i load_words(const void *p) { return _mm256_load_si256((const __m256i *)p); }

// What turns packed bits of one block into q - zero. A weight stays where it is in its word: with the bits of 2^e above
// it, it is the float 2^e + q, and subtracting 2^e + zero is exact. base[i] is that number for weights at bit 4 * i.
typedef struct {
  __m256 base[4];
  __m256 zero;  // used when zero points are floats; base then holds 2^e alone
} decoder;

NBITS_INLINE decoder decoder_of(const cpu_nbits *w, size_t at, const bool float_zero) {
  decoder d;
  d.zero = float_zero ? _mm256_load_ps(w->float_zeros + at) : _mm256_cvtepi32_ps(load_words(w->zeros + at));
  NBITS_UNROLL for (int i = 0; i < 4; i++) {
    d.base[i] = _mm256_set1_ps((float)(1 << (23 - 4 * i)));
    if (!float_zero) d.base[i] = _mm256_add_ps(d.base[i], d.zero);
  }
  return d;
}

// Weight j of each word as q - zero.
NBITS_INLINE __m256 decode(const decoder *d, __m256i word, const int bits, const int j, const bool float_zero) {
  const int position = 8 * (j & 3) + bits * (j >> 2), low = position & 12;
  const __m256i mask = _mm256_set1_epi32(((1 << bits) - 1) << low);
  const __m256i power = _mm256_set1_epi32((NBITS_EXPONENT_OF_1 - low) << 23);
  const __m256i shifted = position == low ? word : _mm256_srlv_epi32(word, _mm256_set1_epi32(position - low));
  const __m256i both = _mm256_or_si256(_mm256_and_si256(shifted, mask), power);
  const __m256 value = _mm256_sub_ps(_mm256_castsi256_ps(both), d->base[low / 4]);
  return float_zero ? _mm256_sub_ps(value, d->zero) : value;
}

NBITS_INLINE void few_tile(const cpu_nbits *w, size_t panel, const float *x, size_t ldx, const float *bias, float *y,
                           const int rows, const int bits, const bool float_zero) {
  const int chains = rows == 1 ? 4 : rows == 2 ? 2 : 1;  // independent sums a row hide the latency of a multiply-add
  const int per_word = 32 / bits, words = NBITS_RUN / per_word;
  const uint32_t *q = nbits_words(w, panel, 0, WIDTH);
  const __m256i mask = lanes(nbits_columns(w, panel, WIDTH));
  const __m256 start = bias ? _mm256_maskload_ps(bias + panel * WIDTH, mask) : _mm256_setzero_ps();
  __m256 total[TILE_ROWS], sum[TILE_ROWS][4];
  NBITS_UNROLL for (int r = 0; r < rows; r++) total[r] = start;
  for (size_t b = 0; b < w->blocks; b++) {
    const size_t at = nbits_at(w, panel, b, WIDTH), runs = nbits_runs(w, b);
    const decoder d = decoder_of(w, at, float_zero);
    const float *a = x + b * w->block;
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      NBITS_UNROLL for (int c = 0; c < chains; c++) sum[r][c] = _mm256_setzero_ps();
    }
    for (size_t run = 0; run < runs; run++, a += NBITS_RUN) {
      NBITS_UNROLL for (int g = 0; g < words; g++, q += WIDTH) {
        const __m256i word = load_words(q);
        NBITS_UNROLL for (int j = 0; j < per_word; j++) {
          const __m256 v = decode(&d, word, bits, j, float_zero);
          NBITS_UNROLL for (int r = 0; r < rows; r++) {
            const __m256 value = _mm256_set1_ps(a[(size_t)r * ldx + (size_t)(g * per_word + j)]);
            sum[r][j % chains] = _mm256_fmadd_ps(v, value, sum[r][j % chains]);
          }
        }
      }
    }
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      NBITS_UNROLL for (int c = 1; c < chains; c++) sum[r][0] = _mm256_add_ps(sum[r][0], sum[r][c]);
      total[r] = _mm256_fmadd_ps(sum[r][0], _mm256_load_ps(w->scales + at), total[r]);
    }
  }
  NBITS_UNROLL for (int r = 0; r < rows; r++) {
    _mm256_maskstore_ps(y + (size_t)r * w->n + panel * WIDTH, mask, total[r]);
  }
}

NBITS_INLINE void few_rows(const cpu_nbits *w, size_t panel, size_t rows, const float *x, size_t ldx, const float *bias,
                           float *y, const int bits, const bool float_zero) {
  switch (rows) {
    case 1: few_tile(w, panel, x, ldx, bias, y, 1, bits, float_zero); break;
    case 2: few_tile(w, panel, x, ldx, bias, y, 2, bits, float_zero); break;
    case 3: few_tile(w, panel, x, ldx, bias, y, 3, bits, float_zero); break;
    default: few_tile(w, panel, x, ldx, bias, y, 4, bits, float_zero); break;
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
    const __m256 scale = _mm256_load_ps(w->scales + at);
    for (size_t k = 0; k < w->block; k += (size_t)per_word, q += WIDTH) {
      const __m256i word = load_words(q);
      NBITS_UNROLL for (int j = 0; j < per_word; j++, out += ld) {
        _mm256_store_ps(out, _mm256_mul_ps(decode(&d, word, bits, j, float_zero), scale));
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
  __m256 sum[GEMM_ROWS][GEMM_PANELS];
  __m256i mask[GEMM_PANELS];
  NBITS_UNROLL for (int p = 0; p < GEMM_PANELS; p++) {
    const size_t from = (size_t)p * WIDTH;
    mask[p] = lanes(columns > from ? columns - from : 0);
    const __m256 start = bias ? _mm256_maskload_ps(bias + from, mask[p]) : _mm256_setzero_ps();
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      sum[r][p] = add ? _mm256_maskload_ps(y + (size_t)r * ldy + from, mask[p]) : start;
    }
  }
  for (size_t i = 0; i < k; i++, b += WIDTH * GEMM_PANELS) {
    __m256 v[GEMM_PANELS];
    NBITS_UNROLL for (int p = 0; p < GEMM_PANELS; p++) v[p] = _mm256_load_ps(b + p * WIDTH);
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      const __m256 value = _mm256_set1_ps(x[(size_t)r * ldx + i]);
      NBITS_UNROLL for (int p = 0; p < GEMM_PANELS; p++) sum[r][p] = _mm256_fmadd_ps(value, v[p], sum[r][p]);
    }
  }
  NBITS_UNROLL for (int r = 0; r < rows; r++) {
    NBITS_UNROLL for (int p = 0; p < GEMM_PANELS; p++) {
      _mm256_maskstore_ps(y + (size_t)r * ldy + p * WIDTH, mask[p], sum[r][p]);
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
    default: gemm_tile(columns, k, x, ldx, b, add, bias, y, ldy, 6); break;
  }
}

static int32_t greatest_lane(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1)));
}

static int32_t lane_sum(__m256i v) {
  __m128i m = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(m, _mm_shuffle_epi32(m, 0xB1)));
}

static bool quantise(const cpu_nbits *w, const float *x, const nbits_rows *rows, size_t row) {
  for (size_t b = 0; b < w->blocks; b++, x += w->block) {
    const size_t count = nbits_block_k(w, b), at = row * w->blocks + b;
    int8_t *q = rows->q + row * rows->stride + b * w->block;
    // As integers, absolute values of floats keep their order, with infinity and then NaN on top.
    __m256i greatest = _mm256_setzero_si256();
    for (size_t i = 0; i < count; i += WIDTH) {
      const __m256i v = _mm256_castps_si256(_mm256_maskload_ps(x + i, lanes(count - i)));
      greatest = _mm256_max_epi32(greatest, _mm256_and_si256(v, _mm256_set1_epi32(0x7fffffff)));
    }
    float inverse;
    if (!nbits_block_scale((uint32_t)greatest_lane(greatest), &rows->scale[at], &inverse)) return false;
    __m256i sum = _mm256_setzero_si256();
    for (size_t i = 0; i < w->block; i += WIDTH) {
      const __m256 v = _mm256_maskload_ps(x + i, lanes(i < count ? count - i : 0));
      const __m256i rounded = _mm256_cvtps_epi32(_mm256_mul_ps(v, _mm256_set1_ps(inverse)));
      const __m128i half =
          _mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
      sum = _mm256_add_epi32(sum, rounded);
      _mm_storel_epi64((__m128i *)(void *)(q + i), _mm_packs_epi16(half, half));
    }
    rows->minus_sum[at] = -lane_sum(sum);
  }
  return true;
}

// Sums of products of neighbouring bytes along k, as 16-bit integers, for bits < 8: 15 * 127 * 2 a pair, so the four
// groups of a run stay far below 32768.
// For bits == 8 the caller takes 128 off the weights; then |weight| <= 128 as the unsigned operand and the value with
// the weight's sign as the other give at most 128 * 127 * 2 = 32512.
NBITS_INLINE __m256i pairs(__m256i weights, __m256i magnitude, const int8_t *a, const int bits) {
  int32_t four;
  __builtin_memcpy(&four, a, sizeof(four));
  const __m256i value = _mm256_set1_epi32(four);
  return bits == 8 ? _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(value, weights))
                   : _mm256_maddubs_epi16(weights, value);
}

// sum[rows] += the products of one run of 16; returns the words after it.
NBITS_INLINE const uint32_t *int8_run(const uint32_t *q, const int8_t *a, size_t stride, __m256i sum[TILE_ROWS],
                                      const int rows, const int bits) {
  const int per_byte = 8 / bits;
  const __m256i low = _mm256_set1_epi8((char)((1 << bits) - 1)), ones = _mm256_set1_epi16(1);
  __m256i run[TILE_ROWS];
  NBITS_UNROLL for (int g = 0; g < 4; g++) {
    const int in_word = g % per_byte;
    const __m256i word = load_words(q);
    const __m256i shifted = in_word ? _mm256_srlv_epi32(word, _mm256_set1_epi32(in_word * bits)) : word;
    const __m256i part = bits == 8 ? _mm256_xor_si256(word, _mm256_set1_epi8(-128)) : _mm256_and_si256(shifted, low);
    const __m256i magnitude = bits == 8 ? _mm256_abs_epi8(part) : part;
    if (in_word == per_byte - 1) q += WIDTH;
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      const __m256i p = pairs(part, magnitude, a + (size_t)r * stride + 4 * g, bits);
      if (bits == 8) {
        sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(p, ones));
      } else {
        run[r] = g == 0 ? p : _mm256_add_epi16(run[r], p);
      }
    }
  }
  NBITS_UNROLL for (int r = 0; r < rows; r++) {
    if (bits < 8) sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(run[r], ones));
  }
  return q;
}

// The integer sum of a block begins at -zero * sum(x), which a 16-bit product forms exactly. Blocks are taken whole:
// past k, x is zero.
NBITS_INLINE void int8_tile(const cpu_nbits *w, size_t panel, const nbits_rows *x, size_t row, const float *bias,
                            float *y, const int rows, const int bits, const bool float_zero) {
  const int taken_off = bits == 8 ? 128 : 0;
  const uint32_t *q = nbits_words(w, panel, 0, WIDTH);
  const __m256i mask = lanes(nbits_columns(w, panel, WIDTH)), low_half = _mm256_set1_epi32(0xffff);
  const __m256 start = bias ? _mm256_maskload_ps(bias + panel * WIDTH, mask) : _mm256_setzero_ps();
  const float *scale = x->scale + row * w->blocks;
  const int32_t *minus_sum = x->minus_sum + row * w->blocks;
  __m256 total[TILE_ROWS];
  __m256i sum[TILE_ROWS];
  NBITS_UNROLL for (int r = 0; r < rows; r++) total[r] = start;
  for (size_t b = 0; b < w->blocks; b++) {
    const size_t at = nbits_at(w, panel, b, WIDTH), runs = w->block / NBITS_RUN;
    const int8_t *a = x->q + row * x->stride + b * w->block;
    __m256i zero = float_zero ? _mm256_setzero_si256() : load_words(w->zeros + at);
    zero = _mm256_and_si256(_mm256_sub_epi32(zero, _mm256_set1_epi32(taken_off)), low_half);
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      sum[r] = _mm256_madd_epi16(zero, _mm256_set1_epi32(minus_sum[(size_t)r * w->blocks + b]));
    }
    for (size_t run = 0; run < runs; run++, a += NBITS_RUN) q = int8_run(q, a, x->stride, sum, rows, bits);
    const __m256 ws = _mm256_load_ps(w->scales + at);
    NBITS_UNROLL for (int r = 0; r < rows; r++) {
      const size_t i = (size_t)r * w->blocks + b;
      __m256 v = _mm256_cvtepi32_ps(sum[r]);
      if (float_zero) v = _mm256_fmadd_ps(_mm256_load_ps(w->float_zeros + at), _mm256_set1_ps((float)minus_sum[i]), v);
      total[r] = _mm256_fmadd_ps(_mm256_mul_ps(v, ws), _mm256_set1_ps(scale[i]), total[r]);
    }
  }
  NBITS_UNROLL for (int r = 0; r < rows; r++) {
    _mm256_maskstore_ps(y + (size_t)r * w->n + panel * WIDTH, mask, total[r]);
  }
}

NBITS_INLINE void int8_rows(const cpu_nbits *w, size_t panel, size_t rows, const nbits_rows *x, size_t row,
                            const float *bias, float *y, const int bits, const bool float_zero) {
  switch (rows) {
    case 1: int8_tile(w, panel, x, row, bias, y, 1, bits, float_zero); break;
    case 2: int8_tile(w, panel, x, row, bias, y, 2, bits, float_zero); break;
    case 3: int8_tile(w, panel, x, row, bias, y, 3, bits, float_zero); break;
    default: int8_tile(w, panel, x, row, bias, y, 4, bits, float_zero); break;
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

const nbits_kernels nbits_kernels_avx2 = {.isa = CPU_NBITS_AVX2,
                                          .width = WIDTH,
                                          .tile_rows = TILE_ROWS,
                                          .gemm_rows = GEMM_ROWS,
                                          .gemm_panels = GEMM_PANELS,
                                          .gemm_from = 5,
                                          .few = few,
                                          .expand = expand,
                                          .gemm = gemm,
                                          .quantise = quantise,
                                          .int8 = int8};
#endif
