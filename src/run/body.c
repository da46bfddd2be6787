#include "run/body.h"

#include "base/mem.h"
#include "run/step.h"

static program *program_of(const step *st, const graph *body) {
  for (size_t i = 0; i < st->n_bodies; i++)
    if (st->bodies[i]->g == body) return st->bodies[i];
  return NULL;
}

static void run_in(op *o, program *p, const mx *in, mx *values, mx *out) {
  const body_frame *f = o->env->frame;
  const graph *g = p->g;
  for (size_t i = 0; i < g->n_values; i++)
    if (g->values[i]->outer) values[i] = f->values[g->values[i]->outer->id];
  for (size_t i = 0; i < g->n_inputs; i++) values[g->inputs[i]->id] = in[i];
  if (!step_run_all(p, o->s, values, f->env)) return;
  for (size_t i = 0; i < g->n_outputs; i++) out[i] = values[g->outputs[i]->id];
  mx_at_node(o->s, o->n->op_type, o->n->name);
}

static bool run_body(op *o, const graph *body, const mx *in, mx *out) {
  program *p = program_of(o->env->frame->st, body);
  if (!p) op_fail(o, "the body is not known");
  mx *values = p ? mem_alloc((body->n_values + 1) * sizeof *values) : NULL;
  if (p && !values) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for a run");
  if (values) run_in(o, p, in, values, out);
  mem_free(values);
  return mx_ok(o->s);
}

op_env body_env(const body_frame *frame) {
  op_env env = frame->env ? *frame->env : (op_env){0};
  env.run_body = run_body;
  env.frame = frame;
  return env;
}
