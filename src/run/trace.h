// A program as a closure of one route. Invariants:
// - Inputs of the closure: the graph's inputs in order, without those that are constants of the trace.
// - Outputs: the graph's outputs in order (of a present only the new rows), then for each cache the rows' places (int32
//   [batch], or one CACHE_BEHIND), then one bool: every value that a node required was in its range.
#pragma once
#include "run/config.h"
#include "run/layout.h"

size_t trace_outputs(const program *p, const layout *l);
// what: why there is no closure. pool must outlive the closure's evaluations. NULL with an error.
mx_fn *trace_program(program *p, const layout *l, const facts *f, const run_config *config, const run_io *io,
                     const struct cpu_pool *pool, why_eager *what, err *e);
// The closure's inputs for a run; in has room for l->n_traced.
bool trace_inputs(const program *p, const layout *l, const facts *f, const run_io *io, mx_scope *s, mx *in);
