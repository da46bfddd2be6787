// Pools over windows, and over all of the spatial axes. A window of several axes is taken one axis at a time: for each
// tap a strided slice, joined by the pool's operation; no window is ever copied out.
#include <math.h>
#include <stdint.h>

#include "ops/index.h"
#include "ops/pool.h"

static const char *const max_attrs[] = {"auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order",
                                        "strides", NULL};
static const char *const average_attrs[] = {"auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape",
                                            "pads", "strides", NULL};
static const char *const lp_attrs[] = {"auto_pad", "ceil_mode", "dilations", "kernel_shape", "p", "pads", "strides", NULL};

static void claim_windows(claim *c) {
  spatial_claim(c);
  CLAIM_GOES_ON(c);
  size_t n = 0;
  REQUIRE(c, attr_ints(c->n, "kernel_shape", &n), "kernel_shape is missing");
}

// ---- windows --------------------------------------------------------------------------------------------------------------
// Pads each spatial axis with v so that every tap of every window lies inside; negative pads cut.
static mx padded(mx x, const spatial *w, mx v) {
  mx_ints axes = {0}, lo = {0}, hi = {0};
  for (int i = 0; i < w->n; i++) {
    int last = (w->out[i] - 1) * w->stride[i] + spatial_reach(w, i);  // end of the last window, in the padded input
    int more = last - w->size[i] - w->lo[i];
    if (w->lo[i] < 0) x = mx_slice_axis(x, i + 2, -w->lo[i], w->size[i]);
    if (w->lo[i] <= 0 && more <= 0) continue;
    axes.v[axes.n++] = i + 2;
    lo.v[lo.n++] = w->lo[i] > 0 ? w->lo[i] : 0;
    hi.v[hi.n++] = more > 0 ? more : 0;
  }
  return axes.n ? mx_pad(x, axes, lo, hi, v, "constant") : x;
}

// Element `tap` of each window along one spatial axis of the padded input.
static mx tap_of(mx x, const spatial *w, int axis, int tap) {
  mx_ints start = {.n = mx_ndim(x)}, stop = mx_shape(x), step = {.n = start.n};
  for (int i = 0; i < start.n; i++) step.v[i] = 1;
  int at = axis + 2;
  start.v[at] = tap * w->dilation[axis];
  stop.v[at] = start.v[at] + (w->out[axis] - 1) * w->stride[axis] + 1;
  step.v[at] = w->stride[axis];
  return mx_slice(x, start, stop, step);
}

static mx joined(mx x, const spatial *w, mx (*join)(mx, mx)) {
  for (int axis = w->n - 1; axis >= 0; axis--) {
    mx all = tap_of(x, w, axis, 0);
    for (int tap = 1; tap < w->kernel[axis] && mx_ok(mx_scope_of(x)); tap++) all = join(all, tap_of(x, w, axis, tap));
    x = all;
  }
  return x;
}

static bool nothing(op *o, mx x, const spatial *w) {
  mx_ints shape = mx_shape(x);
  for (int i = 0; i < w->n; i++) shape.v[i + 2] = w->out[i];
  bool empty = dims_span(shape, 0, shape.n) == 0;
  if (empty) {
    out(o, 0, mx_full(o->s, shape, 0, mx_dtype(x)));
    out(o, 1, mx_full(o->s, shape, 0, DT_I64));
  }
  return empty;
}

// ---- MaxPool ----------------------------------------------------------------------------------------------------------------
static void max_claim(claim *c) {
  require_known(c, max_attrs);
  claim_windows(c);
}

static mx lowest(mx x) {
  switch (mx_dtype(x)) {
    case DT_I8: return mx_scalar_i64(mx_scope_of(x), INT8_MIN, DT_I8);
    case DT_I16: return mx_scalar_i64(mx_scope_of(x), INT16_MIN, DT_I16);
    case DT_I32: return mx_scalar_i64(mx_scope_of(x), INT32_MIN, DT_I32);
    case DT_I64: return mx_scalar_i64(mx_scope_of(x), INT64_MIN, DT_I64);
    default: return dtype_is_int(mx_dtype(x)) ? mx_scalar(x, 0) : mx_scalar(x, -(double)INFINITY);
  }
}

