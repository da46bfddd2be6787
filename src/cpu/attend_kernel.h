// One block of queries against a span of keys; included once for each instruction set with VL, the floats of a vector.
// Queries of all heads that share a key head stand in one block, so that each key and value is read once.
#include <math.h>
#include <string.h>

#include "cpu/attend_block.h"

typedef float vec __attribute__((vector_size(VL * 4)));
typedef int32_t veci __attribute__((vector_size(VL * 4)));
typedef uint32_t vecu __attribute__((vector_size(VL * 4)));
typedef float vec_u __attribute__((vector_size(VL * 4), aligned(4)));

static inline vec load(const float *p) { return *(const vec_u *)p; }
static inline void store(float *p, vec v) { *(vec_u *)p = v; }

static inline float sum_of(vec v) {
  float s = 0;
  for (int i = 0; i < VL; i++) s += v[i];
  return s;
}

// exp for x <= 0 and NaN: 2^n * p(r), p of degree 6 by Taylor around 0, |r| <= ln 2 / 2; 0 below the smallest normal float.
static inline vec exp_of(vec x) {
  const vec least = (vec){0} - 87.3f;
  const float log2e = 1.44269504f, magic = 12582912.0f;
  vecu under = (vecu)(x < least);
  vec low = (vec)(((vecu)least & under) | ((vecu)x & ~under));
  vec n = low * log2e + magic - magic;
  vec r = low - n * 0.693145752f - n * 1.42860677e-6f;
  vec p = 1.0f + r * (1.0f + r * (0.5f + r * (0.166666667f + r * (0.0416666667f + r * (0.00833333333f + r * 0.00138888889f)))));
  vecu two = ((vecu)__builtin_convertvector(n, veci) + 127) << 23;
  return (vec)((vecu)(p * (vec)two) & ~under);
}

// ---- rows as floats -----------------------------------------------------------------------------------------------------
static inline float half_value(uint16_t h) {
  uint32_t bits = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
  float f;
  memcpy(&f, &bits, 4);
  f *= 5.192296858534828e33f;  // 2^112: exponents of a half as those of a float, denormals too
  memcpy(&bits, &f, 4);
  bits |= (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
  bits |= sign;
  memcpy(&f, &bits, 4);
  return f;
}

static void widen(float *to, const void *from, int64_t n, int64_t step, cpu_float type) {
  if (type == CPU_F32) {
    const float *p = from;
    for (int64_t i = 0; i < n; i++) to[i] = p[i * step];
    return;
  }
  const uint16_t *p = from;
  if (type == CPU_F16)
    for (int64_t i = 0; i < n; i++) to[i] = half_value(p[i * step]);
  else
    for (int64_t i = 0; i < n; i++) {
      uint32_t bits = (uint32_t)p[i * step] << 16;
      memcpy(&to[i], &bits, 4);
    }
}

// Rows [from, from + n) of head (b, h), each padded with zeros to `width` floats: *stride floats apart.
static const float *tile_of(const cpu_attend *a, const cpu_rows *x, int64_t b, int64_t h, int64_t from, int64_t n, int64_t size,
                            int64_t width, float *room, int64_t *stride) {
  size_t each = a->type == CPU_F32 ? 4 : 2;
  const char *p = (const char *)x->p + (size_t)(b * x->stride[0] + h * x->stride[1] + from * x->stride[2]) * each;
  if (a->type == CPU_F32 && x->stride[3] == 1 && size == width) {
    *stride = x->stride[2];
    return (const float *)(const void *)p;
  }
  *stride = width;
  for (int64_t i = 0; i < n; i++) {
    widen(room + i * width, p + (size_t)(i * x->stride[2]) * each, size, x->stride[3], a->type);
    for (int64_t d = size; d < width; d++) room[i * width + d] = 0;
  }
  return room;
}

// ---- products -----------------------------------------------------------------------------------------------------------
static void dots_few(const float *q, const float *k, int64_t stride, int64_t n, int64_t width, float *s) {
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    const float *k0 = k + j * stride, *k1 = k0 + stride, *k2 = k1 + stride, *k3 = k2 + stride;
    vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    for (int64_t d = 0; d < width; d += VL) {
      vec x = load(q + d);
      s0 += x * load(k0 + d);
      s1 += x * load(k1 + d);
      s2 += x * load(k2 + d);
      s3 += x * load(k3 + d);
    }
    s[j] = sum_of(s0);
    s[j + 1] = sum_of(s1);
    s[j + 2] = sum_of(s2);
    s[j + 3] = sum_of(s3);
  }
  for (; j < n; j++) {
    vec sum = {0};
    for (int64_t d = 0; d < width; d += VL) sum += load(q + d) * load(k + j * stride + d);
    s[j] = sum_of(sum);
  }
}

