#include "plan/plan.h"

#include "ops/registry.h"

plan *plan_new(const graph *g, mx_device device, const opts *o, err *e) {
  arena *mem = arena_new();
  plan *p = mem ? ARENA_NEW(mem, plan) : NULL;
  if (p) {
    p->mem = mem;
    p->nodes = ARENA_ARRAY(mem, verdict, g->n_nodes);
  }
  if (!p || !p->nodes) {
    arena_free(mem);
    FAIL(e, ERR_NO_MEMORY, "out of memory for a plan of %zu nodes", g->n_nodes);
    return NULL;
  }
  if (!plan_claim(p, g, device, e) || !plan_cut(p, g, e)) {
    plan_free(p);
    return NULL;
  }
  if (!o->claim_all) plan_merit(p, g);
  return p;
}

void plan_free(plan *p) {
  if (p) arena_free(p->mem);
}

// What holds for every operator: a type that the device has, a rank that MLX has.
static void claim_value(claim *c, const value *v, const char *what, size_t i) {
  if (c->declined || !v) return;
  if (!mx_has_dtype(c->device, v->type))
    claim_decline(c, "%s %zu has type %s, which MLX does not have on this device", what, i, dtype_name(v->type));
}

static void claim_node(claim *c, const op_row *row) {
  const node *n = c->n;
  if (!(row->traits & OP_ANY_TYPE)) {
    for (size_t i = 0; i < n->n_in; i++) claim_value(c, n->in[i], "input", i);
    for (size_t i = 0; i < n->n_out; i++) claim_value(c, n->out[i], "output", i);
  }
  if (!c->declined && row->claim) row->claim(c);
}

bool plan_claim(plan *p, const graph *g, mx_device device, err *e) {
  p->n_claimed = 0;
  for (size_t i = 0; i < g->n_nodes; i++) {
    const node *n = &g->nodes[i];
    verdict *v = &p->nodes[i];
    claim c = {.n = n, .device = device};
    *v = (verdict){.row = registry_find(n->domain, n->op_type, n->since), .group = -1};
    if (v->row) claim_node(&c, v->row);
    else if (registry_knows(n->domain, n->op_type)) claim_decline(&c, "version %d of the operator is not supported", n->since);
    else claim_decline(&c, "the operator is not supported");
    if (!c.declined) {
      p->n_claimed++;
      continue;
    }
    v->row = NULL;
    v->reason = arena_str(p->mem, c.reason);
    if (!v->reason) return FAIL(e, ERR_NO_MEMORY, "out of memory for a plan of %zu nodes", g->n_nodes);
  }
  return true;
}
