// Pools and crops of regions. Sampling places are computed on the device, except where their number depends on them.
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/index.h"
#include "ops/numeric.h"
#include "ops/taps.h"

enum { LARGE = 1 << 24 };  // elements of one intermediate value: more regions are taken part by part

static bool is_one_of(const char *s, const char *a, const char *b) { return !strcmp(s, a) || !strcmp(s, b); }

static void image_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) == 4, "rank %d", in_rank(c, 0));
}

// What all of them share: X [N, C, H, W], regions [R, width], the pooled size.
typedef struct regions {
  taps t;
  int n, channels, height, width;  // height, width: of the output
  mx roi, batch;                   // [R, 4] (or 5) in float; int32 [R, 1]
} regions;

static bool regions_read(op *o, regions *r, int columns, int64_t height, int64_t width) {
  mx x = in(o, 0), roi = in(o, 1);
  bool wide = mx_dtype(x) == DT_F64;
  if (mx_ndim(x) != 4 || mx_ndim(roi) != 2 || mx_dim(roi, 1) != columns)
    return op_fail(o, "X of rank %d with regions of rank %d and width %d", mx_ndim(x), mx_ndim(roi), mx_dim(roi, -1)), false;
  if (height < 1 || width < 1 || height > 1 << 15 || width > 1 << 15)
    return op_fail(o, "an output of %lld by %lld", (long long)height, (long long)width), false;
  *r = (regions){.t = {.n = 2, .size = {mx_dim(x, 2), mx_dim(x, 3)}, .padding = TAPS_ZEROS}, .n = mx_dim(roi, 0),
                 .channels = mx_dim(x, 1), .height = (int)height, .width = (int)width};
  r->roi = mx_astype(roi, wide ? DT_F64 : DT_F32);
  if (!r->n || !r->channels) {
    out(o, 0, mx_full(o->s, MXI(r->n, r->channels, r->height, r->width), 0, mx_dtype(x)));
    return false;
  }
  if (!mx_size(x)) return op_fail(o, "X has no elements"), false;
  r->t.rows = taps_rows(o, mx_astype(x, wide ? DT_F64 : DT_F32));
  return mx_ok(o->s);
}

// The image of each region, from input i, as its first row.
static bool read_batch(op *o, regions *r, size_t i) {
  int images = mx_dim(in(o, 0), 0);
  if (mx_size(in(o, i)) != (size_t)r->n) return op_fail(o, "%zu batch indices for %d regions", mx_size(in(o, i)), r->n), false;
  mx b = mx_astype(index_checked(o, i, &images, 1), DT_I32), zero = mx_scalar_i64(o->s, 0, DT_I32);
  b = mx_where(mx_less(b, zero), mx_add(b, mx_scalar_i64(o->s, images, DT_I32)), b);
  r->batch = mx_reshape(mx_mul(b, mx_scalar_i64(o->s, (int64_t)r->t.size[0] * r->t.size[1], DT_I32)), MXI(r->n, 1));
  return mx_ok(o->s);
}

static mx column(const regions *r, int i) { return mx_slice_axis(r->roi, 1, i, i + 1); }  // [R, 1]

static regions some_of(const regions *r, int from, int to) {
  regions p = *r;
  p.n = to - from;
  p.roi = mx_slice_axis(r->roi, 0, from, to);
  p.batch = mx_slice_axis(r->batch, 0, from, to);
  p.t.base = p.batch;
  return p;
}

// Places along both axes, y [R, a] and x [R, b], as pairs: each [R, a * b].
static void pairs(mx y, mx x, mx at[2]) {
  int n = mx_dim(y, 0), a = mx_dim(y, 1), b = mx_dim(x, 1);
  at[0] = mx_reshape(mx_broadcast_to(mx_reshape(y, MXI(n, a, 1)), MXI(n, a, b)), MXI(n, a * b));
  at[1] = mx_reshape(mx_broadcast_to(mx_reshape(x, MXI(n, 1, b)), MXI(n, a, b)), MXI(n, a * b));
}

