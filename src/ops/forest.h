// Decision trees of ai.onnx.ml as tables of nodes. Invariants:
// - Every node's children are nodes of the table; a leaf is its own child, so that a walk of `depth` steps from a root
//   ends at a leaf. No walk is longer.
// - votes and has have one row for each node, one column for each target; only rows of leaves hold anything.
#pragma once
#include "base/mem.h"
#include "graph/graph.h"

enum { MODE_LEQ, MODE_LT, MODE_GTE, MODE_GT, MODE_EQ, MODE_NEQ, MODE_MEMBER, MODE_LEAF };

typedef struct forest {
  arena *mem;
  int n, roots, targets, depth;
  int features;      // one more than the highest feature that is looked at
  unsigned modes;    // a bit for each mode that occurs
  bool one_vote_class, positive;  // all votes are for one target; none is negative
  int vote_class;
  int32_t *root, *feature, *yes, *no, *mode, *missing;  // [roots], then [n] each
  double *split, *votes;                                // [n], [n, targets]
  uint8_t *has;                                         // [n, targets]
} forest;

// NULL with a reason in why[size] when the attributes do not describe trees, or when out of memory.
forest *forest_new(const node *n, char *why, size_t size);
void forest_free(forest *f);  // NULL is fine
