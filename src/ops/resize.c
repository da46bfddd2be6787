// Resize and Upsample. Each axis is resampled on its own: an output element is a weighted sum of a few taps, whose
// places and weights the host works out; the device takes the taps and sums them, so that no element outside of them
// (an infinity, a NaN) has any say.
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/index.h"

typedef enum { NEAREST, LINEAR, CUBIC, NO_MODE } resize_mode;
typedef enum { HALF, SYMMETRIC, PYTORCH_HALF, CORNERS, ASYMMETRIC, TF_NEAREST, CROP, NO_COORDINATES } coordinates;
typedef enum { FLOOR_HALF, CEIL_HALF, FLOOR, CEIL, SIMPLE, NO_ROUNDING } rounding;
typedef enum { STRETCH, NOT_LARGER, NOT_SMALLER, NO_POLICY } policy;

typedef struct plan {
  resize_mode mode;
  coordinates coordinates;
  rounding rounding;
  bool antialias, exclude, wide;  // wide: float64 arithmetic, for float64 data
  double cubic;
  mx_ints in, out;
  bool resized[MX_MAX_RANK];  // does the axis change at all?
  double scale[MX_MAX_RANK], from[MX_MAX_RANK], to[MX_MAX_RANK];
  int taps[MX_MAX_RANK];
} plan;

static const char *const resize_attrs[] = {"antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a",
                                           "exclude_outside", "extrapolation_value", "keep_aspect_ratio_policy", "mode",
                                           "nearest_mode", NULL};
static const char *const upsample_attrs[] = {"height_scale", "mode", "scales", "width_scale", NULL};

// ---- attributes -----------------------------------------------------------------------------------------------------------
static int named(const char *s, const char *const *names) {
  int i = 0;
  while (names[i] && strcmp(s, names[i])) i++;
  return i;
}

static bool is_upsample(const node *n) { return !strcmp(n->op_type, "Upsample"); }
static bool is_first_resize(const node *n) { return is_upsample(n) || n->since < 11; }

static resize_mode mode_of(const node *n) {
  const char *s = attr_s(n, "mode", "nearest");
  if (is_upsample(n) && !strcmp(s, "bilinear")) return LINEAR;
  return (resize_mode)named(s, (const char *const[]){"nearest", "linear", "cubic", NULL});
}

static coordinates coordinates_of(const node *n) {
  if (is_first_resize(n)) return ASYMMETRIC;
  static const char *const names[] = {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                                      "tf_half_pixel_for_nn", "tf_crop_and_resize", NULL};
  return (coordinates)named(attr_s(n, "coordinate_transformation_mode", names[0]), names);
}

static rounding rounding_of(const node *n) {
  if (is_first_resize(n)) return SIMPLE;
  static const char *const names[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "", NULL};
  int i = named(attr_s(n, "nearest_mode", names[0]), names);
  return i < SIMPLE ? (rounding)i : NO_ROUNDING;
}

static policy policy_of(const node *n) {
  static const char *const names[] = {"stretch", "not_larger", "not_smaller", NULL};
  return (policy)named(attr_s(n, "keep_aspect_ratio_policy", names[0]), names);
}

enum { SMALL_INTS = DTYPE_BIT(DT_I8) | DTYPE_BIT(DT_U8) | DTYPE_BIT(DT_I16) | DTYPE_BIT(DT_U16) | DTYPE_BIT(DT_I32) };

static void mode_claim(claim *c) {
  resize_mode mode = mode_of(c->n);
  REQUIRE(c, mode != NO_MODE && !(is_first_resize(c->n) && mode == CUBIC), "mode '%s'", attr_s(c->n, "mode", ""));
  if (mode != NEAREST) require_types(c, 0, DTS_FLOAT64 | SMALL_INTS);
  REQUIRE(c, in_rank(c, 0) != 0, "the input is a scalar");
}

