// QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear, computed in float32.
#include "ops/narrow.h"
#include "ops/qint.h"

enum {
  DTS_8_16 = DTYPE_BIT(DT_U8) | DTYPE_BIT(DT_I8) | DTYPE_BIT(DT_U16) | DTYPE_BIT(DT_I16),
  DTS_STORED = DTS_8_16 | (DTS_NARROW & ~DTYPE_BIT(DT_F8E8M0))
};
enum { Q_X, Q_SCALE, Q_ZERO };
static const char *const attrs[] = {"axis", "block_size", "output_dtype", "precision", "saturate", NULL};

static void claim_parameters(claim *c) {
  int64_t block = attr_i(c->n, "block_size", 0), axis = attr_i(c->n, "axis", 1);
  int rank = in_rank(c, Q_X), scales = in_rank(c, Q_SCALE);
  REQUIRE(c, block >= 0 && block <= 1 << 30, "block_size %lld", (long long)block);
  REQUIRE(c, block == 0 ? scales <= 1 : rank < 0 || scales < 0 || scales == rank, "a scale of rank %d", scales);
  bool per_axis = block > 0 || (scales == 1 && in_dim(c, Q_SCALE, 0) > 1);
  REQUIRE(c, !per_axis || rank < 0 || (axis >= -rank && axis < rank), "axis %lld for rank %d", (long long)axis, rank);
}

// Input i in a type that MLX has; NULL if absent.
static mx number(const op *o, size_t i) { return in(o, i) ? narrow_values(in(o, i), o->n->in[i]->type) : NULL; }

// Scale or zero point p (input i), float32, in a shape that x's broadcasts with.
static mx parameter(op *o, size_t i, mx p, mx x) {
  int64_t block = attr_i(o->n, "block_size", 0);
  p = dtype_in(mx_dtype(p), DTYPE_BIT(DT_I32)) ? p : mx_astype(p, DT_F32);
  if (mx_size(p) == 1 && !block) return mx_reshape(p, (mx_ints){0});
  int rank = mx_ndim(x), axis = norm_axis(o, attr_i(o->n, "axis", 1), rank);
  if (!mx_ok(o->s)) return p;
  int size = mx_dim(x, axis);
  if (!block) {
    if (mx_ndim(p) != 1 || mx_dim(p, 0) != size)
      return op_fail(o, "input %zu must have one element or one for each of %d along axis %d", i, size, axis);
    mx_ints shape = {.n = rank};
    for (int a = 0; a < rank; a++) shape.v[a] = a == axis ? size : 1;
    return mx_reshape(p, shape);
  }
  bool fits = mx_ndim(p) == rank && (int64_t)mx_dim(p, axis) * block >= size;
  for (int a = 0; fits && a < rank; a++) fits = a == axis || mx_dim(p, a) == mx_dim(x, a);
  if (!fits) return op_fail(o, "input %zu does not fit blocks of %lld along axis %d", i, (long long)block, axis);
  if (block >= size) return mx_slice_axis(p, axis, 0, size ? 1 : 0);
  return mx_slice_axis(mx_repeat(p, (int)block, axis), axis, 0, size);
}

// ---- quantising ---------------------------------------------------------------------------------------------------------
static double least(dtype t) {
  switch (t) {
    case DT_I2: return -2;
    case DT_I4: return -8;
    case DT_I8: return -128;
    case DT_I16: return -32768;
    default: return 0;
  }
}

static double most(dtype t) {
  switch (t) {
    case DT_I2: return 1;
    case DT_U2: return 3;
    case DT_I4: return 7;
    case DT_U4: return 15;
    case DT_I8: return 127;
    case DT_U8: return 255;
    case DT_I16: return 32767;
    default: return 65535;
  }
}

static mx saturated(mx y, dtype t) {
  return mx_astype(mx_clip(y, mx_scalar(y, least(t)), mx_scalar(y, most(t))), dtype_code(t));
}

