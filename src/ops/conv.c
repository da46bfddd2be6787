// Conv and ConvTranspose. ONNX has channels first, MLX last: axes move around each call, a constant weight once.
#include "ops/conv.h"

enum { C_X, C_W, C_B };
static const char *const conv_attrs[] = {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", NULL};
static const char *const transpose_attrs[] = {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides",
                                              "output_padding", "output_shape", NULL};

static int64_t groups_of(const node *n) { return attr_i(n, "group", 1); }

void convolution_claim(claim *c) {
  spatial_claim(c);
  CLAIM_GOES_ON(c);
  int rank = in_rank(c, C_X);
  REQUIRE(c, groups_of(c->n) >= 1 && groups_of(c->n) <= 1 << 30, "group %lld", (long long)groups_of(c->n));
  REQUIRE(c, rank < 0 || in_rank(c, C_W) < 0 || in_rank(c, C_W) == rank, "W has rank %d, X %d", in_rank(c, C_W), rank);
}

static void conv_claim(claim *c) {
  require_known(c, conv_attrs);
  convolution_claim(c);
}

static void transpose_claim(claim *c) {
  require_known(c, transpose_attrs);
  convolution_claim(c);
}

// ---- layouts ------------------------------------------------------------------------------------------------------------
mx conv_channels_last(mx x) {
  mx_ints p = {.n = mx_ndim(x), .v = {0}};
  for (int i = 1; i + 1 < p.n; i++) p.v[i] = i + 1;
  p.v[p.n - 1] = 1;
  return mx_transpose(x, p);
}

mx conv_channels_first(mx x) {
  mx_ints p = {.n = mx_ndim(x), .v = {0, mx_ndim(x) - 1}};
  for (int i = 2; i < p.n; i++) p.v[i] = i - 1;
  return mx_transpose(x, p);
}

// [C, M / groups, spatial..] of a transposed convolution as [M, C / groups, spatial..].
static mx outputs_first(mx w, int groups) {
  mx_ints s = mx_shape(w), split = {.n = s.n + 1, .v = {groups, s.v[0] / groups, s.v[1]}};
  mx_ints perm = {.n = s.n + 1, .v = {0, 2, 1}}, joined = {.n = s.n, .v = {groups * s.v[1], s.v[0] / groups}};
  for (int i = 2; i < s.n; i++) {
    split.v[i + 1] = joined.v[i] = s.v[i];
    perm.v[i + 1] = i + 1;
  }
  return mx_reshape(mx_transpose(mx_reshape(w, split), perm), joined);
}

// A constant weight in MLX's layout; NULL without an error when it is not constant or not fit for it.
static void *held_weight(const node *n, mx_device d, err *e, bool transposed) {
  const tensor *t = n->in[C_W]->constant;
  int64_t groups = groups_of(n);
  if (!t || t->rank < 3 || t->rank > SPATIAL_MAX + 2 || !dtype_in(t->type, DTS_FLOAT)) return NULL;
  mx_ints shape = {.n = t->rank};
  for (int i = 0; i < t->rank; i++) {
    if (t->dims[i] < 1 || t->dims[i] > 1 << 30) return NULL;
    shape.v[i] = (int)t->dims[i];
  }
  if (shape.v[0] % groups || (int64_t)shape.v[1] * groups > 1 << 30) return NULL;
  mx_scope *s = mx_scope_new(d);
  if (!s) return FAIL(e, ERR_NO_MEMORY, "out of memory for a weight"), NULL;
  mx w = mx_from(s, t->data, t->type, shape);
  w = mx_contiguous(conv_channels_last(transposed ? outputs_first(w, (int)groups) : w));
  mx_held *held = mx_eval(s, &w, 1) ? mx_hold(w) : NULL;
  if (!held) *e = *mx_error(s);
  if (!held && err_ok(e)) FAIL(e, ERR_NO_MEMORY, "out of memory for a weight");
  mx_scope_free(s);
  return held;
}

void *conv_prepare(const node *n, mx_device d, err *e) { return held_weight(n, d, e, false); }
void *transposed_prepare(const node *n, mx_device d, err *e) { return held_weight(n, d, e, true); }
void conv_unprepare(void *held) { mx_held_free(held); }

// The weight [M, spatial.., C / groups] and its kernel's sizes; NULL after a failure.
static mx weight(op *o, mx x, bool transposed, int groups, int kernel[SPATIAL_MAX]) {
  int rank = mx_ndim(x), channels = mx_dim(x, 1);
  if (rank < 3 || rank > SPATIAL_MAX + 2) return op_fail(o, "X has rank %d", rank), NULL;
  mx w = o->prepared ? mx_use(o->s, o->prepared) : in(o, C_W);
  if (!o->prepared) {
    bool fits = mx_ndim(w) == rank && mx_dim(w, 0) % groups == 0;
    if (!fits) return op_fail(o, "a weight of rank %d for X of rank %d in %d groups", mx_ndim(w), rank, groups), NULL;
    w = conv_channels_last(transposed ? outputs_first(w, groups) : w);
  }
  if (mx_ndim(w) != rank || (int64_t)mx_dim(w, -1) * groups != channels || mx_dim(w, 0) % groups)
    return op_fail(o, "the weight takes %d channels in each of %d groups, X has %d", mx_dim(w, -1), groups, channels), NULL;
  for (int i = 0; i + 2 < rank; i++) kernel[i] = mx_dim(w, i + 1);
  return mx_ok(o->s) ? w : NULL;
}

// ---- the product ----------------------------------------------------------------------------------------------------------
static mx_ints listed(int n, const int *v) {
  mx_ints l = {.n = n};
  for (int i = 0; i < n; i++) l.v[i] = v[i];
  return l;
}

// MLX has groups for one and two axes only; otherwise each group is a convolution of its own.
static mx convolve(mx x, mx w, const spatial *s, const mx_ints *steps, const mx_ints *spread, int groups, bool flip) {
  mx_ints lo = listed(s->n, s->lo), hi = listed(s->n, s->hi), dilation = listed(s->n, s->dilation);
  if (groups == 1 || s->n < 3) return mx_conv(x, w, *steps, lo, hi, dilation, *spread, groups, flip);
  int c = mx_dim(w, -1), m = mx_dim(w, 0) / groups;
  mx all = NULL;
  for (int g = 0; g < groups && mx_ok(mx_scope_of(x)); g++) {
    mx part = mx_conv(mx_slice_axis(x, -1, g * c, (g + 1) * c), mx_slice_axis(w, 0, g * m, (g + 1) * m), *steps, lo, hi,
                      dilation, *spread, 1, flip);
    mx both[2] = {all, part};
    all = all ? mx_concatenate(mx_scope_of(x), both, 2, mx_ndim(x) - 1) : part;
  }
  return all;
}

mx conv_plain(mx x, mx w, const spatial *s, int groups) {
  mx_ints steps = listed(s->n, s->stride), spread = {s->n, {1, 1, 1}};
  return convolve(x, w, s, &steps, &spread, groups, false);
}

// Nothing to multiply (no image, no channel, no window): zeros, to which the bias is added.
bool conv_is_empty(op *o, mx x, mx w, const spatial *s, mx *zeros) {
  mx_ints shape = {.n = mx_ndim(x), .v = {mx_dim(x, 0)}};
  for (int i = 0; i < s->n; i++) shape.v[i + 1] = s->out[i];
  shape.v[shape.n - 1] = mx_dim(w, 0);
  bool empty = mx_size(x) == 0 || mx_size(w) == 0;
  for (int i = 0; i < shape.n; i++) empty = empty || shape.v[i] == 0;
  if (empty) *zeros = mx_full(o->s, shape, 0, mx_dtype(x));
  return empty;
}

static mx biased(mx y, mx bias) { return bias ? mx_add(y, bias) : y; }

mx conv_product(op *o, mx x, mx bias) {
  mx y;
  int groups = (int)groups_of(o->n), kernel[SPATIAL_MAX];
  spatial s;
  mx w = weight(o, x, false, groups, kernel);
  if (!w || !spatial_read(o, x, kernel, &s) || !spatial_windows(o, &s)) return NULL;
  if (!conv_is_empty(o, x, w, &s, &y)) y = conv_plain(conv_channels_last(x), w, &s, groups);
  return biased(y, bias);
}

static void conv(op *o) {
  mx y = conv_product(o, in(o, C_X), in(o, C_B));
  if (y) out(o, 0, conv_channels_first(y));
}

// ---- ConvTranspose ----------------------------------------------------------------------------------------------------------
// Sizes and pads of the result: given, of auto_pad, or what output_shape leaves.
static bool transpose_sizes(op *o, spatial *s, int *extra) {
  size_t n_shape = 0, n_extra = 0, n = (size_t)s->n;
  const int64_t *shape = attr_ints(o->n, "output_shape", &n_shape), *more = attr_ints(o->n, "output_padding", &n_extra);
  char pad = spatial_auto_pad(o->n);
  if ((shape && n_shape != n && n_shape != n + 2) || (more && n_extra != n))
    return op_fail(o, "output_shape or output_padding has the wrong length"), false;
  for (int i = 0; i < s->n; i++) {
    extra[i] = more && more[i] >= 0 && more[i] < 1 << 30 ? (int)more[i] : 0;
    int64_t full = (int64_t)s->stride[i] * (s->size[i] - 1) + extra[i] + spatial_reach(s, i);
    int64_t wanted = shape ? shape[n_shape - n + (size_t)i] : (int64_t)s->size[i] * s->stride[i];
    if (!shape && wanted > full) wanted = full;  // as ONNX Runtime has it: auto_pad never adds to the result
    if (wanted - full >= s->stride[i])
      return op_fail(o, "an output of %lld elements from %d, which reach %lld", (long long)wanted, s->size[i], (long long)full), false;
    if (pad == 'V' && !shape) s->lo[i] = s->hi[i] = 0;
    if (shape || pad == 'U' || pad == 'L') {
      int64_t total = full - wanted;
      if (wanted < 0 || total > 1 << 30 || total < -(1 << 30))
        return op_fail(o, "an output of %lld elements from %d", (long long)wanted, s->size[i]), false;
      int64_t lo = total < 0 ? 0 : pad == 'U' ? total / 2 : total - total / 2;
      s->lo[i] = (int)lo;
      s->hi[i] = (int)(total - lo);
    }
    if (!fits_int(o, full - s->lo[i] - s->hi[i], &s->out[i])) return false;
    if (s->out[i] < 0) return op_fail(o, "pads of %d and %d leave nothing", s->lo[i], s->hi[i]), false;
  }
  return true;
}

// A transposed convolution is one over the input spread out by the stride, padded by what the kernel reaches less the
// pads. Pads beyond that reach would be negative there: they are cut from the result instead.
static mx convolve_transposed(mx x, mx w, const spatial *s, const int *extra, int groups) {
  spatial t = *s;
  int cut[SPATIAL_MAX];
  for (int i = 0; i < s->n; i++) {
    int reach = spatial_reach(s, i) - 1;
    int lo = reach - s->lo[i], hi = reach - s->hi[i] + extra[i];
    cut[i] = lo < 0 ? -lo : 0;
    t.lo[i] = lo < 0 ? 0 : lo;
    t.hi[i] = hi < 0 ? 0 : hi;
  }
  mx_ints steps = {s->n, {1, 1, 1}}, spread = listed(s->n, s->stride);
  mx y = convolve(conv_channels_last(x), w, &t, &steps, &spread, groups, true);
  for (int i = 0; i < s->n; i++)
    if (mx_dim(y, i + 1) != s->out[i]) y = mx_slice_axis(y, i + 1, cut[i], cut[i] + s->out[i]);
  return y;
}

mx conv_transposed_product(op *o, mx x, const int *pads, mx bias) {
  mx y;
  int groups = (int)groups_of(o->n), kernel[SPATIAL_MAX], extra[SPATIAL_MAX];
  spatial s;
  mx w = weight(o, x, true, groups, kernel);
  if (!w || !spatial_read(o, x, kernel, &s)) return NULL;
  for (int i = 0; pads && i < s.n; i++) {
    s.lo[i] = pads[i];
    s.hi[i] = pads[s.n + i];
  }
  if (!transpose_sizes(o, &s, extra)) return NULL;
  if (!conv_is_empty(o, x, w, &s, &y)) y = convolve_transposed(x, w, &s, extra, groups);
  return biased(y, bias);
}

static void conv_transpose(op *o) {
  mx y = conv_transposed_product(o, in(o, C_X), NULL, in(o, C_B));
  if (y) out(o, 0, conv_channels_first(y));
}

// MLX sums float64 in float32 here.
const op_row ops_conv[] = {
    OP("", "Conv", 1, ANY, conv_claim, conv, .types = DTS_FLOAT, .prepare = conv_prepare, .unprepare = conv_unprepare,
       .prepared_in = IN(C_W), .limits = "1 to 3 spatial axes; no negative pads"),
    OP("", "ConvTranspose", 1, ANY, transpose_claim, conv_transpose, .types = DTS_FLOAT, .prepare = transposed_prepare,
       .unprepare = conv_unprepare, .prepared_in = IN(C_W), .limits = "1 to 3 spatial axes; no negative pads"),
    {0}};
