// Operators that ONNX has withdrawn, as ONNX Runtime still runs them.
#include "ops/index.h"
#include "ops/numeric.h"

static double alpha_of(const node *n, float dflt) { return (double)attr_f(n, "alpha", dflt); }
static double beta_of(const node *n, float dflt) { return (double)attr_f(n, "beta", dflt); }

static void affine(op *o) { out(o, 0, num_plus(num_times(f32_up(in(o, 0)), alpha_of(o->n, 1)), beta_of(o->n, 0))); }
static void scale(op *o) { out(o, 0, num_times(f32_up(in(o, 0)), (double)attr_f(o->n, "scale", 1))); }

static void scaled_tanh(op *o) {
  out(o, 0, num_times(mx_tanh(num_times(f32_up(in(o, 0)), beta_of(o->n, 0))), alpha_of(o->n, 0)));
}

static void parametric_softplus(op *o) {
  out(o, 0, num_times(num_softplus(num_times(f32_up(in(o, 0)), beta_of(o->n, 0))), alpha_of(o->n, 0)));
}

static void slopes_claim(claim *c) {
  REQUIRE(c, attr_has(c->n, "alpha") && attr_has(c->n, "beta"), "alpha or beta is missing");
}

// ---- images: [N, C, H, W] ---------------------------------------------------------------------------------------------------
static void image_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) == 4, "rank %d", in_rank(c, 0));
}

static void image_scaler(op *o) {
  mx x = f32_up(in(o, 0));
  size_t n = 0;
  const float *bias = attr_floats(o->n, "bias", &n);
  if (mx_ndim(x) != 4 || (size_t)mx_dim(x, 1) != n) {
    op_fail(o, "%zu biases for an image of rank %d with %d channels", n, mx_ndim(x), mx_dim(x, 1));
    return;
  }
  mx add = mx_astype(mx_from(o->s, bias, DT_F32, MXI((int)n, 1, 1)), mx_dtype(x));
  out(o, 0, mx_add(num_times(x, (double)attr_f(o->n, "scale", 1)), add));
}

static void scaler_claim(claim *c) {
  size_t n = 0;
  image_claim(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, attr_floats(c->n, "bias", &n) && n > 0, "bias is missing");
}

// Takes the border away, or from its left and upper edge on what scale says.
static void crop(op *o) {
  mx x = in(o, 0);
  size_t n = 0, n_scale = 0;
  const int64_t *border = attr_ints(o->n, "border", &n), *size = attr_ints(o->n, "scale", &n_scale);
  if (mx_ndim(x) != 4) op_fail(o, "an image of rank %d", mx_ndim(x));
  for (int i = 0; mx_ok(o->s) && i < 2; i++) {  // rows, then columns
    int64_t all = mx_dim(x, 2 + i), from = border[i == 0 ? 1 : 0];
    int64_t to = n_scale ? from + size[i] : all - border[i == 0 ? 3 : 2];
    if (from > all || to > all || to < from) op_fail(o, "axis %d of %lld cannot be cut to [%lld, %lld)", 2 + i, (long long)all, (long long)from, (long long)to);
    else x = mx_slice_axis(x, 2 + i, (int)from, (int)to);
  }
  out(o, 0, x);
}

static void crop_claim(claim *c) {
  size_t n = 0, n_scale = 0;
  image_claim(c);
  CLAIM_GOES_ON(c);
  const int64_t *border = attr_ints(c->n, "border", &n), *size = attr_ints(c->n, "scale", &n_scale);
  REQUIRE(c, n == 4 && (n_scale == 0 || n_scale == 2), "border with %zu entries, scale with %zu", n, n_scale);
  for (size_t i = 0; i < n + n_scale; i++) {
    int64_t v = i < n ? border[i] : size[i - n];
    REQUIRE(c, v >= 0 && v < 1 << 30, "border or scale holds %lld", (long long)v);
  }
}

// ---- MeanVarianceNormalization 1 ----------------------------------------------------------------------------------------------
static void mean_variance_norm(op *o) {
  mx x = f32_up(in(o, 0));
  if (mx_ndim(x) != 4) op_fail(o, "an image of rank %d", mx_ndim(x));
  if (!mx_ok(o->s)) return;
  mx_ints axes = attr_i(o->n, "across_channels", 0) ? MXI(0, 1, 2, 3) : MXI(0, 2, 3);
  mx y = mx_sub(x, mx_mean(x, axes, true));
  if (attr_i(o->n, "normalize_variance", 1)) y = mx_div(y, mx_sqrt(mx_mean(mx_square(y), axes, true)));
  out(o, 0, y);
}

// ---- optionals that are tensors -------------------------------------------------------------------------------------------------
static void has_element(op *o) { out(o, 0, mx_full(o->s, (mx_ints){0}, in(o, 0) != NULL, DT_BOOL)); }
static void get_element(op *o) { out(o, 0, in(o, 0)); }

static void get_claim(claim *c) {
  REQUIRE(c, in_type(c, 0) != DT_NONE, "the input is an optional, which stays on the host");
  REQUIRE(c, mx_has_dtype(c->device, in_type(c, 0)), "input 0 has type %s", dtype_name(in_type(c, 0)));
}

static void has_claim(claim *c) {
  if (has_in(c, 0)) get_claim(c);
}

const op_row ops_legacy[] = {
    OP("", "Affine", 1, ANY, NULL, affine, .types = DTS_FLOAT64),
    OP("", "Crop", 1, ANY, crop_claim, crop, .types = DTS_FLOAT64, .traits = OP_CHEAP, .limits = "data of rank 4"),
    OP("", "ImageScaler", 1, ANY, scaler_claim, image_scaler, .types = DTS_FLOAT64, .limits = "data of rank 4"),
    OP("", "MeanVarianceNormalization", 1, 8, image_claim, mean_variance_norm, .types = DTS_FLOAT64,
       .limits = "data of rank 4"),
    OP("", "ParametricSoftplus", 1, ANY, slopes_claim, parametric_softplus, .types = DTS_FLOAT64,
       .limits = "alpha and beta are given"),
    OP("", "Scale", 1, ANY, NULL, scale, .types = DTS_FLOAT64),
    OP("", "ScaledTanh", 1, ANY, slopes_claim, scaled_tanh, .types = DTS_FLOAT64, .limits = "alpha and beta are given"),
    OP("", "OptionalGetElement", 15, ANY, get_claim, get_element, .traits = OP_CHEAP | OP_ANY_TYPE,
       .limits = "tensors only, no optionals"),
    OP("", "OptionalHasElement", 15, ANY, has_claim, has_element, .traits = OP_CHEAP | OP_ANY_TYPE,
       .limits = "tensors only, no optionals"),
    {0}};
