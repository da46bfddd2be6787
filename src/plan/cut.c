// Claimed nodes into groups. Stages: a node on MLX has the stage of its latest producer there, one more if it waits for a
// CPU node that itself waits for MLX. All MLX nodes of a stage are one group. A path that leaves a group passes a CPU
// node and so comes back at a later stage: each group is convex, and there are as few of them as the graph allows.
#include "plan/plan.h"

enum { BEFORE_MLX = -1 };

static const value *input_of(const node *n, size_t k) { return k < n->n_in ? n->in[k] : n->captures[k - n->n_in]; }

static int stage_of(const plan *p, const int *stage, const node *n) {
  bool here = p->nodes[n->index].row != NULL;
  int s = here ? 0 : BEFORE_MLX;
  for (size_t k = 0; k < n->n_in + n->n_captures; k++) {
    const value *v = input_of(n, k);
    if (!v || !v->producer) continue;
    size_t from = v->producer->index;
    int after = stage[from] + (here && !p->nodes[from].row ? 1 : 0);
    if (after > s) s = after;
  }
  return s;
}

bool plan_cut(plan *p, const graph *g, err *e) {
  int *stage = ARENA_ARRAY(p->mem, int, g->n_nodes);
  if (!stage) return FAIL(e, ERR_NO_MEMORY, "out of memory for a plan of %zu nodes", g->n_nodes);
  p->n_groups = 0;
  for (size_t i = 0; i < g->n_nodes; i++) {
    stage[i] = stage_of(p, stage, &g->nodes[i]);
    p->nodes[i].group = p->nodes[i].row ? stage[i] : -1;
    if (p->nodes[i].group >= (int)p->n_groups) p->n_groups = (size_t)p->nodes[i].group + 1;
  }
  return true;
}
