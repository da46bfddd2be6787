#include "ops/narrow.h"

#include <limits.h>
#include <math.h>

// ---- from the host --------------------------------------------------------------------------------------------------------
mx_ints shape_of_tensor(mx_scope *s, const tensor *t) {
  mx_ints shape = {0};
  if (t->rank > MX_MAX_RANK) mx_fail(s, ERR_UNSUPPORTED, "a tensor has rank %d; MLX holds at most %d", t->rank, MX_MAX_RANK);
  else
    for (int i = 0; i < t->rank; i++) {
      if (t->dims[i] < 0 || t->dims[i] > INT_MAX)
        mx_fail(s, ERR_UNSUPPORTED, "a tensor has a dimension of %lld", (long long)t->dims[i]);
      shape.v[shape.n++] = t->dims[i] < 0 || t->dims[i] > INT_MAX ? 0 : (int)t->dims[i];
    }
  return shape;
}

mx narrow_from(mx_scope *s, const tensor *t) {
  mx_ints shape = shape_of_tensor(s, t);
  size_t n = 0, each = dtype_shared(t->type);
  if (each == 1) return mx_from(s, t->data, dtype_code(t->type), shape);
  if (!dims_count(t->dims, t->rank, &n) || n / each + (n % each != 0) > t->bytes)
    return mx_fail(s, ERR_INVALID, "%zu elements of type %s in %zu bytes", n, dtype_name(t->type), t->bytes);
  uint8_t *codes = mem_alloc(n + 1);
  if (!codes) return mx_fail(s, ERR_NO_MEMORY, "out of memory for %zu elements of type %s", n, dtype_name(t->type));
  dtype_unpack(t->type, t->data, codes, n);
  mx x = mx_from(s, codes, dtype_code(t->type), shape);
  mem_free(codes);
  return x;
}

// ---- codes to numbers -------------------------------------------------------------------------------------------------------
typedef struct format {
  int bits, fraction, bias;
  unsigned most, over, nan;  // codes: the largest number, what stands above it, not a number
  bool signless_zero;
} format;

static format format_of(dtype t) {
  switch (t) {
    case DT_F4E2M1: return (format){4, 1, 1, 7, 7, 0, false};  // no NaN: a zero
    case DT_F8E4M3FN: return (format){8, 3, 7, 126, 127, 127, false};
    case DT_F8E4M3FNUZ: return (format){8, 3, 8, 127, 128, 128, true};
    case DT_F8E5M2FNUZ: return (format){8, 2, 16, 127, 128, 128, true};
    default: return (format){8, 2, 15, 123, 124, 127, false};  // float8e5m2
  }
}

static float value_of(dtype t, unsigned code) {
  if (t == DT_F8E8M0) return code == 255 ? NAN : ldexpf(1, (int)code - 127);
  format f = format_of(t);
  unsigned sign = code >> (f.bits - 1), size = code & ((1u << (f.bits - 1)) - 1);
  if (f.signless_zero ? code == f.nan : size > f.most) return size == f.over && f.over != f.nan ? (sign ? -INFINITY : INFINITY) : NAN;
  int exponent = (int)(size >> f.fraction);
  float m = (float)(size & ((1u << f.fraction) - 1)) / (float)(1 << f.fraction);
  float x = exponent ? ldexpf(1 + m, exponent - f.bias) : ldexpf(m, 1 - f.bias);
  return sign ? -x : x;
}

mx narrow_values(mx x, dtype t) {
  if (!dtype_in(t, DTS_NARROW_FLOAT)) return x;
  float table[256];
  unsigned n = t == DT_F4E2M1 ? 16 : 256;
  for (unsigned i = 0; i < n; i++) table[i] = value_of(t, i);
  return mx_take(mx_from(mx_scope_of(x), table, DT_F32, MXI((int)n)), x, 0);
}

// ---- numbers to codes -------------------------------------------------------------------------------------------------------
static mx word(mx like, unsigned v) { return mx_scalar_i64(mx_scope_of(like), v, DT_U32); }
static mx shifted(mx x, int right) { return mx_right_shift(x, word(x, (unsigned)right)); }
static mx masked(mx x, unsigned mask) { return mx_bitwise_and(x, word(x, mask)); }
static mx above(mx x, unsigned v) { return mx_greater(x, word(x, v)); }
static mx set(mx x, mx where, unsigned v) { return mx_where(where, word(x, v), x); }

