// The compiled routes: key -> closure (traced once) -> replay -> copy out. Invariants:
// - One core for all routes; they differ by a run_config row only.
// - Whatever goes wrong before an output has been written leaves the run to the eager route; a closure that failed in
//   replay or evaluation is closed, and one that could not be made is not tried again.
#pragma once
#include "base/log.h"
#include "base/opts.h"
#include "plan/program.h"
#include "run/counters.h"
#include "run/io.h"

typedef struct compiled compiled;  // the closures of one program, for one worker

typedef enum {
  COMPILED_DONE,   // the outputs are written
  COMPILED_EAGER,  // this run is for the eager route; *why says why
  COMPILED_FAILED  // the host refused an output: the run fails
} compiled_result;

// The program must outlive it; o, c, log and pool (one address for all runs) too. NULL with an error when out of memory.
compiled *compiled_new(program *p, const opts *o, counters *c, const log_sink *log, const struct cpu_pool *pool, err *e);
// On the worker. *kind: the route that was taken or asked for.
compiled_result compiled_run(compiled *c, const run_io *io, route_kind *kind, why_eager *why, err *e);
void compiled_free(compiled *c);  // on the worker; NULL is fine
