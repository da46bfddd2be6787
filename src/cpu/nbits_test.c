// Every kernel this CPU runs against sums in double precision.
#include "cpu/nbits.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/alloc.h"

int cpu_nbits_tests(void);  // returns the number of failures, each printed

typedef enum { NO_ZEROS, BYTE_ZEROS, FLOAT_ZEROS, ZERO_FORMS } zero_form;
enum { MAX_ROWS = 33, MAX_THREADS = 3 };

typedef struct {
  size_t n, k, blocks, row_bytes, zero_bytes;
  int bits, block;
  zero_form form;
  uint8_t *q, *zeros;
  float *scales, *float_zeros, *bias, *x, *y;  // x [MAX_ROWS, k], y [MAX_ROWS, n]
  double *exact, *size;                        // [MAX_ROWS, n]: the product, and the sum of its terms' sizes
  double *rounded;                             // [MAX_ROWS, n]: the product with x rounded as level 4 does
  double tolerance;                            // of f32 sums, relative to size
} problem;

static int failures;
static uint32_t seed;

static void expect(bool ok, const char *what) {
  if (ok) return;
  failures++;
  printf("FAIL nbits: %s\n", what);
}

static uint32_t random_bits(void) {
  seed = seed * 1664525u + 1013904223u;
  return seed >> 8;
}

static float random_float(void) { return (float)random_bits() / (float)(1 << 23) - 1.0f; }

static void *get(size_t count, size_t size) { return calloc(count + 1, size); }  // a machine without memory ends here

static void fill(problem *p) {
  for (size_t i = 0; i < p->n * p->row_bytes; i++) p->q[i] = (uint8_t)random_bits();
  for (size_t i = 0; i < p->n * p->zero_bytes; i++) p->zeros[i] = (uint8_t)random_bits();
  for (size_t i = 0; i < p->n * p->blocks; i++) {
    p->scales[i] = 0.01f * random_float();
    p->float_zeros[i] = 3.0f * random_float();
  }
  for (size_t i = 0; i < p->n; i++) p->bias[i] = random_float();
  for (size_t i = 0; i < MAX_ROWS * p->k; i++) p->x[i] = random_float();
}

static problem new_problem(int bits, int block, size_t k, size_t n, zero_form form) {
  problem p = {.n = n, .k = k, .bits = bits, .block = block, .form = form, .tolerance = 2e-6};
  p.blocks = (k + (size_t)block - 1) / (size_t)block;
  p.row_bytes = p.blocks * (size_t)(block * bits) / 8;
  p.zero_bytes = (p.blocks * (size_t)bits + 7) / 8;
  p.q = get(n * p.row_bytes, 1);
  p.zeros = get(n * p.zero_bytes, 1);
  p.scales = get(n * p.blocks, sizeof(float));
  p.float_zeros = get(n * p.blocks, sizeof(float));
  p.bias = get(n, sizeof(float));
  p.x = get(MAX_ROWS * k, sizeof(float));
  p.y = get(MAX_ROWS * n, sizeof(float));
  p.exact = get(MAX_ROWS * n, sizeof(double));
  p.size = get(MAX_ROWS * n, sizeof(double));
  p.rounded = get(MAX_ROWS * n, sizeof(double));
  seed = (uint32_t)(bits * 1000003 + block * 10007) + (uint32_t)(k * 101 + n * 7) + (uint32_t)form;
  fill(&p);
  return p;
}

static void free_problem(problem *p) {
  void *all[] = {p->q, p->zeros, p->scales, p->float_zeros, p->bias, p->x, p->y, p->exact, p->size, p->rounded};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) free(all[i]);
}

static unsigned bits_at(const uint8_t *bytes, size_t bit, int bits) {
  return ((unsigned)bytes[bit / 8] >> (bit % 8)) & ((1u << bits) - 1u);
}

