#include "ops/index.h"

#include "base/mem.h"

enum { DTS_INDEX = DTYPE_BIT(DT_I32) | DTYPE_BIT(DT_I64) };

int64_t dims_span(mx_ints shape, int from, int to) {
  int64_t n = 1;
  for (int i = from; i < to; i++)
    if (shape.v[i] == 0) return 0;
  for (int i = from; i < to; i++)
    if (__builtin_mul_overflow(n, (int64_t)shape.v[i], &n)) return INT64_MAX;
  return n;
}

bool dims_ints(op *o, const int64_t *v, size_t n, mx_ints *shape) {
  *shape = (mx_ints){0};
  size_t all = 0;
  if (n > MX_MAX_RANK) {
    op_fail(o, "rank %zu is above %d", n, MX_MAX_RANK);
    return false;
  }
  for (size_t i = 0; i < n; i++) {
    if (v[i] < 0) op_fail(o, "size %lld of axis %zu is negative", (long long)v[i], i);
    if (v[i] < 0 || !fits_int(o, v[i], &shape->v[i])) return false;
  }
  shape->n = (int)n;
  if (!dims_count(v, (int)n, &all)) op_fail(o, "the output has more elements than memory can hold");
  return mx_ok(o->s);
}

bool known_ints(const op *o, size_t i, int64_t *v, size_t *n) {
  mx x = in(o, i);
  if (!x || !dtype_in(mx_dtype(x), DTS_INDEX) || mx_size(x) > KNOWN_MAX || !mx_ready(x)) return false;
  return mx_read_i64(x, v, KNOWN_MAX, n);
}

void out_ints(op *o, size_t i, const int64_t *v, mx_ints shape) {
  int32_t narrow[KNOWN_MAX];
  int64_t n = dims_span(shape, 0, shape.n);
  if (want_type(o, i) != DT_I32) {
    out(o, i, mx_from(o->s, v, DT_I64, shape));
    return;
  }
  for (int64_t k = 0; k < n; k++) narrow[k] = (int32_t)v[k];
  out(o, i, mx_from(o->s, narrow, DT_I32, shape));
}

void out_reshaped(op *o, mx_ints shape, mx_ints full) {
  int64_t v[KNOWN_MAX];
  size_t n = 0;
  if (known_ints(o, 0, v, &n)) {
    out_ints(o, 0, v, full);
  } else {
    out(o, 0, mx_reshape(in(o, 0), shape));
  }
}

// ---- indices --------------------------------------------------------------------------------------------------------
typedef struct index_view {
  const void *data;
  bool wide;  // int64, else int32
  size_t n;
} index_view;

static int64_t view_at(index_view x, size_t i) {
  return x.wide ? ((const int64_t *)x.data)[i] : (int64_t)((const int32_t *)x.data)[i];
}

// Where the host has the values; *x then views them. Computes nothing.
static bool index_at_hand(op *o, size_t i, index_view *x) {
  tensor t = {0};
  if (!host_tensor(o, i, &t) || !dims_count(t.dims, t.rank, &x->n)) return false;
  x->data = t.data;
  x->wide = t.type == DT_I64;
  return true;
}

static bool index_view_of(op *o, size_t i, index_view *x) {
  if (index_at_hand(o, i, x)) return true;
  mx a = in(o, i);
  if (!a || !dtype_in(mx_dtype(a), DTS_INDEX)) {
    op_fail(o, "input %zu must hold int32 or int64 indices", i);
    return false;
  }
  *x = (index_view){.n = mx_size(a), .wide = mx_dtype(a) == DT_I64};
  if (x->n) x->data = mx_read(a);
  return !x->n || x->data;
}

static bool is_data(op *o, size_t i) {
  index_view x;
  return in_trace(o) && in(o, i) && mx_size(in(o, i)) && !mx_ready(in(o, i)) && !index_at_hand(o, i, &x);
}

static bool in_range(op *o, size_t input, int64_t index, int extent) {
  if (index >= -(int64_t)extent && index < extent) return true;
  op_fail(o, "index %lld in input %zu is out of range for an axis of %d; correct the indices", (long long)index, input,
          extent);
  return false;
}

// ---- indices that are data of a trace: MLX must not follow a wrong one, the run is done again if there is one -----------
// Extents as int32, one or a row of them.
static mx extents_array(op *o, const int *extents, int n) { return mx_from(o->s, extents, DT_I32, (mx_ints){n > 1, {n}}); }

static mx kept_within(op *o, mx index, mx low, mx high) {
  trace_require(o, mx_logical_and(mx_greater_equal(index, low), mx_less_equal(index, high)));
  return mx_clip(index, low, high);
}

static mx guarded(op *o, mx index, const int *extents, int n) {
  mx e = mx_astype(extents_array(o, extents, n), mx_dtype(index));
  return kept_within(o, index, mx_neg(e), mx_sub(e, mx_scalar(e, 1)));
}

