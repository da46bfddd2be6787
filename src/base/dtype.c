#include "base/dtype.h"

#include <math.h>
#include <string.h>

static const struct {
  const char *name;
  size_t size;
} TYPES[DT_COUNT] = {
    [DT_NONE] = {"undefined", 0},      [DT_F32] = {"float32", 4},         [DT_U8] = {"uint8", 1},
    [DT_I8] = {"int8", 1},             [DT_U16] = {"uint16", 2},          [DT_I16] = {"int16", 2},
    [DT_I32] = {"int32", 4},           [DT_I64] = {"int64", 8},           [DT_STRING] = {"string", 0},
    [DT_BOOL] = {"bool", 1},           [DT_F16] = {"float16", 2},         [DT_F64] = {"float64", 8},
    [DT_U32] = {"uint32", 4},          [DT_U64] = {"uint64", 8},          [DT_C64] = {"complex64", 8},
    [DT_C128] = {"complex128", 16},    [DT_BF16] = {"bfloat16", 2},       [DT_F8E4M3FN] = {"float8e4m3fn", 1},
    [DT_F8E4M3FNUZ] = {"float8e4m3fnuz", 1}, [DT_F8E5M2] = {"float8e5m2", 1}, [DT_F8E5M2FNUZ] = {"float8e5m2fnuz", 1},
    [DT_U4] = {"uint4", 0},            [DT_I4] = {"int4", 0},             [DT_F4E2M1] = {"float4e2m1", 0},
    [DT_U2] = {"uint2", 0},            [DT_I2] = {"int2", 0},             [DT_F8E8M0] = {"float8e8m0", 1},
};

const char *dtype_name(dtype t) { return t >= 0 && t < DT_COUNT ? TYPES[t].name : "undefined"; }
size_t dtype_size(dtype t) { return t >= 0 && t < DT_COUNT ? TYPES[t].size : 0; }

dtype dtype_code(dtype t) {
  if (t == DT_I4 || t == DT_I2) return DT_I8;
  return dtype_in(t, DTS_NARROW) ? DT_U8 : t;
}

size_t dtype_shared(dtype t) {
  if (t == DT_U2 || t == DT_I2) return 4;
  return t == DT_U4 || t == DT_I4 || t == DT_F4E2M1 ? 2 : 1;
}

void dtype_unpack(dtype t, const uint8_t *packed, uint8_t *codes, size_t n) {
  size_t each = dtype_shared(t), bits = 8 / each;
  unsigned mask = (1u << bits) - 1, sign = dtype_code(t) == DT_I8 ? 1u << (bits - 1) : 0;
  for (size_t i = 0; i < n; i++) {
    unsigned v = (unsigned)packed[i / each] >> (i % each * bits) & mask;
    codes[i] = (uint8_t)((v ^ sign) - sign);
  }
}

void dtype_pack(dtype t, const uint8_t *codes, uint8_t *packed, size_t n) {
  size_t each = dtype_shared(t), bits = 8 / each;
  unsigned mask = (1u << bits) - 1;
  for (size_t i = 0; i < n; i++) {
    if (i % each == 0) packed[i / each] = 0;
    packed[i / each] = (uint8_t)(packed[i / each] | (codes[i] & mask) << (i % each * bits));
  }
}

double dtype_f16_value(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double v = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
             : exponent     ? ldexp(fraction + 1024, exponent - 25)
                            : ldexp(fraction, -24);
  return bits >> 15 ? -v : v;
}

double dtype_bf16_value(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float f;
  memcpy(&f, &wide, sizeof f);
  return (double)f;
}
