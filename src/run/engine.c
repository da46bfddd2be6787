#include "run/engine.h"

#include <pthread.h>
#include <stdio.h>

#include "cpu/pool.h"
#include "run/compiled.h"
#include "run/eager.h"
#include "run/worker.h"

struct engine {
  opts o;
  log_sink log;
  mx_device device;
  worker *worker;
  cpu_pool pool;  // the pool of the run in hand; one address for the session, since closures keep it
  counters count;
  rewrite_counts rewrites;
};

struct kernel {
  program *p;
  compiled *c;
  why_eager told;  // the reason for the eager route that was logged last
};

mx_device engine_default_device(const opts *o, err *e) {
  bool gpu = o->device != DEVICE_CPU && mx_gpu_available();
  if (o->device == DEVICE_GPU && !gpu)
    FAIL(e, ERR_UNSUPPORTED, "option device=gpu, but MLX sees no GPU here; install the mlx package with a GPU backend or "
         "set device=cpu");
  return gpu ? MX_GPU : MX_CPU;
}

static bool thread_begin(void *arg, err *e) { return mx_thread_begin(((engine *)arg)->device, e); }
static void thread_end(void *arg) {
  (void)arg;
  mx_thread_end();
}

engine *engine_new(const opts *o, log_sink log, err *e) {
  mx_device device = engine_default_device(o, e);
  if (!err_ok(e)) return NULL;
  engine *en = mem_alloc(sizeof *en);
  if (!en) {
    FAIL(e, ERR_NO_MEMORY, "out of memory for a session");
    return NULL;
  }
  en->o = *o;
  en->log = log;
  en->device = device;
  en->worker = worker_new(thread_begin, thread_end, en, e);
  if (en->worker) return en;
  mem_free(en);
  return NULL;
}

// The host's logger may be gone by now.
static void tell_counts(const engine *en) {
  text t = {0};
  counters_json(&en->count, &t);
  if (t.s && !t.failed) fprintf(stderr, "MLX: a session ends: %s\n", t.s);
  text_free(&t);
}

void engine_free(engine *en) {
  if (!en) return;
  if (en->o.verbose) tell_counts(en);
  worker_free(en->worker);
  mem_free(en);
}

mx_device engine_device(const engine *en) { return en->device; }

const counters *engine_counters(const engine *en) { return &en->count; }
const rewrite_counts *engine_rewrites(const engine *en) { return &en->rewrites; }

typedef struct build_job {
  engine *en;
  graph *g;
  kernel *k;
  err *e;
} build_job;

static void build_on_worker(void *arg) {
  build_job *j = arg;
  engine *en = j->en;
  if (rewrite_all(j->g, en->device, &en->o, &en->rewrites, j->e)) j->k->p = program_new(j->g, en->device, j->e);
  else graph_free(j->g);
  if (j->k->p) j->k->c = compiled_new(j->k->p, &en->o, &en->count, &en->log, &en->pool, j->e);
}

static void free_on_worker(void *arg) {
  kernel *k = arg;
  compiled_free(k->c);
  program_free(k->p);
}

kernel *engine_build(engine *en, graph *g, err *e) {
  kernel *k = mem_alloc(sizeof *k);
  if (!k) {
    graph_free(g);
    FAIL(e, ERR_NO_MEMORY, "out of memory for a kernel");
    return NULL;
  }
  build_job job = {en, g, k, e};
  worker_call(en->worker, build_on_worker, &job);
  if (k->c) return k;
  engine_release(en, k);
  return NULL;
}

void engine_release(engine *en, kernel *k) {
  if (!k) return;
  worker_call(en->worker, free_on_worker, k);
  mem_free(k);
}

typedef struct run_job {
  engine *en;
  kernel *k;
  const run_io *io;
  err *e;
} run_job;

static void run_eagerly(run_job *j, const run_io *io, why_eager why) {
  engine *en = j->en;
  COUNT(&en->count, fallbacks[why], 1);
  if (why != j->k->told) log_put(&en->log, LOG_VERBOSE, "runs are eager: %s", why_text(why));
  j->k->told = why;
  if (eager_run(j->k->p, io, &en->pool, j->e)) COUNT(&en->count, runs[ROUTE_EAGER], 1);
}

static void run_on_worker(void *arg) {
  run_job *j = arg;
  engine *en = j->en;
  run_io io = *j->io;
  route_kind kind;
  why_eager why;
  io.counted = &en->count;
  en->pool = io.pool ? *io.pool : (cpu_pool){0};
  compiled_result r = compiled_run(j->k->c, &io, &kind, &why, j->e);
  if (r == COMPILED_DONE) COUNT(&en->count, runs[kind], 1);
  if (r == COMPILED_EAGER) run_eagerly(j, &io, why);
  en->pool = (cpu_pool){0};
}

bool engine_run(engine *en, kernel *k, const run_io *io, err *e) {
  run_job job = {en, k, io, e};
  worker_call(en->worker, run_on_worker, &job);
  return err_ok(e);
}
