// Small graphs for unit tests, without any importer. Failures to build end up in the err.
#pragma once
#include <string.h>

#include "graph/graph.h"

static inline value *ug_value(graph *g, const char *name, dtype t, int rank, const int64_t *dims, err *e) {
  value *v = graph_find(g, name);
  return v ? v : graph_value(g, name, t, rank, dims, e);
}

// Inputs and outputs of the graph, by name; float32 of the given shape.
static inline void ug_ends(graph *g, const char *const *in, size_t n_in, const char *const *out, size_t n_out, int rank,
                           const int64_t *dims, err *e) {
  g->inputs = ARENA_ARRAY(g->mem, value *, n_in + 1);
  g->outputs = ARENA_ARRAY(g->mem, value *, n_out + 1);
  for (size_t i = 0; i < n_in; i++) {
    g->inputs[i] = ug_value(g, in[i], DT_F32, rank, dims, e);
    g->inputs[i]->is_input = true;
  }
  for (size_t i = 0; i < n_out; i++) {
    g->outputs[i] = ug_value(g, out[i], DT_F32, rank, dims, e);
    g->outputs[i]->is_output = true;
  }
  g->n_inputs = n_in;
  g->n_outputs = n_out;
}

// Node i: op_type(in0, in1) -> out; in1 may be NULL. Values not seen before are float32 of the given shape.
static inline void ug_node(graph *g, size_t i, const char *op_type, const char *in0, const char *in1, const char *out,
                           int rank, const int64_t *dims, err *e) {
  node *n = &g->nodes[i];
  n->name = arena_str(g->mem, out);
  n->domain = "";
  n->op_type = op_type;
  n->since = 14;
  n->in = ARENA_ARRAY(g->mem, value *, 2);
  n->out = ARENA_ARRAY(g->mem, value *, 1);
  n->in[0] = ug_value(g, in0, DT_F32, rank, dims, e);
  n->in[1] = in1 ? ug_value(g, in1, DT_F32, rank, dims, e) : NULL;
  n->n_in = in1 ? 2 : 1;
  n->out[0] = ug_value(g, out, DT_F32, rank, dims, e);
  n->n_out = 1;
}

// A body of g: r = op_type(x), x taken from g.
static inline graph *ug_body(graph *g, const char *op_type, int rank, const int64_t *dims, err *e) {
  graph *b = graph_body(g, e);
  if (!b || !graph_set_nodes(b, 1, e)) return NULL;
  ug_ends(b, NULL, 0, (const char *[]){"r"}, 1, rank, dims, e);
  ug_node(b, 0, op_type, "x", NULL, "r", rank, dims, e);
  graph_find(b, "x")->outer = graph_find(g, "x");
  return graph_link(b, e) ? b : NULL;
}

// z = c ? Exp(x) : other(x); not linked yet.
static inline graph *ug_if(const char *other, int rank, const int64_t *dims, err *e) {
  graph *g = graph_new(e);
  ug_ends(g, (const char *[]){"x", "c"}, 2, (const char *[]){"z"}, 1, rank, dims, e);
  value *c = graph_find(g, "c");
  c->type = DT_BOOL;
  c->rank = 0;
  graph_set_nodes(g, 1, e);
  ug_node(g, 0, "If", "c", NULL, "z", rank, dims, e);
  attr *attrs = ARENA_ARRAY(g->mem, attr, 2);
  attrs[0] = (attr){.name = "then_branch", .kind = ATTR_GRAPH, .g = ug_body(g, "Exp", rank, dims, e)};
  attrs[1] = (attr){.name = "else_branch", .kind = ATTR_GRAPH, .g = ug_body(g, other, rank, dims, e)};
  node *n = &g->nodes[0];
  n->attrs = attrs;
  n->n_attrs = 2;
  n->captures = ARENA_ARRAY(g->mem, value *, 1);
  n->captures[0] = graph_find(g, "x");
  n->n_captures = 1;
  return g;
}
