// com.microsoft: normalisation over groups of channels, and softmax and dropout with what is added before them.
#include "ops/numeric.h"
#include "ops/op.h"

// ---- GroupNorm, SkipGroupNorm -----------------------------------------------------------------------------------------
// w [C] for x with its channels at axis.
static mx along(mx w, mx x, int axis) {
  mx_ints shape = {.n = mx_ndim(x)};
  for (int i = 0; i < shape.n; i++) shape.v[i] = i == axis ? mx_dim(w, 0) : 1;
  return mx_reshape(f32_up(w), shape);
}

static mx standardised(mx x, mx_ints axes, double eps) {
  x = mx_sub(x, mx_mean(x, axes, true));
  return mx_mul(x, mx_rsqrt(num_plus(mx_mean(mx_square(x), axes, true), eps)));
}

// x float32; channels are the last axis or the first after the batch.
static mx grouped(op *o, mx x) {
  mx gamma = in(o, 1), beta = in(o, 2);
  mx_ints shape = mx_shape(x);
  bool last = attr_i(o->n, "channels_last", 1) != 0;
  int64_t groups = attr_i(o->n, "groups", 0);
  int axis = last ? shape.n - 1 : 1, channels = shape.n > 2 ? shape.v[axis] : 0;
  if (shape.n < 3 || groups < 1 || groups > channels || channels % groups)
    return op_fail(o, "%lld groups do not divide the channels of the input", (long long)groups);
  if (mx_ndim(gamma) != 1 || mx_dim(gamma, 0) != channels || mx_ndim(beta) != 1 || mx_dim(beta, 0) != channels)
    return op_fail(o, "gamma and beta must have one entry for each of %d channels", channels);
  if (mx_size(x) == 0) return x;
  int g = (int)groups, per = channels / g, size = (int)(mx_size(x) / (size_t)shape.v[0] / (size_t)channels);
  double eps = (double)attr_f(o->n, "epsilon", 1e-5f);
  mx y = last ? standardised(mx_reshape(x, MXI(shape.v[0], size, g, per)), MXI(1, 3), eps)
              : standardised(mx_reshape(x, MXI(shape.v[0], g, per, size)), MXI(2, 3), eps);
  y = mx_reshape(y, shape);
  y = mx_add(mx_mul(y, along(gamma, x, axis)), along(beta, x, axis));
  return attr_i(o->n, "activation", 0) ? mx_mul(y, num_sigmoid(y)) : y;
}

static void group_norm(op *o) { out(o, 0, grouped(o, f32_up(in(o, 0)))); }

static void group_norm_claim(claim *c) {
  int64_t activation = attr_i(c->n, "activation", 0);
  REQUIRE(c, activation == 0 || activation == 1, "activation %lld", (long long)activation);
}

static bool same_shape(mx x, mx y) {
  bool same = mx_ndim(x) == mx_ndim(y);
  for (int i = 0; same && i < mx_ndim(x); i++) same = mx_dim(x, i) == mx_dim(y, i);
  return same;
}

// skip may be [N, C], which counts for every place.
static void skip_group_norm(op *o) {
  mx x = f32_up(in(o, 0)), skip = f32_up(in(o, 3)), bias = in(o, 4);
  if (mx_ndim(x) == 4 && mx_ndim(skip) == 2) skip = mx_expand_dims(skip, MXI(1, 2));
  mx sum = mx_add(x, skip);
  if (bias) sum = mx_add(sum, f32_up(bias));
  if (!same_shape(sum, x)) op_fail(o, "skip and bias do not fit the input");
  if (!mx_ok(o->s)) return;
  out(o, 0, grouped(o, sum));
  out(o, 1, sum);
}

static void skip_group_norm_claim(claim *c) {
  group_norm_claim(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, attr_i(c->n, "channels_last", 1) == 1, "skip with channels that are not last");
}

