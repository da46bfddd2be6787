// Activations. In a half type they compute in float32 and round once at the end, unless an operator says otherwise.
#include <float.h>
#include <math.h>
#include <string.h>

#include "ops/numeric.h"
#include "ops/op.h"

static mx zero_like(mx x) { return mx_scalar(x, 0); }
static mx is_negative(mx x) { return mx_less(x, zero_like(x)); }
static mx data(const op *o) { return f32_up(in(o, 0)); }

// ---- piecewise linear ---------------------------------------------------------------------------------------------------
static void relu_op(op *o) { out(o, 0, mx_maximum(in(o, 0), zero_like(in(o, 0)))); }

static void leaky_relu_op(op *o) {
  mx x = data(o);
  out(o, 0, mx_where(is_negative(x), num_times(x, (double)attr_f(o->n, "alpha", 0.01f)), x));
}

// Up to version 6 a slope of one axis belongs to the channels, which are axis 1.
static mx prelu_slope(op *o, mx x) {
  mx slope = f32_up(in(o, 1));
  if (o->n->since >= 7 || mx_ndim(slope) != 1 || mx_ndim(x) < 2) return slope;
  mx_ints s = {.n = mx_ndim(x) - 1, .v = {mx_dim(slope, 0)}};
  for (int i = 1; i < s.n; i++) s.v[i] = 1;
  return mx_reshape(slope, s);
}

static void prelu_op(op *o) {
  mx x = data(o);
  out(o, 0, mx_where(is_negative(x), mx_mul(x, prelu_slope(o, x)), x));
}

static void thresholded_relu_op(op *o) {
  mx x = data(o);
  mx above = mx_greater(x, mx_scalar(x, (double)attr_f(o->n, "alpha", 1)));
  out(o, 0, mx_where(above, x, zero_like(x)));
}

static mx hard_sigmoid(mx x, double alpha, double beta) {
  return mx_clip(num_plus(num_times(x, alpha), beta), zero_like(x), mx_scalar(x, 1));
}

static void hard_sigmoid_op(op *o) {
  out(o, 0, hard_sigmoid(data(o), (double)attr_f(o->n, "alpha", 0.2f), (double)attr_f(o->n, "beta", 0.5f)));
}

static void hard_swish_op(op *o) { out(o, 0, mx_mul(data(o), hard_sigmoid(data(o), 1.0 / 6, 0.5))); }

// ---- Shrink ---------------------------------------------------------------------------------------------------------------
enum { SHRINK_LIMIT = 1 << 30 };  // of lambd and bias, so that 64-bit sums of 32-bit data cannot overflow
static const dtypes NARROW = DTYPE_BIT(DT_I8) | DTYPE_BIT(DT_U8) | DTYPE_BIT(DT_I16) | DTYPE_BIT(DT_U16);

static bool whole(float v) { return fabsf(v) <= (float)SHRINK_LIMIT && v == truncf(v); }

static void claim_shrink(claim *c) {
  if (dtype_in(in_type(c, 0), DTS_FLOAT64 | NARROW)) return;
  REQUIRE(c, whole(attr_f(c->n, "lambd", 0.5f)) && whole(attr_f(c->n, "bias", 0)),
          "%s data needs whole lambd and bias", dtype_name(in_type(c, 0)));
}

// Integers: float32 holds the narrow ones exactly, and the wide ones have whole parameters.
static void shrink_op(op *o) {
  mx x = data(o);
  if (dtype_in(mx_dtype(x), NARROW)) x = mx_astype(x, DT_F32);
  else if (dtype_is_int(mx_dtype(x))) x = mx_astype(x, DT_I64);
  double lambd = (double)attr_f(o->n, "lambd", 0.5f), bias = (double)attr_f(o->n, "bias", 0);
  mx high = mx_where(mx_greater(x, mx_scalar(x, lambd)), num_plus(x, -bias), zero_like(x));
  out(o, 0, mx_where(mx_less(x, mx_scalar(x, -lambd)), num_plus(x, bias), high));
}

// ---- exponentials -----------------------------------------------------------------------------------------------------------
static void elu_op(op *o) {
  mx x = data(o);
  out(o, 0, mx_where(is_negative(x), num_times(mx_expm1(x), (double)attr_f(o->n, "alpha", 1)), x));
}

static void selu_op(op *o) {
  mx x = data(o);
  bool first = o->n->since < 6;
  double alpha = (double)attr_f(o->n, "alpha", first ? 1.6732f : 1.67326319217681884765625f);
  double gamma = (double)attr_f(o->n, "gamma", first ? 1.0507f : 1.05070102214813232421875f);
  out(o, 0, num_times(mx_where(is_negative(x), num_times(mx_expm1(x), alpha), x), gamma));
}

static void celu_op(op *o) {
  mx x = data(o);
  double alpha = (double)attr_f(o->n, "alpha", 1);
  mx below = num_times(mx_expm1(mx_div(x, mx_scalar(x, alpha))), alpha);
  out(o, 0, mx_add(mx_maximum(x, zero_like(x)), mx_minimum(below, zero_like(x))));
}

