// Operators whose output follows an order of the data or is shaped by it: TopK, NonZero, Compress, Unique.
#include <math.h>

#include "base/mem.h"
#include "ops/numeric.h"
#include "ops/op.h"

// x in the shape of x but with `size` entries along axis, where either has no elements at all.
static mx none_of(mx x, int axis, int size, dtype t) {
  mx_ints shape = mx_shape(x);
  shape.v[axis] = size;
  return mx_full(mx_scope_of(x), shape, 0, t);
}

// ---- TopK -----------------------------------------------------------------------------------------------------------
// A key whose ascending order is x's descending one; integers have no negation of every value, but a complement.
static mx descending(mx x) { return dtype_is_float(mx_dtype(x)) ? mx_neg(x) : mx_bitwise_not(x); }

// int64 numbers of signed 32 bits in the order of x, whose type has at most 32. The bits of a float are in order, those
// of a negative one in reverse; NaN comes last, as in a sort.
static mx order_number(mx x) {
  mx_scope *s = mx_scope_of(x);
  mx middle = mx_scalar_i64(s, mx_dtype(x) == DT_U32 ? INT64_C(1) << 31 : 0, DT_I64);
  if (!dtype_is_float(mx_dtype(x))) return mx_sub(mx_astype(x, DT_I64), middle);
  x = f32_up(x);
  x = num_plus(x, 0);  // the two zeros are equal
  mx bits = mx_view(x, DT_I32), all_but_sign = mx_scalar_i64(s, INT32_MAX, DT_I32);
  mx sign = mx_right_shift(bits, mx_scalar_i64(s, 31, DT_I32));
  mx number = mx_bitwise_xor(bits, mx_bitwise_and(sign, all_but_sign));
  return mx_astype(mx_where(mx_isnan(x), all_but_sign, number), DT_I64);
}

// The k first of many without sorting the rest. The position in the low bits makes every key another, so that a
// partition chooses among equal values as a stable sort would.
static mx first_of_many(mx x, int axis, int k) {
  mx_scope *s = mx_scope_of(x);
  int n = mx_dim(x, axis);
  mx_ints along = {.n = mx_ndim(x) - axis, .v = {n}};
  for (int i = 1; i < along.n; i++) along.v[i] = 1;
  mx position = mx_reshape(mx_arange(s, 0, n, 1, DT_I64), along);
  mx high = mx_mul(order_number(x), mx_scalar_i64(s, INT64_C(1) << 32, DT_I64));
  mx key = mx_add(high, position);
  mx some = mx_slice_axis(mx_argpartition(key, k - 1, axis), axis, 0, k);
  mx first = mx_sort(mx_take_along_axis(key, some, axis), axis);
  return mx_bitwise_and(first, mx_scalar_i64(s, UINT32_MAX, DT_I64));
}

// Positions of the k first along axis; of equal values the one with the lower position comes first.
static mx first_k(mx x, int axis, int k, bool largest) {
  if (k == 1) return largest ? mx_argmax(x, axis, true) : mx_argmin(x, axis, true);
  if (largest) x = descending(x);
  bool few_of_many = mx_dim(x, axis) >= 2048 && k <= mx_dim(x, axis) / 16;
  if (few_of_many && dtype_size(mx_dtype(x)) <= 4 && mx_device_of(mx_scope_of(x)) == MX_CPU)
    return first_of_many(x, axis, k);
  return mx_slice_axis(mx_argsort(x, axis), axis, 0, k);
}

static void top_k(op *o) {
  mx x = in(o, 0);
  int axis = norm_axis(o, attr_i(o->n, "axis", -1), mx_ndim(x));
  int64_t k = attr_i(o->n, "k", -1);
  if (o->n->since >= 10 && !host_int(o, 1, &k)) return;
  if (!mx_ok(o->s)) return;
  if (k < 0 || k > mx_dim(x, axis)) {
    op_fail(o, "k is %lld, but axis %d has %d entries", (long long)k, axis, mx_dim(x, axis));
    return;
  }
  if (k == 0 || mx_size(x) == 0) {
    out(o, 0, none_of(x, axis, (int)k, mx_dtype(x)));
    out(o, 1, none_of(x, axis, (int)k, DT_I64));
    return;
  }
  mx at = first_k(x, axis, (int)k, attr_i(o->n, "largest", 1) != 0);
  out(o, 0, mx_take_along_axis(x, at, axis));
  out(o, 1, at);
}

