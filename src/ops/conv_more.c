// Relatives of convolutions and pools: with an activation, with channels last, with pads as an input; Col2Im, MaxUnpool.
#include <string.h>

#include "base/mem.h"
#include "ops/conv.h"
#include "ops/pool.h"
#include "ops/index.h"
#include "ops/numeric.h"

// ---- FusedConv, NhwcConv, NhwcFusedConv -----------------------------------------------------------------------------------------
enum { F_X, F_W, F_B, F_Z };
static const char *const fused_attrs[] = {"activation", "activation_params", "auto_pad", "dilations", "group", "kernel_shape",
                                          "pads", "strides", NULL};
static const char *const activations[] = {"", "Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Clip", NULL};

static int activation_of(const node *n) {
  const char *s = attr_s(n, "activation", "");
  int i = 0;
  while (activations[i] && strcmp(s, activations[i])) i++;
  return i;
}

static void fused_claim(claim *c) {
  require_known(c, fused_attrs);
  convolution_claim(c);
  CLAIM_GOES_ON(c);
  int a = activation_of(c->n);
  size_t n = 0, needed = a < 4 ? 0 : a == 4 ? 1 : 2;
  attr_floats(c->n, "activation_params", &n);
  REQUIRE(c, activations[a], "activation '%s'", attr_s(c->n, "activation", ""));
  REQUIRE(c, n >= needed, "%s has %zu parameters", activations[a], n);
}

static mx activated(op *o, mx y) {
  size_t n = 0;
  const float *p = attr_floats(o->n, "activation_params", &n);
  mx zero = mx_scalar(y, 0), one = mx_scalar(y, 1);
  switch (activation_of(o->n)) {
    case 1: return mx_maximum(y, zero);
    case 2: return mx_tanh(y);
    case 3: return mx_sigmoid(y);
    case 4: return mx_where(mx_less(y, zero), num_times(y, (double)p[0]), y);
    case 5: return mx_clip(num_plus(num_times(y, (double)p[0]), (double)p[1]), zero, one);
    case 6: return mx_clip(y, mx_scalar(y, (double)p[0]), mx_scalar(y, (double)p[1]));
    default: return y;
  }
}

static mx with_sum(op *o, mx y) {
  mx z = in(o, F_Z);
  if (!y || !z) return y;
  for (int i = 0; i < mx_ndim(y); i++)
    if (mx_ndim(z) != mx_ndim(y) || mx_dim(z, i) != mx_dim(y, i)) return op_fail(o, "Z does not have the output's shape"), NULL;
  return mx_add(y, z);
}

static void fused_conv(op *o) {
  mx y = conv_product(o, in(o, F_X), in(o, F_B));
  y = y ? with_sum(o, conv_channels_first(y)) : NULL;
  if (y) out(o, 0, activated(o, y));
}

static void nhwc_conv(op *o) {
  if (mx_ndim(in(o, F_X)) < 3) {
    op_fail(o, "X has rank %d", mx_ndim(in(o, F_X)));
    return;
  }
  mx y = with_sum(o, conv_product(o, conv_channels_first(in(o, F_X)), in(o, F_B)));
  if (y) out(o, 0, activated(o, y));
}

// ---- NhwcMaxPool ----------------------------------------------------------------------------------------------------------------
static void nhwc_pool_claim(claim *c) {
  spatial_claim(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, attr_has(c->n, "kernel_shape"), "kernel_shape is missing");
}

static void nhwc_max_pool(op *o) {
  mx x = in(o, 0);
  mx y = mx_ndim(x) < 3 ? op_fail(o, "rank %d", mx_ndim(x)) : pool_max(o, conv_channels_first(x));
  if (y && mx_ok(o->s)) out(o, 0, conv_channels_last(y));
}

// ---- ConvTransposeWithDynamicPads -------------------------------------------------------------------------------------------------
static const char *const dynamic_attrs[] = {"auto_pad", "dilations", "group", "kernel_shape", "output_padding", "strides", NULL};

