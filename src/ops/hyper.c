// com.microsoft: networks of several residual streams: their norm, how they are mixed, and the gate of their memories.
// Streams are (.., C, H), or flat (.., C * H) when num_branches says C. Arithmetic is in float32.
#include <math.h>

#include "ops/index.h"
#include "ops/numeric.h"

static void streams_claim(claim *c) {
  dtype t = in_type(c, 0);
  require_in_types(c, DTYPE_BIT(t));
  CLAIM_GOES_ON(c);
  int64_t n = attr_i(c->n, "num_branches", 0);
  REQUIRE(c, n >= 0 && n < 1 << 30, "num_branches %lld", (long long)n);
}

// x as float32 (.., C, H).
static mx branches(op *o, mx x) {
  int n = (int)attr_i(o->n, "num_branches", 0);
  mx_ints shape = mx_shape(x);
  x = mx_astype(x, DT_F32);
  if (!n) return shape.n >= 2 ? x : op_fail(o, "streams of rank %d", shape.n);
  if (shape.n < 1 || shape.n >= MX_MAX_RANK || shape.v[shape.n - 1] % n)
    return op_fail(o, "an axis of %d for %d branches", mx_dim(x, -1), n);
  shape.v[shape.n] = shape.v[shape.n - 1] / n;
  shape.v[shape.n - 1] = n;
  shape.n++;
  return mx_reshape(x, shape);
}

static bool ends_with(mx x, int c, int h) { return mx_ndim(x) >= 2 && mx_dim(x, -2) == c && mx_dim(x, -1) == h; }

static mx rms(mx x, double eps) {
  mx mean = mx_mean(mx_square(x), MXI(mx_ndim(x) - 1), true);
  return mx_mul(x, mx_rsqrt(num_plus(mean, eps)));
}

static void branchwise_norm(op *o) {
  mx x = branches(o, in(o, 0)), scale = in(o, 1);
  int c = mx_dim(x, -2), h = mx_dim(x, -1);
  if (!mx_ok(o->s)) return;
  mx y = h ? rms(x, (double)attr_f(o->n, "epsilon", 1e-5f)) : x;
  if (scale) {
    bool all = (mx_ndim(scale) == 1 && mx_dim(scale, 0) == (int64_t)c * h) || (mx_ndim(scale) == 2 && ends_with(scale, c, h));
    bool each = mx_ndim(scale) == 1 && mx_dim(scale, 0) == h;
    if (!all && !each) op_fail(o, "a scale of %zu elements for %d branches of %d", mx_size(scale), c, h);
    if (!mx_ok(o->s)) return;
    scale = mx_astype(scale, DT_F32);
    y = mx_mul(y, all ? mx_reshape(scale, MXI(c, h)) : scale);
  }
  out(o, 0, mx_reshape(y, mx_shape(in(o, 0))));
}

// Gates (.., C), (.., C, 1), (.., C, H) or, where flat is allowed, (.., C * H), to be multiplied with x.
static mx gates(op *o, size_t i, mx x, bool flat) {
  mx g = mx_astype(in(o, i), DT_F32);
  int rank = mx_ndim(x), c = mx_dim(x, -2), h = mx_dim(x, -1);
  if (mx_ndim(g) == rank - 1 && mx_dim(g, -1) == c) return mx_expand_dims(g, MXI(rank - 1));
  if (mx_ndim(g) == rank && (ends_with(g, c, 1) || ends_with(g, c, h))) return g;
  if (flat && attr_i(o->n, "num_branches", 0) && mx_ndim(g) == rank - 1 && mx_dim(g, -1) == (int64_t)c * h) return mx_reshape(g, mx_shape(x));
  return op_fail(o, "input %zu of rank %d and width %d for %d branches of %d", i, mx_ndim(g), mx_dim(g, -1), c, h);
}

static void pre_mix(op *o) {
  mx x = branches(o, in(o, 0));
  if (!mx_ok(o->s)) return;
  mx y = mx_sum(mx_mul(x, gates(o, 1, x, true)), MXI(mx_ndim(x) - 2), false);
  out(o, 0, num_times(y, (double)attr_f(o->n, "reduction_scale", 1)));
}