// The place of each element in the flat input, counted along the last spatial axis first (or along the first one).
static mx places(op *o, mx x, bool first_axis_first) {
  mx_ints shape = mx_shape(x), swapped = shape, perm = perm_identity(shape.n);
  for (int i = 2; first_axis_first && i < shape.n; i++) {
    perm.v[i] = shape.n + 1 - i;
    swapped.v[i] = shape.v[perm.v[i]];
  }
  mx flat = mx_arange(o->s, 0, (double)mx_size(x), 1, DT_I64);
  return mx_transpose(mx_reshape(flat, swapped), perm);
}

// Greatest value and its place; of equal values the first in reading order, as inner axes are taken first.
static void max_places(op *o, mx x, mx place, const spatial *w) {
  for (int axis = w->n - 1; axis >= 0; axis--) {
    mx best = tap_of(x, w, axis, 0), at = tap_of(place, w, axis, 0);
    for (int tap = 1; tap < w->kernel[axis] && mx_ok(o->s); tap++) {
      mx v = tap_of(x, w, axis, tap), p = tap_of(place, w, axis, tap);
      // A pad has place -1: it loses against an element of the same value.
      mx none = mx_logical_and(mx_less(at, mx_scalar(at, 0)), mx_greater_equal(p, mx_scalar(p, 0)));
      mx more = mx_logical_or(mx_greater(v, best), mx_logical_and(none, mx_equal(v, best)));
      best = mx_where(more, v, best);
      at = mx_where(more, p, at);
    }
    x = best;
    place = at;
  }
  out(o, 0, x);
  out(o, 1, place);
}

mx pool_max(op *o, mx x) {
  spatial w;
  if (!spatial_read(o, x, NULL, &w) || !spatial_pool_windows(o, &w, attr_i(o->n, "ceil_mode", 0) != 0)) return NULL;
  mx_ints shape = mx_shape(x);
  for (int i = 0; i < w.n; i++) shape.v[i + 2] = w.out[i];
  if (!dims_span(shape, 0, shape.n)) return mx_full(o->s, shape, 0, mx_dtype(x));
  return joined(padded(x, &w, lowest(x)), &w, mx_maximum);
}

static void max_pool(op *o) {
  mx x = in(o, 0);
  spatial w;
  if (!spatial_read(o, x, NULL, &w) || !spatial_pool_windows(o, &w, attr_i(o->n, "ceil_mode", 0) != 0)) return;
  if (nothing(o, x, &w)) return;
  mx rest = lowest(x);
  if (!wants(o, 1)) {
    out(o, 0, joined(padded(x, &w, rest), &w, mx_maximum));
    return;
  }
  mx place = places(o, x, attr_i(o->n, "storage_order", 0) == 1);
  max_places(o, padded(x, &w, rest), padded(place, &w, mx_scalar(place, -1)), &w);
}

// ---- AveragePool ------------------------------------------------------------------------------------------------------------
static void average_claim(claim *c) {
  require_known(c, average_attrs);
  claim_windows(c);
}

// How many taps of each window count along one axis: those on elements, or also those on pads but not beyond them.
static mx counts(op *o, const spatial *w, int axis, bool pads_count, dtype t) {
  int64_t *v = mem_alloc(((size_t)w->out[axis] + 1) * sizeof *v);
  if (!v) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory for a pool");
  int64_t from = pads_count ? -(int64_t)w->lo[axis] : 0;
  int64_t to = (int64_t)w->size[axis] + (pads_count ? w->hi[axis] : 0);
  for (int i = 0; i < w->out[axis]; i++)
    for (int tap = 0; tap < w->kernel[axis]; tap++) {
      int64_t at = (int64_t)i * w->stride[axis] - w->lo[axis] + (int64_t)tap * w->dilation[axis];
      v[i] += at >= from && at < to;
    }
  mx_ints shape = {.n = w->n};
  for (int i = 0; i < w->n; i++) shape.v[i] = i == axis ? w->out[axis] : 1;
  mx x = mx_astype(mx_reshape(mx_i64s(o->s, v, w->out[axis]), shape), t);
  mem_free(v);
  return x;
}

mx pool_average(op *o, mx x) {
  spatial w;
  if (!spatial_read(o, x, NULL, &w) || !spatial_pool_windows(o, &w, attr_i(o->n, "ceil_mode", 0) != 0)) return NULL;
  if (nothing(o, x, &w)) return NULL;
  for (int i = 0; i < w.n; i++)
    if (w.hi[i] < 0) {  // what a negative pad takes away counts in no window
      x = mx_slice_axis(x, i + 2, 0, w.size[i] + w.hi[i]);
      w.size[i] += w.hi[i];
      w.hi[i] = 0;
    }
  x = f32_up(x);
  mx sum = joined(padded(x, &w, mx_scalar(x, 0)), &w, mx_add);
  bool pads_count = attr_i(o->n, "count_include_pad", 0) != 0;
  for (int i = 0; i < w.n; i++) sum = mx_div(sum, counts(o, &w, i, pads_count, mx_dtype(x)));
  return sum;
}

