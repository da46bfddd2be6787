// Changes of element type.
#include <string.h>

#include "ops/narrow.h"

enum { DTS_CAST = DTS_TENSOR | DTS_NARROW };

static const char *round_mode(const node *n) { return attr_s(n, "round_mode", "up"); }

// MLX converts as C does: floats to integers toward zero, what does not fit wraps, NaN to true.
static void claim_target(claim *c, dtypes set) {
  REQUIRE(c, dtype_in(out_type(c, 0), set), "no conversion to type %s", dtype_name(out_type(c, 0)));
}

static void claim_cast(claim *c) {
  claim_target(c, DTS_CAST);
  CLAIM_GOES_ON(c);
  if (out_type(c, 0) != DT_F8E8M0) return;
  const char *mode = round_mode(c->n);
  REQUIRE(c, !strcmp(mode, "up") || !strcmp(mode, "down") || !strcmp(mode, "nearest"), "round_mode '%s' is not known", mode);
}

static void claim_bit_cast(claim *c) {
  claim_target(c, DTS_TENSOR);
  CLAIM_GOES_ON(c);
  REQUIRE(c, dtype_size(in_type(c, 0)) == dtype_size(out_type(c, 0)), "types %s and %s differ in width",
          dtype_name(in_type(c, 0)), dtype_name(out_type(c, 0)));
}

// CUDA brings a float that an unsigned type cannot hold to the nearest that it can; elsewhere it wraps, and so it shall here.
static mx wrapped(mx x, dtype to) {
  bool unsigned_int = dtype_in(to, DTYPE_BIT(DT_U8) | DTYPE_BIT(DT_U16) | DTYPE_BIT(DT_U32) | DTYPE_BIT(DT_U64));
  if (mx_device_of(mx_scope_of(x)) == MX_CPU || !unsigned_int || !dtype_is_float(mx_dtype(x))) return x;
  mx whole = mx_astype(mx_astype(x, DT_I64), to);
  return to == DT_U64 ? mx_where(mx_less(x, mx_scalar(x, 0)), whole, mx_astype(x, to)) : whole;
}

static void cast_op(op *o) {
  dtype from = o->n->in[0]->type, to = want_type(o, 0);
  mx x = in(o, 0);
  if (from != to) x = narrow_values(x, from);
  if (from != to && dtype_in(to, DTS_NARROW)) {
    const char *mode = round_mode(o->n);
    e8m0_round round = !strcmp(mode, "down") ? ROUND_DOWN : !strcmp(mode, "nearest") ? ROUND_NEAREST : ROUND_UP;
    x = narrow_codes(x, to, attr_i(o->n, "saturate", 1) != 0, round);
  }
  out(o, 0, from != to ? wrapped(x, to) : x);
}

static void identity_op(op *o) { out(o, 0, in(o, 0)); }
static void bit_cast_op(op *o) { out(o, 0, mx_view(in(o, 0), want_type(o, 0))); }

const op_row ops_cast[] = {
    OP("", "Cast", 1, ANY, claim_cast, cast_op, .types = DTS_CAST, .traits = OP_CHEAP | OP_NARROW,
       .limits = "no strings; to float8e8m0 by round_mode up, down or nearest"),
    OP("", "CastLike", 15, ANY, claim_cast, cast_op, .types = DTS_CAST, .traits = OP_CHEAP | OP_NARROW,
       .limits = "no strings; to float8e8m0 by round_mode up, down or nearest"),
    OP("", "Identity", 1, ANY, NULL, identity_op, .types = DTS_CAST, .traits = OP_CHEAP | OP_NARROW),
    OP("", "BitCast", 26, ANY, claim_bit_cast, bit_cast_op, .types = DTS_TENSOR, .traits = OP_CHEAP,
       .limits = "between types of one width"),
    {0},
};