static void resize_claim(claim *c) {
  require_known(c, resize_attrs);
  mode_claim(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, coordinates_of(c->n) != NO_COORDINATES, "coordinate_transformation_mode '%s'",
          attr_s(c->n, "coordinate_transformation_mode", ""));
  REQUIRE(c, rounding_of(c->n) != NO_ROUNDING, "nearest_mode '%s'", attr_s(c->n, "nearest_mode", ""));
  REQUIRE(c, policy_of(c->n) != NO_POLICY, "keep_aspect_ratio_policy '%s'", attr_s(c->n, "keep_aspect_ratio_policy", ""));
  bool first = is_first_resize(c->n);
  REQUIRE(c, first ? has_in(c, 1) : has_in(c, 2) || has_in(c, 3), "scales and sizes are missing");
  REQUIRE(c, coordinates_of(c->n) != CROP || has_in(c, 1), "roi is missing");
}

static void upsample_claim(claim *c) {
  require_known(c, upsample_attrs);
  mode_claim(c);
  CLAIM_GOES_ON(c);
  size_t n = 0;
  if (c->n->since < 7) {
    REQUIRE(c, attr_has(c->n, "height_scale") && attr_has(c->n, "width_scale"), "a scale is missing");
  } else if (c->n->since < 9) {
    REQUIRE(c, attr_floats(c->n, "scales", &n), "scales are missing");
  } else {
    REQUIRE(c, has_in(c, 1), "scales are missing");
  }
}

// ---- sizes and scales -----------------------------------------------------------------------------------------------------
// Input i as at most MX_MAX_RANK * 2 numbers.
static bool host_numbers(op *o, size_t i, double *v, size_t *n) {
  tensor t;
  bool known = host_tensor(o, i, &t) && t.type == DT_F32 && dims_count(t.dims, t.rank, n);
  if (!known) *n = mx_size(in(o, i));
  if (*n > 2 * MX_MAX_RANK) return op_fail(o, "input %zu has %zu elements", i, *n), false;
  const float *p = !*n ? NULL : known ? t.data : mx_read(mx_astype(in(o, i), DT_F32));
  if (*n && !p) return false;
  for (size_t k = 0; k < *n; k++) v[k] = (double)p[k];
  return true;
}

// Rounds what a float32 would round, so that ties fall as they do elsewhere.
static double rounded(const plan *p, double v) { return p->wide ? v : (double)(float)v; }

static bool fixed_scales(op *o, double *v, size_t *n) {
  const float *a = attr_floats(o->n, "scales", n);
  if (o->n->since < 7) {
    *n = 4;
    v[0] = v[1] = 1;
    v[2] = (double)attr_f(o->n, "height_scale", 1);
    v[3] = (double)attr_f(o->n, "width_scale", 1);
    return true;
  }
  if (*n > MX_MAX_RANK) return op_fail(o, "%zu scales", *n), false;
  for (size_t i = 0; i < *n; i++) v[i] = (double)a[i];
  return true;
}

static bool by_scales(op *o, plan *p, const mx_ints *axes, const double *v, size_t n) {
  if (n != (size_t)axes->n) return op_fail(o, "%zu scales for %d axes", n, axes->n), false;
  for (int i = 0; i < axes->n; i++) {
    int a = axes->v[i];
    if (!(v[i] > 0 && v[i] < 1e9)) return op_fail(o, "scale %g of axis %d", v[i], a), false;
    p->scale[a] = v[i];
    // The region has no say here, in spite of the formula in ONNX's text: so its shape inference has it.
    double size = floor(rounded(p, p->in.v[a] * v[i]));
    if (!(size >= 0 && size < 2147483648.0)) return op_fail(o, "axis %d would have %g elements", a, size), false;
    p->out.v[a] = (int)size;
  }
  return true;
}

