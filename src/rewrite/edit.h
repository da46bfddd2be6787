// Changing a graph. Invariants:
// - Between edit_open and edit_close the nodes are in `order`, topological, with NULL for those that are gone; producers
//   and consumer counts of values hold at every moment. Afterwards the graph is as an importer would have made it.
// - A node is made only if the registry has a row for it that claims it.
// - Values that are outputs of the graph stay; values that bodies capture count as used.
// - Everything new lies in the graph's arena; data of constants in its loose arena, at most EDIT_MAX_LOOSE bytes.
#pragma once
#include "graph/attr.h"
#include "graph/graph.h"
#include "ops/op.h"

#define EDIT_MAX_LOOSE ((size_t)2 << 30)
enum { EDIT_IN = 8, EDIT_ATTRS = 6 };

typedef struct edit {
  graph *g;
  mx_device device;
  err *e;          // out of memory only: a rewrite that cannot be made is not an error
  node **order;
  size_t n, cap;
  size_t loose;    // bytes of new constants
  uint64_t made;   // rewrites that the pass at work has made
  bool changed;
} edit;

bool edit_open(edit *ed, graph *g, mx_device d, err *e);
bool edit_close(edit *ed);  // false after an error; the graph is then good for graph_free alone

typedef struct node_spec {
  const char *domain, *op_type;  // static
  int since;
  value *in[EDIT_IN];  // NULL: absent
  size_t n_in;
  attr attrs[EDIT_ATTRS];  // names static, lists in the graph's arena
  size_t n_attrs;
} node_spec;

// Would the registry take this node?
bool edit_accepts(const edit *ed, const node *n);
// A node with these outputs in front of `before`. NULL: nothing has changed (no row, declined, or out of memory).
node *edit_insert(edit *ed, node *before, const node_spec *spec, value **out, size_t n_out);
// A node instead of root: takes its outputs; what only root used goes too. False: nothing has changed.
bool edit_replace(edit *ed, node *root, const node_spec *spec);
// A node and, once unused, those that it read. Its outputs must be without uses.
void edit_remove(edit *ed, node *n);
// Every use of `from`, by nodes and by bodies, becomes one of `to`. `from` must not be an output of the graph.
void edit_redirect(edit *ed, value *from, value *to);
// Input i of n becomes v (may be NULL).
void edit_set_in(edit *ed, node *n, size_t i, value *v);
// The value becomes a constant; its node goes, which must not be wanted for other outputs any more.
void edit_make_constant(edit *ed, value *v, const tensor *t);
void edit_drop_unused(edit *ed, node *n);  // n, if it is no longer needed

// New values; NULL when out of memory.
value *edit_value(edit *ed, const char *like, dtype type, int rank, const int64_t *dims);  // named after `like`
// Room for data in the loose arena; NULL beyond EDIT_MAX_LOOSE or when out of memory.
void *edit_room(edit *ed, size_t bytes);
value *edit_constant(edit *ed, const char *like, dtype type, int rank, const int64_t *dims, const void *data, size_t bytes);

attr edit_int(const char *name, int64_t v);
attr edit_float(const char *name, float v);
attr edit_string(const char *name, const char *v);  // static
attr edit_ints(edit *ed, const char *name, const int64_t *v, size_t n);

// The node that reads v when there is just one and v is no output; NULL otherwise, and for uses by bodies.
node *edit_only_user(const edit *ed, const value *v);
