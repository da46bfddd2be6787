// Updates by index.
#include <string.h>

#include "base/mem.h"
#include "ops/index.h"

// ---- what the scatters share ----------------------------------------------------------------------------------------
// -1 for a reduction that is not known.
static int scatter_mode(const node *n) {
  static const char *const names[] = {[MX_SET] = "none", [MX_ADD] = "add", [MX_PROD] = "mul", [MX_MAX] = "max", [MX_MIN] = "min"};
  const char *r = attr_s(n, "reduction", "none");
  for (int i = 0; i < 5; i++)
    if (!strcmp(r, names[i])) return i;
  return -1;
}

static bool is_wide(dtype t) { return dtype_size(t) == 8; }

static void scatter_claim(claim *c) {
  int mode = scatter_mode(c->n);
  REQUIRE(c, in_rank(c, 0) != 0, "the data is a scalar");
  REQUIRE(c, mode >= 0, "reduction '%s' is not known", attr_s(c->n, "reduction", "none"));
  REQUIRE(c, mode == MX_SET || c->device == MX_CPU || !is_wide(in_type(c, 0)), "no reduction of %s on the GPU",
          dtype_name(in_type(c, 0)));
}

// data [rows, width], updates [n, width], at int32 [n]. On the GPU MLX writes at most 32 bits at once.
static mx scatter_rows(mx data, mx at, mx updates, mx_scatter_mode mode) {
  dtype type = mx_dtype(data);
  bool halves = is_wide(type) && mx_device_of(mx_scope_of(data)) == MX_GPU;
  if (halves) {
    data = mx_view(mx_contiguous(data), DT_I32);
    updates = mx_view(mx_contiguous(updates), DT_I32);
  }
  bool sums = mode == MX_ADD || mode == MX_PROD;
  if (sums) data = f32_up(data);
  if (sums) updates = f32_up(updates);
  mx_ints shape = mx_shape(updates);
  mx_ints one_row = MXI(shape.v[0], 1, shape.n > 1 ? shape.v[1] : 1);
  mx y = mx_scatter(data, &at, 1, mx_reshape(updates, one_row), MXI(0), mode);
  return halves ? mx_view(y, type) : mx_astype(y, type);
}

static void scatter_flat(op *o, int64_t rows, int64_t width, mx at) {
  mx data = in(o, 0), updates = in(o, 2);
  int64_t flat[2] = {rows, width}, moved[2] = {mx_dim(at, 0), width};
  mx_ints two, from;
  if (!mx_ok(o->s) || !dims_ints(o, flat, 2, &two) || !dims_ints(o, moved, 2, &from)) return;
  if (mx_size(updates) == 0 || mx_size(data) == 0) {
    out(o, 0, data);
    return;
  }
  mx y = scatter_rows(mx_reshape(data, two), at, mx_reshape(updates, from), (mx_scatter_mode)scatter_mode(o->n));
  out(o, 0, mx_reshape(y, mx_shape(data)));
}

// ---- ScatterND ------------------------------------------------------------------------------------------------------
static void scatter_nd(op *o) {
  mx_ints s = mx_shape(in(o, 0)), is = mx_shape(in(o, 1)), us = mx_shape(in(o, 2)), want = {0};
  int k = is.n ? is.v[is.n - 1] : 0;
  if (is.n < 1 || k > s.n || is.n - 1 + s.n - k > MX_MAX_RANK) {
    op_fail(o, "index tuples of %d do not fit data of rank %d", k, s.n);
    return;
  }
  for (int i = 0; i < is.n - 1; i++) want.v[want.n++] = is.v[i];
  for (int i = k; i < s.n; i++) want.v[want.n++] = s.v[i];
  if (us.n != want.n || memcmp(us.v, want.v, (size_t)want.n * sizeof *us.v)) {
    op_fail(o, "the updates have not the shape that data and indices give");
    return;
  }
  mx rows = index_rows(o, 1, s, 0, k);
  scatter_flat(o, dims_span(s, 0, k), dims_span(s, k, s.n), rows);
}

// ---- ScatterElements ------------------------------------------------------------------------------------------------
// Where each entry of the indices points in the flattened data, int32 [entries].
static mx element_places(op *o, mx_ints s, mx_ints is, int axis) {
  int64_t stride[MX_MAX_RANK], step = 1;
  for (int i = s.n - 1; i >= 0; i--) {
    stride[i] = step;
    step *= s.v[i];
  }
  int all = 0;
  size_t n = 0;
  mx data = fits_int(o, step, &all) ? index_flat(o, 1, s, axis) : NULL;
  if (data) return data;
  int64_t *v = mx_ok(o->s) ? index_read(o, 1, &s.v[axis], 1, &n) : NULL;
  int32_t *place = v ? mem_alloc((n + 1) * sizeof *place) : NULL;
  int at[MX_MAX_RANK] = {0};
  int64_t base = 0;  // of the entry's position on the other axes
  for (size_t e = 0; place && e < n; e++) {
    place[e] = (int32_t)(base + v[e] * stride[axis]);
    for (int i = s.n - 1; i >= 0; i--) {
      int64_t by = i == axis ? 0 : stride[i];
      base += by;
      if (++at[i] < is.v[i]) break;
      base -= by * is.v[i];
      at[i] = 0;
    }
  }
  mx x = place ? mx_from(o->s, place, DT_I32, MXI((int)n)) : mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
  mem_free(place);
  mem_free(v);
  return x;
}

