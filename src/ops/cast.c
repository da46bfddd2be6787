// Changes of element type.
#include "ops/op.h"

// MLX converts as C does: floats to integers toward zero, what does not fit wraps, NaN to true.
static void claim_cast(claim *c) {
  require_types(c, 0, DTS_TENSOR);
  CLAIM_GOES_ON(c);
  REQUIRE(c, dtype_in(out_type(c, 0), DTS_TENSOR), "no conversion to type %s", dtype_name(out_type(c, 0)));
}

static void claim_bit_cast(claim *c) {
  claim_cast(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, dtype_size(in_type(c, 0)) == dtype_size(out_type(c, 0)), "types %s and %s differ in width",
          dtype_name(in_type(c, 0)), dtype_name(out_type(c, 0)));
}

static void cast_op(op *o) { out(o, 0, in(o, 0)); }
static void bit_cast_op(op *o) { out(o, 0, mx_view(in(o, 0), want_type(o, 0))); }

const op_row ops_cast[] = {
    OP("", "Cast", 1, ANY, claim_cast, cast_op, .traits = OP_CHEAP),
    OP("", "CastLike", 15, ANY, claim_cast, cast_op, .traits = OP_CHEAP),
    OP("", "Identity", 1, ANY, claim_cast, cast_op, .traits = OP_CHEAP),
    OP("", "BitCast", 26, ANY, claim_bit_cast, bit_cast_op, .traits = OP_CHEAP),
    {0},
};
