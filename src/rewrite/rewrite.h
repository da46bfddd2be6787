// Rewrites of a group's graph before it becomes a program. Invariants: the graph computes the same numbers up to rounding
// and has the same inputs and outputs; a pattern that does not match in every type, rank, constant and axis is left alone.
#pragma once
#include <stdatomic.h>

#include "base/opts.h"
#include "base/text.h"
#include "graph/graph.h"
#include "mx/mx.h"

enum { REWRITE_MAX = 16 };
typedef struct rewrite_counts {
  atomic_ullong made[REWRITE_MAX];  // by rewrite_name's number
} rewrite_counts;

const char *rewrite_name(size_t i);  // NULL past the last
void rewrite_json(const rewrite_counts *c, text *out);  // {name: n, ..}, without those that were not made
void rewrite_copy(rewrite_counts *to, const rewrite_counts *from);

// On the worker: constants are computed on the device. Bodies are rewritten too. False with an error when out of memory,
// or for a name in o->no_rewrites that is not known; g is then good for graph_free alone.
bool rewrite_all(graph *g, mx_device d, const opts *o, rewrite_counts *counts, err *e);
