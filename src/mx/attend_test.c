// mx_attend in both forms against its definition in double precision.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/attend.h"
#include "mx/mx.h"
#include "unit.h"

typedef struct problem {
  int b, h, kv, s, d, dv, p;
  dtype type;
  bool ragged, causal, sink, nan_behind;
  int mask;  // 0 none, 1 bool [S, T], 2 float [B, 1, 1, T], 3 float [1, H, S, T]
  int window;
  float cap;
} problem;

typedef struct data {
  double *q, *k, *v, *pk, *pv, *mask, *sink;
  int32_t *len;
} data;

static uint32_t state = 1;
static double noise(void) {
  state = state * 1664525u + 1013904223u;
  return (double)(int32_t)state / 2147483648.0;
}

static double *noisy(size_t n) {
  double *x = malloc((n + 1) * sizeof *x);
  for (size_t i = 0; i < n; i++) x[i] = (double)(float)noise();
  return x;
}

static size_t mask_size(const problem *t) {
  size_t all = (size_t)(t->p + t->s);
  return t->mask == 1 ? (size_t)t->s * all : t->mask == 2 ? (size_t)t->b * all : (size_t)(t->h * t->s) * all;
}

static data data_of(const problem *t) {
  size_t heads = (size_t)(t->b * t->kv);
  data x = {noisy((size_t)(t->b * t->h * t->s * t->d)), noisy(heads * (size_t)(t->s * t->d)), noisy(heads * (size_t)(t->s * t->dv)),
            noisy(heads * (size_t)(t->p * t->d)), noisy(heads * (size_t)(t->p * t->dv)), noisy(mask_size(t)), noisy((size_t)t->h),
            malloc((size_t)t->b * sizeof(int32_t))};
  for (int b = 0; b < t->b; b++) x.len[b] = t->ragged ? (t->p * (b + 1)) / (t->b + 1) : t->p;
  for (size_t i = 0; t->mask && i < mask_size(t); i++)
    if (t->mask == 1) x.mask[i] = x.mask[i] > -0.5;
    else if (x.mask[i] < -0.7) x.mask[i] = -INFINITY;
  for (size_t i = 0; t->nan_behind && i < heads * (size_t)t->p; i++)
    if ((int)(i % (size_t)t->p) >= x.len[i / (size_t)(t->p * t->kv)]) x.pk[i * (size_t)t->d] = x.pv[i * (size_t)t->dv] = (double)NAN;
  return x;
}

static void data_free(data *x) {
  double *all[] = {x->q, x->k, x->v, x->pk, x->pv, x->mask, x->sink};
  for (size_t i = 0; i < 7; i++) free(all[i]);
  free(x->len);
}

static double mask_at(const problem *t, const data *x, int b, int h, int i, int column) {
  int all = t->p + t->s;
  if (!t->mask) return 0;
  if (t->mask == 1) return x->mask[i * all + column] != 0 ? 0 : -INFINITY;
  return t->mask == 2 ? x->mask[b * all + column] : x->mask[(h * t->s + i) * all + column];
}

// One query: y[0..dv).
static void define(const problem *t, const data *x, int b, int h, int i, double *y) {
  int head = b * t->kv + h / (t->h / t->kv), len = x->len[b], keys = len + t->s;
  const double *q = x->q + ((b * t->h + h) * t->s + i) * t->d;
  double most = t->sink ? x->sink[h] : -INFINITY, sum = 0, *w = malloc((size_t)(keys + 1) * sizeof *w);
  for (int j = 0; j < keys; j++) {
    const double *k = j < len ? x->pk + (head * t->p + j) * t->d : x->k + (head * t->s + j - len) * t->d;
    bool seen = !(t->causal && j > len + i) && !(t->window && j <= len + i - t->window);
    w[j] = 0;
    for (int d = 0; d < t->d; d++) w[j] += q[d] * k[d] * 0.3;
    if (t->cap > 0) w[j] = (double)t->cap * tanh(w[j] / (double)t->cap);
    w[j] = seen ? w[j] + mask_at(t, x, b, h, i, j) : -INFINITY;
    most = w[j] > most ? w[j] : most;
  }
  for (int j = 0; j < keys; j++) {
    w[j] = w[j] == -INFINITY ? 0 : exp(w[j] - most);
    sum += w[j];
  }
  if (t->sink) sum += exp(x->sink[h] - most);
  for (int d = 0; d < t->dv; d++) {
    y[d] = 0;
    for (int j = 0; j < keys; j++) {
      const double *v = j < len ? x->pv + (head * t->p + j) * t->dv : x->v + (head * t->s + j - len) * t->dv;
      if (w[j] != 0) y[d] += w[j] * v[d] / sum;
    }
  }
  free(w);
}

