// Products of integer matrices, which MLX does not have.
#pragma once
#include "ops/op.h"

enum { DTS_WIDE_INT = DTYPE_BIT(DT_I32) | DTYPE_BIT(DT_I64) | DTYPE_BIT(DT_U32) | DTYPE_BIT(DT_U64) };

// x [.., m, k] times y [.., k, n] of one wide integer type, exact modulo its size.
mx matmul_int(op *o, mx x, mx y);