static double weight(const problem *p, size_t n, size_t k) {
  const size_t b = k / (size_t)p->block, bits = (size_t)p->bits;
  double zero = (double)(1 << (p->bits - 1));
  if (p->form == BYTE_ZEROS) zero = bits_at(p->zeros + n * p->zero_bytes, b * bits, p->bits);
  if (p->form == FLOAT_ZEROS) zero = (double)p->float_zeros[n * p->blocks + b];
  const double q = bits_at(p->q + n * p->row_bytes, k * bits, p->bits);
  return (q - zero) * (double)p->scales[n * p->blocks + b];
}

// Row r of x, rounded to steps of a 127th of the greatest value in each block.
static void round_row(const problem *p, size_t r, double *out) {
  for (size_t first = 0; first < p->k; first += (size_t)p->block) {
    const size_t end = first + (size_t)p->block < p->k ? first + (size_t)p->block : p->k;
    float greatest = 0;
    for (size_t k = first; k < end; k++) greatest = fmaxf(greatest, fabsf(p->x[r * p->k + k]));
    for (size_t k = first; k < end; k++) {
      const float inverse = greatest >= 1e-36f ? 127.0f / greatest : 0.0f;  // a smaller block counts as zero
      out[k] = (double)rintf(p->x[r * p->k + k] * inverse) * (double)(greatest / 127.0f);
    }
  }
}

static void reference(problem *p, size_t rows) {
  double *w = get(p->k, sizeof(double)), *rounded = get(rows * p->k, sizeof(double));
  for (size_t r = 0; r < rows; r++) round_row(p, r, rounded + r * p->k);
  for (size_t n = 0; n < p->n; n++) {
    for (size_t k = 0; k < p->k; k++) w[k] = weight(p, n, k);
    for (size_t r = 0; r < rows; r++) {
      const size_t i = r * p->n + n;
      p->exact[i] = p->rounded[i] = (double)p->bias[n];
      p->size[i] = fabs((double)p->bias[n]);
      for (size_t k = 0; k < p->k; k++) {
        p->exact[i] += w[k] * (double)p->x[r * p->k + k];
        p->rounded[i] += w[k] * rounded[r * p->k + k];
        p->size[i] += fabs(w[k] * (double)p->x[r * p->k + k]);
      }
    }
  }
  free(w);
  free(rounded);
}

static cpu_nbits *pack(const problem *p, cpu_nbits_isa isa) {
  const cpu_nbits_source s = {.n = p->n,
                              .k = p->k,
                              .bits = p->bits,
                              .block = p->block,
                              .q = p->q,
                              .scales = p->scales,
                              .zeros = p->form == BYTE_ZEROS ? p->zeros : NULL,
                              .float_zeros = p->form == FLOAT_ZEROS ? p->float_zeros : NULL};
  return cpu_nbits_pack(&s, isa);
}

static void fail(const problem *p, cpu_nbits_isa isa, int level, size_t m, const char *what) {
  failures++;
  printf("FAIL nbits: isa %d bits %d block %d k %zu n %zu zeros %d level %d m %zu: %s\n", (int)isa, p->bits, p->block,
         p->k, p->n, (int)p->form, level, m, what);
}

static bool same(double expected, double allowed, float got) {
  if (isnan(expected)) return isnan(got);
  if (isinf(expected)) return (double)got == expected;
  return fabs(expected - (double)got) <= allowed + 1e-30;
}

// Runs the product over an output that is marked, and one float longer than it, so that a value not written or written
// past the end shows.
static void check(problem *p, const cpu_nbits *w, const cpu_pool *pool, int level, size_t m, bool bias) {
  const float mark = 12345.0f;
  for (size_t i = 0; i <= m * p->n && i < MAX_ROWS * p->n; i++) p->y[i] = mark;
  const cpu_nbits_isa isa = cpu_nbits_packed_for(w);
  if (cpu_nbits_matmul(pool, w, level, m, p->x, bias ? p->bias : NULL, p->y) != 0) {
    fail(p, isa, level, m, "the product reports no memory");
    return;
  }
  if (m < MAX_ROWS && p->y[m * p->n] != mark) fail(p, isa, level, m, "written past the end");
  for (size_t i = 0; i < m * p->n; i++) {
    const double expected = (level == 4 ? p->rounded[i] : p->exact[i]) - (bias ? 0 : (double)p->bias[i % p->n]);
    if (!same(expected, (level == 4 ? 2e-6 : p->tolerance) * p->size[i], p->y[i])) {
      char text[96];
      snprintf(text, sizeof(text), "y[%zu][%zu] is %g, expected %g", i / p->n, i % p->n, (double)p->y[i], expected);
      fail(p, isa, level, m, text);
      return;
    }
  }
}