static void scatter_elements(op *o) {
  mx_ints s = mx_shape(in(o, 0)), is = mx_shape(in(o, 1)), us = mx_shape(in(o, 2));
  int axis = norm_axis(o, attr_i(o->n, "axis", 0), s.n);
  if (!mx_ok(o->s)) return;
  bool same = s.n == is.n && s.n == us.n;
  for (int i = 0; same && i < s.n; i++) same = is.v[i] == us.v[i] && (i == axis || is.v[i] <= s.v[i]);
  if (!same) {
    op_fail(o, "indices and updates must have one shape that fits into the data's");
    return;
  }
  mx places = element_places(o, s, is, axis);
  scatter_flat(o, dims_span(s, 0, s.n), 1, places);
}

// ---- TensorScatter --------------------------------------------------------------------------------------------------
static void tensor_scatter_claim(claim *c) {
  const char *mode = attr_s(c->n, "mode", "linear");
  REQUIRE(c, !strcmp(mode, "linear") || !strcmp(mode, "circular"), "mode '%s' is not known", mode);
}

// Writes update [a, b) along its axis into samples [first, last) of the cache at `to`.
typedef struct write_span {
  int first, last, a, b, to;
} write_span;

static mx tensor_write(mx cache, mx update, int axis, write_span w) {
  mx_ints start = {.n = mx_ndim(cache)}, stop = mx_shape(cache), stride = {.n = start.n};
  for (int i = 0; i < start.n; i++) stride.v[i] = 1;
  start.v[0] = w.first;
  stop.v[0] = w.last;
  start.v[axis] = w.to;
  stop.v[axis] = w.to + w.b - w.a;
  mx part = mx_slice_axis(mx_slice_axis(update, 0, w.first, w.last), axis, w.a, w.b);
  return mx_slice_update(cache, part, start, stop, stride);
}

// Samples [first, last) begin at `at`; a ring comes round at its end.
static mx tensor_scatter_at(op *o, mx cache, int axis, int first, int last, int64_t at) {
  mx update = in(o, 1);
  int room = mx_dim(cache, axis), length = mx_dim(update, axis);
  if (!strcmp(attr_s(o->n, "mode", "linear"), "circular")) {
    at %= room;
    if (at < 0) at += room;
  } else if (at < 0 || at > room - length) {
    return op_fail(o, "write index %lld with %d entries is out of range for a cache of %d", (long long)at, length, room);
  }
  int to = (int)at, fit = room - to < length ? room - to : length;
  cache = tensor_write(cache, update, axis, (write_span){first, last, 0, fit, to});
  return fit < length ? tensor_write(cache, update, axis, (write_span){first, last, fit, length, 0}) : cache;
}

static void tensor_scatter(op *o) {
  mx cache = in(o, 0);
  mx_ints s = mx_shape(cache), us = mx_shape(in(o, 1));
  int axis = norm_axis(o, attr_i(o->n, "axis", -2), s.n);
  bool fits = mx_ok(o->s) && axis > 0 && s.n == us.n;
  for (int i = 0; fits && i < s.n; i++) fits = i == axis ? us.v[i] <= s.v[i] : us.v[i] == s.v[i];
  if (!fits) op_fail(o, "the update must have the cache's shape but for a shorter axis");
  if (!fits || mx_size(in(o, 1)) == 0) {
    out(o, 0, cache);
    return;
  }
  size_t n = 0, batch = (size_t)s.v[0];
  int64_t *at = mem_alloc(batch * sizeof *at);
  if (!at) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %zu write indices", batch);
  if (at && in(o, 2) && host_ints(o, 2, at, batch, &n) && n != batch) op_fail(o, "%zu write indices for a batch of %zu", n, batch);
  for (size_t b = 0, end; at && mx_ok(o->s) && b < batch; b = end) {
    for (end = b + 1; end < batch && at[end] == at[b];) end++;
    cache = tensor_scatter_at(o, cache, axis, (int)b, (int)end, at[b]);
  }
  mem_free(at);
  out(o, 0, cache);
}

const op_row ops_scatter[] = {
    OP("", "ScatterElements", 11, ANY, scatter_claim, scatter_elements, .index_in = IN(1),
       .limits = "no scalar data; on the GPU device no reduction of 64-bit types"),
    OP("", "Scatter", 9, ANY, scatter_claim, scatter_elements, .index_in = IN(1),
       .limits = "no scalar data; on the GPU device no reduction of 64-bit types"),
    OP("", "ScatterND", 11, ANY, scatter_claim, scatter_nd, .index_in = IN(1),
       .limits = "no scalar data; on the GPU device no reduction of 64-bit types"),
    OP("", "TensorScatter", 24, ANY, tensor_scatter_claim, tensor_scatter, .host_in = IN(2),
       .limits = "mode is linear or circular"),
    {0}};