static mx array_of(mx_scope *s, const double *v, mx_ints shape, dtype t) {
  size_t n = 1;
  for (int i = 0; i < shape.n; i++) n *= (size_t)shape.v[i];
  float *f = malloc((n + 1) * sizeof *f);
  for (size_t i = 0; i < n; i++) f[i] = (float)v[i];
  mx x = mx_from(s, f, DT_F32, shape);
  free(f);
  return mx_astype(x, t);
}

static void rounded(double *v, size_t n, dtype t) {
  mx_scope *s = mx_scope_new(MX_CPU);
  mx x = mx_astype(array_of(s, v, MXI((int)n), t), DT_F32);
  const float *f = n ? mx_read(x) : NULL;
  for (size_t i = 0; i < n; i++) v[i] = (double)f[i];
  mx_scope_free(s);
}

static mx_attend_desc desc_of(const problem *t, const data *x, mx_scope *s, bool stock) {
  mx_attend_desc d = {.scale = 0.3f, .cap = t->cap, .window = t->window, .causal = t->causal, .stock = stock};
  int all = t->p + t->s;
  d.q = array_of(s, x->q, MXI(t->b, t->h, t->s, t->d), t->type);
  d.k = array_of(s, x->k, MXI(t->b, t->kv, t->s, t->d), t->type);
  d.v = array_of(s, x->v, MXI(t->b, t->kv, t->s, t->dv), t->type);
  if (t->p) {
    d.past_k = array_of(s, x->pk, MXI(t->b, t->kv, t->p, t->d), t->type);
    d.past_v = array_of(s, x->pv, MXI(t->b, t->kv, t->p, t->dv), t->type);
    if (t->ragged) d.past_len = mx_from(s, x->len, DT_I32, MXI(t->b));
  }
  if (t->mask == 1) d.mask = mx_astype(array_of(s, x->mask, MXI(t->s, all), DT_F32), DT_BOOL);
  if (t->mask == 2) d.mask = array_of(s, x->mask, MXI(t->b, 1, 1, all), DT_F32);
  if (t->mask == 3) d.mask = array_of(s, x->mask, MXI(1, t->h, t->s, all), DT_F32);
  if (t->sink) d.sink = array_of(s, x->sink, MXI(t->h), DT_F32);
  return d;
}

static void matches(const problem *t, bool stock) {
  data x = data_of(t);
  size_t heads = (size_t)(t->b * t->kv);
  rounded(x.q, (size_t)(t->b * t->h * t->s * t->d), t->type);
  rounded(x.k, heads * (size_t)(t->s * t->d), t->type);
  rounded(x.v, heads * (size_t)(t->s * t->dv), t->type);
  rounded(x.pk, heads * (size_t)(t->p * t->d), t->type);
  rounded(x.pv, heads * (size_t)(t->p * t->dv), t->type);
  mx_scope *s = mx_scope_new(MX_CPU);
  mx_attend_desc d = desc_of(t, &x, s, stock);
  mx y = mx_astype(mx_attend(&d), DT_F32);
  const float *got = mx_read(y);
  if (!got) printf("%s\n", mx_error(s)->msg);
  CHECK(got && mx_dim(y, 3) == t->dv);
  double want[512], apart = 0, tolerance = t->type == DT_F32 ? 2e-5 : t->type == DT_F16 ? 3e-3 : 2e-2;
  for (int q = 0; got && q < t->b * t->h * t->s; q++) {
    define(t, &x, q / (t->h * t->s), q / t->s % t->h, q % t->s, want);
    for (int k = 0; k < t->dv; k++) {
      double off = fabs(want[k] - (double)got[q * t->dv + k]);
      apart = off <= apart ? apart : off;  // keeps a NaN
      if (off != off) apart = 1e9;
    }
  }
  if (!(apart < tolerance)) printf("  b%d h%d/%d s%d d%d/%d p%d type %d mask %d window %d stock %d: %g\n", t->b, t->h, t->kv, t->s,
                                   t->d, t->dv, t->p, t->type, t->mask, t->window, stock, apart);
  CHECK(apart < tolerance);
  mx_scope_free(s);
  data_free(&x);
}