// The same for many queries: keys side by side in a transposed tile [width, ATTEND_TILE].
static void transpose_tile(const float *k, int64_t stride, int64_t n, int64_t size, float *t) {
  for (int64_t j = 0; j < n; j++)
    for (int64_t d = 0; d < size; d++) t[d * ATTEND_TILE + j] = k[j * stride + d];
  for (int64_t d = 0; d < size && n < ATTEND_TILE; d++)
    for (int64_t j = n; j < ATTEND_TILE; j++) t[d * ATTEND_TILE + j] = 0;
}

static void dots_many(const float *q, const float *t, int64_t size, float *s) {
  for (int64_t j = 0; j < ATTEND_TILE; j += 4 * VL) {
    vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    const float *p = t + j;
    for (int64_t d = 0; d < size; d++, p += ATTEND_TILE) {
      s0 += q[d] * load(p);
      s1 += q[d] * load(p + VL);
      s2 += q[d] * load(p + 2 * VL);
      s3 += q[d] * load(p + 3 * VL);
    }
    store(s + j, s0);
    store(s + j + VL, s1);
    store(s + j + 2 * VL, s2);
    store(s + j + 3 * VL, s3);
  }
}

// y += p[j] * v[j]; a weight of zero never reads its value.
static void add_values(const float *p, const float *v, int64_t stride, int64_t n, int64_t width, float *y) {
  for (int64_t d = 0; d < width; d += 4 * VL) {
    int64_t parts = (width - d) / VL < 4 ? (width - d) / VL : 4;
    vec s[4];
    for (int64_t k = 0; k < parts; k++) s[k] = load(y + d + k * VL);
    for (int64_t j = 0; j < n; j++) {
      if (p[j] == 0) continue;
      const float *x = v + j * stride + d;
      for (int64_t k = 0; k < parts; k++) s[k] += p[j] * load(x + k * VL);
    }
    for (int64_t k = 0; k < parts; k++) store(y + d + k * VL, s[k]);
  }
}

// ---- a block ------------------------------------------------------------------------------------------------------------
static float mask_value(const cpu_attend *a, int64_t b, int64_t h, int64_t i, int64_t column) {
  const cpu_rows *m = &a->mask;
  if (column >= a->columns) return -INFINITY;
  int64_t at = b * m->stride[0] + h * m->stride[1] + i * m->stride[2] + column * m->stride[3];
  if (a->mask_kind == CPU_MASK_BOOL) return ((const uint8_t *)m->p)[at] ? 0 : -INFINITY;
  if (a->mask_kind == CPU_MASK_F32 || a->type == CPU_F32) return ((const float *)m->p)[at];
  float f;
  widen(&f, (const uint16_t *)m->p + at, 1, 1, a->type);
  return f;
}

// What query i of head h sees of n keys from column on: caps and masks the products, hides the rest.
static void settle(const cpu_attend *a, int64_t b, int64_t h, int64_t i, int64_t column, int64_t n, int64_t past, float *s) {
  int64_t at = past + i, first = a->window > 0 ? at - a->window + 1 : 0;
  int64_t last = a->causal ? at : past + a->rows - 1;
  for (int64_t j = 0; a->cap > 0 && j < n; j++) s[j] = a->cap * tanhf(s[j] / a->cap);
  for (int64_t j = 0; a->mask.p && j < n; j++) s[j] += mask_value(a, b, h, i, column + j);
  for (int64_t j = 0; j < n && column + j < first; j++) s[j] = -INFINITY;
  for (int64_t j = last + 1 - column < 0 ? 0 : last + 1 - column; j < n; j++) s[j] = -INFINITY;
}

