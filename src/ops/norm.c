// Normalisation over trailing axes (Layer-, RMS- and Skip-), over channels and spatial axes (Batch-, Instance-, Group-,
// LRN), and over named axes (Lp, mean-variance). Statistics are taken in float32, or float64 where x is float64.
#include "ops/index.h"
#include "ops/numeric.h"
#include "ops/op.h"

typedef struct standard {
  mx y;     // (x - mean) * inv
  mx mean;  // NULL when the mean is not taken off
  mx inv;   // 1 / sqrt(mean square + epsilon)
} standard;

// x in float32 or float64; the statistics keep the reduced axes as 1.
static standard standardise(mx x, mx_ints axes, float eps, bool centred) {
  standard s = {.y = x};
  if (centred) s.mean = mx_mean(x, axes, true);
  if (centred) s.y = mx_sub(x, s.mean);
  mx variance = mx_mean(mx_square(s.y), axes, true);
  s.inv = mx_rsqrt(num_plus(variance, (double)eps));
  s.y = mx_mul(s.y, s.inv);
  return s;
}

static mx_ints axes_from(int first, int rank) {
  mx_ints axes = {0};
  for (int a = first; a < rank; a++) axes.v[axes.n++] = a;
  return axes;
}

// The last axis alone, in MLX's fused form where it has one.
static mx standardise_last(mx x, float eps) {
  if (mx_dtype(x) == DT_F64) return standardise(x, MXI(mx_ndim(x) - 1), eps, true).y;
  return mx_layer_norm(x, NULL, NULL, eps);
}

static bool fits_last(mx w, mx x) { return !w || (mx_ndim(w) == 1 && mx_dim(w, 0) == mx_dim(x, -1)); }

// ---- LayerNormalization, RMSNormalization, SimplifiedLayerNormalization ---------------------------------------------
// Y = standardised x * scale + bias over the axes from `axis`; scale and bias broadcast to x. bias may be NULL.
static mx scaled(mx y, mx scale, mx bias) {
  y = mx_mul(y, scale);
  return bias ? mx_add(y, bias) : y;
}

static mx fused_last(mx x, mx scale, mx bias, float eps, bool centred) {
  if (fits_last(scale, x) && fits_last(bias, x))
    return centred ? mx_layer_norm(x, scale, bias, eps) : mx_rms_norm(x, scale, eps);
  mx wide = f32_up(x);
  return scaled(centred ? mx_layer_norm(wide, NULL, NULL, eps) : mx_rms_norm(wide, NULL, eps), scale, bias);
}

static void trailing(op *o, bool centred, mx bias, size_t mean_out, size_t inv_out) {
  mx x = in(o, 0), scale = in(o, 1);
  int rank = mx_ndim(x), axis = norm_axis(o, attr_i(o->n, "axis", -1), rank);
  float eps = attr_f(o->n, "epsilon", 1e-5f);
  if (!mx_ok(o->s)) return;
  bool statistics = (centred && wants(o, mean_out)) || wants(o, inv_out);
  if (axis == rank - 1 && !statistics && mx_dtype(x) != DT_F64) {
    out(o, 0, fused_last(x, scale, bias, eps, centred));
    return;
  }
  standard s = standardise(f32_up(x), axes_from(axis, rank), eps, centred);
  out(o, 0, scaled(s.y, scale, bias));
  if (centred) out(o, mean_out, s.mean);
  out(o, inv_out, s.inv);
}

static void layer_norm(op *o) { trailing(o, true, in(o, 2), 1, 2); }
static void rms_norm(op *o) { trailing(o, false, NULL, 1, 1); }

// stash_type is the precision of the statistics: float32 and float64 are never less exact than what it asks for.
static void trailing_claim(claim *c) {
  int64_t stash = attr_i(c->n, "stash_type", DT_F32);
  REQUIRE(c, stash != DT_F64 || in_type(c, 0) == DT_F64, "stash_type asks for float64 statistics of a smaller type");
}

// ---- Skip(Simplified)LayerNormalization -----------------------------------------------------------------------------
// The sum may be of one more operand; then it is rounded once, at the end.
static mx residual(mx x, mx skip, mx bias) {
  if (!bias) return mx_add(x, skip);
  mx sum = mx_add(mx_add(f32_up(x), f32_up(skip)), f32_up(bias));
  return mx_astype(sum, mx_dtype(x));
}

static void skip_norm(op *o, bool centred, mx beta, mx bias) {
  mx sum = residual(in(o, 0), in(o, 1), bias), gamma = in(o, 2);
  float eps = attr_f(o->n, "epsilon", 1e-12f);
  out(o, 3, sum);
  if (wants(o, 1) || wants(o, 2)) {
    standard s = standardise(f32_up(sum), MXI(mx_ndim(sum) - 1), eps, centred);
    out(o, 0, scaled(s.y, gamma, beta));
    out(o, 1, centred ? s.mean : mx_sub(s.inv, s.inv));
    out(o, 2, s.inv);
  } else {
    out(o, 0, fused_last(sum, gamma, beta, eps, centred));
  }
}