static bool by_sizes(op *o, plan *p, const mx_ints *axes) {
  int64_t v[MX_MAX_RANK];
  size_t n = 0;
  policy keep = policy_of(o->n);
  if (!host_ints(o, 3, v, MX_MAX_RANK, &n)) return false;
  if (n != (size_t)axes->n) return op_fail(o, "%zu sizes for %d axes", n, axes->n), false;
  double common = 0;
  for (int i = 0; i < axes->n; i++) {
    int a = axes->v[i];
    if (v[i] < 0 || !fits_int(o, v[i], &p->out.v[a])) return op_fail(o, "size %lld of axis %d", (long long)v[i], a), false;
    p->scale[a] = p->in.v[a] ? rounded(p, (double)v[i] / p->in.v[a]) : 1;
    bool better = keep == NOT_LARGER ? p->scale[a] < common : p->scale[a] > common;
    if (i == 0 || better) common = p->scale[a];
  }
  for (int i = 0; keep != STRETCH && i < axes->n; i++) {
    int a = axes->v[i];
    p->scale[a] = common;
    double size = round(rounded(p, common * p->in.v[a]));
    if (!(size < 2147483648.0)) return op_fail(o, "axis %d would have %g elements", a, size), false;
    p->out.v[a] = (int)size;
  }
  return true;
}

static bool read_roi(op *o, plan *p, const mx_ints *axes) {
  double v[2 * MX_MAX_RANK];
  size_t n = 0;
  if (!host_numbers(o, 1, v, &n)) return false;
  if (n != 2 * (size_t)axes->n) return op_fail(o, "roi has %zu numbers for %d axes", n, axes->n), false;
  for (int i = 0; i < axes->n; i++) {
    if (!isfinite(v[i]) || !isfinite(v[axes->n + i])) return op_fail(o, "roi holds %g and %g", v[i], v[axes->n + i]), false;
    p->from[axes->v[i]] = v[i];
    p->to[axes->v[i]] = v[axes->n + i];
  }
  return true;
}

// In the order they are given in, which is the order of roi, scales and sizes.
static bool read_axes(op *o, int rank, mx_ints *axes) {
  size_t n = 0;
  const int64_t *v = attr_ints(o->n, "axes", &n);
  *axes = all_axes(rank);
  if (!v) return true;
  bool seen[MX_MAX_RANK] = {false};
  axes->n = 0;
  for (size_t i = 0; i < n && mx_ok(o->s); i++) {
    int a = norm_axis(o, v[i], rank);
    if (seen[a]) return op_fail(o, "axis %d is named twice", a), false;
    seen[a] = true;
    axes->v[axes->n++] = a;
  }
  return mx_ok(o->s);
}

static double reach(const plan *p, int axis) {
  double s = p->mode == CUBIC ? 2 : 1;
  return p->antialias && p->scale[axis] < 1 ? s / p->scale[axis] : s;
}

static bool plan_sizes(op *o, plan *p, const mx_ints *axes) {
  bool first = is_first_resize(o->n);
  double v[2 * MX_MAX_RANK];
  size_t n = 0, at = first ? 1 : 2;
  if (is_upsample(o->n) && o->n->since < 9) return fixed_scales(o, v, &n) && by_scales(o, p, axes, v, n);
  if (in(o, at) && !host_numbers(o, at, v, &n)) return false;
  if (n || first || !in(o, 3)) return by_scales(o, p, axes, v, n);
  return by_sizes(o, p, axes);
}