static void attention_matches_its_definition(void) {
  static const int rows[] = {1, 2, 7, 33, 70}, pasts[] = {0, 1, 5, 130, 700}, sizes[][2] = {{64, 64}, {80, 80}, {128, 128}, {13, 7}};
  int n = 0;
  for (int i = 0; i < 5; i++)
    for (int j = 0; j < 5; j++, n++) {
      problem t = {.b = 1 + n % 3, .h = 6, .kv = n % 2 ? 2 : 3, .s = rows[i], .d = sizes[n % 4][0], .dv = sizes[n % 4][1], .p = pasts[j],
                   .type = n % 3 == 1 ? DT_F16 : n % 3 == 2 ? DT_BF16 : DT_F32, .causal = n % 5 != 0};
      matches(&t, false);
      matches(&t, true);
      t.cap = 2;
      t.sink = true;
      t.window = n % 2 ? 4 : 0;
      matches(&t, false);
      matches(&t, true);
      t.type = DT_F32;
      t.mask = 1 + n % 3;
      matches(&t, false);
      matches(&t, true);
      t.mask = 0;
      t.ragged = t.nan_behind = t.p > 0;
      matches(&t, false);
      matches(&t, true);
      t.mask = 2;
      matches(&t, false);
    }
}


// The instruction sets agree with each other.
static void instruction_sets_agree(void) {
  enum { H = 6, KV = 2, S = 9, D = 48, P = 333 };
  float *x[5], *y[3];
  size_t sizes[5] = {H * S * D, KV * S * D, KV * S * D, KV * P * D, KV * P * D};
  for (int i = 0; i < 5; i++) {
    x[i] = malloc(sizes[i] * sizeof(float));
    for (size_t k = 0; k < sizes[i]; k++) x[i][k] = (float)noise();
  }
  cpu_attend a = {.batch = 1, .heads = H, .kv_heads = KV, .rows = S, .size = D, .value_size = D, .past = P, .scale = 0.2f, .causal = true};
  a.q = (cpu_rows){x[0], {0, S * D, D, 1}};
  a.k = (cpu_rows){x[1], {0, S * D, D, 1}};
  a.v = (cpu_rows){x[2], {0, S * D, D, 1}};
  a.past_k = (cpu_rows){x[3], {0, P * D, D, 1}};
  a.past_v = (cpu_rows){x[4], {0, P * D, D, 1}};
  for (int isa = CPU_ATTEND_PLAIN; isa <= CPU_ATTEND_AVX512; isa++) {
    float *out = y[isa - 1] = calloc(H * S * D, sizeof(float));
    a.y = out;
    CHECK(cpu_attend_run(NULL, &a, (cpu_attend_isa)isa));
    for (int i = 0; i < H * S * D; i++) CHECK_NEAR(out[i], y[0][i], 1e-5);
  }
  for (int i = 0; i < 3; i++) free(y[i]);
  for (int i = 0; i < 5; i++) free(x[i]);
}

void attend_tests(void) {
  err e = {0};
  CHECK(mx_thread_begin(MX_CPU, &e));
  attention_matches_its_definition();
  instruction_sets_agree();
  mx_thread_end();
}
