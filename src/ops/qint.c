#include "ops/qint.h"

#include <math.h>
#include <string.h>

#include "ops/conv.h"

enum { EXACT = 1 << 24 };  // float32 holds every integer up to here

// ---- operands -------------------------------------------------------------------------------------------------------------
mx qint_number(op *o, size_t i, double none) {
  mx x = in(o, i);
  if (!x) return mx_full(o->s, (mx_ints){0}, none, DT_F32);
  if (mx_size(x) != 1) return op_fail(o, "input %zu must have one element, not %zu", i, mx_size(x));
  return mx_reshape(mx_astype(x, DT_F32), (mx_ints){0});
}

mx qint_of_matrix(op *o, size_t i, bool column) {
  mx x = in(o, i);
  if (!x) return NULL;
  x = mx_astype(x, DT_F32);
  if (mx_size(x) == 1) return mx_reshape(x, (mx_ints){0});
  return mx_ndim(x) == 1 && !column ? mx_expand_dims(x, MXI(1)) : x;
}

static bool same_shape(mx a, mx b) {
  mx_ints x = mx_shape(a), y = mx_shape(b);
  return x.n == y.n && !memcmp(x.v, y.v, sizeof(int) * (size_t)x.n);
}

// The largest absolute value of a t less a zero point: of a constant one as it is, else of any.
static double most_of(const op *o, dtype t, mx zero, size_t i) {
  double lo = t == DT_I8 ? -128 : 0, hi = t == DT_I8 ? 127 : 255;
  if (!zero) return t == DT_I8 ? 128 : 255;
  tensor z;
  if (!is_const(o, i) || mx_size(zero) != 1 || !host_tensor(o, i, &z)) return 255;
  double v = z.type == DT_I8 ? *(const int8_t *)z.data : *(const uint8_t *)z.data;
  return fmax(v - lo, hi - v);
}

qint qint_centred(op *o, mx x, mx zero, size_t zero_input) {
  qint q = {mx_astype(x, DT_F32), most_of(o, mx_dtype(x), zero, zero_input), (double)INFINITY};
  if (!zero) return q;
  mx y = mx_sub(q.x, zero);
  if (mx_ok(o->s) && !same_shape(y, q.x)) op_fail(o, "the zero point (input %zu) does not fit", zero_input);
  q.x = y;
  return q;
}

qint qint_input(op *o, size_t i, size_t zero_input) {
  return qint_centred(o, in(o, i), in(o, zero_input) ? qint_number(o, zero_input, 0) : NULL, zero_input);
}

// ---- weights ----------------------------------------------------------------------------------------------------------------
mx qint_bounds(mx w, int outputs) {
  mx a = mx_abs(w), zero = mx_scalar(w, 0);
  mx_ints all = all_axes(mx_ndim(w)), summed = {0};
  for (int i = 0; i < all.n; i++)
    if (i != outputs) summed.v[summed.n++] = i;
  bool empty = mx_size(w) == 0;
  mx both[2] = {empty ? zero : mx_max(a, all, false), empty ? zero : mx_max(mx_sum(a, summed, true), all, false)};
  return mx_stack(mx_scope_of(w), both, 2, 0);
}

qint qint_weight(op *o, mx (*make)(op *o), mx (*bounds)(op *o), int slot, size_t w, size_t zero) {
  qint q = {NULL, 255, (double)INFINITY};
  if (!is_const(o, w) || (in(o, zero) && !is_const(o, zero)) || !o->memo) {
    q.x = make(o);
    return q;
  }
  q.x = memo(o, slot, make);
  const float *b = mx_read(memo(o, slot + 1, bounds));
  if (!b) return q;
  q.most = (double)b[0];
  q.sum = (double)b[1] * 1.0001;  // it is a rounded sum
  return q;
}

// ---- products ---------------------------------------------------------------------------------------------------------------
// How many terms of a product may meet in a float32 sum; at least 1, at most `terms`.
static int exact_terms(qint x, qint w, int terms) {
  if (x.most * w.sum <= EXACT || terms <= 1) return terms;
  double n = floor(EXACT / fmax(x.most * w.most, 1));
  return n >= terms ? terms : n < 1 ? 1 : (int)n;
}

mx qint_matmul(op *o, qint x, qint w) {
  if (!mx_ok(o->s)) return x.x;
  int k = mx_dim(x.x, -1), y_axis = mx_ndim(w.x) == 1 ? 0 : mx_ndim(w.x) - 2;
  if (!mx_ndim(x.x) || !mx_ndim(w.x) || mx_dim(w.x, y_axis) != k) return op_fail(o, "the operands do not fit");
  int part = exact_terms(x, w, k);
  if (k <= part) return mx_astype(mx_matmul(x.x, w.x), DT_I32);
  mx sum = NULL;
  for (int at = 0; at < k && mx_ok(o->s); at += part) {
    int end = k - at < part ? k : at + part;
    mx p = mx_astype(mx_matmul(mx_slice_axis(x.x, -1, at, end), mx_slice_axis(w.x, y_axis, at, end)), DT_I32);
    sum = sum ? mx_add(sum, p) : p;
  }
  return sum;
}