static mx within(mx at, double lo, double hi) {
  return mx_logical_and(mx_greater_equal(at, mx_scalar(at, lo)), mx_less_equal(at, mx_scalar(at, hi)));
}

static void out_parts(op *o, mx *part, size_t n) { out(o, 0, n == 1 ? part[0] : mx_concatenate(o->s, part, n, 0)); }

// ---- RoiAlign -----------------------------------------------------------------------------------------------------------------
static const char *const align_attrs[] = {"coordinate_transformation_mode", "mode", "output_height", "output_width",
                                          "sampling_ratio", "spatial_scale", NULL};

static bool is_half_pixel(const node *n) {
  const char *dflt = n->since < 16 ? "output_half_pixel" : "half_pixel";
  return !strcmp(attr_s(n, "coordinate_transformation_mode", dflt), "half_pixel");
}

static void align_claim(claim *c) {
  require_known(c, align_attrs);
  image_claim(c);
  const char *mode = attr_s(c->n, "mode", "avg"), *where = attr_s(c->n, "coordinate_transformation_mode", "half_pixel");
  REQUIRE(c, is_one_of(mode, "avg", "max"), "mode '%s'", mode);
  REQUIRE(c, is_one_of(where, "half_pixel", "output_half_pixel"), "coordinate_transformation_mode '%s'", where);
  REQUIRE(c, attr_i(c->n, "sampling_ratio", 0) >= 0 && attr_i(c->n, "sampling_ratio", 0) < 1 << 15, "sampling_ratio %lld",
          (long long)attr_i(c->n, "sampling_ratio", 0));
}

// Places along one axis: [R, bins * grid].
static mx align_places(op *o, const regions *r, int axis, int bins, int grid) {
  double scale = (double)attr_f(o->n, "spatial_scale", 1), half = is_half_pixel(o->n) ? 0.5 : 0;
  mx from = num_plus(num_times(column(r, 1 - axis), scale), -half);
  mx to = num_plus(num_times(column(r, 3 - axis), scale), -half), extent = mx_sub(to, from);
  if (!is_half_pixel(o->n)) extent = mx_maximum(extent, mx_scalar(extent, 1));
  dtype t = mx_dtype(from);
  mx bin = mx_reshape(num_times(extent, 1.0 / bins), MXI(r->n, 1, 1));
  mx step = mx_reshape(mx_arange(o->s, 0, bins, 1, t), MXI(1, bins, 1));
  mx part = mx_reshape(num_times(num_plus(mx_arange(o->s, 0, grid, 1, t), 0.5), 1.0 / grid), MXI(1, 1, grid));
  mx at = mx_add(mx_reshape(from, MXI(r->n, 1, 1)), mx_add(mx_mul(step, bin), mx_mul(part, bin)));
  return mx_reshape(at, MXI(r->n, bins * grid));
}

// Regions with one sampling grid of grid[0] by grid[1] in each bin: [R, C, height, width].
static mx align(op *o, const regions *r, const int grid[2]) {
  bool max = !strcmp(attr_s(o->n, "mode", "avg"), "max");
  mx at[2], inside = NULL;
  pairs(align_places(o, r, 0, r->height, grid[0]), align_places(o, r, 1, r->width, grid[1]), at);
  for (int d = 0; d < 2; d++) {
    mx ok = within(at[d], -1, r->t.size[d]);
    inside = inside ? mx_logical_and(inside, ok) : ok;
    at[d] = mx_clip(at[d], mx_scalar(at[d], 0), mx_scalar(at[d], r->t.size[d] - 1));
  }
  mx v = taps_linear(&r->t, at, max ? mx_maximum : mx_add);
  v = mx_where(mx_expand_dims(inside, MXI(-1)), v, mx_scalar(v, 0));
  v = mx_reshape(v, (mx_ints){6, {r->n, r->height, grid[0], r->width, grid[1], r->channels}});
  v = max ? mx_max(v, MXI(2, 4), false) : mx_mean(v, MXI(2, 4), false);
  return mx_transpose(v, MXI(0, 3, 1, 2));
}

