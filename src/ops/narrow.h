// Elements that MLX has no type for: integers of 2 and 4 bits, floats of 4 and 8 bits. They come as constants only.
#pragma once
#include "ops/op.h"

enum {
  DTS_NARROW_INT = DTYPE_BIT(DT_U4) | DTYPE_BIT(DT_I4) | DTYPE_BIT(DT_U2) | DTYPE_BIT(DT_I2),
  DTS_NARROW_FLOAT = DTYPE_BIT(DT_F8E4M3FN) | DTYPE_BIT(DT_F8E4M3FNUZ) | DTYPE_BIT(DT_F8E5M2) | DTYPE_BIT(DT_F8E5M2FNUZ) |
                     DTYPE_BIT(DT_F4E2M1),
  DTS_NARROW = DTS_NARROW_INT | DTS_NARROW_FLOAT
};

// Element i of packed data, the lowest bits first.
float narrow_at(dtype t, const uint8_t *data, size_t i);
// A constant of a narrow type as int8, uint8 (integers) or float32 (floats). NULL when it is too large or cut short.
mx_held *narrow_hold(mx_scope *s, const tensor *t);