static void quantize_claim(claim *c) {
  require_known(c, attrs);
  require_types(c, Q_SCALE, DTS_FLOAT | DTYPE_BIT(DT_F8E8M0));
  require_types(c, Q_ZERO, DTS_STORED);
  CLAIM_GOES_ON(c);
  REQUIRE(c, dtype_in(out_type(c, 0), DTS_STORED), "output of type %s", dtype_name(out_type(c, 0)));
  dtype precision = (dtype)attr_i(c->n, "precision", 0);
  REQUIRE(c, precision == DT_NONE || dtype_in(precision, DTS_FLOAT), "precision %s", dtype_name(precision));
  claim_parameters(c);
}

static void quantize(op *o) {
  mx x = mx_astype(in(o, Q_X), DT_F32);
  dtype precision = (dtype)attr_i(o->n, "precision", 0);
  mx scale = parameter(o, Q_SCALE, number(o, Q_SCALE), x), y;
  if (precision == DT_F16 || precision == DT_BF16)
    y = mx_astype(mx_div(mx_astype(x, precision), mx_astype(scale, precision)), DT_F32);
  else y = mx_div(x, scale);
  dtype t = want_type(o, 0);
  bool to_float = dtype_in(t, DTS_NARROW_FLOAT);
  if (!to_float) y = mx_round(y);
  if (in(o, Q_ZERO)) y = mx_add(y, parameter(o, Q_ZERO, number(o, Q_ZERO), x));
  out(o, 0, to_float ? narrow_codes(y, t, attr_i(o->n, "saturate", 1) != 0, ROUND_UP) : saturated(y, t));
}

// ---- and back -------------------------------------------------------------------------------------------------------------
static void dequantize_claim(claim *c) {
  require_known(c, attrs);
  require_types(c, Q_SCALE, DTS_FLOAT | DTYPE_BIT(DT_F8E8M0));
  CLAIM_GOES_ON(c);
  REQUIRE(c, !has_in(c, Q_ZERO) || in_type(c, Q_ZERO) == in_type(c, Q_X), "a zero point of another type");
  REQUIRE(c, dtype_in(out_type(c, 0), DTS_FLOAT), "output of type %s", dtype_name(out_type(c, 0)));
  claim_parameters(c);
}

// int32 is centred as an integer, the smaller types as float32: either is exact.
static void dequantize(op *o) {
  mx x = number(o, Q_X), zero = number(o, Q_ZERO);
  mx y = mx_dtype(x) == DT_I32 ? x : mx_astype(x, DT_F32);
  if (zero) y = mx_sub(y, parameter(o, Q_ZERO, zero, x));
  out(o, 0, mx_mul(mx_astype(y, DT_F32), parameter(o, Q_SCALE, number(o, Q_SCALE), x)));
}

// ---- with a scale of its own -------------------------------------------------------------------------------------------------

static void dynamic(op *o) {
  mx scale, zero;
  out(o, 0, qint_dynamic(in(o, 0), &scale, &zero));
  out(o, 1, scale);
  out(o, 2, zero);
}

const op_row ops_quant[] = {
    OP("", "QuantizeLinear", 10, ANY, quantize_claim, quantize, .types = DTS_FLOAT | DTYPE_BIT(DT_I32),
       .traits = OP_NARROW, .limits = "a float scale, of rank 1 at most unless block_size is given"),
    OP("", "DequantizeLinear", 10, ANY, dequantize_claim, dequantize, .types = DTS_STORED | DTYPE_BIT(DT_I32),
       .traits = OP_NARROW,
       .limits = "a float scale, of rank 1 at most unless block_size is given; the output is float32, float16 or bfloat16"),
    OP("", "DynamicQuantizeLinear", 11, ANY, NULL, dynamic, .types = DTYPE_BIT(DT_F32)),
    OP("com.microsoft", "QuantizeLinear", 1, ANY, quantize_claim, quantize, .types = DTS_FLOAT | DTYPE_BIT(DT_I32),
       .traits = OP_NARROW, .limits = "a float scale, of rank 1 at most unless block_size is given"),
    OP("com.microsoft", "DequantizeLinear", 1, ANY, dequantize_claim, dequantize,
       .types = DTS_STORED | DTYPE_BIT(DT_I32), .traits = OP_NARROW,
       .limits = "a float scale, of rank 1 at most unless block_size is given; the output is float32, float16 or bfloat16"),
    {0}};
