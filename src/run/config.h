// What distinguishes the compiled routes: one core reads one const row.
#pragma once
#include <stdbool.h>

#include "run/kinds.h"

typedef struct run_config {
  route_kind kind;
  bool shapeless;           // traced once for all shapes; else once for each key
  bool kv_alias;            // shared KV: written in place, read up to the valid length
  bool rope_as_data;        // cos/sin rows are inputs of the closure
  bool delta_copyout;       // only the new rows of a shared present are written
  bool contiguous_outputs;  // outputs leave in row-major order
} run_config;

// The row of a compiled route; NULL for eager.
const run_config *run_config_of(route_kind kind);