static bool plan_resize(op *o, plan *p) {
  mx x = in(o, 0);
  mx_ints axes;
  *p = (plan){.mode = mode_of(o->n), .coordinates = coordinates_of(o->n), .rounding = rounding_of(o->n),
              .antialias = attr_i(o->n, "antialias", 0) != 0, .exclude = attr_i(o->n, "exclude_outside", 0) != 0,
              .wide = mx_dtype(x) == DT_F64, .cubic = (double)attr_f(o->n, "cubic_coeff_a", -0.75f)};
  p->in = p->out = mx_shape(x);
  for (int i = 0; i < p->in.n; i++) p->scale[i] = p->to[i] = 1;
  if (p->in.n < 1) return op_fail(o, "the input is a scalar"), false;
  if (!read_axes(o, p->in.n, &axes)) return false;
  if (p->coordinates == CROP && !read_roi(o, p, &axes)) return false;
  if (!plan_sizes(o, p, &axes)) return false;
  for (int i = 0; i < p->in.n; i++) {
    bool crop = p->coordinates == CROP && (p->from[i] < 0 || p->from[i] > 0 || p->to[i] < 1 || p->to[i] > 1);
    p->resized[i] = p->in.v[i] != p->out.v[i] || p->scale[i] < 1 || p->scale[i] > 1 || crop;
    if (p->out.v[i] && !p->in.v[i]) return op_fail(o, "axis %d has no element to take", i), false;
    double taps = p->mode == NEAREST ? 1 : ceil(2 * reach(p, i));
    if (p->out.v[i] && taps * p->out.v[i] > 1e9) return op_fail(o, "axis %d has scale %g", i, p->scale[i]), false;
    p->taps[i] = p->out.v[i] ? (int)taps : 0;
  }
  return true;
}

// ---- taps -------------------------------------------------------------------------------------------------------------------
#define R(v) rounded(p, v)

// Where output element i of an axis lies in the input.
static double place(const plan *p, int axis, int i) {
  double s = p->scale[axis], n = p->in.v[axis], m = p->out.v[axis], a = p->from[axis], b = p->to[axis];
  switch (p->coordinates) {
    case HALF: return R(R((i + 0.5) / s) - 0.5);
    case PYTORCH_HALF: return m > 1 ? R(R((i + 0.5) / s) - 0.5) : 0;
    case TF_NEAREST: return R((i + 0.5) / s);
    case CORNERS: return m > 1 ? R(R(i * (n - 1)) / (m - 1)) : 0;
    case CROP:
      if (!(m > 1)) return R(R(0.5 * R(a + b)) * (n - 1));
      return R(R(a * (n - 1)) + R(R(R(i * R(b - a)) * (n - 1)) / (m - 1)));
    case SYMMETRIC: return R(R(R(R(n / 2) * R(1 - R(m / R(s * n)))) + R((i + 0.5) / s)) - 0.5);
    case ASYMMETRIC:
    case NO_COORDINATES: break;
  }
  return R(i / s);
}
#undef R

static double nearest(const plan *p, int axis, double x) {
  switch (p->rounding) {
    case CEIL_HALF: return floor(x + 0.5);
    case FLOOR: return floor(x);
    case CEIL: return ceil(x);
    case SIMPLE: return p->scale[axis] < 1 ? ceil(x) : trunc(x);
    case FLOOR_HALF:
    case NO_ROUNDING: break;
  }
  return ceil(x - 0.5);
}

static int inside(double x, int n) { return x > 0 ? x < n - 1 ? (int)x : n - 1 : 0; }

