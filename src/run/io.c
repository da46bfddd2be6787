#include "run/io.h"

#include "ops/narrow.h"
#include "run/counters.h"

mx io_wrap_one(mx_scope *s, const tensor *t) {
  mx_ints shape = shape_of_tensor(s, t);
  if (!mx_ok(s) || dtype_shared(t->type) > 1) return narrow_from(s, t);
  return mx_wrap(s, t->data, dtype_code(t->type), shape);
}

bool io_wrap(mx_scope *s, const graph *g, const run_io *io, mx *values) {
  if (io->n_in != g->n_inputs)
    mx_fail(s, ERR_INTERNAL, "%zu inputs for a program of %zu", io->n_in, g->n_inputs);
  for (size_t i = 0; i < io->n_in && mx_ok(s); i++) values[g->inputs[i]->id] = io_wrap_one(s, &io->in[i]);
  return mx_ok(s);
}

bool io_write_one(const graph *g, const run_io *io, size_t i, mx x, err *e) {
  int64_t dims[MX_MAX_RANK];
  mx_ints shape = mx_shape(x);
  for (int k = 0; k < shape.n; k++) dims[k] = shape.v[k];
  void *dst = io->output(io->host, i, dims, shape.n, e);
  if (!err_ok(e)) return false;
  dtype t = g->outputs[i]->type;
  size_t bytes = mx_size(x) * dtype_size(mx_dtype(x));
  if (io->counted) COUNT(io->counted, bytes_copied, bytes);
  if (dtype_shared(t) == 1) return mx_copy_out(x, dst, bytes);
  const uint8_t *codes = mx_read(x);
  if (codes) dtype_pack(t, codes, dst, mx_size(x));
  return codes != NULL;
}

bool io_write(mx_scope *s, const graph *g, const run_io *io, mx *outs, err *e) {
  for (size_t i = 0; i < io->n_out && mx_ok(s); i++) outs[i] = mx_contiguous(outs[i]);
  mx_scope_keep(s, outs, io->n_out);
  mx_eval(s, outs, io->n_out);
  for (size_t i = 0; i < io->n_out && mx_ok(s) && err_ok(e); i++) io_write_one(g, io, i, outs[i], e);
  if (!mx_ok(s) && err_ok(e)) *e = *mx_error(s);
  return err_ok(e);
}