// ---- BiasSoftmax ------------------------------------------------------------------------------------------------------
// Over all axes from `axis` on, taken as one.
static void bias_softmax(op *o) {
  mx x = f32_up(in(o, 0)), y = mx_add(x, f32_up(in(o, 1)));
  int rank = mx_ndim(x), axis = norm_axis(o, attr_i(o->n, "axis", 1), rank);
  if (mx_ok(o->s) && !same_shape(x, y)) op_fail(o, "the bias does not fit the data");
  if (!mx_ok(o->s)) return;
  if (mx_size(x)) y = mx_reshape(mx_softmax(mx_flatten(y, axis, rank - 1), axis), mx_shape(x));
  out(o, 0, y);
}

static void bias_softmax_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) != 0, "the data is a scalar");
}

// ---- BiasDropout ------------------------------------------------------------------------------------------------------
enum { DROPOUT_RESIDUAL = 2, DROPOUT_TRAINING = 4, BITMASK_TRAINING = 2 };

static void bias_dropout(op *o) {
  mx x = in(o, 0), y = mx_add(f32_up(x), f32_up(in(o, 1)));
  if (in(o, DROPOUT_RESIDUAL)) y = mx_add(y, f32_up(in(o, DROPOUT_RESIDUAL)));
  if (!same_shape(x, y)) op_fail(o, "the bias or the residual does not fit the data");
  out(o, 0, y);
  out(o, 1, mx_full(o->s, mx_shape(x), 1, DT_BOOL));
}

// A bit for each element, 32 in a word, all set.
static mx full_mask(op *o, mx x) {
  size_t words = mx_size(x) / 32 + (mx_size(x) % 32 != 0);
  int n = 0;
  return fits_int(o, (int64_t)words, &n) ? mx_broadcast_to(mx_scalar_i64(o->s, UINT32_MAX, DT_U32), MXI(n)) : x;
}

static void bitmask_dropout(op *o) {
  out(o, 0, in(o, 0));
  out(o, 1, full_mask(o, in(o, 0)));
}

static void bitmask_bias_dropout(op *o) {
  bias_dropout(o);
  out(o, 1, full_mask(o, in(o, 0)));
}

static void inference_claim(claim *c, size_t i) {
  const tensor *training = in_const(c, i);
  bool off = !has_in(c, i) || (training && training->data && training->bytes && !*(const uint8_t *)training->data);
  REQUIRE(c, off, "training_mode is not known to be false");
}

static void bias_dropout_claim(claim *c) { inference_claim(c, DROPOUT_TRAINING); }
static void bitmask_dropout_claim(claim *c) { inference_claim(c, BITMASK_TRAINING); }

const op_row ops_contrib_norm[] = {
    OP("com.microsoft", "GroupNorm", 1, ANY, group_norm_claim, group_norm, .types = DTS_FLOAT, .typed_in = ALL_IN,
       .limits = "activation is 0 or 1"),
    OP("com.microsoft", "SkipGroupNorm", 1, ANY, skip_group_norm_claim, skip_group_norm, .types = DTS_FLOAT,
       .typed_in = ALL_IN, .limits = "activation is 0 or 1; channels_last is 1"),
    OP("com.microsoft", "BiasSoftmax", 1, ANY, bias_softmax_claim, bias_softmax, .types = DTS_FLOAT,
       .limits = "no scalar data"),
    OP("com.microsoft", "BiasDropout", 1, ANY, bias_dropout_claim, bias_dropout, .types = DTS_FLOAT64,
       .limits = "inference only: training_mode absent or constant false"),
    OP("com.microsoft", "BitmaskBiasDropout", 1, ANY, bias_dropout_claim, bitmask_bias_dropout, .types = DTS_FLOAT64,
       .limits = "inference only: training_mode absent or constant false"),
    OP("com.microsoft", "BitmaskDropout", 1, ANY, bitmask_dropout_claim, bitmask_dropout, .types = DTS_FLOAT64,
       .limits = "inference only: training_mode absent or constant false"),
    {0}};
