// Parts of tensors, and tensors from parts.
#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "ops/index.h"

// ---- Slice ----------------------------------------------------------------------------------------------------------
typedef struct slice_args {
  int64_t start[MX_MAX_RANK], end[MX_MAX_RANK], axis[MX_MAX_RANK], step[MX_MAX_RANK];
  size_t n;
} slice_args;

static bool slice_attrs(op *o, slice_args *a) {
  size_t ends = 0, axes = 0;
  const int64_t *start = attr_ints(o->n, "starts", &a->n), *end = attr_ints(o->n, "ends", &ends);
  const int64_t *axis = attr_ints(o->n, "axes", &axes);
  if (a->n > MX_MAX_RANK || ends != a->n || (axis && axes != a->n)) {
    op_fail(o, "starts, ends and axes must have one length, at most %d", MX_MAX_RANK);
    return false;
  }
  for (size_t i = 0; i < a->n; i++) {
    a->start[i] = start[i];
    a->end[i] = end[i];
    a->axis[i] = axis ? axis[i] : (int64_t)i;
    a->step[i] = 1;
  }
  return true;
}

static bool slice_inputs(op *o, slice_args *a) {
  size_t ends = 0, axes = 0, steps = 0;
  if (!host_ints(o, 1, a->start, MX_MAX_RANK, &a->n) || !host_ints(o, 2, a->end, MX_MAX_RANK, &ends)) return false;
  if (in(o, 3) && !host_ints(o, 3, a->axis, MX_MAX_RANK, &axes)) return false;
  if (in(o, 4) && !host_ints(o, 4, a->step, MX_MAX_RANK, &steps)) return false;
  if (ends != a->n || (in(o, 3) && axes != a->n) || (in(o, 4) && steps != a->n)) {
    op_fail(o, "starts, ends, axes and steps must have one length");
    return false;
  }
  for (size_t i = 0; i < a->n; i++) {
    if (!in(o, 3)) a->axis[i] = (int64_t)i;
    if (!in(o, 4)) a->step[i] = 1;
  }
  return true;
}

static int64_t clamp(int64_t v, int64_t lo, int64_t hi) { return v < lo ? lo : v > hi ? hi : v; }

// One axis as MLX takes it: start, stop and stride within an axis of n. Gives the number of elements.
static int slice_axis(int64_t start, int64_t end, int64_t step, int n, int *from, int *to, int *stride) {
  bool open = end == INT32_MAX || end == INT64_MAX;  // ONNX Runtime: to the axis' end in the step's direction, backward too
  if (start < 0) start += n;
  if (end < 0) end += n;
  if (open && step < 0) end = -1;
  int64_t s = clamp(step, -INT_MAX, INT_MAX), count;
  if (s > 0) {
    start = clamp(start, 0, n);
    end = clamp(end, 0, n);
    count = end > start ? (end - start + s - 1) / s : 0;
  } else {
    start = clamp(start, n ? 0 : -1, n - 1);
    end = clamp(end, -1, n - 1);
    count = start > end ? (start - end - s - 1) / -s : 0;
  }
  *from = count ? (int)start : 0;
  *stride = count > 1 ? (int)s : 1;
  // MLX counts a negative stop from the end, so "before the first element" is -n - 1.
  *to = count <= 1 ? *from + (int)count : end < 0 ? -n - 1 : (int)end;
  return (int)count;
}