// Softmax in one pass: weights of this tile relative to the largest product so far.
static void soften(float *s, int64_t n, float *most, float *sum, float *y, int64_t width) {
  float m = *most;
  bool nan = false;
  for (int64_t j = 0; j < n; j++) {
    m = s[j] > m ? s[j] : m;
    nan = nan || s[j] != s[j];
  }
  if (m == -INFINITY && !nan) {
    memset(s, 0, ATTEND_TILE * sizeof *s);
    return;
  }
  for (int64_t j = n; j < ATTEND_TILE; j++) s[j] = -INFINITY;
  float back = *most == m ? 1 : expf(*most - m);
  for (int64_t d = 0; back != 1 && d < width; d++) y[d] *= back;
  vec all = {0};
  for (int64_t j = 0; j < ATTEND_TILE; j += VL) {
    vec e = exp_of(load(s + j) - m);
    store(s + j, e);
    all += e;
  }
  *sum = *sum * back + sum_of(all);
  *most = m;
}

static void tile(const cpu_attend *a, const attend_block *k, const cpu_rows *keys, const cpu_rows *values, int64_t from, int64_t n,
                 int64_t column, int64_t past) {
  int64_t group = a->heads / a->kv_heads, k_stride, v_stride;
  bool many = k->queries >= ATTEND_MANY;
  const float *kt = tile_of(a, keys, k->b, k->h, from, n, a->size, k->width, k->room, &k_stride);
  if (many) {
    transpose_tile(kt, k_stride, n, a->size, k->turned);
  }
  float *s = k->products;
  for (int64_t x = 0; x < k->queries; x++, s += ATTEND_TILE) {
    if (many) dots_many(k->q + x * k->width, k->turned, a->size, s);
    else dots_few(k->q + x * k->width, kt, k_stride, n, k->width, s);
    settle(a, k->b, k->h * group + x % group, k->row + x / group, column, n, past, s);
    soften(s, n, &k->most[x], &k->sum[x], k->y + x * k->value_width, k->value_width);
  }
  const float *vt = tile_of(a, values, k->b, k->h, from, n, a->value_size, k->value_width, k->room, &v_stride);
  for (int64_t x = 0; x < k->queries; x++)
    add_values(k->products + x * ATTEND_TILE, vt, v_stride, n, k->value_width, k->y + x * k->value_width);
}

static void span(const cpu_attend *a, const attend_block *k, const cpu_rows *keys, const cpu_rows *values, int64_t from, int64_t to,
                 int64_t column, int64_t past) {
  for (int64_t at = from; at < to; at += ATTEND_TILE)
    tile(a, k, keys, values, at, to - at < ATTEND_TILE ? to - at : ATTEND_TILE, column + at, past);
}

void ATTEND_NAME(const cpu_attend *a, const attend_block *k) {
  int64_t group = a->heads / a->kv_heads, past = k->past, first = k->from, last_row = k->row + k->queries / group - 1;
  size_t each = a->type == CPU_F32 ? 4 : 2;
  for (int64_t x = 0; x < k->queries; x++) {
    int64_t h = k->h * group + x % group, i = k->row + x / group;
    const cpu_rows *q = &a->q;
    const char *p = (const char *)q->p + (size_t)(k->b * q->stride[0] + h * q->stride[1] + i * q->stride[2]) * each;
    float *to = k->q + x * k->width;
    widen(to, p, a->size, q->stride[3], a->type);
    for (int64_t d = 0; d < k->width; d++) to[d] = d < a->size ? to[d] * a->scale : 0;
  }
  int64_t nearest = past + k->row - a->window + 1;  // of the first query
  if (a->window > 0 && nearest > first) first = nearest < k->to ? nearest : k->to;
  if (a->past_k.p) span(a, k, &a->past_k, &a->past_v, first, k->to, 0, past);
  if (k->with_new) span(a, k, &a->k, &a->v, 0, a->causal ? last_row + 1 : a->rows, past, past);
}
