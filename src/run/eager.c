#include "run/eager.h"

#include "run/step.h"

typedef struct host_inputs {
  const graph *g;
  const run_io *io;
} host_inputs;

// Graph inputs are host memory already: an operator that reads one needs no evaluation.
static bool host_value(const op_env *env, const value *v, tensor *out) {
  const host_inputs *h = env->route;
  int i = graph_input_of(h->g, v);
  if (i < 0 || (size_t)i >= h->io->n_in) return false;
  *out = h->io->in[i];
  return true;
}

// values has room for one of each value, then one of each output.
static bool run_in(program *p, mx_scope *s, const run_io *io, mx *values, err *e) {
  const graph *g = p->g;
  host_inputs inputs = {g, io};
  op_env env = {.host_value = host_value, .route = &inputs};
  mx *outs = values + g->n_values;
  if (io->n_out != g->n_outputs)
    return FAIL(e, ERR_INTERNAL, "%zu outputs asked of a program of %zu", io->n_out, g->n_outputs);
  if (!io_wrap(s, g, io, values) || !step_run_all(p, s, values, &env)) {
    *e = *mx_error(s);
    return false;
  }
  for (size_t i = 0; i < g->n_outputs; i++) outs[i] = values[g->outputs[i]->id];
  return io_write(s, g, io, outs, e);
}

bool eager_run(program *p, const run_io *io, const struct cpu_pool *pool, err *e) {
  mx_scope *s = mx_scope_new(p->device);
  mx *values = mem_alloc((p->g->n_values + p->g->n_outputs + 1) * sizeof *values);
  if (!s || !values) FAIL(e, ERR_NO_MEMORY, "out of memory for a run");
  if (err_ok(e)) {
    mx_set_pool(s, pool);
    run_in(p, s, io, values, e);
  }
  mem_free(values);
  mx_scope_free(s);
  return err_ok(e);
}