static void slice(op *o) {
  slice_args a = {.n = 0};
  bool read = o->n->n_in == 1 ? slice_attrs(o, &a) : slice_inputs(o, &a);
  mx x = in(o, 0);
  if (!read || !mx_ok(o->s)) return;
  mx_ints to = mx_shape(x), from = {.n = to.n}, stride = {.n = to.n}, size = to;
  for (int i = 0; i < to.n; i++) stride.v[i] = 1;
  bool named[MX_MAX_RANK] = {false};
  for (size_t i = 0; i < a.n; i++) {
    int axis = norm_axis(o, a.axis[i], to.n);
    if (a.step[i] == 0) op_fail(o, "the step of axis %d is 0", axis);
    if (mx_ok(o->s) && named[axis]) op_fail(o, "axis %d is named twice", axis);
    if (!mx_ok(o->s)) return;
    named[axis] = true;
    size.v[axis] = slice_axis(a.start[i], a.end[i], a.step[i], to.v[axis], &from.v[axis], &to.v[axis], &stride.v[axis]);
  }
  int64_t v[KNOWN_MAX], part[KNOWN_MAX];
  size_t n = 0;
  if (to.n == 1 && known_ints(o, 0, v, &n)) {
    for (int i = 0; i < size.v[0]; i++) part[i] = v[from.v[0] + i * stride.v[0]];
    out_ints(o, 0, part, size);
  } else {
    out(o, 0, dims_span(size, 0, size.n) ? mx_slice(x, from, to, stride) : mx_full(o->s, size, 0, mx_dtype(x)));
  }
}

// ---- Split ----------------------------------------------------------------------------------------------------------
static void split_claim(claim *c) {
  REQUIRE(c, c->n->since > 1 || !has_in(c, 1), "opset 1 gives the sizes as floats");
  int64_t parts = attr_i(c->n, "num_outputs", (int64_t)c->n->n_out);
  REQUIRE(c, parts == (int64_t)c->n->n_out, "num_outputs is %lld for %zu outputs", (long long)parts, c->n->n_out);
}

static bool split_equal(op *o, int extent, int64_t *sizes) {
  int64_t parts = (int64_t)o->n->n_out, part = (extent + parts - 1) / parts, left = extent;
  if (extent % parts && o->n->since < 18) {
    op_fail(o, "an axis of %d does not split into %lld equal parts", extent, (long long)parts);
    return false;
  }
  for (int64_t i = 0; i < parts; i++) {
    sizes[i] = left < part ? left : part;
    left -= sizes[i];
  }
  return true;
}

static bool split_sizes(op *o, int extent, int64_t *sizes) {
  size_t n = 0;
  const int64_t *a = attr_ints(o->n, "split", &n);
  if (in(o, 1)) {
    if (!host_ints(o, 1, sizes, o->n->n_out, &n)) return false;
  } else if (!a) {
    return split_equal(o, extent, sizes);
  } else if (n == o->n->n_out) {
    memcpy(sizes, a, n * sizeof *sizes);
  }
  int64_t left = extent;
  for (size_t i = 0; i < n && n == o->n->n_out; i++) {
    if (sizes[i] < 0 || sizes[i] > left) left = -1;
    if (left < 0) break;
    left -= sizes[i];
  }
  if (n != o->n->n_out || left != 0) op_fail(o, "the sizes do not give %zu parts of an axis of %d", o->n->n_out, extent);
  return mx_ok(o->s);
}

static void split(op *o) {
  mx x = in(o, 0);
  int axis = norm_axis(o, attr_i(o->n, "axis", 0), mx_ndim(x)), extent = mx_dim(x, axis);
  size_t bytes = 0;
  int64_t *sizes = mx_ok(o->s) && size_mul(o->n->n_out, sizeof *sizes, &bytes) ? mem_alloc(bytes) : NULL;
  if (!sizes) {
    mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %zu parts", o->n->n_out);
    return;
  }
  if (split_sizes(o, extent, sizes)) {
    int at = 0;
    for (size_t i = 0; i < o->n->n_out; i++) {
      int part = (int)sizes[i];
      if (wants(o, i)) out(o, i, part == extent ? x : mx_slice_axis(x, axis, at, at + part));
      at += part;
    }
  }
  mem_free(sizes);
}

// ---- Concat ---------------------------------------------------------------------------------------------------------
static void concat_claim(claim *c) {
  REQUIRE(c, c->n->since < 4 || attr_has(c->n, "axis"), "axis is missing");
  for (size_t i = 0; i < c->n->n_in; i++) REQUIRE(c, has_in(c, i), "input %zu is missing", i);
}

