// Operators of one input, element by element.
#include "ops/numeric.h"
#include "ops/op.h"

static void claim_float(claim *c) { require_in_types(c, DTS_FLOAT64); }
static void claim_numeric(claim *c) { require_in_types(c, DTS_NUMERIC); }
static void claim_int(claim *c) { require_in_types(c, DTS_INT); }
static void claim_bool(claim *c) { require_in_types(c, DTS_BOOL); }

// MLX's erf is float32-accurate for float64.
static void claim_erf(claim *c) { require_in_types(c, DTS_FLOAT); }

static void abs_op(op *o) { out(o, 0, mx_abs(in(o, 0))); }
static void neg_op(op *o) { out(o, 0, mx_neg(in(o, 0))); }
static void sqrt_op(op *o) { out(o, 0, mx_sqrt(in(o, 0))); }
static void reciprocal_op(op *o) { out(o, 0, mx_reciprocal(in(o, 0))); }
static void exp_op(op *o) { out(o, 0, num_exp(in(o, 0))); }
static void log_op(op *o) { out(o, 0, mx_log(in(o, 0))); }
static void sin_op(op *o) { out(o, 0, num_sin(in(o, 0))); }
static void cos_op(op *o) { out(o, 0, num_cos(in(o, 0))); }
static void tan_op(op *o) { out(o, 0, mx_tan(in(o, 0))); }
static void asin_op(op *o) { out(o, 0, mx_asin(in(o, 0))); }
static void acos_op(op *o) { out(o, 0, mx_acos(in(o, 0))); }
static void atan_op(op *o) { out(o, 0, mx_atan(in(o, 0))); }
static void sinh_op(op *o) { out(o, 0, mx_sinh(in(o, 0))); }
static void cosh_op(op *o) { out(o, 0, mx_cosh(in(o, 0))); }
static void tanh_op(op *o) { out(o, 0, mx_tanh(in(o, 0))); }
static void asinh_op(op *o) { out(o, 0, mx_asinh(in(o, 0))); }
static void acosh_op(op *o) { out(o, 0, mx_acosh(in(o, 0))); }
static void atanh_op(op *o) { out(o, 0, mx_atanh(in(o, 0))); }
static void erf_op(op *o) { out(o, 0, mx_erf(in(o, 0))); }
static void ceil_op(op *o) { out(o, 0, mx_ceil(in(o, 0))); }
static void floor_op(op *o) { out(o, 0, mx_floor(in(o, 0))); }
static void round_op(op *o) { out(o, 0, mx_round(in(o, 0))); }  // half to even, as ONNX
static void isnan_op(op *o) { out(o, 0, mx_isnan(in(o, 0))); }
static void not_op(op *o) { out(o, 0, mx_logical_not(in(o, 0))); }
static void bitwise_not_op(op *o) { out(o, 0, mx_bitwise_not(in(o, 0))); }

// In a half type MLX rounds after each of the sigmoid's steps.
static void sigmoid_op(op *o) { out(o, 0, num_sigmoid(f32_up(in(o, 0)))); }

// MLX gives 0 for NaN.
static void sign_op(op *o) {
  mx x = in(o, 0);
  if (!dtype_is_float(mx_dtype(x))) out(o, 0, mx_sign(x));
  else out(o, 0, mx_where(mx_isnan(x), x, mx_sign(x)));
}

static void isinf_op(op *o) {
  mx x = in(o, 0);
  bool negative = attr_i(o->n, "detect_negative", 1) != 0, positive = attr_i(o->n, "detect_positive", 1) != 0;
  if (negative && positive) out(o, 0, mx_isinf(x));
  else if (negative) out(o, 0, mx_isneginf(x));
  else if (positive) out(o, 0, mx_isposinf(x));
  else out(o, 0, mx_not_equal(mx_isinf(x), mx_isinf(x)));  // all false, of x's shape
}

const op_row ops_unary[] = {
    OP("", "Abs", 1, ANY, claim_numeric, abs_op, .traits = 0),
    OP("", "Neg", 1, ANY, claim_numeric, neg_op, .traits = 0),
    OP("", "Sign", 9, ANY, claim_numeric, sign_op, .traits = 0),
    OP("", "Sqrt", 1, ANY, claim_float, sqrt_op, .traits = 0),
    OP("", "Reciprocal", 1, ANY, claim_float, reciprocal_op, .traits = 0),
    OP("", "Exp", 1, ANY, claim_float, exp_op, .traits = 0),
    OP("", "Log", 1, ANY, claim_float, log_op, .traits = 0),
    OP("", "Sin", 7, ANY, claim_float, sin_op, .traits = 0),
    OP("", "Cos", 7, ANY, claim_float, cos_op, .traits = 0),
    OP("", "Tan", 7, ANY, claim_float, tan_op, .traits = 0),
    OP("", "Asin", 7, ANY, claim_float, asin_op, .traits = 0),
    OP("", "Acos", 7, ANY, claim_float, acos_op, .traits = 0),
    OP("", "Atan", 7, ANY, claim_float, atan_op, .traits = 0),
    OP("", "Sinh", 9, ANY, claim_float, sinh_op, .traits = 0),
    OP("", "Cosh", 9, ANY, claim_float, cosh_op, .traits = 0),
    OP("", "Tanh", 1, ANY, claim_float, tanh_op, .traits = 0),
    OP("", "Asinh", 9, ANY, claim_float, asinh_op, .traits = 0),
    OP("", "Acosh", 9, ANY, claim_float, acosh_op, .traits = 0),
    OP("", "Atanh", 9, ANY, claim_float, atanh_op, .traits = 0),
    OP("", "Erf", 9, ANY, claim_erf, erf_op, .traits = 0),
    OP("", "Ceil", 1, ANY, claim_float, ceil_op, .traits = 0),
    OP("", "Floor", 1, ANY, claim_float, floor_op, .traits = 0),
    OP("", "Round", 11, ANY, claim_float, round_op, .traits = 0),
    OP("", "IsNaN", 9, ANY, claim_float, isnan_op, .traits = 0),
    OP("", "IsInf", 10, ANY, claim_float, isinf_op, .traits = 0),
    OP("", "Not", 1, ANY, claim_bool, not_op, .traits = 0),
    OP("", "BitwiseNot", 18, ANY, claim_int, bitwise_not_op, .traits = 0),
    OP("", "Sigmoid", 1, ANY, claim_float, sigmoid_op, .traits = 0),
    {0},
};
