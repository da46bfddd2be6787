// The compiled routes: key -> closure (traced once) -> apply -> copy out. Invariant: whatever goes wrong before an output
// has been written leaves the run to the eager route; a closure that failed in evaluation is not used again.
#pragma once
#include "plan/program.h"
#include "run/config.h"
#include "run/io.h"

typedef struct compiled compiled;  // the cached closures of one program, for one worker

typedef enum {
  COMPILED_DONE,      // the outputs are written
  COMPILED_LATER,     // not this run; ask again on the next
  COMPILED_DECLINED,  // not this program
  COMPILED_FAILED     // the host refused an output: the run fails
} compiled_result;

// NULL with an error when out of memory. The program must outlive it; every call is made on the worker.
compiled *compiled_new(program *p, err *e);
compiled_result compiled_run(compiled *c, const run_config *config, const run_io *io, const struct cpu_pool *pool, err *e);
void compiled_free(compiled *c);  // NULL is fine
