// What a compiled route must know of a program once, and of a run before it starts. Invariants:
// - What a run may change and a trace would keep is either an input of the trace or in its key.
// - A size is free (not in the key) only on the axes that grow with the cache; mx_fn_same decides whether that is right.
#pragma once
#include "plan/program.h"
#include "run/counters.h"
#include "run/io.h"

// A node of attention whose cache crosses the border: places among the graph's inputs and outputs. 0 keys, 1 values.
typedef struct cache_node {
  const node *n;
  size_t past[2], present[2];
} cache_node;

typedef struct layout {
  bool *by_value;       // by input: read on the host, so its values are in the key and it is a constant of the trace
  int *cache_of;        // by output: the cache node whose present it is, or -1
  int *past_of;         // by input: the cache node whose past it is, or -1
  cache_node *caches;
  size_t n_caches;
  size_t n_traced;      // inputs that are not by_value
  int total, mask;      // inputs: total_sequence_length, attention_mask; -1: there is none
  int rows_of, rows_axis;  // the input and axis that tell the number of new rows; -1: none does
  why_eager never;      // why no run can be compiled; WHY_NONE if some can
} layout;

// Made in the graph's arena. False with an error when out of memory.
bool layout_of(const program *p, layout *l, err *e);

typedef struct facts {
  route_kind kind;
  int64_t rows;   // new ones (the query's length), 1 if nothing tells
  int64_t past;   // rows of the cache that are handed on: those before the new ones if they are known, else all
  int64_t total;  // past and new ones
  bool first;     // nothing is past
  bool sound;     // keys and values of each cache have one length, and the total is no more than past and new rows
} facts;

facts facts_of(const layout *l, const run_io *io);
// Is this axis of input i free?
bool facts_free(const layout *l, const facts *f, const graph *g, const run_io *io, size_t i, int axis);
// The dimension of input i as the trace sees it: the cache is cut to the rows that are past.
int64_t facts_dim(const layout *l, const facts *f, const run_io *io, size_t i, int axis);