static void softplus_op(op *o) { out(o, 0, num_softplus(data(o))); }
static void softsign_op(op *o) { out(o, 0, mx_div(data(o), num_plus(mx_abs(data(o)), 1))); }
static void mish_op(op *o) { out(o, 0, mx_mul(data(o), mx_tanh(num_softplus(data(o))))); }

static mx swish(mx x, double alpha) { return mx_mul(x, num_sigmoid(alpha == 1 ? x : num_times(x, alpha))); }
static void swish_op(op *o) { out(o, 0, swish(data(o), (double)attr_f(o->n, "alpha", 1))); }
static void quick_gelu_op(op *o) { out(o, 0, swish(data(o), (double)attr_f(o->n, "alpha", 1.702f))); }
static void swiglu_op(op *o) { out(o, 0, mx_mul(swish(data(o), (double)attr_f(o->n, "alpha", 1)), f32_up(in(o, 1)))); }

// Each step rounds to the type of the data. The scale input wins over alpha.
static void scaled_silu_op(op *o) {
  mx x = data(o), scale = in(o, 1);
  dtype t = mx_dtype(in(o, 0));
  mx z = scale ? mx_mul(x, mx_reshape(mx_astype(scale, mx_dtype(x)), (mx_ints){0}))
               : num_times(x, (double)attr_f(o->n, "alpha", 1));
  z = mx_astype(z, t);
  out(o, 0, mx_mul(z, mx_astype(num_sigmoid(f32_up(z)), t)));
}

// ---- Gelu -------------------------------------------------------------------------------------------------------------------
static const double SQRT_HALF = 0.70710678118654752440, SQRT_2_OVER_PI = 0.79788456080286535588;

static mx gelu_erf(mx x) { return mx_mul(num_times(x, 0.5), num_plus(mx_erf(num_times(x, SQRT_HALF)), 1)); }

static mx gelu_tanh(mx x) {
  mx inner = mx_mul(num_times(x, SQRT_2_OVER_PI), num_plus(num_times(mx_square(x), 0.044715), 1));
  return mx_mul(num_times(x, 0.5), num_plus(mx_tanh(inner), 1));
}

static void claim_gelu(claim *c) {
  const char *form = attr_s(c->n, "approximate", "none");
  REQUIRE(c, !strcmp(form, "none") || !strcmp(form, "tanh"), "approximate is '%s', not none or tanh", form);
  if (form[0] != 't') require_types(c, 0, DTS_FLOAT);  // MLX's erf is float32-accurate for float64
}

static void gelu_op(op *o) {
  const char *form = attr_s(o->n, "approximate", "none");
  out(o, 0, form[0] == 't' ? gelu_tanh(data(o)) : gelu_erf(data(o)));
}

static mx biased(op *o) { return in(o, 1) ? mx_add(data(o), f32_up(in(o, 1))) : data(o); }
static void bias_gelu_op(op *o) { out(o, 0, gelu_erf(biased(o))); }
static void fast_gelu_op(op *o) { out(o, 0, gelu_tanh(biased(o))); }

// The first half of the last axis, times Gelu of the second.
static void bias_split_gelu_op(op *o) {
  mx x = biased(o);
  int n = mx_dim(x, -1), last = mx_ndim(x) - 1;
  if (last < 0 || n % 2) op_fail(o, "the last axis cannot be halved");
  else out(o, 0, mx_mul(mx_slice_axis(x, last, 0, n / 2), gelu_erf(mx_slice_axis(x, last, n / 2, n))));
}

// ---- sums -------------------------------------------------------------------------------------------------------------------
static void bias_add_op(op *o) { out(o, 0, mx_add(biased(o), f32_up(in(o, 2)))); }

// The product rounds to the type of the data.
static void gated_add_op(op *o) { out(o, 0, mx_add(in(o, 0), mx_mul(in(o, 1), in(o, 2)))); }

// ---- Clip -------------------------------------------------------------------------------------------------------------------
static double greatest(dtype t) {
  static const double of_bf16 = 0x1.FEp127;
  return t == DT_F64 ? DBL_MAX : t == DT_F32 ? (double)FLT_MAX : t == DT_F16 ? 65504 : of_bf16;
}

// A bound is one number, whatever its rank. An absent one is the type's last finite number, so that infinities are cut.
static mx bound(op *o, size_t i, double side, mx x) {
  mx b = in(o, i);
  if (!b) return dtype_is_float(mx_dtype(x)) ? mx_scalar(x, side * greatest(mx_dtype(x))) : NULL;
  if (mx_size(b) != 1) return op_fail(o, "input %zu, a bound, holds %zu numbers", i, mx_size(b));
  return mx_astype(mx_reshape(b, (mx_ints){0}), mx_dtype(x));
}

