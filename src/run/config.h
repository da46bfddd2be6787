// What distinguishes the compiled routes: one core reads one const row.
#pragma once
#include <stdbool.h>

#include "run/kinds.h"

typedef struct run_config {
  route_kind kind;
  bool open;                // one trace serves every length of the cache; else each has its own
  bool keyed_else;          // where a step depends on the length after all: a trace for each; else the run is eager
  bool contiguous_outputs;  // outputs leave in row-major order
} run_config;

// The row of a compiled route; NULL for eager.
const run_config *run_config_of(route_kind kind);
