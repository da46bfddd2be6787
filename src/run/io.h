// The border of a run. Invariant: inputs are only read, each output is written once, in row-major order. Elements that
// share a byte on the host's side have one each on this side (see dtype.h).
#pragma once
#include "base/err.h"
#include "graph/graph.h"
#include "mx/mx.h"

struct cpu_pool;
struct counters;

typedef struct run_io {
  const tensor *in;  // in the order of the graph's inputs; data valid during the run
  size_t n_in, n_out;
  // Memory for output i of that shape, owned by the host; NULL with an error. Called once an output, from the worker.
  void *(*output)(void *host, size_t i, const int64_t *dims, int rank, err *e);
  void *host;
  const struct cpu_pool *pool;  // the host's threads; NULL for none
  struct counters *counted;     // gets the bytes copied; may be NULL
} run_io;

bool io_wrap(mx_scope *s, const graph *g, const run_io *io, mx *values);  // inputs into values[value id]
mx io_wrap_one(mx_scope *s, const tensor *t);  // without a copy where that is safe; the data must stay
bool io_write_one(const graph *g, const run_io *io, size_t i, mx x, err *e);  // output i from an evaluated array
// Computes outs[0..n_out), lets go of everything else in the scope, and copies them out.
bool io_write(mx_scope *s, const graph *g, const run_io *io, mx *outs, err *e);
