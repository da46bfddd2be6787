#include "run/step.h"

#include "base/mem.h"
#include "run/body.h"

static bool run_one(step *st, mx_scope *s, mx *values, mx *in, mx *out, const op_env *env) {
  const node *n = st->n;
  body_frame frame = {.st = st, .values = values, .env = env};
  op_env with_bodies;
  if (st->n_bodies) {
    with_bodies = body_env(&frame);
    env = &with_bodies;
  }
  for (size_t i = 0; i < n->n_in; i++) in[i] = n->in[i] ? values[n->in[i]->id] : NULL;
  for (size_t i = 0; i < n->n_out; i++) out[i] = NULL;
  op o = {.n = n, .s = s, .in = in, .out = out, .prepared = st->prepared, .memo = &st->memo, .env = env};
  mx_at_node(s, n->op_type, n->name);
  st->row->translate(&o);
  for (size_t i = 0; i < n->n_out && mx_ok(s); i++) {
    if (!n->out[i]) continue;
    if (!out[i]) mx_fail(s, ERR_INTERNAL, "output %zu was not computed", i);
    values[n->out[i]->id] = out[i];
  }
  return mx_ok(s);
}

bool step_run_all(program *p, mx_scope *s, mx *values, const op_env *env) {
  mx *slots = mem_alloc((p->max_in + p->max_out + 1) * sizeof *slots);
  if (!slots) mx_fail(s, ERR_NO_MEMORY, "out of memory for a run");
  for (size_t i = 0; i < p->g->n_values; i++)
    if (p->constants[i]) values[i] = mx_use(s, p->constants[i]);
  for (size_t i = 0; i < p->n_steps && mx_ok(s); i++)
    run_one(&p->steps[i], s, values, slots, slots + p->max_in, env);
  mem_free(slots);
  return mx_ok(s);
}