enum { SIZE = 0x7fffffff, INFINITE = 0x7f800000, FRACTION = 0x7fffff };  // of a float32's bits

static mx float_codes(mx bits, format f, bool saturate) {
  int drop = 23 - f.fraction;
  mx size = masked(bits, SIZE), odd = masked(shifted(size, drop), 1);
  mx near = shifted(mx_add(mx_add(size, odd), word(bits, (1u << (drop - 1)) - 1)), drop);
  mx code = mx_sub(near, word(bits, (unsigned)(127 - f.bias) << f.fraction));
  mx subnormal = mx_less(size, word(bits, (unsigned)(128 - f.bias) << 23));
  mx tiny = mx_view(mx_where(subnormal, size, word(bits, 0)), DT_F32);
  tiny = mx_round(mx_mul(tiny, mx_scalar(tiny, ldexp(1, f.bias - 1 + f.fraction))));
  code = mx_where(subnormal, mx_astype(tiny, DT_U32), code);
  code = set(code, above(code, f.most), saturate ? f.most : f.over);
  code = set(code, above(size, INFINITE), f.nan);
  mx sign = masked(shifted(bits, 32 - f.bits), 1u << (f.bits - 1));
  if (f.signless_zero) sign = set(sign, mx_equal(code, word(code, 0)), 0);
  return mx_bitwise_or(code, sign);
}

// A code is the exponent of a float32, but the least one, which stands for the upper half of the subnormal numbers.
static mx e8m0_codes(mx bits, bool saturate, e8m0_round round) {
  mx size = masked(bits, SIZE), code = shifted(size, 23), negative = above(bits, SIZE);
  if (round != ROUND_DOWN) {
    bool up = round == ROUND_UP;
    mx least = set(word(code, up ? 1 : 0x400000), mx_equal(code, word(code, 0)), up ? 0x400001 : 0x600000);
    code = mx_add(code, mx_astype(mx_greater_equal(masked(size, FRACTION), least), DT_U32));
  }
  if (saturate) {
    code = set(mx_minimum(code, word(code, 254)), negative, 0);
  } else {
    mx outside = mx_logical_or(above(size, 0x7f000000), mx_less(size, word(size, 0x400000)));
    code = set(code, mx_logical_or(negative, outside), 255);
  }
  return set(code, above(size, INFINITE), 255);
}

static mx rounded_away(mx x) {
  mx size = mx_abs(x), whole = mx_floor(size), most = mx_scalar(x, 2147483648.0), none = mx_scalar(x, 0);
  mx one_more = mx_greater_equal(mx_sub(size, whole), mx_scalar(x, 0.5));
  mx r = mx_astype(mx_where(mx_less(size, most), mx_add(whole, mx_astype(one_more, mx_dtype(x))), none), DT_I64);
  return mx_where(mx_less(x, none), mx_neg(r), r);
}

static mx int_codes(mx x, dtype t) {
  int bits = 8 / (int)dtype_shared(t);
  mx v = dtype_is_float(mx_dtype(x)) ? rounded_away(f32_up(x)) : x;
  v = mx_bitwise_and(mx_astype(v, DT_I32), mx_scalar_i64(mx_scope_of(x), (1 << bits) - 1, DT_I32));
  if (dtype_code(t) == DT_U8) return mx_astype(v, DT_U8);
  mx sign = mx_scalar_i64(mx_scope_of(x), 1 << (bits - 1), DT_I32);
  return mx_astype(mx_sub(mx_bitwise_xor(v, sign), sign), DT_I8);
}

mx narrow_codes(mx x, dtype t, bool saturate, e8m0_round round) {
  if (dtype_in(t, DTS_NARROW_INT)) return int_codes(x, t);
  mx bits = mx_view(mx_astype(x, DT_F32), DT_U32);
  return mx_astype(t == DT_F8E8M0 ? e8m0_codes(bits, saturate, round) : float_codes(bits, format_of(t), saturate), DT_U8);
}