// ---- NonZero --------------------------------------------------------------------------------------------------------
// Row-major coordinates of the set entries: out[axis * count + j].
static void coordinates(const uint8_t *set, mx_ints shape, size_t count, int64_t *out_) {
  int at[MX_MAX_RANK] = {0};
  for (size_t i = 0, j = 0; j < count; i++) {
    for (int a = 0; set[i] && a < shape.n; a++) out_[(size_t)a * count + j] = at[a];
    j += set[i] != 0;
    for (int a = shape.n - 1; a >= 0 && ++at[a] == shape.v[a]; a--) at[a] = 0;
  }
}

// int64 from the host, released after the copy; v is NULL when it could not be allocated.
static mx taken_i64(op *o, int64_t *v, mx_ints shape) {
  mx x = v ? mx_from(o->s, v, DT_I64, shape) : mx_fail(o->s, ERR_NO_MEMORY, "no memory for indices");
  mem_free(v);
  return x;
}

static int64_t *new_i64s(size_t rows, size_t n) {
  size_t count, bytes;
  if (!size_mul(rows, n, &count) || !size_mul(count, sizeof(int64_t), &bytes)) return NULL;
  return mem_alloc(bytes ? bytes : 1);
}

static void non_zero(op *o) {
  mx x = in(o, 0);
  if (mx_ndim(x) == 0) x = mx_expand_dims(x, MXI(0));  // ONNX Runtime counts a scalar as one entry of rank 1
  mx_ints shape = mx_shape(x);
  size_t n = mx_size(x), count = 0;
  const uint8_t *set = n ? mx_read(mx_dtype(x) == DT_BOOL ? x : mx_not_equal(x, mx_scalar(x, 0))) : NULL;
  if (!mx_ok(o->s) || (n && !set)) return;
  for (size_t i = 0; i < n; i++) count += set[i] != 0;
  int width;
  if (!fits_int(o, (int64_t)count, &width)) return;
  if (count == 0) {
    out(o, 0, mx_full(o->s, MXI(shape.n, 0), 0, DT_I64));
    return;
  }
  int64_t *v = new_i64s((size_t)shape.n, count);
  if (v) coordinates(set, shape, count, v);
  out(o, 0, taken_i64(o, v, MXI(shape.n, width)));
}

// ---- Compress -------------------------------------------------------------------------------------------------------
static mx flat(op *o, mx x) {
  int size;
  return fits_int(o, (int64_t)mx_size(x), &size) ? mx_reshape(x, MXI(size)) : x;
}

static void compress(op *o) {
  bool flatten = !attr_has(o->n, "axis");
  mx x = flatten ? flat(o, in(o, 0)) : in(o, 0);
  int axis = flatten ? 0 : norm_axis(o, attr_i(o->n, "axis", 0), mx_ndim(x));
  size_t n = mx_size(in(o, 1)), along = (size_t)mx_dim(x, axis), count = 0;
  const uint8_t *keep = n ? mx_read(in(o, 1)) : NULL;
  if (!mx_ok(o->s)) return;
  if (n > along) n = along;  // what the condition says beyond the axis is ignored, as is the axis beyond the condition
  for (size_t i = 0; i < n; i++) count += keep[i] != 0;
  if (count == 0 || mx_size(x) == 0) {
    out(o, 0, none_of(x, axis, (int)count, mx_dtype(x)));
    return;
  }
  int64_t *v = new_i64s(1, count);
  for (size_t i = 0, j = 0; v && i < n; i++)
    if (keep[i]) v[j++] = (int64_t)i;
  out(o, 0, mx_take(x, taken_i64(o, v, MXI((int)count)), axis));
}