// MLX's convolution with kernels of 3 x 3 over many channels may transform its operands, which rounds: only a number of
// outputs that is no multiple of 32 keeps it from that on a GPU.
static mx convolved(mx x, mx w, const spatial *s, int groups) {
  int m = mx_dim(w, 0);
  if (mx_device_of(mx_scope_of(x)) != MX_GPU || groups > 1 || s->n != 2 || m % 32) return conv_plain(x, w, s, groups);
  mx more = mx_pad(w, MXI(0), MXI(0), MXI(1), mx_scalar(w, 0), "constant");
  return mx_slice_axis(conv_plain(x, more, s, 1), -1, 0, m);
}

// One group, in parts of its channels. A window that is too large for one channel takes the input in two halves.
static mx conv_group(op *o, qint x, qint w, const spatial *s) {
  int taps = 1, channels = mx_dim(w.x, -1);
  for (int i = 0; i < s->n; i++) taps *= s->kernel[i];
  int terms = exact_terms(x, w, taps * channels), part = terms / taps;
  if (terms >= taps * channels) return mx_astype(convolved(x.x, w.x, s, 1), DT_I32);
  if (part < 1 && x.most <= 16) return op_fail(o, "a window of %d elements", taps);
  if (part < 1) {
    mx high = mx_floor(mx_mul(x.x, mx_scalar(x.x, 0.0625)));
    mx low = mx_sub(x.x, mx_mul(high, mx_scalar(x.x, 16)));
    mx a = conv_group(o, (qint){high, 16, x.sum}, w, s), b = conv_group(o, (qint){low, 16, x.sum}, w, s);
    return mx_add(mx_mul(a, mx_scalar(a, 16)), b);
  }
  mx sum = NULL;
  for (int at = 0; at < channels && mx_ok(o->s); at += part) {
    int end = channels - at < part ? channels : at + part;
    mx p = mx_astype(convolved(mx_slice_axis(x.x, -1, at, end), mx_slice_axis(w.x, -1, at, end), s, 1), DT_I32);
    sum = sum ? mx_add(sum, p) : p;
  }
  return sum;
}

mx qint_conv(op *o, qint x, qint w, const spatial *s, int groups) {
  int64_t terms = mx_dim(w.x, -1);
  for (int i = 0; i < s->n; i++) terms *= s->kernel[i];
  if (terms > 1 << 30) return op_fail(o, "a window of %lld elements", (long long)terms);
  if (groups == 1) return conv_group(o, x, w, s);
  if (exact_terms(x, w, (int)terms) >= terms) return mx_astype(convolved(x.x, w.x, s, groups), DT_I32);
  int c = mx_dim(w.x, -1), m = mx_dim(w.x, 0) / groups;
  mx *parts = mem_alloc((size_t)groups * sizeof *parts);
  if (!parts) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d groups", groups);
  for (int g = 0; g < groups && mx_ok(o->s); g++) {
    qint xg = {mx_slice_axis(x.x, -1, g * c, (g + 1) * c), x.most, x.sum};
    parts[g] = conv_group(o, xg, (qint){mx_slice_axis(w.x, 0, g * m, (g + 1) * m), w.most, w.sum}, s);
  }
  mx all = mx_ok(o->s) ? mx_concatenate(o->s, parts, (size_t)groups, mx_ndim(x.x) - 1) : x.x;
  mem_free(parts);
  return all;
}

// ---- quantising ---------------------------------------------------------------------------------------------------------------
mx qint_saturated(mx y, mx zero, dtype t) {
  y = mx_round(y);
  if (zero) y = mx_add(y, zero);
  return mx_astype(mx_clip(y, mx_scalar(y, t == DT_I8 ? -128 : 0), mx_scalar(y, t == DT_I8 ? 127 : 255)), t);
}

mx qint_dynamic(mx x, mx *scale, mx *zero) {
  mx none = mx_scalar(x, 0), most = mx_scalar(x, 255), lo = none, hi = none;
  if (mx_size(x)) {
    mx_ints axes = all_axes(mx_ndim(x));
    lo = mx_minimum(axes.n ? mx_min(x, axes, false) : x, none);
    hi = mx_maximum(axes.n ? mx_max(x, axes, false) : x, none);
  }
  mx range = mx_sub(hi, lo);
  *scale = mx_where(mx_equal(range, none), mx_scalar(x, 1), mx_div(range, most));
  *zero = mx_round(mx_clip(mx_div(mx_neg(lo), *scale), none, most));
  return mx_clip(mx_add(mx_round(mx_div(x, *scale)), *zero), none, most);
}