static void dynamic_claim(claim *c) {
  require_known(c, dynamic_attrs);
  CLAIM_GOES_ON(c);
  REQUIRE(c, has_in(c, F_W), "W is missing");
  spatial_claim(c);
  int64_t g = attr_i(c->n, "group", 1);
  if (g < 1 || g > 1 << 30) claim_decline(c, "group %lld", (long long)g);
}

static void dynamic_transpose(op *o) {
  mx x = in(o, F_X);
  int64_t v[2 * SPATIAL_MAX];
  int pads[2 * SPATIAL_MAX];
  size_t n = 0;
  bool given = in(o, 2) != NULL;
  if (given && !host_ints(o, 2, v, 2 * SPATIAL_MAX, &n)) return;
  if (given && (int)n != 2 * (mx_ndim(x) - 2)) op_fail(o, "%zu pads for X of rank %d", n, mx_ndim(x));
  for (size_t i = 0; i < n; i++) {
    if (v[i] < 0 || v[i] > 1 << 30) op_fail(o, "a pad of %lld", (long long)v[i]);
    pads[i] = (int)v[i];
  }
  if (!mx_ok(o->s)) return;
  mx y = conv_transposed_product(o, x, given ? pads : NULL, in(o, 3));
  if (y) out(o, 0, conv_channels_first(y));
}

// ---- Col2Im -----------------------------------------------------------------------------------------------------------------------
enum { COL_AXES = MX_MAX_RANK - 2, COL_LARGEST = 1 << 30 };

typedef struct columns {
  int n;
  int image[COL_AXES], block[COL_AXES], dilation[COL_AXES], lo[COL_AXES], hi[COL_AXES], stride[COL_AXES], steps[COL_AXES];
  int64_t pixels, taps, places;  // of the image, of a block, of all blocks
} columns;

static void col2im_claim(claim *c) {
  require_known(c, (const char *const[]){"dilations", "pads", "strides", NULL});
}

static bool column_list(op *o, const char *name, int n, int least, int dflt, int *to) {
  size_t count = 0;
  const int64_t *v = attr_ints(o->n, name, &count);
  if (v && count != (size_t)n) return op_fail(o, "%s has %zu entries for %d", name, count, n), false;
  for (int i = 0; i < n; i++) {
    if (v && (v[i] < least || v[i] > 1 << 24)) return op_fail(o, "%s holds %lld", name, (long long)v[i]), false;
    to[i] = v ? (int)v[i] : dflt;
  }
  return true;
}

static bool read_columns(op *o, columns *c) {
  int64_t image[COL_AXES], block[COL_AXES];
  int pads[2 * COL_AXES];
  size_t n = 0, m = 0;
  *c = (columns){.pixels = 1, .taps = 1, .places = 1};
  if (!host_ints(o, 1, image, COL_AXES, &n) || !host_ints(o, 2, block, COL_AXES, &m)) return false;
  if (n != m || n < 1) return op_fail(o, "an image of %zu axes with blocks of %zu", n, m), false;
  c->n = (int)n;
  if (!column_list(o, "dilations", c->n, 1, 1, c->dilation) || !column_list(o, "strides", c->n, 1, 1, c->stride) ||
      !column_list(o, "pads", 2 * c->n, 0, 0, pads))
    return false;
  for (int i = 0; i < c->n; i++) {
    if (image[i] < 1 || image[i] > 1 << 24 || block[i] < 1 || block[i] > 1 << 24)
      return op_fail(o, "an image of %lld with blocks of %lld", (long long)image[i], (long long)block[i]), false;
    c->image[i] = (int)image[i];
    c->block[i] = (int)block[i];
    c->lo[i] = pads[i];
    int64_t room = image[i] + pads[i] + pads[c->n + i] - (c->dilation[i] * (block[i] - 1) + 1);
    if (room < 0) return op_fail(o, "a block is larger than the image"), false;
    c->steps[i] = (int)(room / c->stride[i]) + 1;
    c->pixels *= c->image[i];
    c->taps *= c->block[i];
    c->places *= c->steps[i];
    bool fits = c->pixels <= COL_LARGEST && c->taps <= COL_LARGEST && c->places <= COL_LARGEST;
    if (!fits || c->taps * c->places > COL_LARGEST) return op_fail(o, "the image is too large"), false;
  }
  return true;
}

