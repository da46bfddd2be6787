#include "graph/graph.h"

#include <string.h>

graph *graph_new(err *e) {
  arena *mem = arena_new();
  graph *g = mem ? ARENA_NEW(mem, graph) : NULL;
  if (!g) {
    arena_free(mem);
    FAIL(e, ERR_NO_MEMORY, "out of memory for a graph");
    return NULL;
  }
  g->mem = mem;
  g->name = "";
  return g;
}

graph *graph_body(graph *parent, err *e) {
  graph *g = ARENA_NEW(parent->mem, graph);
  if (!g) {
    FAIL(e, ERR_NO_MEMORY, "out of memory for a graph");
    return NULL;
  }
  *g = (graph){.mem = parent->mem, .name = "", .parent = parent};
  return g;
}

void graph_let_go(graph *g) {
  if (g->parent) return;
  arena_free(g->loose);
  g->loose = NULL;
}

void graph_free(graph *g) {
  if (!g || g->parent) return;
  graph_let_go(g);
  arena_free(g->mem);
}

static bool grow_values(graph *g) {
  if (g->n_values < g->cap_values) return true;
  size_t cap = g->cap_values ? g->cap_values * 2 : 64;
  value **v = ARENA_ARRAY(g->mem, value *, cap);
  if (!v) return false;
  if (g->n_values) memcpy(v, g->values, g->n_values * sizeof *v);
  g->values = v;
  g->cap_values = cap;
  return true;
}

value *graph_value(graph *g, const char *name, dtype type, int rank, const int64_t *dims, err *e) {
  value *v = grow_values(g) ? ARENA_NEW(g->mem, value) : NULL;
  char *copy = v ? arena_str(g->mem, name) : NULL;
  if (!copy) {
    FAIL(e, ERR_NO_MEMORY, "out of memory for value '%s'", name);
    return NULL;
  }
  v->name = copy;
  v->type = type;
  v->rank = rank > GRAPH_MAX_RANK ? -1 : rank;
  for (int i = 0; i < v->rank; i++) v->dims[i] = dims && dims[i] >= 0 ? dims[i] : -1;
  v->id = g->n_values;
  g->values[g->n_values++] = v;
  return v;
}

value *graph_find(const graph *g, const char *name) {
  for (size_t i = 0; i < g->n_values; i++)
    if (!strcmp(g->values[i]->name, name)) return g->values[i];
  return NULL;
}

int graph_input_of(const graph *g, const value *v) {
  while (v && v->outer) v = v->outer;
  for (size_t i = 0; v && v->is_input && i < g->n_inputs; i++)
    if (g->inputs[i] == v) return (int)i;
  return -1;
}

bool graph_set_nodes(graph *g, size_t n, err *e) {
  g->nodes = ARENA_ARRAY(g->mem, node, n);
  if (!g->nodes) return FAIL(e, ERR_NO_MEMORY, "out of memory for %zu nodes", n);
  g->n_nodes = n;
  return true;
}

static bool link_node(graph *g, node *n, const bool *done, err *e) {
  for (size_t k = 0; k < n->n_in + n->n_captures; k++) {
    value *v = k < n->n_in ? n->in[k] : n->captures[k - n->n_in];
    if (!v) continue;
    v->consumers++;
    if (v->producer && !done[v->producer->index])
      return FAIL(e, ERR_INVALID, "node '%s' (%s) reads '%s' before it is computed: the nodes are not in order", n->name,
                  n->op_type, v->name);
  }
  (void)g;
  return true;
}

bool graph_link(graph *g, err *e) {
  bool *done = ARENA_ARRAY(g->mem, bool, g->n_nodes);
  if (!done) return FAIL(e, ERR_NO_MEMORY, "out of memory for a graph");
  for (size_t i = 0; i < g->n_nodes; i++) {
    node *n = &g->nodes[i];
    n->index = i;
    for (size_t k = 0; k < n->n_out; k++) {
      if (!n->out[k]) continue;
      if (n->out[k]->producer || n->out[k]->is_input)
        return FAIL(e, ERR_INVALID, "value '%s' is computed twice; node '%s' (%s) is the second", n->out[k]->name, n->name,
                    n->op_type);
      n->out[k]->producer = n;
    }
  }
  for (size_t i = 0; i < g->n_nodes; i++) {
    if (!link_node(g, &g->nodes[i], done, e)) return false;
    done[i] = true;
  }
  return true;
}
