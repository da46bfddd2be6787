#include "plan/plan.h"

#include <string.h>

#include "ops/absent.h"
#include "ops/registry.h"

#define IN_BODY "in its body, "

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

static const op_row *ask(claim *c);

// A control-flow node runs on MLX whole: with every node of its bodies. A reason from a body within a body stays as it is.
static void claim_body(claim *c, const char *name, const graph *body) {
  if (!body) claim_decline(c, "its body '%s' is not known", name);
  for (size_t i = 0; body && i < body->n_nodes && !c->declined; i++) {
    claim inner = {.n = &body->nodes[i], .device = c->device};
    ask(&inner);
    if (!inner.declined) continue;
    bool deeper = !strncmp(inner.reason, IN_BODY, sizeof IN_BODY - 1);
    if (deeper) claim_decline(c, "%s", inner.reason);
    else claim_decline(c, IN_BODY "node '%s' (%s): %s", inner.n->name, inner.n->op_type, inner.reason);
  }
}

// The node's row, and whether it is claimed.
static const op_row *ask(claim *c) {
  const node *n = c->n;
  const op_row *row = registry_find(n->domain, n->op_type, n->since);
  if (row) {
    claim_row(c, row);
  } else if (registry_knows(n->domain, n->op_type)) {
    claim_decline(c, "version %d of the operator is not supported", n->since);
  } else {
    const char *why = absent_reason(n->domain, n->op_type);
    claim_decline(c, "%s", why ? why : "the operator is not supported");
  }
  for (size_t i = 0; i < n->n_attrs && !c->declined; i++)
    if (n->attrs[i].kind == ATTR_GRAPH) claim_body(c, n->attrs[i].name, n->attrs[i].g);
  return row;
}

static void claim_captures(claim *c, const graph *g) {
  for (size_t i = 0; g->no_captures && i < c->n->n_captures; i++)
    if (c->n->captures[i] && !c->n->captures[i]->constant)
      claim_decline(c, "its bodies read '%s', which ONNX Runtime before 1.27 does not hand over", c->n->captures[i]->name);
}

bool plan_claim(plan *p, const graph *g, mx_device device, err *e) {
  p->n_claimed = 0;
  for (size_t i = 0; i < g->n_nodes; i++) {
    verdict *v = &p->nodes[i];
    claim c = {.n = &g->nodes[i], .device = device};
    *v = (verdict){.row = ask(&c), .group = -1};
    claim_captures(&c, g);
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