// ---- Unique ---------------------------------------------------------------------------------------------------------
// The rows to compare, on the host. Every type is read as the widest of its kind, which keeps its order.
typedef struct rows {
  dtype type;  // F32, F64, U64 or I64
  const void *data;
  size_t n, width;
} rows;

static dtype ordered_as(dtype t) {
  if (t == DT_F64) return DT_F64;
  if (dtype_is_float(t)) return DT_F32;
  return dtype_in(t, DTS_UNSIGNED) ? DT_U64 : DT_I64;
}

// NaNs are equal to each other and greater than every number.
static int order_floats(double a, double b) {
  if (isnan(a) || isnan(b)) return (isnan(a) != 0) - (isnan(b) != 0);
  return (a > b) - (a < b);
}

static int order_entries(const rows *r, size_t i, size_t j) {
  switch (r->type) {
    case DT_F32: return order_floats((double)((const float *)r->data)[i], (double)((const float *)r->data)[j]);
    case DT_F64: return order_floats(((const double *)r->data)[i], ((const double *)r->data)[j]);
    case DT_U64: {
      const uint64_t *v = r->data;
      return (v[i] > v[j]) - (v[i] < v[j]);
    }
    default: {
      const int64_t *v = r->data;
      return (v[i] > v[j]) - (v[i] < v[j]);
    }
  }
}

static int order_rows(const rows *r, size_t i, size_t j) {
  int c = 0;
  for (size_t k = 0; k < r->width && c == 0; k++) c = order_entries(r, i * r->width + k, j * r->width + k);
  return c;
}

static void merge(const rows *r, const int64_t *from, int64_t *to, size_t lo, size_t mid, size_t hi) {
  size_t i = lo, j = mid;
  for (size_t k = lo; k < hi; k++) {
    bool left = i < mid && (j >= hi || order_rows(r, (size_t)from[i], (size_t)from[j]) <= 0);
    to[k] = from[left ? i++ : j++];
  }
}

// Row numbers in ascending order of the rows, equal rows in their own order; room has n entries too. Returns either.
static int64_t *sorted_rows(const rows *r, int64_t *order, int64_t *room) {
  for (size_t i = 0; i < r->n; i++) order[i] = (int64_t)i;
  for (size_t run = 1; run < r->n; run *= 2) {
    for (size_t lo = 0; lo < r->n; lo += 2 * run) {
      size_t mid = lo + run < r->n ? lo + run : r->n, hi = lo + 2 * run < r->n ? lo + 2 * run : r->n;
      merge(r, order, room, lo, mid, hi);
    }
    int64_t *t = order;
    order = room;
    room = t;
  }
  return order;
}

typedef struct groups {
  int64_t *first, *inverse, *counts;  // n entries each, of which first and counts use `count`
  size_t count;
} groups;

// Numbers the groups of equal rows in sorted order, then, unless sorted is asked for, in that of their first rows.
static void group_rows(const rows *r, const int64_t *order, bool sorted, groups *g, int64_t *number) {
  for (size_t i = 0; i < r->n; i++) {
    bool fresh = i == 0 || order_rows(r, (size_t)order[i - 1], (size_t)order[i]) != 0;
    if (fresh) g->first[g->count++] = order[i];
    g->inverse[order[i]] = (int64_t)g->count - 1;
  }
  if (!sorted) {
    size_t next = 0;
    for (size_t i = 0; i < r->n; i++)  // a group's first row meets its own number first
      if (g->first[g->inverse[i]] == (int64_t)i) number[g->inverse[i]] = (int64_t)next++;
    for (size_t i = 0; i < r->n; i++) g->inverse[i] = number[g->inverse[i]];
    for (size_t i = r->n; i-- > 0;) g->first[g->inverse[i]] = (int64_t)i;
  }
  for (size_t i = 0; i < r->n; i++) g->counts[g->inverse[i]]++;
}