static void check_all(problem *p, const cpu_pool *pool, bool every_m) {
  static const size_t rows[] = {33, 1, 2, 3, 7, 8, 9, 5, 4, 6};
  const size_t count = every_m ? sizeof(rows) / sizeof(rows[0]) : 7;
  reference(p, MAX_ROWS);
  for (cpu_nbits_isa isa = CPU_NBITS_SCALAR; isa <= CPU_NBITS_AVX512; isa++) {
    if (!cpu_nbits_isa_runs(isa)) continue;
    cpu_nbits *w = pack(p, isa);
    if (!w) {
      fail(p, isa, 0, 0, "not packed");
      continue;
    }
    for (size_t i = 0; i < count; i++) {
      check(p, w, pool, 0, rows[i], true);
      check(p, w, pool, 4, rows[i], i % 2 == 0);
    }
    cpu_nbits_free(w);
  }
}

static void test_forms(void) {
  static const int bits[] = {2, 4, 8}, blocks[] = {32, 16, 64, 128, 256};
  static const size_t ks[] = {32, 33, 70, 576}, ns[] = {17, 1, 15, 40};
  size_t turn = 0;
  for (int b = 0; b < 3; b++) {
    for (int l = 0; l < 5; l++) {
      for (int k = 0; k < 4; k++) {
        for (int n = 0; n < 4; n++, turn++) {
          if (l > 0 && (turn + (size_t)l) % 2) continue;  // all columns for blocks of 32, every other for the rest
          for (zero_form form = NO_ZEROS; form < ZERO_FORMS; form++) {
            problem p = new_problem(bits[b], blocks[l], ks[k], ns[n], form);
            check_all(&p, NULL, n == 0);
            free_problem(&p);
          }
        }
      }
    }
  }
}

// The greatest sums that 8-bit products reach: a kernel that saturates between them shows here.
static void test_extremes(void) {
  static const uint8_t fills[] = {0x00, 0xff, 0x0f, 0xf0};
  for (int bits = 2; bits <= 8; bits *= 2) {
    for (size_t f = 0; f < sizeof(fills); f++) {
      for (int zero = 0; zero < 2; zero++) {
        problem p = new_problem(bits, 256, 512, 17, BYTE_ZEROS);
        p.tolerance = 4e-5;  // equal terms: every rounding of the sum goes the same way, 512 times
        memset(p.q, fills[f], p.n * p.row_bytes);
        memset(p.zeros, zero ? 0xff : 0, p.n * p.zero_bytes);
        for (size_t i = 0; i < MAX_ROWS * p.k; i++) p.x[i] = i / p.k % 2 ? -1.0f : 1.0f;
        check_all(&p, NULL, false);
        free_problem(&p);
      }
    }
  }
}

// NaN and infinity end as sums of f32 products end, and rows beside them are as without them.
static void test_not_finite(void) {
  for (int bits = 2; bits <= 8; bits *= 2) {
    for (zero_form form = NO_ZEROS; form < ZERO_FORMS; form++) {
      problem p = new_problem(bits, 32, 70, 40, form);
      p.x[0] = INFINITY;
      p.x[2 * p.k + 69] = NAN;
      p.x[3 * p.k + 40] = -INFINITY;
      p.x[5 * p.k + 1] = p.x[5 * p.k + 2] = INFINITY;
      p.x[6 * p.k + 33] = -NAN;
      p.x[32 * p.k + 69] = INFINITY;
      reference(&p, MAX_ROWS);
      for (size_t r = 0; r < MAX_ROWS; r++) {
        for (size_t n = 0; n < p.n; n++) {
          if (!isfinite(p.exact[r * p.n + n])) p.rounded[r * p.n + n] = p.exact[r * p.n + n];
        }
      }
      for (cpu_nbits_isa isa = CPU_NBITS_SCALAR; isa <= CPU_NBITS_AVX512; isa++) {
        if (!cpu_nbits_isa_runs(isa)) continue;
        cpu_nbits *w = pack(&p, isa);
        for (size_t m = 1; w && m <= MAX_ROWS; m += m < 9 ? 1 : 12) {
          check(&p, w, NULL, 0, m, true);
          check(&p, w, NULL, 4, m, true);
        }
        cpu_nbits_free(w);
      }
      free_problem(&p);
    }
  }
}