static void average_pool(op *o) {
  mx y = pool_average(o, in(o, 0));
  if (y) out(o, 0, y);
}

// ---- LpPool -------------------------------------------------------------------------------------------------------------------
// p is an integer, in the first version of these operators a float.
static double order(const node *n) {
  return attr_has(n, "p") ? (double)attr_i(n, "p", 0) + (double)attr_f(n, "p", 0) : 2;
}

static void lp_claim(claim *c) {
  require_known(c, lp_attrs);
  claim_windows(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, order(c->n) > 0, "p is %g", order(c->n));
}

static mx powered(mx x, double p) {
  if (p == 1) return mx_abs(x);
  return p == 2 ? mx_square(x) : mx_pow(mx_abs(x), mx_scalar(x, p));
}
static mx rooted(mx x, double p) {
  if (p == 1) return x;
  return p == 2 ? mx_sqrt(x) : mx_pow(x, mx_scalar(x, 1 / p));
}

static void lp_pool(op *o) {
  mx x = in(o, 0);
  spatial w;
  if (!spatial_read(o, x, NULL, &w) || !spatial_pool_windows(o, &w, attr_i(o->n, "ceil_mode", 0) != 0)) return;
  if (nothing(o, x, &w)) return;
  x = powered(f32_up(x), order(o->n));
  out(o, 0, rooted(joined(padded(x, &w, mx_scalar(x, 0)), &w, mx_add), order(o->n)));
}

// ---- over everything ------------------------------------------------------------------------------------------------------------
static void global_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) >= 2, "rank %d", in_rank(c, 0));
  REQUIRE(c, order(c->n) > 0, "p is %g", order(c->n));
}

static mx_ints spatial_axes(mx x) {
  mx_ints a = {.n = mx_ndim(x) > 2 ? mx_ndim(x) - 2 : 0};
  for (int i = 0; i < a.n; i++) a.v[i] = i + 2;
  return a;
}

static bool global_fits(op *o, mx x, bool needs_elements) {
  if (mx_ndim(x) < 2) op_fail(o, "rank %d", mx_ndim(x));
  for (int i = 2; needs_elements && i < mx_ndim(x); i++)
    if (!mx_dim(x, i)) op_fail(o, "a maximum over no elements");
  return mx_ok(o->s);
}

static mx reduced(mx x, mx (*reduce)(mx, mx_ints, bool)) {
  mx_ints axes = spatial_axes(x);
  return axes.n ? reduce(x, axes, true) : x;
}

static void global_average(op *o) {
  mx x = f32_up(in(o, 0));
  if (global_fits(o, x, false)) out(o, 0, reduced(x, mx_mean));
}

static void global_max(op *o) {
  mx x = in(o, 0);
  if (global_fits(o, x, true)) out(o, 0, reduced(x, mx_max));
}

static void global_lp(op *o) {
  mx x = f32_up(in(o, 0));
  if (global_fits(o, x, false)) out(o, 0, rooted(reduced(powered(x, order(o->n)), mx_sum), order(o->n)));
}

const op_row ops_pool[] = {
    OP("", "MaxPool", 1, ANY, max_claim, max_pool, .types = DTS_NUMERIC,
       .limits = "1 to 3 spatial axes; no negative pads"),
    OP("", "AveragePool", 1, ANY, average_claim, average_pool, .types = DTS_FLOAT64,
       .limits = "1 to 3 spatial axes; no negative pads"),
    OP("", "LpPool", 1, ANY, lp_claim, lp_pool, .types = DTS_FLOAT64,
       .limits = "1 to 3 spatial axes; no negative pads; a positive p"),
    OP("", "GlobalAveragePool", 1, ANY, global_claim, global_average, .types = DTS_FLOAT64, .limits = "rank 2 or more"),
    OP("", "GlobalMaxPool", 1, ANY, global_claim, global_max, .types = DTS_FLOAT64, .limits = "rank 2 or more"),
    OP("", "GlobalLpPool", 1, ANY, global_claim, global_lp, .types = DTS_FLOAT64,
       .limits = "rank 2 or more; a positive p"),
    {0}};
