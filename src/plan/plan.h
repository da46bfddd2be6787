// What goes to MLX. Invariant: a node is either in a group or has a written reason why not; a group can be fused (no
// path leaves it and comes back).
#pragma once
#include "base/opts.h"
#include "graph/graph.h"
#include "ops/op.h"

typedef struct verdict {
  const op_row *row;   // NULL when the node is declined
  const char *reason;  // NULL while the node is claimed; in the plan's arena or static
  int group;           // -1 when on the CPU provider
} verdict;

typedef struct plan {
  arena *mem;
  verdict *nodes;  // one for each node of the graph, same index
  size_t n_groups;
  size_t n_claimed;
} plan;

// The three passes below in order. NULL with an error only when out of memory.
plan *plan_new(const graph *g, mx_device device, const opts *o, err *e);
void plan_free(plan *p);

bool plan_claim(plan *p, const graph *g, mx_device device, err *e);  // row or reason for each node
bool plan_cut(plan *p, const graph *g, err *e);                      // claimed nodes into convex groups
void plan_merit(plan *p, const graph *g);                            // drops groups that are not worth their copies