// Values too small to be rounded by blocks count as zero; neighbours keep their precision.
static void test_tiny(void) {
  problem p = new_problem(4, 32, 64, 17, BYTE_ZEROS);
  for (size_t i = 0; i < MAX_ROWS * p.k; i++) p.x[i] = i % p.k < 32 ? 1e-39f : p.x[i];
  check_all(&p, NULL, false);
  memset(p.x, 0, MAX_ROWS * p.k * sizeof(float));
  check_all(&p, NULL, false);
  free_problem(&p);
}

// ---- pools

typedef struct {
  cpu_part_fn fn;
  void *ctx;
  int part, parts;
  bool started;
} thread_part;

static void *run_part(void *arg) {
  thread_part *t = arg;
  t->fn(t->ctx, t->part, t->parts);
  return NULL;
}

static void fork_threads(void *host, int parts, cpu_part_fn fn, void *ctx) {
  pthread_t threads[MAX_THREADS];
  thread_part work[MAX_THREADS];
  ++*(int *)host;
  for (int i = 0; i < parts; i++) {
    work[i] = (thread_part){.fn = fn, .ctx = ctx, .part = i, .parts = parts};
    work[i].started = pthread_create(&threads[i], NULL, run_part, &work[i]) == 0;
    expect(work[i].started, "no thread for a part");
  }
  for (int i = 0; i < parts; i++) {
    if (work[i].started) pthread_join(threads[i], NULL);
  }
}

// A host with one free thread: runs the parts one after the other, the last one first.
static void fork_backwards(void *host, int parts, cpu_part_fn fn, void *ctx) {
  ++*(int *)host;
  for (int i = parts - 1; i >= 0; i--) fn(ctx, i, parts);
}

static void test_pools(void) {
  int forks = 0, backwards = 0;
  const cpu_pool threads = {.threads = MAX_THREADS, .fork = fork_threads, .host = &forks};
  const cpu_pool queue = {.threads = MAX_THREADS, .fork = fork_backwards, .host = &backwards};
  problem p = new_problem(4, 32, 576, 200, BYTE_ZEROS);
  check_all(&p, &threads, true);
  check_all(&p, &queue, true);
  free_problem(&p);
  expect(forks > 0 && backwards > 0, "products of 576 x 200 never used the pool");
}

typedef struct {
  const cpu_nbits *w;
  const problem *p;
  const float *expected;
  int level;
  bool started, ok;
} caller;

static void *call(void *arg) {
  caller *c = arg;
  float *y = get(MAX_ROWS * c->p->n, sizeof(float));
  c->ok = true;
  for (int i = 0; i < 20; i++) {
    const int result = cpu_nbits_matmul(NULL, c->w, c->level, MAX_ROWS, c->p->x, c->p->bias, y);
    if (result != 0 || memcmp(y, c->expected, MAX_ROWS * c->p->n * sizeof(float)) != 0) c->ok = false;
  }
  free(y);
  return NULL;
}