// Version 1 has no default bounds, version 6 those of float32.
static mx old_bound(op *o, const char *name, float dflt, mx x) {
  if (o->n->since < 6 && !attr_has(o->n, name)) return NULL;
  return mx_scalar(x, (double)attr_f(o->n, name, dflt));
}

static void clip_op(op *o) {
  mx x = in(o, 0);
  bool old = o->n->since < 11;
  mx lo = old ? old_bound(o, "min", -FLT_MAX, x) : bound(o, 1, -1, x);
  mx hi = old ? old_bound(o, "max", FLT_MAX, x) : bound(o, 2, 1, x);
  out(o, 0, lo || hi ? mx_clip(x, lo, hi) : x);
}

// ---- Dropout ------------------------------------------------------------------------------------------------------------------
static bool const_false(const tensor *t) { return t && t->type == DT_BOOL && t->bytes == 1 && !*(const uint8_t *)t->data; }

static void claim_dropout(claim *c) {
  if (c->n->since < 7)
    REQUIRE(c, attr_i(c->n, "is_test", 0), "is_test is 0: training draws random numbers");
  else if (c->n->since >= 12)
    REQUIRE(c, !has_in(c, 2) || const_false(in_const(c, 2)),
            "training_mode is not constant false: training draws random numbers");
}

static void dropout_op(op *o) {
  mx x = in(o, 0);
  out(o, 0, x);
  if (wants(o, 1)) out(o, 1, mx_logical_or(mx_isnan(x), mx_scalar_i64(o->s, 1, DT_BOOL)));  // all true, of x's shape
}

#define MS "com.microsoft"
const op_row ops_activation[] = {
    OP("", "Relu", 1, ANY, NULL, relu_op, .types = DTS_NUMERIC),
    OP("", "LeakyRelu", 1, ANY, NULL, leaky_relu_op, .types = DTS_FLOAT64),
    OP("", "PRelu", 1, ANY, NULL, prelu_op, .types = DTS_NUMERIC),
    OP("", "ThresholdedRelu", 1, ANY, NULL, thresholded_relu_op, .types = DTS_FLOAT64),
    OP("", "HardSigmoid", 1, ANY, NULL, hard_sigmoid_op, .types = DTS_FLOAT64),
    OP("", "HardSwish", 14, ANY, NULL, hard_swish_op, .types = DTS_FLOAT64),
    OP("", "Shrink", 9, ANY, claim_shrink, shrink_op, .types = DTS_NUMERIC & ~DTYPE_BIT(DT_U64),
       .limits = "integers of 32 and 64 bits need a whole lambd and bias of at most 2^30"),
    OP("", "Elu", 1, ANY, NULL, elu_op, .types = DTS_FLOAT64),
    OP("", "Selu", 1, ANY, NULL, selu_op, .types = DTS_FLOAT64),
    OP("", "Celu", 12, ANY, NULL, celu_op, .types = DTS_FLOAT64),
    OP("", "Softplus", 1, ANY, NULL, softplus_op, .types = DTS_FLOAT64),
    OP("", "Softsign", 1, ANY, NULL, softsign_op, .types = DTS_FLOAT64),
    OP("", "Mish", 18, ANY, NULL, mish_op, .types = DTS_FLOAT64),
    OP("", "Swish", 24, ANY, NULL, swish_op, .types = DTS_FLOAT64),
    OP("", "SwiGLU", 28, ANY, NULL, swiglu_op, .types = DTS_FLOAT64),
    OP("", "Gelu", 20, ANY, claim_gelu, gelu_op, .types = DTS_FLOAT64, .limits = "float64 with approximate=tanh only"),
    OP("", "Clip", 1, ANY, NULL, clip_op, .types = DTS_NUMERIC),
    OP("", "Dropout", 1, ANY, claim_dropout, dropout_op, .types = DTS_FLOAT64, .traits = OP_CHEAP,
       .limits = "inference only: training_mode absent or constant false, is_test=1 before version 7"),
    OP(MS, "Gelu", 1, ANY, NULL, gelu_op, .types = DTS_FLOAT),
    OP(MS, "BiasGelu", 1, ANY, NULL, bias_gelu_op, .types = DTS_FLOAT),
    OP(MS, "FastGelu", 1, ANY, NULL, fast_gelu_op, .types = DTS_FLOAT64),
    OP(MS, "QuickGelu", 1, ANY, NULL, quick_gelu_op, .types = DTS_FLOAT64),
    OP(MS, "ScaledSiLU", 1, ANY, NULL, scaled_silu_op, .types = DTS_FLOAT64, .typed_in = ALL_IN),
    OP(MS, "BiasSplitGelu", 1, ANY, NULL, bias_split_gelu_op, .types = DTS_FLOAT),
    OP(MS, "BiasAdd", 1, ANY, NULL, bias_add_op, .types = DTS_FLOAT64),
    OP(MS, "GatedAdd", 1, ANY, NULL, gated_add_op, .types = DTS_FLOAT64),
    {0},
};
