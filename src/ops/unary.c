// Operators of one input, element by element.
#include "ops/numeric.h"
#include "ops/op.h"

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
    OP("", "Abs", 1, ANY, NULL, abs_op, .types = DTS_NUMERIC),
    OP("", "Neg", 1, ANY, NULL, neg_op, .types = DTS_NUMERIC),
    OP("", "Sign", 9, ANY, NULL, sign_op, .types = DTS_NUMERIC),
    OP("", "Sqrt", 1, ANY, NULL, sqrt_op, .types = DTS_FLOAT64),
    OP("", "Reciprocal", 1, ANY, NULL, reciprocal_op, .types = DTS_FLOAT64),
    OP("", "Exp", 1, ANY, NULL, exp_op, .types = DTS_FLOAT64),
    OP("", "Log", 1, ANY, NULL, log_op, .types = DTS_FLOAT64),
    OP("", "Sin", 7, ANY, NULL, sin_op, .types = DTS_FLOAT64),
    OP("", "Cos", 7, ANY, NULL, cos_op, .types = DTS_FLOAT64),
    OP("", "Tan", 7, ANY, NULL, tan_op, .types = DTS_FLOAT64),
    OP("", "Asin", 7, ANY, NULL, asin_op, .types = DTS_FLOAT64),
    OP("", "Acos", 7, ANY, NULL, acos_op, .types = DTS_FLOAT64),
    OP("", "Atan", 7, ANY, NULL, atan_op, .types = DTS_FLOAT64),
    OP("", "Sinh", 9, ANY, NULL, sinh_op, .types = DTS_FLOAT64),
    OP("", "Cosh", 9, ANY, NULL, cosh_op, .types = DTS_FLOAT64),
    OP("", "Tanh", 1, ANY, NULL, tanh_op, .types = DTS_FLOAT64),
    OP("", "Asinh", 9, ANY, NULL, asinh_op, .types = DTS_FLOAT64),
    OP("", "Acosh", 9, ANY, NULL, acosh_op, .types = DTS_FLOAT64),
    OP("", "Atanh", 9, ANY, NULL, atanh_op, .types = DTS_FLOAT64),
    OP("", "Erf", 9, ANY, NULL, erf_op, .types = DTS_FLOAT),  // MLX's erf is float32-accurate for float64
    OP("", "Ceil", 1, ANY, NULL, ceil_op, .types = DTS_FLOAT64),
    OP("", "Floor", 1, ANY, NULL, floor_op, .types = DTS_FLOAT64),
    OP("", "Round", 11, ANY, NULL, round_op, .types = DTS_FLOAT64),
    OP("", "IsNaN", 9, ANY, NULL, isnan_op, .types = DTS_FLOAT64),
    OP("", "IsInf", 10, ANY, NULL, isinf_op, .types = DTS_FLOAT64),
    OP("", "Not", 1, ANY, NULL, not_op, .types = DTS_BOOL),
    OP("", "BitwiseNot", 18, ANY, NULL, bitwise_not_op, .types = DTS_INT),
    OP("", "Sigmoid", 1, ANY, NULL, sigmoid_op, .types = DTS_FLOAT64),
    {0},
};
