#include "cpu/nbits.h"

#include <string.h>

#include "cpu/alloc.h"
#include "cpu/nbits_kernels.h"

// Multiply-adds under which waking another thread costs more than it saves.
static const double serial_work = 65536;

enum {
  ROW_CHUNK = 256,  // rows that one unit of a large product takes, so that its slice of x stays in cache
  GEMM_K = 192      // weights along k expanded at a time, so that they stay in the first-level cache
};

// ---- choice of kernels

bool cpu_nbits_isa_runs(cpu_nbits_isa isa) {
#if defined(__x86_64__)
  if (isa == CPU_NBITS_AVX512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
  }
  if (isa == CPU_NBITS_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return isa == CPU_NBITS_AUTO || isa == CPU_NBITS_SCALAR;
}

static const nbits_kernels *kernels_of(cpu_nbits_isa isa) {
  if (!cpu_nbits_isa_runs(isa)) return NULL;
#if defined(__x86_64__)
  const bool best = isa == CPU_NBITS_AUTO;
  if (isa == CPU_NBITS_AVX512 || (best && cpu_nbits_isa_runs(CPU_NBITS_AVX512))) return &nbits_kernels_avx512;
  if (isa == CPU_NBITS_AVX2 || (best && cpu_nbits_isa_runs(CPU_NBITS_AVX2))) return &nbits_kernels_avx2;
#endif
  return &nbits_kernels_scalar;
}

bool cpu_nbits_accepts(int bits, int block) {
  return (bits == 2 || bits == 4 || bits == 8) && block >= 16 && block <= 256 && (block & (block - 1)) == 0;
}

// ---- packing

// Number `index` of a packed array; a byte holds 8 / bits of them, lowest bits first.
NBITS_INLINE uint32_t source_bits(const uint8_t *bytes, size_t index, const unsigned bits) {
  const unsigned per_byte = 8 / bits;
  return ((uint32_t)bytes[index / per_byte] >> (index % per_byte * bits)) & ((1u << bits) - 1);
}

// `count` weights of one column, a word to each group of `width` words.
NBITS_INLINE void pack_words(const uint8_t *q, size_t count, size_t width, uint32_t *words, const unsigned bits) {
  const unsigned per_word = 32 / bits;
  size_t k = 0;
  for (; count - k >= per_word; k += per_word, words += width) {
    uint32_t word = 0;
    NBITS_UNROLL for (unsigned j = 0; j < per_word; j++) {
      word |= source_bits(q, k + j, bits) << (8 * (j % 4) + bits * (j / 4));
    }
    *words = word;
  }
  for (unsigned j = 0; k + j < count; j++) *words |= source_bits(q, k + j, bits) << (8 * (j % 4) + bits * (j / 4));
}

static void pack_block(const cpu_nbits *w, const uint8_t *q, size_t count, uint32_t *words) {
  switch (w->bits) {
    case 2: pack_words(q, count, w->kernels->width, words, 2); break;
    case 4: pack_words(q, count, w->kernels->width, words, 4); break;
    default: pack_words(q, count, w->kernels->width, words, 8); break;
  }
}

static void pack_column(cpu_nbits *w, const cpu_nbits_source *s, size_t column) {
  const size_t width = w->kernels->width, bits = (size_t)w->bits;
  const size_t panel = column / width, lane = column % width;
  const size_t block_bytes = w->block * bits / 8, zero_bytes = (w->blocks * bits + 7) / 8;
  for (size_t b = 0; b < w->blocks; b++) {
    const size_t from = column * w->blocks + b, at = nbits_at(w, panel, b, width);
    uint32_t *words = w->words + at * (w->block * bits / 32) + lane;
    pack_block(w, s->q + from * block_bytes, nbits_block_k(w, b), words);
    w->scales[at + lane] = s->scales[from];
    if (w->float_zeros) {
      w->float_zeros[at + lane] = s->float_zeros[from];
    } else if (s->zeros) {
      w->zeros[at + lane] = (int32_t)source_bits(s->zeros + column * zero_bytes, b, (unsigned)w->bits);
    } else {
      w->zeros[at + lane] = 1 << (w->bits - 1);
    }
  }
}

// Points the arrays of w into one block after the header; false when the size overflows or there is no memory.
static cpu_nbits *new_packed(const cpu_nbits *form, bool float_zeros) {
  size_t lanes, words, total = 0;
  if (__builtin_mul_overflow(form->panels, form->blocks, &lanes) ||
      __builtin_mul_overflow(lanes, form->kernels->width, &lanes) ||
      __builtin_mul_overflow(lanes, form->block * (size_t)form->bits / 32, &words) ||
      !cpu_alloc_add(&total, 1, sizeof(cpu_nbits))) {
    return NULL;
  }
  const size_t at_words = total;
  if (!cpu_alloc_add(&total, words, sizeof(uint32_t))) return NULL;
  const size_t at_scales = total;
  if (!cpu_alloc_add(&total, lanes, sizeof(float))) return NULL;
  const size_t at_zeros = total;
  if (!cpu_alloc_add(&total, lanes, sizeof(float))) return NULL;
  char *memory = cpu_alloc(total);
  if (!memory) return NULL;
  memset(memory, 0, total);
  cpu_nbits *w = (cpu_nbits *)(void *)memory;
  *w = *form;
  w->words = (uint32_t *)(void *)(memory + at_words);
  w->scales = (float *)(void *)(memory + at_scales);
  if (float_zeros) {
    w->float_zeros = (float *)(void *)(memory + at_zeros);
  } else {
    w->zeros = (int32_t *)(void *)(memory + at_zeros);
  }
  return w;
}

cpu_nbits *cpu_nbits_pack(const cpu_nbits_source *s, cpu_nbits_isa isa) {
  const nbits_kernels *kernels = kernels_of(isa);
  if (!kernels || !cpu_nbits_accepts(s->bits, s->block)) return NULL;
  const size_t block = (size_t)s->block;
  const cpu_nbits form = {.kernels = kernels,
                          .n = s->n,
                          .k = s->k,
                          .block = block,
                          .blocks = s->k / block + (s->k % block != 0),
                          .panels = s->n / kernels->width + (s->n % kernels->width != 0),
                          .bits = s->bits};
  cpu_nbits *w = new_packed(&form, s->float_zeros != NULL);
  if (!w) return NULL;
  for (size_t column = 0; column < w->n; column++) pack_column(w, s, column);
  return w;
}

void cpu_nbits_free(cpu_nbits *w) { cpu_free(w); }

cpu_nbits_isa cpu_nbits_packed_for(const cpu_nbits *w) { return w->kernels->isa; }

// ---- products

typedef struct {
  const cpu_nbits *w;
  size_t m, ldx;
  const float *x, *bias;
  float *y;
  size_t units, chunks, chunk_rows;  // a unit is a group of columns and a chunk of rows
  float *expanded;                   // gemm: one piece of weights a part
  size_t expanded_size;              // floats in a piece
  nbits_rows rows;                   // int8
  unsigned char *finite;             // int8, [m]
} job;

// Splits `rows` into the fewest tiles of at most `most` rows, as even as they get; tile t begins at the result.
static size_t tile_begin(size_t rows, size_t tiles, size_t t) {
  const size_t larger = rows % tiles;
  return rows / tiles * t + (t < larger ? t : larger);
}

static size_t ceil_div(size_t a, size_t b) { return a / b + (a % b != 0); }

static void few_panel(const job *j, size_t panel) {
  const size_t tiles = ceil_div(j->m, j->w->kernels->tile_rows);
  for (size_t t = 0; t < tiles; t++) {
    const size_t r = tile_begin(j->m, tiles, t), end = tile_begin(j->m, tiles, t + 1);
    j->w->kernels->few(j->w, panel, end - r, j->x + r * j->ldx, j->ldx, j->bias, j->y + r * j->w->n);
  }
}

static void few_part(void *ctx, int part, int parts) {
  const job *j = ctx;
  const size_t end = tile_begin(j->w->panels, (size_t)parts, (size_t)part + 1);
  for (size_t p = tile_begin(j->w->panels, (size_t)parts, (size_t)part); p < end; p++) few_panel(j, p);
}

static int parts_for(const cpu_pool *pool, const cpu_nbits *w, size_t m) {
  const double work = (double)m * (double)w->n * (double)w->k;
  const int parts = cpu_pool_parts(pool);
  if (work < serial_work) return 1;
  return w->panels < (size_t)parts ? (int)w->panels : parts;
}

// Straight from packed weights. The kernels read x in runs of 16, so odd sizes of k need a padded copy of x.
static int matmul_few(const cpu_pool *pool, job *j) {
  const cpu_nbits *w = j->w;
  float *padded = NULL;
  if (w->k % NBITS_RUN) {
    size_t bytes = 0;
    const size_t ldx = ceil_div(w->k, NBITS_RUN) * NBITS_RUN;
    if (__builtin_mul_overflow(ldx, j->m, &bytes) || __builtin_mul_overflow(bytes, sizeof(float), &bytes)) return -1;
    padded = cpu_alloc(bytes);
    if (!padded) return -1;
    for (size_t r = 0; r < j->m; r++) {
      memcpy(padded + r * ldx, j->x + r * j->ldx, w->k * sizeof(float));
      memset(padded + r * ldx + w->k, 0, (ldx - w->k) * sizeof(float));
    }
    j->x = padded;
    j->ldx = ldx;
  }
  cpu_pool_run(pool, parts_for(pool, w, j->m), few_part, j);
  cpu_free(padded);
  return 0;
}

// One group of columns times one chunk of rows: expand some weights to f32, then multiply all rows with them.
static void gemm_unit(void *ctx, size_t unit, int part) {
  const job *j = ctx;
  const cpu_nbits *w = j->w;
  const nbits_kernels *kn = w->kernels;
  const size_t groups = j->units / j->chunks, group = unit % groups, ld = kn->width * kn->gemm_panels;
  const size_t r0 = unit / groups * j->chunk_rows, column = group * ld;
  const size_t rows = j->m - r0 < j->chunk_rows ? j->m - r0 : j->chunk_rows;
  const size_t columns = w->n - column < ld ? w->n - column : ld;
  const size_t tiles = ceil_div(rows, kn->gemm_rows), step = j->expanded_size / ld;
  float *b = j->expanded + (size_t)part * j->expanded_size;
  for (size_t k = 0; k < w->k; k += step) {
    const size_t count = w->k - k < step ? w->k - k : step;
    for (size_t p = 0; p < kn->gemm_panels; p++) {
      const size_t panel = group * kn->gemm_panels + p;
      if (panel < w->panels) kn->expand(w, panel, k / w->block, ceil_div(k + count, w->block), b + p * kn->width, ld);
    }
    for (size_t t = 0; t < tiles; t++) {
      const size_t r = r0 + tile_begin(rows, tiles, t), end = r0 + tile_begin(rows, tiles, t + 1);
      kn->gemm(end - r, columns, count, j->x + r * j->ldx + k, j->ldx, b, k > 0, j->bias ? j->bias + column : NULL,
               j->y + r * w->n + column, w->n);
    }
  }
}

// Rows a unit takes: all up to ROW_CHUNK, fewer when there are not enough column groups to keep all parts busy.
static void split_rows(job *j, size_t groups, size_t parts, size_t least) {
  size_t chunks = ceil_div(j->m, ROW_CHUNK);
  if (groups * chunks < 2 * parts) chunks = ceil_div(2 * parts, groups);
  if (chunks > ceil_div(j->m, least)) chunks = ceil_div(j->m, least);
  j->chunk_rows = ceil_div(ceil_div(j->m, chunks), least) * least;
  j->chunks = ceil_div(j->m, j->chunk_rows);
  j->units = groups * j->chunks;
}

static int matmul_gemm(const cpu_pool *pool, job *j) {
  const nbits_kernels *kn = j->w->kernels;
  const size_t parts = (size_t)cpu_pool_parts(pool), ld = kn->width * kn->gemm_panels;
  const size_t block = j->w->block, step = block < GEMM_K ? GEMM_K / block * block : block;
  j->expanded_size = step * ld;
  size_t bytes = 0;
  if (!cpu_alloc_add(&bytes, parts * j->expanded_size, sizeof(float))) return -1;
  j->expanded = cpu_alloc(bytes);
  if (!j->expanded) return -1;
  memset(j->expanded, 0, bytes);  // panels past n are multiplied too, though their columns are not stored
  split_rows(j, ceil_div(j->w->panels, kn->gemm_panels), parts, kn->gemm_rows);
  cpu_pool_each(pool, j->units, gemm_unit, j);
  cpu_free(j->expanded);
  return 0;
}

static int matmul_f32(const cpu_pool *pool, const cpu_nbits *w, size_t m, const float *x, const float *bias, float *y) {
  job j = {.w = w, .m = m, .ldx = w->k, .x = x, .bias = bias, .y = y};
  const bool gemm = w->kernels->gemm_rows && m >= w->kernels->gemm_from && w->k > 0;
  return gemm ? matmul_gemm(pool, &j) : matmul_few(pool, &j);
}

// Rows with NaN or infinity go through the kernel with their neighbours and are computed again in f32 after that.
static void clear_row(const job *j, size_t r) {
  const size_t blocks = j->w->blocks;
  memset(j->rows.q + r * j->rows.stride, 0, j->rows.stride);
  memset(j->rows.scale + r * blocks, 0, blocks * sizeof(float));
  memset(j->rows.minus_sum + r * blocks, 0, blocks * sizeof(int32_t));
}

static void quantise_unit(void *ctx, size_t unit, int part) {
  (void)part;
  const job *j = ctx;
  const size_t first = unit * NBITS_MAX_ROWS, left = j->m - first;
  for (size_t r = first; r < first + (left < NBITS_MAX_ROWS ? left : NBITS_MAX_ROWS); r++) {
    j->finite[r] = j->w->kernels->quantise(j->w, j->x + r * j->ldx, &j->rows, r);
    if (!j->finite[r]) clear_row(j, r);
  }
}

static void int8_rows(const job *j, size_t panel, size_t first, size_t rows) {
  const nbits_kernels *kn = j->w->kernels;
  const size_t tiles = ceil_div(rows, kn->tile_rows);
  for (size_t t = 0; t < tiles; t++) {
    const size_t r = first + tile_begin(rows, tiles, t), end = first + tile_begin(rows, tiles, t + 1);
    kn->int8(j->w, panel, end - r, &j->rows, r, j->bias, j->y + r * j->w->n);
  }
}

static void int8_part(void *ctx, int part, int parts) {
  const job *j = ctx;
  const size_t end = tile_begin(j->w->panels, (size_t)parts, (size_t)part + 1);
  for (size_t p = tile_begin(j->w->panels, (size_t)parts, (size_t)part); p < end; p++) int8_rows(j, p, 0, j->m);
}

static void int8_unit(void *ctx, size_t unit, int part) {
  (void)part;
  const job *j = ctx;
  const size_t first = unit / j->w->panels * j->chunk_rows, left = j->m - first;
  int8_rows(j, unit % j->w->panels, first, left < j->chunk_rows ? left : j->chunk_rows);
}

// Points the arrays of rounded rows into one block, which the caller frees; NULL when out of memory.
static char *int8_scratch(job *j) {
  const cpu_nbits *w = j->w;
  size_t total = 0, count;
  j->rows.stride = w->blocks * w->block;
  if (__builtin_mul_overflow(j->m, w->blocks, &count) || !cpu_alloc_add(&total, j->m, j->rows.stride)) return NULL;
  const size_t at_scale = total;
  if (!cpu_alloc_add(&total, count, sizeof(float))) return NULL;
  const size_t at_sum = total;
  if (!cpu_alloc_add(&total, count, sizeof(int32_t))) return NULL;
  const size_t at_finite = total;
  if (!cpu_alloc_add(&total, j->m, 1)) return NULL;
  char *memory = cpu_alloc(total);
  if (!memory) return NULL;
  j->rows.q = (int8_t *)memory;
  j->rows.scale = (float *)(void *)(memory + at_scale);
  j->rows.minus_sum = (int32_t *)(void *)(memory + at_sum);
  j->finite = (unsigned char *)(memory + at_finite);
  return memory;
}

static int matmul_int8(const cpu_pool *pool, const cpu_nbits *w, size_t m, const float *x, const float *bias,
                       float *y) {
  job j = {.w = w, .m = m, .ldx = w->k, .x = x, .bias = bias, .y = y};
  char *scratch = int8_scratch(&j);
  if (!scratch) return -1;
  const size_t units = ceil_div(m, NBITS_MAX_ROWS);
  cpu_pool_each(pool, units, quantise_unit, &j);
  if (units == 1) {
    cpu_pool_run(pool, parts_for(pool, w, m), int8_part, &j);
  } else {
    split_rows(&j, w->panels, (size_t)cpu_pool_parts(pool), w->kernels->tile_rows);
    cpu_pool_each(pool, j.units, int8_unit, &j);
  }
  int result = 0;
  for (size_t r = 0; r < m && result == 0; r++) {
    if (!j.finite[r]) result = matmul_f32(pool, w, 1, x + r * w->k, bias, y + r * w->n);
  }
  cpu_free(scratch);
  return result;
}

int cpu_nbits_matmul(const cpu_pool *pool, const cpu_nbits *w, int accuracy_level, size_t m, const float *x,
                     const float *bias, float *y) {
  if (m == 0 || w->n == 0) return 0;
  return accuracy_level == 4 ? matmul_int8(pool, w, m, x, bias, y) : matmul_f32(pool, w, m, x, bias, y);
}
