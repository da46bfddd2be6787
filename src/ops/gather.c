// Elements by index, and what is made of indices.
#include <string.h>

#include "base/mem.h"
#include "ops/index.h"

// ---- Gather ---------------------------------------------------------------------------------------------------------
static void rank_claim(claim *c) { REQUIRE(c, in_rank(c, 0) != 0, "the data is a scalar"); }

static void gather(op *o) {
  mx x = in(o, 0);
  mx_ints s = mx_shape(x), is = mx_shape(in(o, 1)), size = {.n = s.n + is.n - 1};
  int axis = norm_axis(o, attr_i(o->n, "axis", 0), s.n);
  if (size.n > MX_MAX_RANK) op_fail(o, "the output would have rank %d", size.n);
  if (!mx_ok(o->s)) return;
  for (int i = 0; i < size.n; i++)
    size.v[i] = i < axis ? s.v[i] : i < axis + is.n ? is.v[i - axis] : s.v[i - is.n + 1];
  mx index = index_checked(o, 1, &s.v[axis], 1);
  int64_t v[KNOWN_MAX], at[KNOWN_MAX], part[KNOWN_MAX];
  size_t n = 0, n_at = 0;
  if (s.n == 1 && known_ints(o, 0, v, &n) && known_ints(o, 1, at, &n_at)) {
    for (size_t i = 0; i < n_at; i++) part[i] = v[at[i] < 0 ? at[i] + s.v[0] : at[i]];
    out_ints(o, 0, part, size);
  } else {
    out(o, 0, dims_span(size, 0, size.n) ? mx_take(x, index, axis) : mx_full(o->s, size, 0, mx_dtype(x)));
  }
}

// ---- GatherElements -------------------------------------------------------------------------------------------------
static void gather_elements(op *o) {
  mx x = in(o, 0);
  mx_ints s = mx_shape(x), is = mx_shape(in(o, 1)), from = {.n = s.n}, to = is, stride = {.n = s.n};
  int axis = norm_axis(o, attr_i(o->n, "axis", 0), s.n);
  if (s.n != is.n) op_fail(o, "data of rank %d with indices of rank %d", s.n, is.n);
  if (!mx_ok(o->s)) return;
  for (int i = 0; i < s.n; i++) {
    stride.v[i] = 1;
    if (i == axis) to.v[i] = s.v[i];
    if (i != axis && is.v[i] > s.v[i]) {
      op_fail(o, "indices of size %d along axis %d, where the data has %d", is.v[i], i, s.v[i]);
      return;
    }
  }
  mx index = index_checked(o, 1, &s.v[axis], 1);
  if (dims_span(is, 0, is.n) == 0) {
    out(o, 0, mx_full(o->s, is, 0, mx_dtype(x)));
  } else {
    out(o, 0, mx_take_along_axis(mx_slice(x, from, to, stride), index, axis));
  }
}

// ---- GatherND -------------------------------------------------------------------------------------------------------
static void gather_nd(op *o) {
  mx x = in(o, 0);
  mx_ints s = mx_shape(x), is = mx_shape(in(o, 1)), size = {0};
  int64_t batch = attr_i(o->n, "batch_dims", 0);
  int k = is.n ? is.v[is.n - 1] : 0;
  if (is.n < 1 || batch < 0 || batch >= is.n || batch + k > s.n) {
    op_fail(o, "index tuples of %d with %lld batch axes do not fit data of rank %d", k, (long long)batch, s.n);
    return;
  }
  int b = (int)batch;
  for (int i = 0; i < b; i++)
    if (s.v[i] != is.v[i]) op_fail(o, "batch axis %d is %d in the data and %d in the indices", i, s.v[i], is.v[i]);
  if (is.n - 1 + s.n - b - k > MX_MAX_RANK) op_fail(o, "the output would have a rank above %d", MX_MAX_RANK);
  if (!mx_ok(o->s)) return;
  for (int i = 0; i < is.n - 1; i++) size.v[size.n++] = is.v[i];
  for (int i = b + k; i < s.n; i++) size.v[size.n++] = s.v[i];
  mx rows = index_rows(o, 1, s, b, k);
  int64_t flat[2] = {dims_span(s, 0, b + k), dims_span(s, b + k, s.n)};
  mx_ints two;
  if (!mx_ok(o->s) || !dims_ints(o, flat, 2, &two)) return;
  bool some = dims_span(size, 0, size.n) > 0;
  out(o, 0, some ? mx_reshape(mx_take(mx_reshape(x, two), rows, 0), size) : mx_full(o->s, size, 0, mx_dtype(x)));
}

// ---- OneHot ---------------------------------------------------------------------------------------------------------
static bool one_hot_depth(op *o, int *depth) {
  int64_t d = 0;
  double f = 0;
  if (dtype_is_float(mx_dtype(in(o, 1)))) {
    if (!host_float(o, 1, &f)) return false;
    d = f >= 1 && f < 1e9 ? (int64_t)f : 0;
  } else if (!host_int(o, 1, &d)) {
    return false;
  }
  if (d < 1) op_fail(o, "depth must be positive");
  return mx_ok(o->s) && fits_int(o, d, depth);
}