static void post_mix(op *o) {
  mx x = branches(o, in(o, 0)), block = mx_astype(in(o, 1), DT_F32), mix = in(o, 3);
  int rank = mx_ndim(x), c = mx_dim(x, -2);
  if (!mx_ok(o->s)) return;
  if (mx_ndim(block) != rank - 1 || mx_dim(block, -1) != mx_dim(x, -1)) op_fail(o, "block_output does not fit the streams");
  if (mix && (mx_ndim(mix) != rank || !ends_with(mix, c, c))) op_fail(o, "stream_mix must end with [%d, %d]", c, c);
  mx gate = mx_ok(o->s) ? gates(o, 2, x, false) : x;
  if (!mx_ok(o->s)) return;
  mx add = mx_mul(gate, mx_expand_dims(block, MXI(rank - 2)));
  if (mix) x = mx_matmul(mx_swapaxes(mx_astype(mix, DT_F32), rank - 2, rank - 1), x);
  out(o, 0, mx_reshape(mx_add(x, add), mx_shape(in(o, 0))));
}

// ---- EngramGate -----------------------------------------------------------------------------------------------------------
enum { E_KEY, E_QUERY, E_VALUE, E_KEY_SCALE, E_QUERY_SCALE, E_CONV_SCALE };

static mx normed(op *o, mx x, size_t scale, double eps) {
  mx s = in(o, scale);
  if (mx_ndim(s) != 2 || !ends_with(s, mx_dim(x, 2), mx_dim(x, 3)))
    return op_fail(o, "input %zu must have shape [%d, %d]", scale, mx_dim(x, 2), mx_dim(x, 3));
  return mx_mul(rms(x, eps), mx_astype(s, DT_F32));
}

static void engram_gate(op *o) {
  mx k = mx_astype(in(o, E_KEY), DT_F32), q = mx_astype(in(o, E_QUERY), DT_F32), v = mx_astype(in(o, E_VALUE), DT_F32);
  double eps = (double)attr_f(o->n, "epsilon", 1e-5f);
  bool fits = mx_ndim(k) == 4 && mx_ndim(q) == 4 && mx_ndim(v) == 3 && mx_dim(v, 2) == mx_dim(k, 3) && mx_dim(k, 3) > 0;
  for (int i = 0; fits && i < 4; i++) fits = mx_dim(q, i) == mx_dim(k, i) && (i > 1 || mx_dim(v, i) == mx_dim(k, i));
  if (!fits) op_fail(o, "key, query and value do not fit together");
  if (!mx_ok(o->s)) return;
  mx dot = mx_sum(mx_mul(normed(o, k, E_KEY_SCALE, eps), normed(o, q, E_QUERY_SCALE, eps)), MXI(3), true);
  dot = num_times(dot, 1 / sqrt(mx_dim(k, 3)));
  mx root = mx_sqrt(mx_maximum(mx_abs(dot), mx_scalar(dot, 1e-6)));
  mx gated = mx_mul(mx_sigmoid(mx_mul(mx_sign(dot), root)), mx_expand_dims(v, MXI(2)));
  out(o, 0, gated);
  if (wants(o, 1)) out(o, 1, normed(o, gated, E_CONV_SCALE, eps));
}

static void engram_claim(claim *c) {
  streams_claim(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, !has_out(c, 1) || has_in(c, E_CONV_SCALE), "gated_value_normed needs conv_norm_scale");
}

#define MS "com.microsoft"
const op_row ops_hyper[] = {
    OP(MS, "BranchwiseRMSNorm", 1, ANY, streams_claim, branchwise_norm, .types = DTS_FLOAT,
       .limits = "all inputs of one type"),
    OP(MS, "HyperConnectionPreMix", 1, ANY, streams_claim, pre_mix, .types = DTS_FLOAT,
       .limits = "all inputs of one type"),
    OP(MS, "HyperConnectionPostMix", 1, ANY, streams_claim, post_mix, .types = DTS_FLOAT,
       .limits = "all inputs of one type"),
    OP(MS, "EngramGate", 1, ANY, engram_claim, engram_gate, .types = DTS_FLOAT,
       .limits = "all inputs of one type; gated_value_normed needs conv_norm_scale"),
    {0}};