mx index_below(op *o, mx index, int rows, const char *what) {
  if (in_trace(o) && mx_size(index) && !mx_ready(index))
    return kept_within(o, index, mx_scalar(index, 0), mx_scalar(index, rows - 1));
  mx wide = mx_astype(index, DT_I64);
  size_t n = mx_size(wide);
  const int64_t *v = n ? mx_read(wide) : NULL;
  for (size_t i = 0; v && i < n; i++)
    if (v[i] < 0 || v[i] >= rows) return op_fail(o, "%s %lld is out of range for %d", what, (long long)v[i], rows);
  return index;
}

// int32 in [0, extent).
static mx guarded_places(op *o, mx index, const int *extents, int n) {
  mx at = mx_astype(guarded(o, index, extents, n), DT_I32);
  return mx_where(mx_less(at, mx_scalar(at, 0)), mx_add(at, extents_array(o, extents, n)), at);
}

static mx guarded_rows(op *o, mx index, mx_ints shape, int batch, int k, int tuples, int batches) {
  int32_t step[MX_MAX_RANK], by = 1;
  for (int a = k - 1; a >= 0; a--) {
    step[a] = by;
    by *= shape.v[batch + a];
  }
  mx at = mx_reshape(guarded_places(o, index, shape.v + batch, k), MXI(tuples, k));
  mx row = mx_sum(mx_mul(at, mx_from(o->s, step, DT_I32, MXI(k))), MXI(1), false);
  if (batches < 2) return row;
  mx base = mx_arange(o->s, 0, (double)batches * by, by, DT_I32);
  row = mx_add(mx_reshape(row, MXI(batches, tuples / batches)), mx_expand_dims(base, MXI(1)));
  return mx_reshape(row, MXI(tuples));
}

mx index_flat(op *o, size_t i, mx_ints shape, int axis) {
  if (!is_data(o, i)) return NULL;
  mx at = guarded_places(o, in(o, i), &shape.v[axis], 1);
  mx_ints is = mx_shape(at);
  int32_t step = (int32_t)dims_span(shape, axis + 1, shape.n);
  at = mx_mul(at, mx_scalar_i64(o->s, step, DT_I32));
  for (int a = 0; a < shape.n; a++) {
    if (a == axis) continue;
    mx_ints along = {.n = shape.n};
    for (int b = 0; b < shape.n; b++) along.v[b] = b == a ? is.v[a] : 1;
    step = (int32_t)dims_span(shape, a + 1, shape.n);
    at = mx_add(at, mx_reshape(mx_arange(o->s, 0, (double)step * is.v[a], step, DT_I32), along));
  }
  return mx_reshape(at, MXI((int)mx_size(at)));
}

mx index_checked(op *o, size_t i, const int *extents, int n) {
  index_view x;
  if (is_data(o, i)) return guarded(o, in(o, i), extents, n);
  if (!index_view_of(o, i, &x)) return op_fail(o, "input %zu cannot be read", i);
  for (size_t k = 0; k < x.n; k++)
    if (!in_range(o, i, view_at(x, k), extents[n == 1 ? 0 : k % (size_t)n])) break;
  return in(o, i);
}

int64_t *index_read(op *o, size_t i, const int *extents, int n, size_t *count) {
  index_view x;
  if (!index_view_of(o, i, &x)) return NULL;
  size_t bytes = 0;
  int64_t *v = size_mul(x.n + 1, sizeof *v, &bytes) ? mem_alloc(bytes) : NULL;
  if (!v) {
    mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %zu indices", x.n);
    return NULL;
  }
  for (size_t k = 0; k < x.n; k++) {
    int extent = extents[k % (size_t)n];
    int64_t index = view_at(x, k);
    if (!in_range(o, i, index, extent)) {
      mem_free(v);
      return NULL;
    }
    v[k] = index < 0 ? index + extent : index;
  }
  if (count) *count = x.n;
  return v;
}

mx index_rows(op *o, size_t i, mx_ints shape, int batch, int k) {
  mx_ints tuple_shape = mx_shape(in(o, i));
  int tuples = 0, rows = 0, batches = 0;
  if (!fits_int(o, dims_span(tuple_shape, 0, tuple_shape.n - 1), &tuples) ||
      !fits_int(o, dims_span(shape, 0, batch + k), &rows) || !fits_int(o, dims_span(shape, 0, batch), &batches))
    return op_fail(o, "the data is too large");
  if (k && is_data(o, i)) return guarded_rows(o, in(o, i), shape, batch, k, tuples, batches);
  static const int none[1] = {0};
  int64_t *v = index_read(o, i, k ? shape.v + batch : none, k ? k : 1, NULL);
  int32_t *row = v ? mem_alloc(((size_t)tuples + 1) * sizeof *row) : NULL;
  if (!row) {
    mem_free(v);
    return mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d indices", tuples);
  }
  int per_batch = batches ? tuples / batches : 0;
  for (int t = 0; t < tuples; t++) {
    int64_t r = per_batch ? t / per_batch : 0;
    for (int a = 0; a < k; a++) r = r * shape.v[batch + a] + v[(size_t)t * (size_t)k + (size_t)a];
    row[t] = (int32_t)r;
  }
  mx result = mx_from(o->s, row, DT_I32, MXI(tuples));
  mem_free(row);
  mem_free(v);
  return result;
}