static void one_hot(op *o) {
  int depth = 0;
  if (!one_hot_depth(o, &depth)) return;
  mx index = mx_astype(in(o, 0), DT_I64), pair = in(o, 2);
  int rank = mx_ndim(index) + 1, axis = norm_axis(o, attr_i(o->n, "axis", -1), rank);
  if (rank > MX_MAX_RANK) op_fail(o, "the output would have rank %d", rank);
  if (mx_ndim(pair) != 1 || mx_dim(pair, 0) != 2) op_fail(o, "values must hold two elements");
  if (!mx_ok(o->s)) return;
  mx_ints along = {.n = rank}, none = {0};
  for (int i = 0; i < rank; i++) along.v[i] = i == axis ? depth : 1;
  mx zero = mx_scalar_i64(o->s, 0, DT_I64), deep = mx_scalar_i64(o->s, depth, DT_I64);
  index = mx_where(mx_less(index, zero), mx_add(index, deep), index);
  mx hot = mx_equal(mx_expand_dims(index, MXI(axis)), mx_reshape(mx_arange(o->s, 0, depth, 1, DT_I64), along));
  mx off = mx_reshape(mx_slice_axis(pair, 0, 0, 1), none), on = mx_reshape(mx_slice_axis(pair, 0, 1, 2), none);
  out(o, 0, mx_where(hot, on, off));
}

// ---- ReverseSequence ------------------------------------------------------------------------------------------------
static void reverse_claim(claim *c) {
  int64_t time = attr_i(c->n, "time_axis", 0), batch = attr_i(c->n, "batch_axis", 1);
  REQUIRE(c, (time == 0 && batch == 1) || (time == 1 && batch == 0), "time_axis %lld with batch_axis %lld",
          (long long)time, (long long)batch);
}

// The place that each step of each sequence comes from, int32 [steps, batch] or [batch, steps].
static int32_t *reverse_places(op *o, int steps, int batch, bool time_first) {
  size_t n = 0, bytes = 0;
  int64_t length, *lengths = size_mul((size_t)batch, sizeof *lengths, &bytes) ? mem_alloc(bytes + 8) : NULL;
  bool fits = size_mul((size_t)steps * sizeof(int32_t), (size_t)batch, &bytes);
  int32_t *place = lengths && fits ? mem_alloc(bytes + 4) : NULL;
  if (!place) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d sequences of %d steps", batch, steps);
  bool ok = place && host_ints(o, 1, lengths, (size_t)batch, &n);
  if (ok && n != (size_t)batch) op_fail(o, "%zu sequence lengths for a batch of %d", n, batch);
  for (int b = 0; mx_ok(o->s) && ok && b < batch; b++) {
    length = lengths[b];
    if (length < 0 || length > steps) op_fail(o, "sequence length %lld is out of range for %d steps", (long long)length, steps);
    for (int t = 0; t < steps; t++) {
      size_t at = time_first ? (size_t)t * (size_t)batch + (size_t)b : (size_t)b * (size_t)steps + (size_t)t;
      place[at] = t < length ? (int32_t)length - 1 - t : t;
    }
  }
  mem_free(lengths);
  if (ok && mx_ok(o->s)) return place;
  mem_free(place);
  return NULL;
}

static void reverse_sequence(op *o) {
  mx x = in(o, 0);
  mx_ints s = mx_shape(x), shape = {.n = s.n};
  if (s.n < 2) {
    op_fail(o, "the input has rank %d, which is below 2", s.n);
    return;
  }
  int time = (int)attr_i(o->n, "time_axis", 0);
  int32_t *place = reverse_places(o, s.v[time], s.v[1 - time], time == 0);
  if (!place) return;
  for (int i = 0; i < s.n; i++) shape.v[i] = i < 2 ? s.v[i] : 1;
  mx index = mx_from(o->s, place, DT_I32, shape);
  mem_free(place);
  out(o, 0, mx_size(x) ? mx_take_along_axis(x, index, time) : x);
}

const op_row ops_gather[] = {
    OP("", "Gather", 1, ANY, rank_claim, gather, .index_in = IN(1), .traits = OP_CHEAP, .limits = "no scalar data"),
    OP("", "GatherElements", 11, ANY, rank_claim, gather_elements, .index_in = IN(1), .traits = OP_CHEAP,
       .limits = "no scalar data"),
    OP("", "GatherND", 11, ANY, rank_claim, gather_nd, .index_in = IN(1), .traits = OP_CHEAP, .limits = "no scalar data"),
    OP("com.microsoft", "GatherND", 1, ANY, rank_claim, gather_nd, .index_in = IN(1), .traits = OP_CHEAP,
       .limits = "no scalar data"),
    OP("", "OneHot", 9, ANY, NULL, one_hot, .host_in = IN(1), .traits = OP_CHEAP),
    OP("", "ReverseSequence", 10, ANY, reverse_claim, reverse_sequence, .host_in = IN(1), .traits = OP_CHEAP,
       .limits = "time_axis and batch_axis are 0 and 1, either way"),
    {0}};
