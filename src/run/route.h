// Which way a run goes. Invariant: the answer names a reason whenever it is eager although compiling was asked for.
#pragma once
#include "base/opts.h"
#include "plan/program.h"
#include "run/io.h"
#include "run/kinds.h"

typedef struct route {
  route_kind kind;
  const char *reason;  // why not a compiled one; NULL when compiled
} route;

route route_pick(const program *p, const opts *o, const run_io *io);
