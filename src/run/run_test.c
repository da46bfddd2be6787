#include <pthread.h>
#include <stdlib.h>

#include "run/engine.h"
#include "run/worker.h"
#include "unit.h"
#include "unit_graph.h"

typedef struct out_buffer {
  float v[64];
  int64_t dims[4];
  int rank;
  bool refuse;
} out_buffer;

static void *take(void *host, size_t i, const int64_t *dims, int rank, err *e) {
  out_buffer *b = (out_buffer *)host + i;
  if (b->refuse) {
    FAIL(e, ERR_HOST, "no room for output %zu", i);
    return NULL;
  }
  memcpy(b->dims, dims, (size_t)rank * sizeof *dims);
  b->rank = rank;
  return b->v;
}

// z = exp(x) + x for any shape.
static graph *exp_plus(err *e) {
  int64_t dims[] = {-1, -1};
  graph *g = graph_new(e);
  ug_ends(g, (const char *[]){"x"}, 1, (const char *[]){"z"}, 1, 2, dims, e);
  graph_set_nodes(g, 2, e);
  ug_node(g, 0, "Exp", "x", NULL, "y", 2, dims, e);
  ug_node(g, 1, "Add", "y", "x", "z", 2, dims, e);
  CHECK(graph_link(g, e));
  return g;
}

static engine *cpu_engine(err *e) {
  opts o = {.device = DEVICE_CPU, .closures = 4};
  return engine_new(&o, (log_sink){0}, e);
}

static bool run_once(engine *en, kernel *k, int64_t rows, out_buffer *out, err *e) {
  float x[64];
  int64_t dims[] = {rows, 3};
  for (int i = 0; i < 64; i++) x[i] = 0.1f * (float)i;
  tensor in = {.type = DT_F32, .rank = 2, .dims = dims, .data = x, .bytes = (size_t)rows * 12};
  run_io io = {.in = &in, .n_in = 1, .n_out = 1, .output = take, .host = out};
  if (!engine_run(en, k, &io, e)) return false;
  CHECK(out->rank == 2 && out->dims[0] == rows && out->dims[1] == 3);
  for (int64_t i = 0; i < rows * 3; i++) CHECK_NEAR(out->v[i], exp((double)x[i]) + (double)x[i], 1e-4);
  return true;
}

static void shapes_may_change(void) {
  err e = {0};
  engine *en = cpu_engine(&e);
  kernel *k = engine_build(en, exp_plus(&e), &e);
  out_buffer out = {0};
  const counters *n = engine_counters(en);
  for (int64_t rows = 0; rows < 5; rows++) CHECK(run_once(en, k, rows, &out, &e));
  CHECK(n->runs[ROUTE_EAGER] == 1 && n->runs[ROUTE_GENERAL] == 4 && n->fallbacks[WHY_EMPTY] == 1 && n->traces == 4);
  engine_release(en, k);
  engine_free(en);
}

static void failures_leave_the_engine_usable(void) {
  err e = {0};
  engine *en = cpu_engine(&e);
  kernel *k = engine_build(en, exp_plus(&e), &e);
  out_buffer out = {.refuse = true};
  CHECK(!run_once(en, k, 2, &out, &e) && e.code == ERR_HOST);
  e = (err){0};
  float x[6] = {0};
  int64_t bad[] = {INT64_C(1) << 40, 3};
  tensor in = {.type = DT_F32, .rank = 2, .dims = bad, .data = x};
  run_io io = {.in = &in, .n_in = 1, .n_out = 1, .output = take, .host = &out};
  CHECK(!engine_run(en, k, &io, &e));
  CHECK_HAS(e.msg, "a dimension of");
  e = (err){0};
  out.refuse = false;
  CHECK(run_once(en, k, 2, &out, &e) && err_ok(&e));
  engine_release(en, k);
  engine_free(en);
}

static void unknown_operators_do_not_build(void) {
  err e = {0};
  engine *en = cpu_engine(&e);
  graph *g = exp_plus(&e);
  g->nodes[0].op_type = "NoSuch";
  CHECK(engine_build(en, g, &e) == NULL && e.code == ERR_UNSUPPORTED);
  CHECK_HAS(e.msg, "NoSuch");
  engine_free(en);
}