static bool unique_groups(op *o, const rows *r, bool sorted, groups *g) {
  int64_t *order = new_i64s(1, r->n), *room = new_i64s(1, r->n);
  *g = (groups){.first = new_i64s(1, r->n), .inverse = new_i64s(1, r->n), .counts = new_i64s(1, r->n)};
  bool ok = order && room && g->first && g->inverse && g->counts;
  if (ok) {
    int64_t *ascending = sorted_rows(r, order, room);
    group_rows(r, ascending, sorted, g, ascending == order ? room : order);
  } else {
    mx_fail(o->s, ERR_NO_MEMORY, "no memory to compare %zu entries", r->n);
  }
  mem_free(order);
  mem_free(room);
  return ok;
}

static mx i64s_or_none(op *o, const int64_t *v, size_t n) {
  return n ? mx_i64s(o->s, v, (int)n) : mx_full(o->s, MXI(0), 0, DT_I64);
}

static void unique_outputs(op *o, mx x, int axis, const rows *r, const groups *g) {
  mx first = i64s_or_none(o, g->first, g->count);
  if (mx_size(x) == 0)
    out(o, 0, none_of(x, axis, (int)g->count, mx_dtype(x)));
  else
    out(o, 0, mx_take(x, first, axis));
  out(o, 1, first);
  out(o, 2, i64s_or_none(o, g->inverse, r->n));
  out(o, 3, i64s_or_none(o, g->counts, g->count));
}

static void unique(op *o) {
  bool flatten = !attr_has(o->n, "axis");
  mx x = flatten ? flat(o, in(o, 0)) : in(o, 0);
  int axis = flatten ? 0 : norm_axis(o, attr_i(o->n, "axis", 0), mx_ndim(x));
  if (!mx_ok(o->s)) return;
  mx_ints perm = perm_identity(mx_ndim(x));
  for (int i = axis; i > 0; i--) perm.v[i] = perm.v[i - 1];
  perm.v[0] = axis;
  rows r = {.type = ordered_as(mx_dtype(x)), .n = (size_t)mx_dim(x, axis)};
  r.width = r.n ? mx_size(x) / r.n : 0;
  if (mx_size(x)) r.data = mx_read(mx_astype(mx_transpose(x, perm), r.type));
  groups g = {0};
  if (mx_ok(o->s) && unique_groups(o, &r, attr_i(o->n, "sorted", 1) != 0, &g)) unique_outputs(o, x, axis, &r, &g);
  mem_free(g.first);
  mem_free(g.inverse);
  mem_free(g.counts);
}

// com.microsoft's: one axis, values in the order of their first places, which it does not give.
static void unique_of_list(op *o) {
  mx x = in(o, 0);
  if (mx_ndim(x) != 1) op_fail(o, "the input has rank %d, not 1", mx_ndim(x));
  rows r = {.type = ordered_as(mx_dtype(x)), .n = mx_size(x), .width = 1};
  if (mx_ok(o->s) && r.n) r.data = mx_read(mx_astype(x, r.type));
  groups g = {0};
  if (mx_ok(o->s) && unique_groups(o, &r, false, &g)) {
    mx first = i64s_or_none(o, g.first, g.count);
    out(o, 0, r.n ? mx_take(x, first, 0) : x);
    out(o, 1, i64s_or_none(o, g.inverse, r.n));
    out(o, 2, i64s_or_none(o, g.counts, g.count));
  }
  mem_free(g.first);
  mem_free(g.inverse);
  mem_free(g.counts);
}

const op_row ops_sort[] = {
    OP("", "TopK", 1, ANY, NULL, top_k, .types = DTS_NUMERIC, .host_in = IN(1)),
    OP("", "NonZero", 9, ANY, NULL, non_zero, .types = DTS_TENSOR, .traits = OP_NO_TRACE),
    OP("", "Compress", 9, ANY, NULL, compress, .types = DTS_TENSOR, .host_in = IN(1), .traits = OP_NO_TRACE),
    OP("", "Unique", 11, ANY, NULL, unique, .types = DTS_TENSOR, .traits = OP_NO_TRACE),
    OP("com.microsoft", "Unique", 1, ANY, NULL, unique_of_list, .types = DTS_TENSOR, .traits = OP_NO_TRACE),
    {0}};
