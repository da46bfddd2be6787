// The compiled routes under failures: whatever fails, the run gives the right answer.
#include <stdlib.h>

#include "run/engine.h"
#include "run/slots.h"
#include "unit.h"
#include "unit_graph.h"

enum { HEADS = 2, SIZE = 4, MOST = 40, ROWS_MOST = 6 };

typedef struct world {  // one decoder's memory; the cache grows by being copied from `present` to `past`
  float q[HEADS * SIZE * ROWS_MOST], past[2][HEADS * SIZE * MOST], present[2][HEADS * SIZE * MOST], y[HEADS * SIZE * ROWS_MOST];
  double k[MOST][HEADS * SIZE], v[MOST][HEADS * SIZE];  // what was ever added
  int64_t n;
} world;

static void *take(void *host, size_t i, const int64_t *dims, int rank, err *e) {
  world *w = host;
  (void)dims, (void)rank, (void)e;
  return i == 0 ? w->y : w->present[i - 1];
}

// MultiHeadAttention over its own query as key and value: y, present_key, present_value.
static graph *attention(err *e) {
  static const char *const IN[] = {"x", "pk", "pv"}, *const OUT[] = {"y", "nk", "nv"};
  int64_t flat[] = {1, -1, HEADS * SIZE}, cache[] = {1, HEADS, -1, SIZE};
  graph *g = graph_new(e);
  ug_ends(g, IN, 3, OUT, 3, 3, flat, e);
  for (size_t i = 1; i < 3; i++) {
    value *ends[] = {g->inputs[i], g->outputs[i]};
    for (size_t k = 0; k < 2; k++) {
      ends[k]->rank = 4;
      memcpy(ends[k]->dims, cache, sizeof cache);
    }
  }
  graph_set_nodes(g, 1, e);
  node *n = &g->nodes[0];
  *n = (node){.name = "a", .domain = "com.microsoft", .op_type = "MultiHeadAttention", .since = 1, .n_in = 8, .n_out = 3};
  n->in = ARENA_ARRAY(g->mem, value *, 8);
  n->out = ARENA_ARRAY(g->mem, value *, 3);
  attr *a = ARENA_ARRAY(g->mem, attr, 2);
  a[0] = (attr){.name = "num_heads", .kind = ATTR_INT, .i = HEADS};
  a[1] = (attr){.name = "unidirectional", .kind = ATTR_INT, .i = 1};
  n->attrs = a;
  n->n_attrs = 2;
  for (size_t i = 0; i < 3; i++) n->in[i] = g->inputs[0];
  n->in[6] = g->inputs[1];
  n->in[7] = g->inputs[2];
  for (size_t i = 0; i < 3; i++) n->out[i] = g->outputs[i];
  CHECK(graph_link(g, e));
  return g;
}

static void expect(const world *w, int64_t rows) {
  for (int64_t r = 0; r < rows; r++)
    for (int h = 0; h < HEADS; h++) {
      int64_t seen = w->n - rows + r + 1;
      double weight[MOST], most = -1e30, sum = 0;
      for (int64_t j = 0; j < seen; j++) {
        weight[j] = 0;
        for (int d = 0; d < SIZE; d++) weight[j] += w->k[w->n - rows + r][h * SIZE + d] * w->k[j][h * SIZE + d] / sqrt(SIZE);
        most = weight[j] > most ? weight[j] : most;
      }
      for (int64_t j = 0; j < seen; j++) sum += weight[j] = exp(weight[j] - most);
      for (int d = 0; d < SIZE; d++) {
        double y = 0;
        for (int64_t j = 0; j < seen; j++) y += weight[j] * w->v[j][h * SIZE + d] / sum;
        CHECK_NEAR(w->y[(r * HEADS + h) * SIZE + d], y, 1e-5);
      }
    }
  for (int64_t j = 0; j < w->n; j++)
    for (int h = 0; h < HEADS; h++) CHECK(w->present[0][(h * w->n + j) * SIZE] == (float)w->k[j][h * SIZE]);
}

