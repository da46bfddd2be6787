// A group as something to run. Invariants: steps are in order and name values by the graph's dense ids; constants are
// on the device (or inside a step's packed form) once and the host's copies are not needed any more; a program is used
// by its engine's worker only.
#pragma once
#include "graph/graph.h"
#include "ops/memo.h"
#include "ops/op.h"

struct program;

typedef struct step {
  const node *n;
  const op_row *row;
  void *prepared;  // from row->prepare
  op_memo memo;
  struct program **bodies;  // of a control-flow node, in the order of its graph attributes
  size_t n_bodies;
} step;

typedef struct program {
  graph *g;  // owned; a body's goes with its main graph
  mx_device device;
  step *steps;
  size_t n_steps;
  mx_held **constants;  // by value id; NULL for what is not constant, lives in packed form or is held by an outer program
  bool *used;           // by value id: is it read as an array?
  uint32_t traits;      // union over the steps, those of bodies too
  size_t max_in, max_out;  // the widest step
} program;

// Takes g, also on failure. Runs on the worker. NULL with an error for a node without a row.
program *program_new(graph *g, mx_device device, err *e);
void program_free(program *p);  // on the worker; NULL is fine