// Shapes are put together on the host.
static bool concat_known(op *o) {
  int64_t v[KNOWN_MAX], all[KNOWN_MAX];
  size_t n = 0, total = 0;
  for (size_t i = 0; i < o->n->n_in; i++) {
    if (mx_ndim(in(o, i)) != 1 || !known_ints(o, i, v, &n) || total + n > KNOWN_MAX) return false;
    memcpy(all + total, v, n * sizeof *v);
    total += n;
  }
  out_ints(o, 0, all, MXI((int)total));
  return true;
}

static void concat(op *o) {
  int axis = norm_axis(o, attr_i(o->n, "axis", 1), mx_ndim(in(o, 0)));
  if (mx_ok(o->s) && !concat_known(o)) out(o, 0, mx_concatenate(o->s, o->in, o->n->n_in, axis));
}

// ---- Trilu ----------------------------------------------------------------------------------------------------------
// A column j of row i is kept when j - i is at least k (upper) or at most k (lower). k stays on the device.
static void trilu(op *o) {
  mx x = in(o, 0);
  int rank = mx_ndim(x), rows = mx_dim(x, -2), columns = mx_dim(x, -1);
  if (rank < 2) {
    op_fail(o, "the input has rank %d, which is below 2", rank);
    return;
  }
  mx row = mx_reshape(mx_arange(o->s, 0, rows, 1, DT_I64), MXI(rows, 1));
  mx column = mx_arange(o->s, 0, columns, 1, DT_I64);
  if (in(o, 1)) {
    if (mx_size(in(o, 1)) != 1) op_fail(o, "k must hold one integer");
    int64_t far = (int64_t)rows + columns;  // beyond it the sum below could overflow, and nothing changes any more
    mx k = mx_reshape(in(o, 1), (mx_ints){0});
    row = mx_add(row, mx_clip(k, mx_scalar_i64(o->s, -far, DT_I64), mx_scalar_i64(o->s, far, DT_I64)));
  }
  mx keep = attr_i(o->n, "upper", 1) ? mx_greater_equal(column, row) : mx_less_equal(column, row);
  out(o, 0, mx_where(keep, x, mx_scalar(x, 0)));
}

// ---- CenterCropPad --------------------------------------------------------------------------------------------------
static void center_crop_pad(op *o) {
  int64_t want[MX_MAX_RANK];
  size_t n = 0, n_axes = 0;
  mx x = in(o, 0);
  const int64_t *axes = attr_ints(o->n, "axes", &n_axes);
  if (!host_ints(o, 1, want, MX_MAX_RANK, &n)) return;
  mx_ints size = mx_shape(x), low = {.n = size.n}, high = {.n = size.n};
  if (n != (axes ? n_axes : (size_t)size.n)) {
    op_fail(o, "shape has %zu entries for %zu axes", n, axes ? n_axes : (size_t)size.n);
    return;
  }
  for (size_t i = 0; i < n; i++) {
    int axis = norm_axis(o, axes ? axes[i] : (int64_t)i, size.n), target = 0;
    if (want[i] < 0) op_fail(o, "size %lld of axis %d is negative", (long long)want[i], axis);
    if (!fits_int(o, want[i], &target) || !mx_ok(o->s)) return;
    int more = target - mx_dim(x, axis);
    if (more < 0) x = mx_slice_axis(x, axis, -more / 2, -more / 2 + target);
    if (more > 0) low.v[axis] = more / 2;
    if (more > 0) high.v[axis] = more - more / 2;
    size.v[axis] = target;
  }
  out(o, 0, mx_size(x) ? mx_pad(x, all_axes(size.n), low, high, NULL, "constant") : mx_full(o->s, size, 0, mx_dtype(x)));
}

// ---- Pad ------------------------------------------------------------------------------------------------------------
static const char *pad_mode(const node *n) { return attr_s(n, "mode", "constant"); }
static bool pad_by_input(const node *n) { return n->domain[0] || n->since >= 11; }