// Adds rows of noise to the cache and checks the answer.
static bool advance(engine *en, kernel *k, world *w, int64_t rows, err *e) {
  int64_t x_dims[] = {1, rows, HEADS * SIZE}, cache[] = {1, HEADS, w->n, SIZE};
  memcpy(w->past, w->present, sizeof w->past);
  for (int64_t r = 0; r < rows; r++)
    for (int d = 0; d < HEADS * SIZE; d++) {
      float x = (float)sin((double)((w->n + r) * 31 + d * 7));
      w->q[r * HEADS * SIZE + d] = x;
      w->k[w->n + r][d] = w->v[w->n + r][d] = (double)x;
    }
  tensor in[] = {{.type = DT_F32, .rank = 3, .dims = x_dims, .data = w->q, .bytes = (size_t)(rows * HEADS * SIZE) * 4},
                 {.type = DT_F32, .rank = 4, .dims = cache, .data = w->past[0], .bytes = (size_t)(w->n * HEADS * SIZE) * 4},
                 {.type = DT_F32, .rank = 4, .dims = cache, .data = w->past[1], .bytes = (size_t)(w->n * HEADS * SIZE) * 4}};
  run_io io = {.in = in, .n_in = 3, .n_out = 3, .output = take, .host = w};
  if (!engine_run(en, k, &io, e)) return false;
  w->n += rows;
  expect(w, rows);
  return true;
}

static void any_call_of_mlx_may_fail_once(void) {
  static const int64_t ROWS[] = {3, 1, 1, 1, 2, 1};
  for (size_t at = 0; at < sizeof ROWS / sizeof *ROWS; at++)
    for (long nth = 1, failed = 1; failed; nth++) {
      err e = {0};
      opts o = {.device = DEVICE_CPU, .closures = 8};
      engine *en = engine_new(&o, (log_sink){0}, &e);
      kernel *k = engine_build(en, attention(&e), &e);
      world *w = calloc(1, sizeof *w);
      for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        if (i == at) mx_fail_after(nth);
        CHECK(advance(en, k, w, ROWS[i], &e) && err_ok(&e));
        if (i == at) failed = mx_fail_after(0);
      }
      const counters *n = engine_counters(en);
      unsigned long long compiled = n->runs[ROUTE_DECODE] + n->runs[ROUTE_PREFILL];
      CHECK(compiled + n->runs[ROUTE_EAGER] == 6 && (failed || compiled == 6));
      free(w);
      engine_release(en, k);
      engine_free(en);
    }
}

static void every_allocation_of_a_step_may_fail(void) {
  for (long nth = 1, done = 0; !done; nth++) {
    err e = {0};
    opts o = {.device = DEVICE_CPU, .closures = 8};
    engine *en = engine_new(&o, (log_sink){0}, &e);
    kernel *k = engine_build(en, attention(&e), &e);
    world *w = calloc(1, sizeof *w);
    CHECK(advance(en, k, w, 2, &e));
    world before = *w;
    mem_fail_after(nth);
    done = advance(en, k, w, 1, &e);
    mem_fail_after(0);
    CHECK(done || e.code == ERR_NO_MEMORY);
    if (!done) *w = before;
    e = (err){0};
    CHECK(advance(en, k, w, 1, &e));
    free(w);
    engine_release(en, k);
    engine_free(en);
  }
}

static void the_least_used_closure_goes_first(void) {
  slots s;
  err e = {0};
  run_key k = {0};
  bool evicted;
  CHECK(slots_init(&s, 2, &e));
  for (int64_t i = 0; i < 3; i++) {
    key_clear(&k);
    key_put(&k, i);
    CHECK(slots_find(&s, &k) == NULL);
    slots_add(&s, &k, &evicted);
    CHECK(evicted == (i == 2));
    key_clear(&k);
    key_put(&k, 0);
    CHECK(slots_find(&s, &k) != NULL);  // 0 is used again and again
  }
  key_clear(&k);
  key_put(&k, 1);
  CHECK(slots_find(&s, &k) == NULL);
  CHECK(!slots_seen(&s, &k) && slots_seen(&s, &k));
  key_free(&k);
  slots_free(&s);
}

void compiled_tests(void) {
  any_call_of_mlx_may_fail_once();
  every_allocation_of_a_step_may_fail();
  the_least_used_closure_goes_first();
}
