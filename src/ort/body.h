// Is a graph the body of a control-flow node? The runtime plans each body by itself, before the graph around it.
#pragma once
#include "graph/graph.h"
#include "ort/ort.h"

// g is src, imported. API 24 tells; on API 23 it is told from what the graph reads and has as formal inputs, and a body
// that reads nothing from around it (a Scan's, mostly) is not recognised.
bool graph_is_body(const ort *o, const OrtGraph *src, const graph *g, err *e);
