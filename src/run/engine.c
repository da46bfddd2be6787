#include "run/engine.h"

#include <pthread.h>
#include <stdatomic.h>

#include "cpu/pool.h"
#include "run/eager.h"
#include "run/route.h"
#include "run/worker.h"

struct engine {
  opts o;
  log_sink log;
  mx_device device;
  worker *worker;
  cpu_pool pool;  // the pool of the run in hand; one address for the session, since closures keep it
  atomic_ullong runs[ROUTE_COUNT];
};

struct kernel {
  program *p;
  const char *told;  // the reason for the eager route that was logged last
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

void engine_free(engine *en) {
  if (!en) return;
  worker_free(en->worker);
  mem_free(en);
}

mx_device engine_device(const engine *en) { return en->device; }

void engine_counts(const engine *en, uint64_t runs[ROUTE_COUNT]) {
  for (int r = 0; r < ROUTE_COUNT; r++) runs[r] = atomic_load(&en->runs[r]);
}

typedef struct build_job {
  engine *en;
  graph *g;
  program *p;
  err *e;
} build_job;

static void build_on_worker(void *arg) {
  build_job *j = arg;
  j->p = program_new(j->g, j->en->device, j->e);
}

static void free_on_worker(void *arg) { program_free(arg); }

kernel *engine_build(engine *en, graph *g, err *e) {
  build_job job = {en, g, NULL, e};
  worker_call(en->worker, build_on_worker, &job);
  if (!job.p) return NULL;
  kernel *k = mem_alloc(sizeof *k);
  if (!k) {
    worker_call(en->worker, free_on_worker, job.p);
    FAIL(e, ERR_NO_MEMORY, "out of memory for a kernel");
    return NULL;
  }
  k->p = job.p;
  return k;
}

void engine_release(engine *en, kernel *k) {
  if (!k) return;
  worker_call(en->worker, free_on_worker, k->p);
  mem_free(k);
}

typedef struct run_job {
  engine *en;
  kernel *k;
  const run_io *io;
  err *e;
} run_job;

static void run_on_worker(void *arg) {
  run_job *j = arg;
  engine *en = j->en;
  en->pool = j->io->pool ? *j->io->pool : (cpu_pool){0};
  route r = route_pick(j->k->p, &en->o, j->io);
  if (r.reason && r.reason != j->k->told) log_put(&en->log, LOG_VERBOSE, "runs are eager: %s", r.reason);
  j->k->told = r.reason;
  if (eager_run(j->k->p, j->io, &en->pool, j->e)) atomic_fetch_add(&en->runs[r.kind], 1);
  en->pool = (cpu_pool){0};
}

bool engine_run(engine *en, kernel *k, const run_io *io, err *e) {
  run_job job = {en, k, io, e};
  worker_call(en->worker, run_on_worker, &job);
  return err_ok(e);
}