static void skip_layer_norm(op *o) { skip_norm(o, true, in(o, 3), in(o, 4)); }
static void skip_rms_norm(op *o) { skip_norm(o, false, NULL, in(o, 3)); }

// ---- EmbedLayerNormalization ----------------------------------------------------------------------------------------
enum { EMBED_IDS, EMBED_SEGMENTS, EMBED_WORD_TABLE, EMBED_POSITION_TABLE, EMBED_SEGMENT_TABLE, EMBED_GAMMA, EMBED_BETA,
       EMBED_MASK, EMBED_POSITIONS };

// Rows of input `table` by the numbers in input `ids`, all of which are checked first.
static mx embedded(op *o, size_t table, size_t ids) {
  mx at = index_below(o, mx_astype(in(o, ids), DT_I32), mx_dim(in(o, table), 0), "id");
  return f32_up(mx_take(in(o, table), at, 0));
}

static mx position_rows(op *o) {
  mx table = in(o, EMBED_POSITION_TABLE);
  if (in(o, EMBED_POSITIONS)) return embedded(o, EMBED_POSITION_TABLE, EMBED_POSITIONS);
  int length = mx_dim(in(o, EMBED_IDS), 1);
  if (length > mx_dim(table, 0)) return op_fail(o, "%d positions, but a table of %d", length, mx_dim(table, 0));
  return f32_up(mx_slice_axis(table, 0, 0, length));
}

static void embed_layer_norm(op *o) {
  mx sum = mx_add(embedded(o, EMBED_WORD_TABLE, EMBED_IDS), position_rows(o));
  if (in(o, EMBED_SEGMENTS) && in(o, EMBED_SEGMENT_TABLE))
    sum = mx_add(sum, embedded(o, EMBED_SEGMENT_TABLE, EMBED_SEGMENTS));
  out(o, 0, fused_last(sum, in(o, EMBED_GAMMA), in(o, EMBED_BETA), attr_f(o->n, "epsilon", 1e-12f), true));
  out(o, 2, sum);
  if (!wants(o, 1)) return;
  mx mask = in(o, EMBED_MASK);  // the second output counts its ones
  out(o, 1, mask ? mx_sum(mx_astype(mx_equal(mask, mx_scalar(mask, 1)), DT_I32), MXI(1), false)
                 : mx_full(o->s, MXI(mx_dim(in(o, EMBED_IDS), 0)), 0, DT_I32));
}

static void embed_claim(claim *c) {
  REQUIRE(c, in_rank(c, EMBED_IDS) < 0 || in_rank(c, EMBED_IDS) == 2, "ids are not of rank 2");
}

// ---- BatchNormalization ---------------------------------------------------------------------------------------------
enum { BN_X, BN_SCALE, BN_BIAS, BN_MEAN, BN_VAR };

static dtype wide_type(const op *o) { return o->n->in[BN_X]->type == DT_F64 ? DT_F64 : DT_F32; }
static mx wide_in(const op *o, size_t i) { return mx_astype(in(o, i), wide_type(o)); }

static mx batch_factor(op *o) {
  mx var = wide_in(o, BN_VAR);
  double eps = (double)attr_f(o->n, "epsilon", 1e-5f);
  return mx_mul(wide_in(o, BN_SCALE), mx_rsqrt(num_plus(var, eps)));
}

static mx batch_offset(op *o) {
  return mx_sub(wide_in(o, BN_BIAS), mx_mul(wide_in(o, BN_MEAN), batch_factor(o)));
}

// One value a channel, in a shape that broadcasts over [N, C, ..] of that rank.
static mx per_channel(mx v, int rank) {
  mx_ints axes = {0};
  for (int a = 1; a < rank - 1; a++) axes.v[axes.n++] = a;
  return axes.n ? mx_expand_dims(v, axes) : v;
}

static void batch_inference(op *o) {
  mx x = wide_in(o, BN_X);
  bool fixed = is_const(o, BN_SCALE) && is_const(o, BN_BIAS) && is_const(o, BN_MEAN) && is_const(o, BN_VAR);
  mx factor = fixed ? memo(o, 0, batch_factor) : batch_factor(o);
  mx offset = fixed ? memo(o, 1, batch_offset) : batch_offset(o);
  bool spatial = o->n->since >= 9 || attr_i(o->n, "spatial", 1) != 0;  // else one value for each feature
  if (spatial) {
    factor = per_channel(factor, mx_ndim(x));
    offset = per_channel(offset, mx_ndim(x));
  }
  out(o, 0, mx_add(mx_mul(x, factor), offset));
}

