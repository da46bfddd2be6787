// The safe route: every node becomes MLX calls in this run, all outputs are computed in one evaluation.
#pragma once
#include "plan/program.h"
#include "run/io.h"

// On the worker. pool must live as long as MLX may compute for this session.
bool eager_run(program *p, const run_io *io, const struct cpu_pool *pool, err *e);
