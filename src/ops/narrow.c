#include "ops/narrow.h"

#include <math.h>

static int bits_of(dtype t) {
  if (dtype_in(t, DTYPE_BIT(DT_U2) | DTYPE_BIT(DT_I2))) return 2;
  return dtype_in(t, DTYPE_BIT(DT_U4) | DTYPE_BIT(DT_I4) | DTYPE_BIT(DT_F4E2M1)) ? 4 : 8;
}

// Sign, exponent and `fraction` bits of a float of `bits`; subnormals stand below the first exponent.
static float decoded(unsigned v, int bits, int fraction, int bias) {
  int exponent = (int)(v >> fraction & ((1u << (bits - 1 - fraction)) - 1));
  float m = (float)(v & ((1u << fraction) - 1)) / (float)(1 << fraction);
  float x = exponent ? ldexpf(1 + m, exponent - bias) : ldexpf(m, 1 - bias);
  return v >> (bits - 1) & 1 ? -x : x;
}

static float narrow_float(dtype t, unsigned v) {
  switch (t) {
    case DT_F4E2M1: return decoded(v, 4, 1, 1);
    case DT_F8E4M3FN: return (v & 127) == 127 ? NAN : decoded(v, 8, 3, 7);
    case DT_F8E4M3FNUZ: return v == 128 ? NAN : decoded(v, 8, 3, 8);
    case DT_F8E5M2FNUZ: return v == 128 ? NAN : decoded(v, 8, 2, 16);
    default:
      if ((v & 127) < 124) return decoded(v, 8, 2, 15);
      return (v & 3) ? NAN : v & 128 ? -INFINITY : INFINITY;
  }
}

float narrow_at(dtype t, const uint8_t *data, size_t i) {
  int bits = bits_of(t);
  size_t each = (size_t)(8 / bits);
  unsigned v = (unsigned)(data[i / each] >> (i % each * (size_t)bits)) & ((1u << bits) - 1);
  if (dtype_in(t, DTS_NARROW_FLOAT)) return narrow_float(t, v);
  bool is_signed = t == DT_I4 || t == DT_I2;
  return (float)v - (is_signed && v >> (bits - 1) ? (float)(1 << bits) : 0);
}

mx_held *narrow_hold(mx_scope *s, const tensor *t) {
  size_t n = 0, each = (size_t)(8 / bits_of(t->type));
  mx_ints shape = {.n = t->rank};
  if (t->rank > MX_MAX_RANK || !dims_count(t->dims, t->rank, &n) || n >= 1u << 31 || (n + each - 1) / each > t->bytes) return NULL;
  for (int i = 0; i < t->rank; i++) shape.v[i] = (int)t->dims[i];
  bool is_float = dtype_in(t->type, DTS_NARROW_FLOAT), is_signed = t->type == DT_I4 || t->type == DT_I2;
  void *v = mem_alloc((n + 1) * (is_float ? sizeof(float) : 1));
  if (!v) return NULL;
  for (size_t i = 0; i < n; i++) {
    float x = narrow_at(t->type, t->data, i);
    if (is_float) ((float *)v)[i] = x;
    else if (is_signed) ((int8_t *)v)[i] = (int8_t)x;
    else ((uint8_t *)v)[i] = (uint8_t)x;
  }
  mx x = mx_from(s, v, is_float ? DT_F32 : is_signed ? DT_I8 : DT_U8, shape);
  mem_free(v);
  return mx_hold(x);
}