static void pad_claim(claim *c) {
  const char *mode = pad_mode(c->n), *const modes[] = {"constant", "edge", "reflect", "wrap"};
  bool known = false;
  for (int i = 0; i < 4; i++) known = known || !strcmp(mode, modes[i]);
  REQUIRE(c, known, "mode '%s' is not known", mode);
  REQUIRE(c, in_rank(c, 2) < 1 || in_dim(c, 2, 0) < 0 || in_dim(c, 2, 0) == 1, "constant_value is not one element");
}

// What is added before and after each axis; negative: cut off.
static bool pad_pairs(op *o, int rank, int64_t *low, int64_t *high) {
  int64_t v[2 * MX_MAX_RANK], axes[MX_MAX_RANK];
  size_t n = 0, n_axes = (size_t)rank;
  bool by_axes = in(o, 3) != NULL;
  if (by_axes && !host_ints(o, 3, axes, MX_MAX_RANK, &n_axes)) return false;
  if (pad_by_input(o->n)) {
    if (!host_ints(o, 1, v, 2 * MX_MAX_RANK, &n)) return false;
  } else {
    const int64_t *a = attr_ints(o->n, o->n->since < 2 ? "paddings" : "pads", &n);
    if (n && n <= 2 * MX_MAX_RANK) memcpy(v, a, n * sizeof *v);
  }
  if (n != 2 * n_axes) op_fail(o, "pads has %zu entries for %zu axes", n, n_axes);
  for (int i = 0; i < rank; i++) low[i] = high[i] = 0;
  for (size_t i = 0; mx_ok(o->s) && i < n_axes; i++) {
    int axis = by_axes ? norm_axis(o, axes[i], rank) : (int)i;
    low[axis] = v[i];
    high[axis] = v[n_axes + i];
    int ignored;
    if (!fits_int(o, low[axis], &ignored) || !fits_int(o, high[axis], &ignored)) return false;
  }
  return mx_ok(o->s);
}

static mx pad_value(op *o, mx x) {
  if (!in(o, 2)) return mx_scalar(x, (double)attr_f(o->n, "value", 0));
  if (mx_size(in(o, 2)) != 1) return op_fail(o, "constant_value must hold one element");
  return mx_reshape(in(o, 2), (mx_ints){0});
}

static mx pad_reversed(mx x, int axis, int first, int count) {
  mx_ints to = mx_shape(x), from = {.n = to.n}, stride = {.n = to.n};
  for (int i = 0; i < to.n; i++) stride.v[i] = 1;
  stride.v[axis] = -1;
  from.v[axis] = first;
  to.v[axis] = first - count < 0 ? -to.v[axis] - 1 : first - count;
  return mx_slice(x, from, to, stride);
}

static mx pad_repeated(mx x, int axis, int at, int count) {
  mx edge = mx_slice_axis(x, axis, at, at + 1);
  mx_ints shape = mx_shape(edge);
  shape.v[axis] = count;
  return mx_broadcast_to(edge, shape);
}

// More than one reflection or turn: by index.
static mx pad_gathered(op *o, mx x, int axis, int low, int high, bool reflect) {
  int n = mx_dim(x, axis), period = !reflect ? n : n > 1 ? 2 * (n - 1) : 1;
  int total = low + n + high;
  int32_t *index = mem_alloc((size_t)total * sizeof *index);
  if (!index) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d indices", total);
  for (int i = 0; i < total; i++) {
    int at = (i - low) % period;
    if (at < 0) at += period;
    index[i] = at < n ? at : period - at;
  }
  mx y = mx_take(x, mx_from(o->s, index, DT_I32, MXI(total)), axis);
  mem_free(index);
  return y;
}

static mx pad_axis(op *o, mx x, int axis, int low, int high, char mode) {
  int n = mx_dim(x, axis), most = low > high ? low : high;
  if (n == 0) return op_fail(o, "axis %d is empty and has nothing to repeat", axis);
  if (mode != 'e' && most > (mode == 'r' ? n - 1 : n)) return pad_gathered(o, x, axis, low, high, mode == 'r');
  mx parts[3];
  size_t k = 0;
  if (low)
    parts[k++] = mode == 'e'   ? pad_repeated(x, axis, 0, low)
                 : mode == 'r' ? pad_reversed(x, axis, low, low)
                               : mx_slice_axis(x, axis, n - low, n);
  parts[k++] = x;
  if (high)
    parts[k++] = mode == 'e'   ? pad_repeated(x, axis, n - 1, high)
                 : mode == 'r' ? pad_reversed(x, axis, n - 2, high)
                               : mx_slice_axis(x, axis, 0, high);
  return mx_concatenate(o->s, parts, k, axis);
}

