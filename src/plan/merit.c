// Groups that only move or reinterpret data cost more to hand over than they save.
#include "plan/plan.h"

static bool worth_it(const plan *p, const graph *g, int group) {
  for (size_t i = 0; i < g->n_nodes; i++)
    if (p->nodes[i].group == group && !(p->nodes[i].row->traits & OP_CHEAP)) return true;
  return false;
}

void plan_merit(plan *p, const graph *g) {
  int kept = 0;
  for (int group = 0; group < (int)p->n_groups; group++) {
    bool keep = worth_it(p, g, group);
    for (size_t i = 0; i < g->n_nodes; i++) {
      verdict *v = &p->nodes[i];
      if (v->group != group) continue;
      v->group = keep ? kept : -1;
      if (keep) continue;
      v->row = NULL;
      v->reason = "the group only moves data, which costs more to hand over than it saves";
      p->n_claimed--;
    }
    kept += keep;
  }
  p->n_groups = (size_t)kept;
}