static mx running(mx before, mx now, double momentum) {
  return mx_add(num_times(before, momentum), num_times(now, 1 - momentum));
}

static void batch_training(op *o) {
  mx x = wide_in(o, BN_X);
  int rank = mx_ndim(x);
  float eps = attr_f(o->n, "epsilon", 1e-5f);
  double momentum = (double)attr_f(o->n, "momentum", 0.9f);
  mx_ints axes = axes_from(1, rank);  // all but the channel: the first stands for axis 1
  if (axes.n)
    axes.v[0] = 0;
  else
    axes = MXI(0);
  standard s = standardise(x, axes, eps, true);
  mx variance = mx_mean(mx_square(mx_sub(x, s.mean)), axes, false);
  out(o, 0, scaled(s.y, per_channel(wide_in(o, BN_SCALE), rank), per_channel(wide_in(o, BN_BIAS), rank)));
  out(o, 1, running(wide_in(o, BN_MEAN), mx_mean(x, axes, false), momentum));
  out(o, 2, running(wide_in(o, BN_VAR), variance, momentum));
}

static bool is_training(const node *n) { return n->since >= 14 && attr_i(n, "training_mode", 0) != 0; }

static void batch_norm(op *o) {
  if (is_training(o->n))
    batch_training(o);
  else
    batch_inference(o);
}

static void batch_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) != 0, "input is a scalar");
  REQUIRE(c, is_training(c->n) ? !has_out(c, 3) : !has_out(c, 1), "outputs of the training form of older opsets");
}

// ---- InstanceNormalization, GroupNormalization ----------------------------------------------------------------------
static void instance_norm(op *o) {
  mx x = f32_up(in(o, 0));
  int rank = mx_ndim(x);
  float eps = attr_f(o->n, "epsilon", 1e-5f);
  if (rank < 3) {
    op_fail(o, "input of rank %d has no spatial axes", rank);
    return;
  }
  mx rows = rank == 3 ? x : mx_flatten(x, 2, rank - 1);
  mx y = standardise_last(rows, eps);
  if (rank > 3) y = mx_reshape(y, mx_shape(x));
  out(o, 0, scaled(y, per_channel(in(o, 1), rank), per_channel(in(o, 2), rank)));
}

static void instance_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) > 2, "input has no spatial axes");
}

static void group_norm(op *o) {
  mx x = f32_up(in(o, 0));
  mx_ints shape = mx_shape(x);
  int64_t groups = attr_i(o->n, "num_groups", 0);
  float eps = attr_f(o->n, "epsilon", 1e-5f);
  if (shape.n < 2 || groups < 1 || groups > shape.v[1] || shape.v[1] % groups) {
    op_fail(o, "%lld groups do not divide the channels of the input", (long long)groups);
    return;
  }
  if (mx_size(x) == 0) {
    out(o, 0, x);
    return;
  }
  mx y = standardise_last(mx_reshape(x, MXI(shape.v[0], (int)groups, -1)), eps);
  if (o->n->since < 21) {  // a scale for each group
    y = scaled(y, per_channel(in(o, 1), 3), per_channel(in(o, 2), 3));
    out(o, 0, mx_reshape(y, shape));
  } else {
    y = mx_reshape(y, shape);
    out(o, 0, scaled(y, per_channel(in(o, 1), shape.n), per_channel(in(o, 2), shape.n)));
  }
}

static void group_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) > 1, "input has no channels");
  REQUIRE(c, attr_i(c->n, "num_groups", 0) > 0, "num_groups is missing or not positive");
  int64_t stash = attr_i(c->n, "stash_type", DT_F32);
  REQUIRE(c, stash != DT_F64 || in_type(c, 0) == DT_F64, "stash_type asks for float64 statistics of a smaller type");
}

// ---- LRN ------------------------------------------------------------------------------------------------------------
// Sum of squares over a window of channels, as a sum of shifted slices.
static void lrn(op *o) {
  mx x = f32_up(in(o, 0));
  if (mx_ndim(x) < 2) {
    op_fail(o, "input of rank %d has no channels", mx_ndim(x));
    return;
  }
  int64_t size = attr_i(o->n, "size", 0), channels = mx_dim(x, 1);
  double alpha = (double)attr_f(o->n, "alpha", 1e-4f), beta = (double)attr_f(o->n, "beta", 0.75f);
  double bias = (double)attr_f(o->n, "bias", 1);
  int64_t low = (size - 1) / 2, high = size - 1 - low;
  if (low > channels) low = channels;  // a window wider than the channels adds zeros only
  if (high > channels) high = channels;
  mx squares = mx_square(x);
  mx padded = mx_pad(squares, MXI(1), MXI((int)low), MXI((int)high), mx_scalar(squares, 0), "constant");
  mx sum = NULL;
  for (int i = 0; i <= low + high; i++) {
    mx shifted = mx_slice_axis(padded, 1, i, i + (int)channels);
    sum = sum ? mx_add(sum, shifted) : shifted;
  }
  mx base = num_plus(num_times(sum, alpha / (double)size), bias);
  out(o, 0, mx_div(x, mx_pow(base, mx_scalar(base, beta))));
}