// Cuts first, then adds. The value may stand for the whole axis when more is cut than there is.
static void pad(op *o) {
  mx x = in(o, 0);
  int64_t low[MX_MAX_RANK], high[MX_MAX_RANK], total[MX_MAX_RANK];
  mx_ints s = mx_shape(x), size, before = {.n = s.n}, after = {.n = s.n};
  if (!pad_pairs(o, s.n, low, high)) return;
  for (int i = 0; i < s.n; i++) total[i] = s.v[i] + low[i] + high[i];
  if (!dims_ints(o, total, (size_t)s.n, &size)) return;
  for (int i = 0; i < s.n; i++) {
    int start = (int)clamp(-low[i], 0, s.v[i]), stop = s.v[i] - (int)clamp(-high[i], 0, s.v[i]);
    if (stop < start) stop = start;
    if (stop - start < s.v[i]) x = mx_slice_axis(x, i, start, stop);
    before.v[i] = (int)clamp(low[i], 0, size.v[i]);
    after.v[i] = size.v[i] - before.v[i] - (stop - start);
  }
  const char mode = pad_mode(o->n)[0];
  if (dims_span(size, 0, size.n) == 0) {
    x = mx_full(o->s, size, 0, mx_dtype(x));
  } else if (mode == 'c') {
    mx with = pad_value(o, x);
    x = mx_size(x) ? mx_pad(x, all_axes(s.n), before, after, with, "constant") : mx_broadcast_to(with, size);
  } else {
    for (int i = 0; i < s.n; i++)
      if (before.v[i] || after.v[i]) x = pad_axis(o, x, i, before.v[i], after.v[i], mode);
  }
  out(o, 0, x);
}

const op_row ops_slice[] = {
    OP("", "Slice", 1, 9, NULL, slice, .traits = OP_CHEAP),
    OP("", "DynamicSlice", 1, ANY, NULL, slice, .host_in = IN(1) | IN(2) | IN(3), .traits = OP_CHEAP),
    OP("", "Slice", 10, ANY, NULL, slice, .host_in = IN(1) | IN(2) | IN(3) | IN(4), .traits = OP_CHEAP),
    OP("", "Split", 1, 12, split_claim, split, .traits = OP_CHEAP,
       .limits = "num_outputs is the number of outputs; sizes as an input from version 13 on"),
    OP("", "Split", 13, ANY, split_claim, split, .host_in = IN(1), .traits = OP_CHEAP,
       .limits = "num_outputs is the number of outputs; sizes as an input from version 13 on"),
    OP("", "Concat", 1, ANY, concat_claim, concat, .traits = OP_CHEAP,
       .limits = "no absent input; an axis from version 4 on"),
    OP("", "Pad", 1, 10, pad_claim, pad, .traits = OP_CHEAP,
       .limits = "mode is constant, edge, reflect or wrap; one constant_value"),
    OP("", "Pad", 11, ANY, pad_claim, pad, .host_in = IN(1) | IN(3), .traits = OP_CHEAP,
       .limits = "mode is constant, edge, reflect or wrap; one constant_value"),
    OP("com.microsoft", "Pad", 1, ANY, pad_claim, pad, .host_in = IN(1), .traits = OP_CHEAP,
       .limits = "mode is constant, edge, reflect or wrap; one constant_value"),
    OP("", "Trilu", 14, ANY, NULL, trilu, .traits = OP_CHEAP),
    OP("com.microsoft", "Trilu", 1, ANY, NULL, trilu, .traits = OP_CHEAP),
    OP("", "CenterCropPad", 18, ANY, NULL, center_crop_pad, .host_in = IN(1), .traits = OP_CHEAP),
    {0}};