static int grid_of(const regions *r, op *o, double from, double to, int bins) {
  double scale = (double)attr_f(o->n, "spatial_scale", 1), extent = (double)((float)(to * scale) - (float)(from * scale));
  if (!is_half_pixel(o->n) && extent < 1) extent = 1;
  double n = ceil((double)((float)extent / (float)bins));
  if (!(n < (double)LARGE / r->height / r->width)) op_fail(o, "a region of %g elements", extent);
  return n > 0 && mx_ok(o->s) ? (int)n : 0;
}

// As many samples as a bin has elements: each region has a grid of its own.
static void align_adaptive(op *o, const regions *r) {
  const float *roi = mx_read(mx_astype(r->roi, DT_F32));
  mx *part = roi ? mem_alloc((size_t)r->n * sizeof *part) : NULL;
  if (roi && !part) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d regions", r->n);
  for (int i = 0; part && mx_ok(o->s) && i < r->n; i++, roi += 4) {
    regions one = some_of(r, i, i + 1);
    int grid[2] = {grid_of(r, o, (double)roi[1], (double)roi[3], r->height), grid_of(r, o, (double)roi[0], (double)roi[2], r->width)};
    if ((double)grid[0] * grid[1] * r->height * r->width > 8.0 * LARGE) op_fail(o, "a region of %d by %d samples", grid[0], grid[1]);
    bool none = grid[0] == 0 || grid[1] == 0;
    part[i] = none ? mx_full(o->s, MXI(1, r->channels, r->height, r->width), 0, mx_dtype(r->roi)) : align(o, &one, grid);
  }
  if (part && mx_ok(o->s)) out_parts(o, part, (size_t)r->n);
  mem_free(part);
}

static void in_parts(op *o, const regions *r, int64_t each, mx (*make)(op *, const regions *)) {
  int64_t step = each > 0 && each < LARGE ? LARGE / each : 1;
  size_t n = 0;
  mx *part = mem_alloc(((size_t)r->n / (size_t)step + 1) * sizeof *part);
  if (!part) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d regions", r->n);
  for (int64_t i = 0; part && mx_ok(o->s) && i < r->n; i += step) {
    regions p = some_of(r, (int)i, (int)(i + step < r->n ? i + step : r->n));
    part[n++] = make(o, &p);
  }
  if (part && mx_ok(o->s)) out_parts(o, part, n);
  mem_free(part);
}

static mx align_part(op *o, const regions *r) {
  int ratio = (int)attr_i(o->n, "sampling_ratio", 0);
  return align(o, r, (int[]){ratio, ratio});
}

static void roi_align(op *o) {
  regions r;
  int64_t ratio = attr_i(o->n, "sampling_ratio", 0);
  if (!regions_read(o, &r, 4, attr_i(o->n, "output_height", 1), attr_i(o->n, "output_width", 1)) || !read_batch(o, &r, 2)) return;
  int64_t each = (int64_t)r.height * r.width * ratio * ratio;
  if (each > 8LL * LARGE) op_fail(o, "%lld samples for each region", (long long)each);
  if (!mx_ok(o->s)) return;
  if (ratio) {
    in_parts(o, &r, each * r.channels, align_part);
  } else {
    align_adaptive(o, &r);
  }
}

// ---- CropAndResize ------------------------------------------------------------------------------------------------------------
static void crop_claim(claim *c) {
  require_known(c, (const char *const[]){"extrapolation_value", "mode", NULL});
  image_claim(c);
  REQUIRE(c, is_one_of(attr_s(c->n, "mode", "bilinear"), "bilinear", "nearest"), "mode '%s'", attr_s(c->n, "mode", ""));
}

