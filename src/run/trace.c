#include "run/trace.h"

#include <limits.h>

#include "ops/narrow.h"
#include "run/cache.h"
#include "run/step.h"

// What a body needs while it is traced.
typedef struct tracing {
  op_env env;  // first: translators hand it back
  program *p;
  const layout *l;
  const facts *f;
  const run_config *config;
  const run_io *io;
  const struct cpu_pool *pool;
  op_cache *caches;  // by cache node
  mx required;       // bool scalar; NULL: nothing was required
} tracing;

size_t trace_outputs(const program *p, const layout *l) { return p->g->n_outputs + l->n_caches + 1; }

// ---- what translators may ask -------------------------------------------------------------------------------------------
static bool host_value(const op_env *env, const value *v, tensor *out) {
  const tracing *t = env->route;
  int i = graph_input_of(t->p->g, v);
  if (i < 0 || !t->l->by_value[i]) return false;
  *out = t->io->in[i];
  return true;
}

static void require(const op_env *env, mx ok) {
  tracing *t = (tracing *)(uintptr_t)env->route;
  mx all = mx_all(ok, all_axes(mx_ndim(ok)), false);
  t->required = t->required ? mx_logical_and(t->required, all) : all;
}

static op_cache *cache(const op_env *env, const node *n) {
  const tracing *t = env->route;
  for (size_t c = 0; c < t->l->n_caches; c++)
    if (t->l->caches[c].n == n) return &t->caches[c];
  return NULL;
}

// ---- the body -----------------------------------------------------------------------------------------------------------
static void fill_inputs(tracing *t, mx_scope *s, const mx *in, mx *values) {
  const graph *g = t->p->g;
  size_t k = 0;
  for (size_t i = 0; i < g->n_inputs; i++) {
    mx *v = &values[g->inputs[i]->id];
    *v = t->l->by_value[i] ? narrow_from(s, &t->io->in[i]) : in[k++];
  }
}

static void fill_outputs(tracing *t, mx_scope *s, const mx *values, mx *out) {
  const graph *g = t->p->g;
  for (size_t i = 0; i < g->n_outputs; i++) {
    mx x = values[g->outputs[i]->id];
    out[i] = t->config->contiguous_outputs || t->l->cache_of[i] >= 0 ? mx_contiguous(x) : x;
  }
  out += g->n_outputs;
  for (size_t c = 0; c < t->l->n_caches; c++)
    *out++ = t->caches[c].pos ? mx_contiguous(t->caches[c].pos) : mx_full(s, MXI(1), CACHE_BEHIND, DT_I32);
  *out = t->required ? t->required : mx_full(s, (mx_ints){0}, 1, DT_BOOL);
}

static void body(void *user, mx_scope *s, const mx *in, size_t n_in, mx *out, size_t n_out) {
  tracing *t = user;
  (void)n_in;
  (void)n_out;
  mx *values = mem_alloc((t->p->g->n_values + 1) * sizeof *values);
  op_cache *caches = mem_alloc((t->l->n_caches + 1) * sizeof *caches);
  if (!values || !caches) mx_fail(s, ERR_NO_MEMORY, "out of memory for a trace");
  t->caches = caches;
  t->required = NULL;
  for (size_t c = 0; caches && c < t->l->n_caches; c++) caches[c].first = t->f->first;
  mx_set_pool(s, t->pool);
  if (mx_ok(s)) fill_inputs(t, s, in, values);
  if (mx_ok(s) && step_run_all(t->p, s, values, &t->env)) fill_outputs(t, s, values, out);
  mem_free(caches);
  mem_free(values);
}

// ---- sizes --------------------------------------------------------------------------------------------------------------
// The inputs as the trace sees them, each free axis longer by `more`.
static bool specs_of(tracing *t, int64_t more, mx_spec *spec, err *e) {
  const graph *g = t->p->g;
  for (size_t i = 0; i < g->n_inputs; i++) {
    if (t->l->by_value[i]) continue;
    const tensor *x = &t->io->in[i];
    *spec = (mx_spec){.type = dtype_code(x->type), .shape = {.n = x->rank}};
    if (x->rank > MX_MAX_RANK) return FAIL(e, ERR_UNSUPPORTED, "an input has rank %d", x->rank);
    for (int a = 0; a < x->rank; a++) {
      int64_t d = facts_dim(t->l, t->f, t->io, i, a);
      if (t->config->open && facts_free(t->l, t->f, g, t->io, i, a)) d += more;
      if (d < 0 || d > INT_MAX) return FAIL(e, ERR_UNSUPPORTED, "an input has a dimension of %lld", (long long)d);
      spec->shape.v[a] = (int)d;
    }
    spec++;
  }
  return true;
}

static bool any_free(const tracing *t) {
  for (size_t i = 0; i < t->p->g->n_inputs; i++)
    for (int a = 0; a < t->io->in[i].rank; a++)
      if (facts_free(t->l, t->f, t->p->g, t->io, i, a)) return true;
  return false;
}

static mx_fn *trace_at(tracing *t, int64_t more, mx_spec *spec, err *e) {
  if (!specs_of(t, more, spec, e)) return NULL;
  return mx_trace(body, t, spec, t->l->n_traced, trace_outputs(t->p, t->l), t->p->device, e);
}

// A step that is right at one size only would show at one of these. Gives the last trace, NULL with an error.
static mx_fn *grown(tracing *t, const mx_fn *f, mx_spec *spec, err *e) {
  static const int64_t MORE[] = {1, 2, 5};
  mx_fn *other = NULL;
  for (size_t k = 0; k < sizeof MORE / sizeof *MORE && err_ok(e); k++) {
    mx_fn_free(other);
    other = trace_at(t, MORE[k], spec, e);
    if (other) mx_fn_same(f, other, e);
  }
  if (err_ok(e)) return other;
  mx_fn_free(other);
  return NULL;
}

mx_fn *trace_program(program *p, const layout *l, const facts *f, const run_config *config, const run_io *io,
                     const struct cpu_pool *pool, why_eager *what, err *e) {
  tracing t = {.p = p, .l = l, .f = f, .config = config, .io = io, .pool = pool};
  t.env = (op_env){.host_value = host_value, .route = &t, .require = require, .cache = cache};
  mx_spec *spec = mem_alloc((l->n_traced + 1) * sizeof *spec);
  *what = WHY_MEMORY;
  if (!spec) {
    FAIL(e, ERR_NO_MEMORY, "out of memory for a trace");
    return NULL;
  }
  mx_fn *fn = trace_at(&t, 0, spec, e);
  *what = WHY_TRACE;
  mx_fn *other = fn && config->open && any_free(&t) ? grown(&t, fn, spec, e) : NULL;
  if (fn && !err_ok(e)) {
    *what = WHY_SIZE;
    mx_fn_free(fn);
    fn = NULL;
  }
  if (fn) fn = mx_fn_join(fn, other, p->device);
  mx_fn_free(other);
  mem_free(spec);
  return fn;
}

bool trace_inputs(const program *p, const layout *l, const facts *f, const run_io *io, mx_scope *s, mx *in) {
  for (size_t i = 0; i < p->g->n_inputs && mx_ok(s); i++) {
    if (l->by_value[i]) continue;
    *in = io_wrap_one(s, &io->in[i]);
    if (l->past_of[i] >= 0) {
      int64_t rows = facts_dim(l, f, io, i, CACHE_ROWS);
      if (rows < mx_dim(*in, CACHE_ROWS)) *in = mx_slice_axis(*in, CACHE_ROWS, 0, (int)rows);
    }
    in++;
  }
  return mx_ok(s);
}