// The pixel that element `tap` of block `place` lies on; -1 for a pad.
static int64_t pixel_of(const columns *c, int64_t tap, int64_t place) {
  int64_t pixel = 0, scale = 1;
  for (int i = c->n - 1; i >= 0; i--) {
    int64_t at = tap % c->block[i] * c->dilation[i] + place % c->steps[i] * c->stride[i] - c->lo[i];
    if (at < 0 || at >= c->image[i]) return -1;
    pixel += at * scale;
    scale *= c->image[i];
    tap /= c->block[i];
    place /= c->steps[i];
  }
  return pixel;
}

// For each pixel the columns that it sums, int32 [most, pixels]; what is left over names the column of zeros at the end.
static mx sources(op *o, const columns *c, int *most) {
  size_t pixels = (size_t)c->pixels, n = 0;
  int32_t *count = mem_alloc(pixels * sizeof *count + 4), *table = NULL;
  *most = 1;
  for (int64_t k = 0; count && k < c->taps * c->places; k++) {
    int64_t p = pixel_of(c, k / c->places, k % c->places);
    if (p >= 0 && ++count[p] > *most) *most = count[p];
  }
  if (count && size_mul(pixels, (size_t)*most, &n) && n <= COL_LARGEST) table = mem_alloc(n * sizeof *table);
  for (size_t i = 0; table && i < n; i++) table[i] = (int32_t)(c->taps * c->places);
  for (int64_t k = 0; table && k < c->taps * c->places; k++) {
    int64_t p = pixel_of(c, k / c->places, k % c->places);
    if (p >= 0) table[(size_t)--count[p] * pixels + (size_t)p] = (int32_t)k;
  }
  mx result = table ? mx_from(o->s, table, DT_I32, MXI((int)n)) : mx_fail(o->s, ERR_NO_MEMORY, "out of memory for an image");
  mem_free(count);
  mem_free(table);
  return result;
}

static void col2im(op *o) {
  columns c;
  mx x = f32_up(in(o, 0));
  if (!read_columns(o, &c)) return;
  int64_t all = c.taps * c.places;
  if (mx_ndim(x) != 3 || mx_dim(x, 1) % c.taps || mx_dim(x, 2) != c.places) {
    op_fail(o, "columns of rank %d and size %d by %d do not fit %lld by %lld", mx_ndim(x), mx_dim(x, 1), mx_dim(x, 2),
            (long long)c.taps, (long long)c.places);
    return;
  }
  int n = mx_dim(x, 0), channels = (int)(mx_dim(x, 1) / c.taps), most = 0;
  mx_ints shape = {.n = c.n + 2, .v = {n, channels}};
  for (int i = 0; i < c.n; i++) shape.v[i + 2] = c.image[i];
  if (!mx_size(x)) {
    out(o, 0, mx_full(o->s, shape, 0, mx_dtype(x)));
    return;
  }
  mx table = sources(o, &c, &most), flat = mx_reshape(x, MXI(n * channels, (int)all));
  mx both[2] = {flat, mx_full(o->s, MXI(n * channels, 1), 0, mx_dtype(x))};
  mx taken = mx_take(mx_concatenate(o->s, both, 2, 1), table, 1);
  out(o, 0, mx_reshape(mx_sum(mx_reshape(taken, MXI(n * channels, most, (int)c.pixels)), MXI(1), false), shape));
}

// ---- MaxUnpool ----------------------------------------------------------------------------------------------------------------------
static void unpool_claim(claim *c) {
  require_known(c, (const char *const[]){"kernel_shape", "pads", "strides", NULL});
  spatial_claim(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, attr_has(c->n, "kernel_shape"), "kernel_shape is missing");
}

// The wanted shape, of which the unpooled values fill the beginning of each axis.
static bool unpool_shape(op *o, mx_ints inferred, mx_ints *shape) {
  int64_t v[MX_MAX_RANK];
  size_t n = 0;
  *shape = inferred;
  if (!in(o, 2)) return true;
  if (!host_ints(o, 2, v, MX_MAX_RANK, &n) || !dims_ints(o, v, n, shape)) return false;
  bool fits = shape->n == inferred.n;
  for (int i = 0; fits && i < shape->n; i++) fits = shape->v[i] >= inferred.v[i];
  if (!fits) op_fail(o, "output_shape is smaller than what is unpooled");
  return fits;
}