static mx crop_places(op *o, const regions *r, int axis, int n) {
  double last = r->t.size[axis] - 1;
  mx from = num_times(column(r, axis), last), to = num_times(column(r, axis + 2), last);
  if (n == 1) return num_times(mx_add(from, to), 0.5);
  mx i = mx_reshape(mx_arange(o->s, 0, n, 1, mx_dtype(from)), MXI(1, n));
  mx at = mx_add(from, mx_mul(i, num_times(mx_sub(to, from), 1.0 / (n - 1))));
  return mx_where(mx_equal(i, mx_scalar(i, n - 1)), to, at);  // exactly: the end may be the image's
}

static mx crop(op *o, const regions *r) {
  mx at[2];
  pairs(crop_places(o, r, 0, r->height), crop_places(o, r, 1, r->width), at);
  mx inside = mx_logical_and(within(at[0], 0, r->t.size[0] - 1), within(at[1], 0, r->t.size[1] - 1)), v;
  if (!strcmp(attr_s(o->n, "mode", "bilinear"), "nearest")) {
    mx whole[2] = {mx_floor(num_plus(at[0], 0.5)), mx_floor(num_plus(at[1], 0.5))};
    v = taps_at(&r->t, whole);
  } else {
    v = taps_linear(&r->t, at, mx_add);
  }
  v = mx_where(mx_expand_dims(inside, MXI(-1)), v, mx_scalar(v, (double)attr_f(o->n, "extrapolation_value", 0)));
  return mx_transpose(mx_reshape(v, MXI(r->n, r->height, r->width, r->channels)), MXI(0, 3, 1, 2));
}

static void crop_and_resize(op *o) {
  regions r;
  int64_t size[2] = {0, 0};
  size_t n = 0;
  if (!host_ints(o, 3, size, 2, &n) || !regions_read(o, &r, 4, size[0], size[1]) || !read_batch(o, &r, 2)) return;
  in_parts(o, &r, (int64_t)r.height * r.width * r.channels, crop);
}

// ---- MaxRoiPool ---------------------------------------------------------------------------------------------------------------
static void pool_claim(claim *c) {
  require_known(c, (const char *const[]){"pooled_shape", "spatial_scale", NULL});
  image_claim(c);
  size_t n = 0;
  const int64_t *v = attr_ints(c->n, "pooled_shape", &n);
  REQUIRE(c, v && n == 2 && v[0] > 0 && v[1] > 0 && v[0] < 1 << 15 && v[1] < 1 << 15, "pooled_shape");
}

// First element and end of each bin of a region along an axis; returns the most elements of a bin (at least 1).
static int bins_of(double from, double to, int bins, int size, int (*edge)[2]) {
  int most = 1;
  double extent = to - from + 1 > 1 ? to - from + 1 : 1, bin = (double)((float)extent / (float)bins);
  for (int i = 0; i < bins; i++) {
    double a = floor((double)(float)(i * bin)) + from, b = ceil((double)(float)((i + 1) * bin)) + from;
    edge[i][0] = (int)(a < 0 ? 0 : a > size ? size : a);
    edge[i][1] = (int)(b < 0 ? 0 : b > size ? size : b);
    if (edge[i][1] - edge[i][0] > most) most = edge[i][1] - edge[i][0];
  }
  return most;
}