static void test_concurrent_calls(void) {
  problem p = new_problem(8, 32, 128, 40, BYTE_ZEROS);
  cpu_nbits *w = pack(&p, CPU_NBITS_AUTO);
  for (int level = 0; w && level <= 4; level += 4) {
    pthread_t threads[MAX_THREADS];
    caller callers[MAX_THREADS];
    if (cpu_nbits_matmul(NULL, w, level, MAX_ROWS, p.x, p.bias, p.y) != 0) {
      fail(&p, CPU_NBITS_AUTO, level, MAX_ROWS, "no memory");
    }
    for (int i = 0; i < MAX_THREADS; i++) {
      callers[i] = (caller){.w = w, .p = &p, .expected = p.y, .level = level};
      callers[i].started = pthread_create(&threads[i], NULL, call, &callers[i]) == 0;
    }
    for (int i = 0; i < MAX_THREADS; i++) {
      if (callers[i].started) pthread_join(threads[i], NULL);
      if (!callers[i].ok) fail(&p, CPU_NBITS_AUTO, level, MAX_ROWS, "calls at the same time disturb each other");
    }
  }
  if (!w) fail(&p, CPU_NBITS_AUTO, 0, 0, "not packed");
  cpu_nbits_free(w);
  free_problem(&p);
}

// ---- edges

static void test_no_memory(void) {
  problem p = new_problem(4, 32, 70, 40, BYTE_ZEROS);
  cpu_alloc_fail_after(1);
  expect(pack(&p, CPU_NBITS_AUTO) == NULL, "packing without memory gives weights");
  cpu_alloc_fail_after(0);
  cpu_nbits *w = pack(&p, CPU_NBITS_AUTO);
  expect(w != NULL, "packing fails");
  p.x[0] = NAN;  // level 4 then allocates a second time
  for (long n = 1; w && n <= 2; n++) {
    cpu_alloc_fail_after(n);
    expect(cpu_nbits_matmul(NULL, w, 4, 1, p.x, NULL, p.y) == -1, "level 4 without memory reports success");
    cpu_alloc_fail_after(1);
    expect(cpu_nbits_matmul(NULL, w, 0, 1, p.x, NULL, p.y) == -1, "one row without memory reports success");
    expect(cpu_nbits_matmul(NULL, w, 0, 33, p.x, NULL, p.y) == -1, "33 rows without memory report success");
    cpu_alloc_fail_after(0);
  }
  cpu_nbits_free(w);
  free_problem(&p);
}

static void test_refusals(void) {
  static const uint8_t q[4096];
  static const float scales[64];
  cpu_nbits_source s = {.n = 4, .k = 32, .bits = 3, .block = 32, .q = q, .scales = scales};
  expect(cpu_nbits_pack(&s, CPU_NBITS_AUTO) == NULL, "3 bits are packed");
  s.bits = 4;
  static const int blocks[] = {0, 8, 24, 512, -16};
  for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
    s.block = blocks[i];
    expect(cpu_nbits_pack(&s, CPU_NBITS_AUTO) == NULL, "a bad block size is packed");
  }
  s.block = 32;
  s.n = SIZE_MAX;
  expect(cpu_nbits_pack(&s, CPU_NBITS_AUTO) == NULL, "a size that overflows is packed");
  s.n = SIZE_MAX / 2;
  s.k = SIZE_MAX;
  expect(cpu_nbits_pack(&s, CPU_NBITS_AUTO) == NULL, "a product of sizes that overflows is packed");
}

static void test_empty(void) {
  problem p = new_problem(4, 32, 0, 17, NO_ZEROS);
  check_all(&p, NULL, false);  // no terms: y is the bias
  free_problem(&p);
  p = new_problem(4, 32, 32, 0, NO_ZEROS);
  cpu_nbits *w = pack(&p, CPU_NBITS_AUTO);
  expect(w && cpu_nbits_matmul(NULL, w, 0, 3, p.x, NULL, p.y) == 0, "no columns");
  expect(w && cpu_nbits_matmul(NULL, w, 4, 0, p.x, NULL, p.y) == 0, "no rows");
  cpu_nbits_free(w);
  free_problem(&p);
}

int cpu_nbits_tests(void) {
  failures = 0;
  test_forms();
  test_extremes();
  test_not_finite();
  test_tiny();
  test_pools();
  test_concurrent_calls();
  test_no_memory();
  test_refusals();
  test_empty();
  return failures;
}
