// Products of 8-bit integers, exact in int32 though MLX multiplies floats only. Invariant: a float32 sum of integers is
// exact while no partial sum passes 2^24; a product is split into parts that keep to it, and the parts add up in int32.
#pragma once
#include "ops/op.h"
#include "ops/spatial.h"

enum { DTS_8 = DTYPE_BIT(DT_U8) | DTYPE_BIT(DT_I8) };

// An operand less its zero point.
typedef struct qint {
  mx x;         // float32
  double most;  // no element is larger in absolute value
  double sum;   // nor is the sum of the absolute values that meet in one result; infinite if not known
} qint;

// Input i as float32: rank 0 when it has one element; `none` for an absent one. Fails when it has more.
mx qint_number(op *o, size_t i, double none);
// A scale or zero point of the rows of a matrix (column false) or of its columns: rank 0, [rows, 1], [columns], or as given
// when it has the matrix's rank. NULL when absent.
mx qint_of_matrix(op *o, size_t i, bool column);
// x less zero (float32 or NULL), of a shape that broadcasts into x's; zero_input names it for most and in messages.
qint qint_centred(op *o, mx x, mx zero, size_t zero_input);
// Input i less its zero point of one element.
qint qint_input(op *o, size_t i, size_t zero_input);

// A weight that make() gives as float32 integers, and its bounds: computed once (memo slots `slot` and `slot` + 1) when the
// inputs w and zero (absent if none) are constant. outputs: the axis that results keep; the others are summed.
qint qint_weight(op *o, mx (*make)(op *o), mx (*bounds)(op *o), int slot, size_t w, size_t zero);
// What `bounds` returns: [most, sum] of a weight.
mx qint_bounds(mx w, int outputs);

mx qint_matmul(op *o, qint x, qint w);  // int32; shapes as numpy's matmul takes them
// int32 convolution; x [N, spatial.., C], w [M, spatial.., C / groups].
mx qint_conv(op *o, qint x, qint w, const spatial *s, int groups);

// round(y) + zero within the range of t; y and zero float32.
mx qint_saturated(mx y, mx zero, dtype t);
// x quantised to 0..255 by its own range: gives whole numbers as float32 and sets the scale and the zero point.
mx qint_dynamic(mx x, mx *scale, mx *zero);
