// DeformConv: each tap of each window is taken at a place of its own; then a product as of any convolution.
#include "ops/index.h"
#include "ops/numeric.h"
#include "ops/spatial.h"
#include "ops/taps.h"

enum { X, W, OFFSET, B, MASK };

static void deform_claim(claim *c) {
  static const char *const known[] = {"dilations", "group", "kernel_shape", "offset_group", "pads", "strides", NULL};
  require_known(c, known);
  spatial_claim(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, in_rank(c, X) < 0 || in_rank(c, X) == 4, "rank %d", in_rank(c, X));
  int64_t g = attr_i(c->n, "group", 1), og = attr_i(c->n, "offset_group", 1);
  REQUIRE(c, g > 0 && g < 1 << 24 && og > 0 && og < 1 << 24, "group %lld, offset_group %lld", (long long)g, (long long)og);
}

typedef struct deform {
  spatial s;
  int n, channels, maps, group, offset_group, taps, places;
  dtype type;
} deform;

static bool has_shape(mx x, int a, int b, int c, int d) {
  return mx_ndim(x) == 4 && mx_dim(x, 0) == a && mx_dim(x, 1) == b && mx_dim(x, 2) == c && mx_dim(x, 3) == d;
}

static bool read_deform(op *o, deform *d) {
  mx x = in(o, X), w = in(o, W);
  int64_t g = attr_i(o->n, "group", 1), og = attr_i(o->n, "offset_group", 1);
  if (mx_ndim(x) != 4 || mx_ndim(w) != 4) return op_fail(o, "X has rank %d, W %d", mx_ndim(x), mx_ndim(w)), false;
  *d = (deform){.n = mx_dim(x, 0), .channels = mx_dim(x, 1), .maps = mx_dim(w, 0), .group = (int)g, .offset_group = (int)og};
  if (mx_dim(w, 1) * g != d->channels || d->maps % g || d->channels % og)
    return op_fail(o, "%d channels and %d maps in %lld groups", d->channels, d->maps, (long long)g), false;
  int kernel[2] = {mx_dim(w, 2), mx_dim(w, 3)};
  if (!spatial_read(o, x, kernel, &d->s) || !spatial_windows(o, &d->s)) return false;
  int64_t per = (int64_t)kernel[0] * kernel[1], places = (int64_t)d->s.out[0] * d->s.out[1];
  if (!fits_int(o, per * d->offset_group * 2, &d->taps) || !fits_int(o, per * places, &d->places)) return false;
  d->taps = (int)per;
  d->places = (int)places;
  bool fits = has_shape(in(o, OFFSET), d->n, d->taps * d->offset_group * 2, d->s.out[0], d->s.out[1]) &&
              (!in(o, MASK) || has_shape(in(o, MASK), d->n, d->taps * d->offset_group, d->s.out[0], d->s.out[1]));
  if (!fits) op_fail(o, "offset or mask does not fit an output of %d by %d", d->s.out[0], d->s.out[1]);
  d->type = mx_dtype(x) == DT_F64 ? DT_F64 : DT_F32;
  return fits;
}

// Where taps lie without an offset, along one axis: [1, taps * places].
static mx regular(op *o, const deform *d, int axis) {
  const spatial *s = &d->s;
  mx tap = num_plus(num_times(mx_arange(o->s, 0, s->kernel[axis], 1, d->type), s->dilation[axis]), -s->lo[axis]);
  mx step = num_times(mx_arange(o->s, 0, s->out[axis], 1, d->type), s->stride[axis]);
  mx_ints all = {4, {s->kernel[0], s->kernel[1], s->out[0], s->out[1]}}, a = {4, {1, 1, 1, 1}}, b = a;
  a.v[axis] = s->kernel[axis];
  b.v[axis + 2] = s->out[axis];
  return mx_reshape(mx_broadcast_to(mx_add(mx_reshape(tap, a), mx_reshape(step, b)), all), MXI(1, d->taps * d->places));
}

// The taken elements: [N, group, channels of a group * taps, places].
static mx taken(op *o, const deform *d) {
  int images = d->n * d->offset_group, part = d->channels / d->offset_group, all = d->taps * d->places;
  mx x = mx_astype(in(o, X), d->type), offset = mx_astype(in(o, OFFSET), d->type), at[2];
  taps t = {.n = 2, .size = {d->s.size[0], d->s.size[1]}, .padding = TAPS_ZEROS};
  t.rows = taps_rows(o, mx_reshape(x, MXI(images, part, t.size[0], t.size[1])));
  t.base = taps_base(o, images, t.size[0] * t.size[1]);
  offset = mx_reshape(offset, MXI(images, d->taps, 2, d->places));
  for (int a = 0; a < 2; a++)
    at[a] = mx_add(mx_reshape(mx_slice_axis(offset, 2, a, a + 1), MXI(images, all)), regular(o, d, a));
  mx v = taps_linear(&t, at, mx_add);
  if (in(o, MASK)) v = mx_mul(v, mx_reshape(mx_astype(in(o, MASK), d->type), MXI(images, all, 1)));
  v = mx_transpose(mx_reshape(v, MXI(images, d->taps, d->places, part)), MXI(0, 3, 1, 2));
  return mx_reshape(v, MXI(d->n, d->group, d->channels / d->group * d->taps, d->places));
}

static void deform_conv(op *o) {
  deform d;
  if (!read_deform(o, &d)) return;
  mx_ints shape = {4, {d.n, d.maps, d.s.out[0], d.s.out[1]}};
  mx y;
  if (!mx_size(in(o, X)) || !mx_size(in(o, W)) || !d.places) {
    y = mx_full(o->s, shape, 0, d.type);
  } else {
    mx w = mx_reshape(mx_astype(in(o, W), d.type), MXI(1, d.group, d.maps / d.group, d.channels / d.group * d.taps));
    y = mx_reshape(mx_matmul(w, taken(o, &d)), shape);
  }
  if (in(o, B)) y = mx_add(y, mx_reshape(mx_astype(in(o, B), d.type), MXI(1, d.maps, 1, 1)));
  out(o, 0, y);
}

const op_row ops_deform[] = {
    OP("", "DeformConv", 19, ANY, deform_claim, deform_conv, .types = DTS_FLOAT64,
       .limits = "2 spatial axes; no negative pads"),
    {0}};