typedef struct caller {
  engine *en;
  kernel *k;
  int failures;
} caller;

static void *call_many(void *arg) {
  caller *c = arg;
  for (int64_t i = 0; i < 50; i++) {
    err e = {0};
    out_buffer out = {0};
    int64_t dims[] = {1 + i % 4, 3};
    float x[12];
    for (int j = 0; j < 12; j++) x[j] = (float)j;
    tensor in = {.type = DT_F32, .rank = 2, .dims = dims, .data = x, .bytes = (size_t)dims[0] * 12};
    run_io io = {.in = &in, .n_in = 1, .n_out = 1, .output = take, .host = &out};
    if (!engine_run(c->en, c->k, &io, &e) || out.dims[0] != dims[0] || fabsf(out.v[2] - 9.389056f) > 1e-4f) c->failures++;
  }
  return NULL;
}

static void any_thread_may_run(void) {
  enum { THREADS = 8 };
  err e = {0};
  engine *en = cpu_engine(&e);
  kernel *k = engine_build(en, exp_plus(&e), &e);
  pthread_t threads[THREADS];
  caller callers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    callers[i] = (caller){en, k, 0};
    CHECK(pthread_create(&threads[i], NULL, call_many, &callers[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    CHECK(callers[i].failures == 0);
  }
  engine_release(en, k);
  engine_free(en);
}

static void every_allocation_may_fail(void) {
  int failures = 0;
  for (long nth = 1;; nth++) {
    err e = {0}, made = {0};
    graph *g = exp_plus(&made);
    out_buffer out = {0};
    mem_fail_after(nth);
    engine *en = cpu_engine(&e);
    kernel *k = en ? engine_build(en, g, &e) : NULL;
    bool ran = k && run_once(en, k, 2, &out, &e);
    mem_fail_after(0);
    CHECK(ran == err_ok(&e));
    if (!en) graph_free(g);
    if (!ran) CHECK(e.code == ERR_NO_MEMORY);
    if (k) {
      err again = {0};
      CHECK(run_once(en, k, 3, &out, &again));
      engine_release(en, k);
    }
    engine_free(en);
    if (ran) break;
    failures++;
  }
  CHECK(failures >= 3);
}

// x [2, 3] and c; every allocation on the way may fail.
static void bodies_read_the_values_around_them(void) {
  int64_t dims[] = {2, 3};
  for (long nth = 0, done = 0; !done; nth++) {
    err e = {0}, made = {0};
    float x[] = {0, 1, 2, 3, 4, 5};
    unsigned char c = nth % 2 == 0;
    tensor in[] = {{.type = DT_F32, .rank = 2, .dims = dims, .data = x, .bytes = sizeof x},
                   {.type = DT_BOOL, .dims = dims, .data = &c, .bytes = 1}};
    out_buffer out = {0};
    run_io io = {.in = in, .n_in = 2, .n_out = 1, .output = take, .host = &out};
    graph *g = ug_if("Neg", 2, dims, &made);
    CHECK(graph_link(g, &made));
    engine *en = cpu_engine(&e);
    mem_fail_after(nth);
    kernel *k = engine_build(en, g, &e);
    bool ran = k && engine_run(en, k, &io, &e);
    mem_fail_after(0);
    CHECK(ran == err_ok(&e) && (ran || e.code == ERR_NO_MEMORY));
    for (int i = 0; ran && i < 6; i++) CHECK_NEAR(out.v[i], c ? exp((double)x[i]) : -(double)x[i], 1e-4);
    engine_release(en, k);
    engine_free(en);
    done = ran && nth > 1;
  }
}

static void a_gpu_that_is_not_there_is_an_error(void) {
  err e = {0};
  opts o = {.device = DEVICE_GPU};
  if (mx_gpu_available()) return;
  CHECK(engine_new(&o, (log_sink){0}, &e) == NULL);
  CHECK_HAS(e.msg, "device=cpu");
}

void run_tests(void) {
  shapes_may_change();
  failures_leave_the_engine_usable();
  unknown_operators_do_not_build();
  any_thread_may_run();
  every_allocation_may_fail();
  bodies_read_the_values_around_them();
  a_gpu_that_is_not_there_is_an_error();
}
