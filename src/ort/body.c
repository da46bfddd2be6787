#include "ort/body.h"

static bool reads_outer_value(const graph *g) {
  for (size_t i = 0; i < g->n_nodes; i++) {
    const node *n = &g->nodes[i];
    for (size_t k = 0; k < n->n_in + n->n_captures; k++) {
      const value *v = k < n->n_in ? n->in[k] : n->captures[k - n->n_in];
      if (v && !v->producer && !v->is_input && !v->constant) return true;
    }
  }
  return false;
}

// A Loop's body has the iteration number and the condition first.
static bool looks_like_loop(const graph *g) {
  return g->n_inputs >= 2 && g->n_outputs >= 1 && g->inputs[0]->type == DT_I64 && g->inputs[1]->type == DT_BOOL &&
         g->outputs[0]->type == DT_BOOL;
}

bool graph_is_body(const ort *o, const OrtGraph *src, const graph *g, err *e) {
  const OrtNode *parent = NULL;
  if (!ORT_CALL(o, e, Graph_GetParentNode, src, &parent)) return false;
  if (parent || o->version >= ORT_API_PARENT_NODE) return parent != NULL;
  return !g->n_inputs || reads_outer_value(g) || looks_like_loop(g);  // an If's body has no formal inputs
}