static void max_unpool(op *o) {
  mx x = in(o, 0);
  spatial w;
  mx_ints inferred = mx_shape(x), shape, none = {0}, lo = {0}, hi = {0};
  if (!spatial_read(o, x, NULL, &w)) return;
  for (int i = 0; i < w.n; i++) {
    int64_t size = ((int64_t)w.size[i] - 1) * w.stride[i] - w.lo[i] - w.hi[i] + w.kernel[i];
    if (size < 0 || !fits_int(o, size, &inferred.v[i + 2])) {
      op_fail(o, "axis %d would have %lld elements", i + 2, (long long)size);
      return;
    }
  }
  int total = 0, count = (int)mx_size(x);
  if (mx_size(in(o, 1)) != mx_size(x)) op_fail(o, "%zu indices for %zu values", mx_size(in(o, 1)), mx_size(x));
  if (!mx_ok(o->s) || !unpool_shape(o, inferred, &shape) || !fits_int(o, dims_span(inferred, 0, inferred.n), &total)) return;
  mx y = mx_full(o->s, MXI(total), 0, mx_dtype(x));
  if (count && total) {
    mx at = mx_reshape(index_checked(o, 1, &total, 1), MXI(count));
    y = mx_put_along_axis(y, at, mx_reshape(x, MXI(count)), 0);
  } else if (count) {
    op_fail(o, "there is no place for %d values", count);
  }
  y = mx_reshape(y, inferred);
  for (int i = 0; i < shape.n; i++) {
    lo.v[lo.n++] = 0;
    hi.v[hi.n++] = shape.v[i] - inferred.v[i];
  }
  none = all_axes(shape.n);
  out(o, 0, in(o, 2) ? mx_pad(y, none, lo, hi, mx_scalar(y, 0), "constant") : y);
}

#define MS "com.microsoft"
#define PREPARED .prepare = conv_prepare, .unprepare = conv_unprepare, .prepared_in = IN(F_W)
const op_row ops_conv_more[] = {
    OP(MS, "FusedConv", 1, ANY, fused_claim, fused_conv, .types = DTS_FLOAT, PREPARED,
       .limits = "1 to 3 spatial axes; no negative pads; activation is Relu, Tanh, Sigmoid, LeakyRelu, HardSigmoid or Clip"),
    OP(MS, "NhwcConv", 1, ANY, fused_claim, nhwc_conv, .types = DTS_FLOAT, PREPARED,
       .limits = "1 to 3 spatial axes; no negative pads; activation is Relu, Tanh, Sigmoid, LeakyRelu, HardSigmoid or Clip"),
    OP(MS, "NhwcFusedConv", 1, ANY, fused_claim, nhwc_conv, .types = DTS_FLOAT, PREPARED,
       .limits = "1 to 3 spatial axes; no negative pads; activation is Relu, Tanh, Sigmoid, LeakyRelu, HardSigmoid or Clip"),
    OP(MS, "NhwcMaxPool", 1, ANY, nhwc_pool_claim, nhwc_max_pool, .types = DTS_FLOAT64 | DTS_INT,
       .limits = "1 to 3 spatial axes; no negative pads"),
    OP(MS, "ConvTransposeWithDynamicPads", 1, ANY, dynamic_claim, dynamic_transpose, .types = DTS_FLOAT,
       .host_in = IN(2), .prepare = transposed_prepare, .unprepare = conv_unprepare, .prepared_in = IN(F_W),
       .limits = "1 to 3 spatial axes; no negative pads"),
    OP("", "Col2Im", 18, ANY, col2im_claim, col2im, .types = DTS_FLOAT64, .host_in = IN(1) | IN(2)),
    OP("", "MaxUnpool", 9, ANY, unpool_claim, max_unpool, .types = DTS_FLOAT64, .host_in = IN(1) | IN(2),
       .traits = OP_NO_TRACE, .limits = "1 to 3 spatial axes; no negative pads"),
    {0}};
