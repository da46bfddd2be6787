#include "cpu/attend.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cpu/attend_block.h"

enum { SPLIT_FROM = 256 };  // past rows that are worth a part of their own

typedef void (*block_fn)(const cpu_attend *, const attend_block *);

bool cpu_attend_has(cpu_attend_isa isa) {
#if defined(__x86_64__)
  if (isa == CPU_ATTEND_AVX512) return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
  if (isa == CPU_ATTEND_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return isa == CPU_ATTEND_AUTO || isa == CPU_ATTEND_PLAIN;
}

static block_fn block_of(cpu_attend_isa isa) {
#if defined(__x86_64__)
  bool any = isa == CPU_ATTEND_AUTO;
  if ((any || isa == CPU_ATTEND_AVX512) && cpu_attend_has(CPU_ATTEND_AVX512)) return attend_avx512;
  if ((any || isa == CPU_ATTEND_AVX2) && cpu_attend_has(CPU_ATTEND_AVX2)) return attend_avx2;
#endif
  (void)isa;
  return attend_plain;
}

// Work items: (entry, key head, block of rows, part of the past). Each keeps its sums for itself; a second pass joins the
// parts and writes y.
typedef struct job {
  const cpu_attend *a;
  block_fn block;
  int64_t rows_each, blocks, parts, width, value_width;
  size_t queries;   // of a block, at most
  float *sums;      // [items / parts, parts, queries, value_width + 2]
  float *room;      // scratch for each thread
  size_t room_each, sums_each;
} job;

static int64_t padded(int64_t n) { return (n + ATTEND_PAD - 1) / ATTEND_PAD * ATTEND_PAD; }
static int64_t group_of(const cpu_attend *a) { return a->heads / a->kv_heads; }

static int64_t past_of(const cpu_attend *a, int64_t b) {
  int64_t n = a->past_len ? a->past_len[b] : a->past;
  return !a->past_k.p || n < 0 ? 0 : n > a->past ? a->past : n;
}

static int64_t queries_of(const job *j, int64_t row) {
  int64_t rows = j->a->rows - row < j->rows_each ? j->a->rows - row : j->rows_each;
  return rows * group_of(j->a);
}

static float *scratch(float **at, size_t n) {
  float *p = *at;
  *at += n;
  return p;
}

static void sum_item(void *ctx, size_t item, int thread) {
  const job *j = ctx;
  const cpu_attend *a = j->a;
  int64_t part = (int64_t)item % j->parts, rest = (int64_t)item / j->parts, block = rest % j->blocks, head = rest / j->blocks;
  float *room = j->room + (size_t)thread * j->room_each, *sums = j->sums + item * j->sums_each;
  attend_block k = {.b = head / a->kv_heads, .h = head % a->kv_heads, .row = block * j->rows_each, .width = j->width,
                    .value_width = j->value_width};
  k.queries = queries_of(j, k.row);
  k.past = past_of(a, k.b);
  k.from = k.past * part / j->parts;
  k.to = k.past * (part + 1) / j->parts;
  k.with_new = part == j->parts - 1;
  k.y = scratch(&sums, j->queries * (size_t)j->value_width);
  k.most = scratch(&sums, j->queries);
  k.sum = scratch(&sums, j->queries);
  k.q = scratch(&room, j->queries * (size_t)j->width);
  k.products = scratch(&room, j->queries * ATTEND_TILE);
  k.turned = scratch(&room, (size_t)j->width * ATTEND_TILE);
  k.room = room;
  memset(k.y, 0, (size_t)(k.queries * j->value_width) * sizeof *k.y);
  for (int64_t x = 0; x < k.queries; x++) {
    k.most[x] = -INFINITY;
    k.sum[x] = 0;
  }
  j->block(a, &k);
}

// ---- joining ------------------------------------------------------------------------------------------------------------
static uint16_t half_of(float f) {
  uint32_t bits, sign;
  memcpy(&bits, &f, 4);
  sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (bits >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (bits < 0x38800000) {  // denormal: the sum's rounding is the half's
    float tiny;
    memcpy(&tiny, &bits, 4);
    tiny += 0.5f;
    memcpy(&bits, &tiny, 4);
    return (uint16_t)(sign | (bits - 0x3f000000));
  }
  return (uint16_t)(sign | ((bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13));
}

static uint16_t bfloat_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void put(const cpu_attend *a, int64_t at, float f) {
  if (a->type == CPU_F32) ((float *)a->y)[at] = f;
  else ((uint16_t *)a->y)[at] = a->type == CPU_F16 ? half_of(f) : bfloat_of(f);
}

static void join_query(const job *j, const float *first, int64_t x, int64_t h, int64_t out) {
  const cpu_attend *a = j->a;
  size_t most_at = j->queries * (size_t)j->value_width + (size_t)x, sum_at = most_at + j->queries;
  float most = a->sink ? a->sink[h] : -INFINITY, sum = 0;
  for (int64_t p = 0; p < j->parts; p++) {
    float m = first[(size_t)p * j->sums_each + most_at];
    if (m > most) most = m;
  }
  for (int64_t p = 0; p < j->parts; p++) {
    const float *s = first + (size_t)p * j->sums_each;
    if (s[sum_at] != 0) sum += s[sum_at] * (s[most_at] == most ? 1 : expf(s[most_at] - most));
  }
  if (a->sink) sum += expf(a->sink[h] - most);
  for (int64_t d = 0; d < a->value_size; d++) {
    float y = 0;
    for (int64_t p = 0; p < j->parts && sum != 0; p++) {
      const float *s = first + (size_t)p * j->sums_each;
      if (s[sum_at] != 0) y += s[x * j->value_width + d] * (s[most_at] == most ? 1 : expf(s[most_at] - most)) / sum;
    }
    put(a, out + d, y);
  }
}

static void join_item(void *ctx, size_t item, int thread) {
  (void)thread;
  const job *j = ctx;
  const cpu_attend *a = j->a;
  int64_t block = (int64_t)item % j->blocks, head = (int64_t)item / j->blocks, row = block * j->rows_each, group = group_of(a);
  int64_t b = head / a->kv_heads, h0 = head % a->kv_heads * group;
  const float *first = j->sums + item * (size_t)j->parts * j->sums_each;
  for (int64_t x = 0; x < queries_of(j, row); x++) {
    int64_t h = h0 + x % group, i = row + x / group;
    join_query(j, first, x, h, ((b * a->heads + h) * a->rows + i) * a->value_size);
  }
}

bool cpu_attend_run(const cpu_pool *pool, const cpu_attend *a, cpu_attend_isa isa) {
  int64_t group = group_of(a), threads = cpu_pool_parts(pool), most = 0;
  job j = {.a = a, .block = block_of(isa), .rows_each = group < ATTEND_QUERIES ? ATTEND_QUERIES / group : 1};
  if (a->rows < j.rows_each) j.rows_each = a->rows;
  if (!a->batch || !a->heads || !a->rows || !a->value_size) return true;
  j.blocks = (a->rows + j.rows_each - 1) / j.rows_each;
  for (int64_t b = 0; b < a->batch; b++)
    if (past_of(a, b) > most) most = past_of(a, b);
  int64_t items = a->batch * a->kv_heads * j.blocks;
  j.parts = threads > 1 && items < 4 * threads ? most / SPLIT_FROM : 1;
  j.parts = j.parts < 1 ? 1 : j.parts > 2 * threads ? 2 * threads : j.parts;
  j.width = padded(a->size);
  j.value_width = padded(a->value_size);
  j.queries = ATTEND_QUERIES > group ? ATTEND_QUERIES : (size_t)group;
  size_t wider = (size_t)(j.width > j.value_width ? j.width : j.value_width);
  j.sums_each = j.queries * (size_t)(j.value_width + 2);
  j.room_each = j.queries * (size_t)(j.width + ATTEND_TILE) + ((size_t)j.width + wider) * ATTEND_TILE;
  size_t sums = 0, room = 0;
  bool fits = size_mul((size_t)(items * j.parts), j.sums_each * sizeof(float), &sums) &&
              size_mul((size_t)threads, j.room_each * sizeof(float), &room);
  j.sums = fits ? mem_alloc(sums) : NULL;
  j.room = fits ? mem_alloc(room) : NULL;
  bool ok = j.sums && j.room;
  if (ok) {
    cpu_pool_each(pool, (size_t)(items * j.parts), sum_item, &j);
    cpu_pool_each(pool, (size_t)items, join_item, &j);
  }
  mem_free(j.room);
  mem_free(j.sums);
  return ok;
}