static double kernel(const plan *p, double x) {
  double a = p->cubic;
  x = fabs(x);
  if (p->mode == LINEAR) return x < 1 ? 1 - x : 0;
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// Taps of output element i: their places into to[0], to[out], to[2 * out]..., weights likewise.
static void weigh(const plan *p, int axis, int i, int32_t *to, double *w) {
  size_t step = (size_t)p->out.v[axis];
  int n = p->in.v[axis], taps = p->taps[axis];
  double x = place(p, axis, i), stretch = p->antialias && p->scale[axis] < 1 ? p->scale[axis] : 1, sum = 0;
  if (p->mode == NEAREST) {
    to[0] = inside(nearest(p, axis, x), n);
    w[0] = 1;
    return;
  }
  double lo = floor(x - reach(p, axis)) + 1;
  for (int k = 0; k < taps; k++) {
    double at = lo + k;
    bool out_of = at < 0 || at > n - 1;
    to[(size_t)k * step] = inside(at, n);
    w[(size_t)k * step] = p->exclude && out_of ? 0 : kernel(p, (at - x) * stretch);
    sum += w[(size_t)k * step];
  }
  bool scaled = (p->antialias || p->exclude) && (sum < 0 || sum > 0);
  for (int k = 0; scaled && k < taps; k++) w[(size_t)k * step] /= sum;
}

// All axes' taps one after the other: places as int32, or weights as float32 (float64 for float64 data).
static mx table(op *o, bool weights) {
  plan p;
  if (!plan_resize(o, &p)) return mx_scalar(in(o, 0), 0);
  size_t n = 0, at = 0;
  for (int a = 0; a < p.in.n; a++)
    if (p.resized[a]) n += (size_t)p.taps[a] * (size_t)p.out.v[a];
  int32_t *places = mem_alloc(n * sizeof *places + 8);
  double *w = mem_alloc(n * sizeof *w + 8);
  mx result = NULL;
  for (int a = 0; places && w && a < p.in.n; a++) {
    if (!p.resized[a]) continue;
    for (int i = 0; i < p.out.v[a]; i++) weigh(&p, a, i, places + at + i, w + at + i);
    at += (size_t)p.taps[a] * (size_t)p.out.v[a];
  }
  if (!places || !w) {
    result = mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %zu taps", n);
  } else if (!weights) {
    result = mx_from(o->s, places, DT_I32, MXI((int)n));
  } else if (p.wide) {
    result = mx_from(o->s, w, DT_F64, MXI((int)n));
  } else {
    float *narrow = (float *)(void *)w;  // in place, front to back
    for (size_t i = 0; i < n; i++) {
      float f = (float)w[i];
      memcpy(narrow + i, &f, sizeof f);
    }
    result = mx_from(o->s, narrow, DT_F32, MXI((int)n));
  }
  mem_free(places);
  mem_free(w);
  return result;
}

static mx places_table(op *o) { return table(o, false); }
static mx weights_table(op *o) { return table(o, true); }

// Do the taps depend on nothing but the model? Then they are kept.
static bool is_fixed(const op *o) {
  const value *x = o->n->in[0];
  if (x->rank < 0) return false;
  for (int i = 0; i < x->rank; i++)
    if (x->dims[i] < 0) return false;
  for (size_t i = 1; i < o->n->n_in; i++)
    if (o->n->in[i] && !is_const(o, i)) return false;
  return true;
}

// ---- the sum ----------------------------------------------------------------------------------------------------------------
enum { FEW_TAPS = 4 };

// x [outer, in, inner] by taps of which places and weights (or NULL) are [taps * out].
static mx resample(mx x, mx places, mx weights, int taps, int size) {
  int outer = mx_dim(x, 0), inner = mx_dim(x, 2);
  if (!weights) return mx_take(x, places, 1);
  if (taps > FEW_TAPS) {
    mx all = mx_reshape(mx_take(x, places, 1), MXI(outer, taps, size, inner));
    return mx_sum(mx_mul(all, mx_reshape(weights, MXI(1, taps, size, 1))), MXI(1), false);
  }
  mx sum = NULL;
  for (int k = 0; k < taps; k++) {
    mx v = mx_take(x, mx_slice_axis(places, 0, k * size, (k + 1) * size), 1);
    v = mx_mul(v, mx_reshape(mx_slice_axis(weights, 0, k * size, (k + 1) * size), MXI(1, size, 1)));
    sum = sum ? mx_add(sum, v) : v;
  }
  return sum;
}

// Into the range of an integer type: without a filter cut toward zero (a sum just under an integer is that integer),
// with one rounded.
static mx to_integer(mx y, dtype t, bool antialias) {
  double lo = t == DT_I8 ? -128 : t == DT_I16 ? -32768 : t == DT_I32 ? -2147483648.0 : 0;
  double hi = t == DT_I8 ? 127 : t == DT_U8 ? 255 : t == DT_I16 ? 32767 : t == DT_U16 ? 65535 : 2147483520.0;
  mx sign = mx_sign(y), size = mx_abs(y);
  y = mx_mul(sign, mx_floor(mx_add(size, mx_scalar(y, antialias ? 0.5 : 1.0 / 4096))));
  return mx_clip(y, mx_scalar(y, lo), mx_scalar(y, hi));
}

// Elements that lie outside of the input take the extrapolation value.
static mx extrapolated(op *o, const plan *p, mx y) {
  for (int a = 0; a < p->in.n && mx_ok(o->s); a++) {
    uint8_t *beyond = p->resized[a] ? mem_alloc((size_t)p->out.v[a] + 1) : NULL;
    if (!p->resized[a]) continue;
    if (!beyond) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory for an axis");
    for (int i = 0; i < p->out.v[a]; i++) beyond[i] = place(p, a, i) < 0 || place(p, a, i) > p->in.v[a] - 1;
    mx_ints along = {.n = p->in.n};
    for (int i = 0; i < along.n; i++) along.v[i] = i == a ? p->out.v[a] : 1;
    mx mask = mx_from(o->s, beyond, DT_BOOL, along);
    mem_free(beyond);
    y = mx_where(mask, mx_scalar(y, (double)attr_f(o->n, "extrapolation_value", 0)), y);
  }
  return y;
}

static void resize(op *o) {
  plan p;
  if (!plan_resize(o, &p)) return;
  mx x = in(o, 0);
  dtype type = mx_dtype(x);
  if (dims_span(p.out, 0, p.out.n) == 0) {
    out(o, 0, mx_full(o->s, p.out, 0, type));
    return;
  }
  bool fixed = is_fixed(o), sums = p.mode != NEAREST;
  mx places = fixed ? memo(o, 0, places_table) : places_table(o), weights = NULL;
  if (sums) weights = fixed ? memo(o, 1, weights_table) : weights_table(o);
  mx y = !sums ? x : dtype_is_int(type) ? mx_astype(x, DT_F32) : f32_up(x);
  mx_ints shape = p.in;
  int at = mx_dim(places, 0);  // the last axis comes first
  for (int a = p.in.n - 1; a >= 0 && mx_ok(o->s); a--) {
    if (!p.resized[a]) continue;
    int n = p.taps[a] * p.out.v[a], outer, inner;
    if (!fits_int(o, dims_span(shape, 0, a), &outer) || !fits_int(o, dims_span(shape, a + 1, shape.n), &inner)) return;
    at -= n;
    mx w = weights ? mx_slice_axis(weights, 0, at, at + n) : NULL;
    y = resample(mx_reshape(y, MXI(outer, shape.v[a], inner)), mx_slice_axis(places, 0, at, at + n), w, p.taps[a], p.out.v[a]);
    shape.v[a] = p.out.v[a];
    if (sums && p.antialias && dtype_is_int(type)) y = to_integer(y, type, true);
  }
  y = mx_reshape(y, p.out);
  if (sums && dtype_is_int(type)) y = to_integer(y, type, p.antialias);
  out(o, 0, p.coordinates == CROP ? extrapolated(o, &p, y) : y);
}

enum { READS = IN(1) | IN(2) | IN(3) };

const op_row ops_resize[] = {
    OP("", "Resize", 10, ANY, resize_claim, resize, .types = DTS_TENSOR, .host_in = READS,
       .limits = "no scalar; modes other than nearest take floats, int8 to int32, uint8 and uint16 only"),
    OP("", "Upsample", 1, 9, upsample_claim, resize, .types = DTS_TENSOR, .host_in = IN(1),
       .limits = "no scalar; modes other than nearest take floats, int8 to int32, uint8 and uint16 only"),
    {0}};