static void lrn_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) > 1, "input has no channels");
  REQUIRE(c, attr_i(c->n, "size", 0) > 0, "size is missing or not positive");
}

// ---- LpNormalization, MeanVarianceNormalization ---------------------------------------------------------------------
static void lp_norm(op *o) {
  mx x = f32_up(in(o, 0));
  int axis = norm_axis(o, attr_i(o->n, "axis", -1), mx_ndim(x));
  if (!mx_ok(o->s)) return;
  mx norm = attr_i(o->n, "p", 2) == 1 ? mx_sum(mx_abs(x), MXI(axis), true)
                                      : mx_sqrt(mx_sum(mx_square(x), MXI(axis), true));
  mx zero = mx_scalar(norm, 0);
  out(o, 0, mx_where(mx_equal(norm, zero), zero, mx_div(x, norm)));
}

static void lp_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) != 0, "input is a scalar");
  int64_t p = attr_i(c->n, "p", 2);
  REQUIRE(c, p == 1 || p == 2, "p is %lld, not 1 or 2", (long long)p);
}

static void mean_variance_norm(op *o) {
  mx x = f32_up(in(o, 0));
  int rank = mx_ndim(x);
  mx_ints axes = op_axes(o, "axes", SIZE_MAX, rank);
  if (!attr_has(o->n, "axes")) axes = MXI(0, norm_axis(o, 2, rank), norm_axis(o, 3, rank));
  if (!mx_ok(o->s)) return;
  mx centred = mx_sub(x, mx_mean(x, axes, true));
  mx deviation = mx_sqrt(mx_mean(mx_square(centred), axes, true));
  out(o, 0, mx_div(centred, num_plus(deviation, 1e-9)));
}

static void mean_variance_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) != 0, "input is a scalar");
}

const op_row ops_norm[] = {
    OP("", "LayerNormalization", 1, ANY, trailing_claim, layer_norm, .types = DTS_FLOAT64, .typed_in = ALL_IN,
       .limits = "stash_type float64 with float64 data only"),
    OP("", "RMSNormalization", 23, ANY, trailing_claim, rms_norm, .types = DTS_FLOAT64, .typed_in = ALL_IN,
       .limits = "stash_type float64 with float64 data only"),
    // ONNX Runtime's own operator, in ONNX's domain; some exporters write it into com.microsoft.
    OP("", "SimplifiedLayerNormalization", 1, ANY, trailing_claim, rms_norm, .types = DTS_FLOAT64, .typed_in = ALL_IN,
       .limits = "stash_type float64 with float64 data only"),
    OP("com.microsoft", "SkipLayerNormalization", 1, ANY, NULL, skip_layer_norm, .types = DTS_FLOAT),
    OP("com.microsoft", "SkipSimplifiedLayerNormalization", 1, ANY, NULL, skip_rms_norm, .types = DTS_FLOAT),
    OP("com.microsoft", "EmbedLayerNormalization", 1, ANY, embed_claim, embed_layer_norm, .types = DTS_FLOAT,
       .typed_in = IN(EMBED_WORD_TABLE), .index_in = IN(EMBED_IDS) | IN(EMBED_SEGMENTS) | IN(EMBED_POSITIONS),
       .limits = "ids of rank 2"),
    OP("", "BatchNormalization", 1, ANY, batch_claim, batch_norm, .types = DTS_FLOAT64, .typed_in = ALL_IN,
       .limits = "no scalar; no outputs of the training form of versions before 14"),
    OP("", "InstanceNormalization", 1, ANY, instance_claim, instance_norm, .types = DTS_FLOAT64,
       .limits = "at least one spatial axis"),
    OP("", "GroupNormalization", 18, ANY, group_claim, group_norm, .types = DTS_FLOAT64,
       .limits = "a positive num_groups; stash_type float64 with float64 data only"),
    OP("", "LRN", 1, ANY, lrn_claim, lrn, .types = DTS_FLOAT64, .limits = "rank 2 or more; a positive size"),
    OP("", "LpNormalization", 1, ANY, lp_claim, lp_norm, .types = DTS_FLOAT64, .limits = "no scalar; p is 1 or 2"),
    OP("", "MeanVarianceNormalization", 9, ANY, mean_variance_claim, mean_variance_norm, .types = DTS_FLOAT64,
       .limits = "no scalar"),
    {0}};
