// OrtGraph to graph. Invariant: names and attributes are copied; the data of constants is borrowed from the OrtGraph
// and lives as long as that does (during GetCapability or Compile).
#pragma once
#include "graph/graph.h"
#include "ort/ort.h"

// A graph to plan. node.host is the OrtNode. A node that already runs elsewhere gets the domain "ep:<provider>", which
// no operator has. Bodies of control-flow nodes come along, in their attributes. A graph that is itself a body reads outer
// values that have no producer here. NULL with an error.
graph *import_graph(const ort *o, const OrtGraph *src, err *e);

// A graph to compile, with the formal inputs and outputs of the node that stands for it.
typedef struct fused_graph {
  graph *g;              // owned
  const size_t *in_at;   // for input i of g, the index among the fused node's inputs; in g's arena
  const size_t *out_at;  // the same for outputs
} fused_graph;
bool import_fused(const ort *o, const OrtGraph *src, const OrtNode *fused, fused_graph *out, err *e);

// True if the domain was given by import_graph to a node that this provider has fused already.
bool import_is_ours(const node *n);

// Parts of it, for import.c and import_attr.c.
// Type, shape and borrowed data; dims in mem. Strings have no data.
bool import_tensor(const ort *o, arena *mem, const OrtValue *v, tensor *t, err *e);
typedef struct node_bodies {  // a node's graph attributes
  size_t n;
  const char **names;
  graph **graphs;
} node_bodies;
bool import_attrs(const ort *o, arena *mem, const OrtNode *src, const node_bodies *b, node *n, err *e);