// One region: elements of its bins by place, repeated to the largest bin's number; empty bins give 0.
static mx pooled(op *o, const regions *r, const double v[5], int (*h)[2], int (*w)[2]) {
  double scale = (double)attr_f(o->n, "spatial_scale", 1);
  int images = mx_dim(in(o, 0), 0), image = v[0] >= 0 && v[0] < images ? (int)v[0] : -1;
  for (int i = 1; i < 5; i++)
    if (!(fabs(v[i] * scale) < 1e9)) return op_fail(o, "a region from %g", v[i]);
  if (image < 0) return op_fail(o, "batch index %g is out of range for %d images", v[0], images);
  int a = bins_of(round(v[2] * scale), round(v[4] * scale), r->height, r->t.size[0], h);
  int b = bins_of(round(v[1] * scale), round(v[3] * scale), r->width, r->t.size[1], w);
  size_t n = 0, at = 0, bytes = 0;
  bool fits = size_mul((size_t)(r->height * a), (size_t)(r->width * b), &n) && n < 8u * LARGE && size_mul(n, 4, &bytes);
  int32_t *place = fits ? mem_alloc(bytes + 4) : NULL;
  uint8_t *full = mem_alloc((size_t)(r->height * r->width) + 1);
  for (int i = 0; place && full && i < r->height * a; i++)
    for (int j = 0; j < r->width * b; j++) {
      const int *y = h[i / a], *x = w[j / b];
      bool some = y[1] > y[0] && x[1] > x[0];
      int yy = some ? y[0] + i % a % (y[1] - y[0]) : 0, xx = some ? x[0] + j % b % (x[1] - x[0]) : 0;
      place[at++] = (image * r->t.size[0] + yy) * r->t.size[1] + xx;
      full[i / a * r->width + j / b] = some;
    }
  mx result = NULL;
  if (!place || !full) {
    result = mx_fail(o->s, ERR_NO_MEMORY, "out of memory for a region");
  } else {
    mx all = mx_take(r->t.rows, mx_from(o->s, place, DT_I32, MXI(r->height, a, r->width, b)), 0);
    mx best = mx_max(all, MXI(1, 3), false), some = mx_from(o->s, full, DT_BOOL, MXI(r->height, r->width, 1));
    result = mx_transpose(mx_where(some, best, mx_scalar(best, 0)), MXI(2, 0, 1));
  }
  mem_free(place);
  mem_free(full);
  return result;
}

static void max_roi_pool(op *o) {
  regions r;
  size_t n = 0;
  const int64_t *size = attr_ints(o->n, "pooled_shape", &n);
  if (!regions_read(o, &r, 5, size[0], size[1])) return;
  const float *roi = mx_read(mx_astype(r.roi, DT_F32));
  mx *part = mem_alloc((size_t)r.n * sizeof *part);
  int(*edges)[2] = mem_alloc((size_t)(r.height + r.width) * sizeof *edges);
  if (!part || !edges) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d regions", r.n);
  for (int i = 0; mx_ok(o->s) && i < r.n; i++, roi += 5) {
    double v[5];
    for (int k = 0; k < 5; k++) v[k] = (double)roi[k];
    part[i] = pooled(o, &r, v, edges, edges + r.height);
  }
  if (mx_ok(o->s)) out(o, 0, mx_stack(o->s, part, (size_t)r.n, 0));
  mem_free(part);
  mem_free(edges);
}

const op_row ops_roi[] = {
    OP("", "RoiAlign", 10, ANY, align_claim, roi_align, .types = DTS_FLOAT64, .typed_in = IN(0) | IN(1),
       .host_in = IN(1) | IN(2), .traits = OP_NO_TRACE, .limits = "images of rank 4; mode is avg or max"),
    OP("", "MaxRoiPool", 1, ANY, pool_claim, max_roi_pool, .types = DTS_FLOAT64, .typed_in = IN(0) | IN(1),
       .host_in = IN(1), .traits = OP_NO_TRACE, .limits = "images of rank 4"),
    OP("com.microsoft", "CropAndResize", 1, ANY, crop_claim, crop_and_resize, .types = DTS_FLOAT64,
       .typed_in = IN(0) | IN(1), .host_in = IN(2) | IN(3), .traits = OP_NO_TRACE,
       .limits = "images of rank 4; mode is bilinear or nearest"),
    {0}};
