// MoE and QMoE of com.microsoft: each token goes through its best experts, and their results are weighed and summed. The
// choice is read on the host, so that every expert multiplies its own tokens only.
#include <limits.h>
#include <math.h>
#include <string.h>

#include "ops/nbits.h"

enum { FC1, FC2, FC3, LAYERS };
typedef struct layer_inputs {
  size_t w, scales, bias, zeros;
} layer_inputs;
enum { ABSENT = 31 };
static const layer_inputs plain_layers[LAYERS] = {{2, ABSENT, 3, ABSENT}, {4, ABSENT, 5, ABSENT}, {6, ABSENT, 7, ABSENT}};
static const layer_inputs packed_layers[LAYERS] = {{2, 3, 4, 11}, {5, 6, 7, 12}, {8, 9, 10, 13}};
enum { M_X, M_ROUTER, M_ROUTER_WEIGHTS = 14 };

static bool is_packed(const node *n) { return !strcmp(n->op_type, "QMoE"); }
static const layer_inputs *layers_of(const node *n) { return is_packed(n) ? packed_layers : plain_layers; }
static bool present(const node *n, size_t i) { return i < n->n_in && n->in[i]; }

static bool is_swiglu(const node *n) { return !strcmp(attr_s(n, "activation_type", "relu"), "swiglu"); }
// Gate and linear part in one layer?
static bool is_fused(const node *n) { return is_swiglu(n) && attr_i(n, "swiglu_fusion", 0) != 0; }

static const char *const bits_attrs[LAYERS] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits"};
static int64_t bits_of(const node *n, int layer) { return attr_i(n, bits_attrs[layer], attr_i(n, "expert_weight_bits", 4)); }

// ---- claiming -----------------------------------------------------------------------------------------------------------
static const char *const moe_attrs[] = {"activation_alpha", "activation_beta", "activation_type", "k", "normalize_routing_weights",
                                        "swiglu_fusion", "swiglu_limit", "use_sparse_mixer", NULL};
static const char *const qmoe_attrs[] = {
    "activation_alpha", "activation_beta", "activation_type", "k", "normalize_routing_weights", "swiglu_fusion",
    "swiglu_limit", "use_sparse_mixer", "accuracy_level", "block_size", "expert_weight_bits", "fc1_expert_weight_bits",
    "fc2_expert_weight_bits", "fc3_expert_weight_bits", "quant_type", "weights_prepacked", NULL};

static void claim_common(claim *c) {
  const node *n = c->n;
  const char *act = attr_s(n, "activation_type", "relu");
  static const char *const acts[] = {"relu", "gelu", "silu", "swiglu", "identity", NULL};
  bool known = false;
  for (int i = 0; acts[i]; i++) known = known || !strcmp(act, acts[i]);
  REQUIRE(c, known, "activation_type '%s'", act);
  int64_t k = attr_i(n, "k", 1), fusion = attr_i(n, "swiglu_fusion", 0), experts = in_dim(c, M_ROUTER, -1);
  REQUIRE(c, k >= 1 && k <= 1 << 20 && (experts < 0 || k <= experts), "k is %lld", (long long)k);
  REQUIRE(c, !attr_i(n, "use_sparse_mixer", 0), "use_sparse_mixer");
  REQUIRE(c, fusion >= 0 && fusion <= 2, "swiglu_fusion %lld", (long long)fusion);
  bool third = has_in(c, layers_of(n)[FC3].w);
  REQUIRE(c, is_swiglu(n) ? third != (fusion != 0) : true, "swiglu needs either swiglu_fusion or fc3");
  REQUIRE(c, in_rank(c, M_X) < 0 || in_rank(c, M_X) == 2 || in_rank(c, M_X) == 3, "input of rank %d", in_rank(c, M_X));
  REQUIRE(c, in_rank(c, M_ROUTER) < 0 || in_rank(c, M_ROUTER) == 2, "router_probs of rank %d", in_rank(c, M_ROUTER));
}

static void moe_claim(claim *c) {
  require_known(c, moe_attrs);
  for (int l = 0; l < LAYERS; l++) {
    int rank = in_rank(c, plain_layers[l].w);
    REQUIRE(c, rank < 0 || rank == 3, "weights of rank %d", rank);
  }
  claim_common(c);
}

// The sizes of layer l: experts, outputs, inputs; false when its constants do not fit each other.
typedef struct layer_sizes {
  int64_t experts, n, k, blocks, block;
} layer_sizes;

static bool sizes_of(const node *n, int l, layer_sizes *s) {
  const layer_inputs *at = &packed_layers[l];
  const tensor *w = n->in[at->w]->constant, *scales = present(n, at->scales) ? n->in[at->scales]->constant : NULL;
  int64_t bits = bits_of(n, l), block = attr_i(n, "block_size", 0);
  if (!w || !scales || w->rank != 3 || w->dims[2] > INT_MAX / 8 || (scales->rank != 2 && scales->rank != 3)) return false;
  *s = (layer_sizes){w->dims[0], w->dims[1], w->dims[2] * 8 / bits, scales->rank == 3 ? scales->dims[2] : 1, block};
  if (s->n < 1 || s->n > INT_MAX / 2 || s->k < 1 || s->experts < 1) return false;
  bool blocks = s->blocks > 1 || block == s->k;
  if (!blocks) s->block = 0;
  bool fits = scales->dims[0] == s->experts && scales->dims[1] == s->n;
  return fits && (!blocks || (block >= 16 && block <= 1 << 30 && (block & (block - 1)) == 0 && s->blocks == (s->k + block - 1) / block));
}

static void claim_layer(claim *c, int l) {
  const layer_inputs *at = &packed_layers[l];
  int64_t bits = bits_of(c->n, l);
  require_types(c, at->w, DTYPE_BIT(DT_U8));
  require_types(c, at->scales, DTS_FLOAT);
  require_types(c, at->bias, DTS_FLOAT);
  require_types(c, at->zeros, DTYPE_BIT(DT_U8));
  REQUIRE(c, bits == 2 || bits == 4 || bits == 8, "weights of %lld bits", (long long)bits);
  REQUIRE(c, in_const(c, at->w) && in_const(c, at->scales), "weights and scales (inputs %zu and %zu) must be constant", at->w, at->scales);
  REQUIRE(c, !has_in(c, at->zeros) || in_const(c, at->zeros), "zero points (input %zu) must be constant", at->zeros);
  REQUIRE(c, !has_in(c, at->bias) || in_const(c, at->bias), "the bias (input %zu) must be constant", at->bias);
  layer_sizes s;
  size_t zeros = 0, biases = 0;
  REQUIRE(c, sizes_of(c->n, l, &s), "the weights and scales of layer %d do not fit", l + 1);
  const tensor *z = in_const(c, at->zeros), *b = in_const(c, at->bias);
  int64_t want = s.block ? s.experts * s.n * ((s.blocks * bits + 7) / 8) : s.experts * ((s.n * bits + 7) / 8);
  REQUIRE(c, !z || (dims_count(z->dims, z->rank, &zeros) && (int64_t)zeros == want), "%zu bytes of zero points", zeros);
  REQUIRE(c, !b || (dims_count(b->dims, b->rank, &biases) && (int64_t)biases == s.experts * s.n), "%zu biases", biases);
}

static void qmoe_claim(claim *c) {
  require_known(c, qmoe_attrs);
  require_types(c, M_ROUTER, DTS_FLOAT);
  require_types(c, M_ROUTER_WEIGHTS, DTS_FLOAT);
  CLAIM_GOES_ON(c);
  REQUIRE(c, !strcmp(attr_s(c->n, "quant_type", "int"), "int"), "quant_type '%s'", attr_s(c->n, "quant_type", ""));
  REQUIRE(c, attr_i(c->n, "weights_prepacked", 0) <= 0, "weights prepacked for another provider");
  for (size_t i = M_ROUTER_WEIGHTS + 1; i < c->n->n_in; i++) REQUIRE(c, !has_in(c, i), "input %zu", i);
  for (int l = 0; l < LAYERS && !c->declined; l++)
    if (l != FC3 || has_in(c, packed_layers[l].w)) claim_layer(c, l);
  CLAIM_GOES_ON(c);
  claim_common(c);
}

// ---- packing --------------------------------------------------------------------------------------------------------------
typedef struct expert_weights {
  int experts;
  mx_nbits **w[LAYERS];  // NULL for a layer that is not there
} expert_weights;

static void unpack_all(void *prepared) {
  expert_weights *p = prepared;
  if (!p) return;
  for (int l = 0; l < LAYERS; l++) {
    for (int i = 0; p->w[l] && i < p->experts; i++) mx_nbits_free(p->w[l][i]);
    mem_free(p->w[l]);
  }
  mem_free(p);
}

static float zero_at(const uint8_t *z, int64_t bits, int64_t i) {
  return (float)(z[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1));
}

typedef struct packing {  // one expert's weights with a scale and a zero point for every block
  layer_sizes s;
  int64_t bits, block, blocks, row;  // row: bytes of one output in q
  uint8_t *q;
  float *scales, *zeros;
  const float *all_scales, *all_bias;
  const uint8_t *w, *z;
} packing;

// One scale a row becomes one for every block of 32.
static void pack_rows(packing *p, int64_t expert) {
  int64_t source = p->s.k * p->bits / 8, z_row = (p->s.blocks * p->bits + 7) / 8, z_expert = (p->s.n * p->bits + 7) / 8;
  for (int64_t r = 0; r < p->s.n; r++) {
    int64_t at = expert * p->s.n + r;
    memcpy(p->q + r * p->row, p->w + at * source, (size_t)source);
    for (int64_t b = 0; b < p->blocks; b++) {
      p->scales[r * p->blocks + b] = p->s.block ? p->all_scales[at * p->s.blocks + b] : p->all_scales[at];
      if (!p->z) continue;
      const uint8_t *z = p->s.block ? p->z + at * z_row : p->z + expert * z_expert;
      p->zeros[r * p->blocks + b] = zero_at(z, p->bits, p->s.block ? b : r);
    }
  }
}

static bool pack_layer(const node *n, mx_device d, packing *p, mx_nbits **to, err *e) {
  for (int64_t i = 0; i < p->s.experts; i++) {
    pack_rows(p, i);
    mx_nbits_desc w = {
        .k = (int)p->s.k,
        .n = (int)p->s.n,
        .bits = (int)p->bits,
        .block_size = (int)p->block,
        .accuracy_level = (int)attr_i(n, "accuracy_level", 0),
        .q = p->q,
        .scales = p->scales,
        .float_zero_points = p->z ? p->zeros : NULL,
        .bias = p->all_bias ? p->all_bias + i * p->s.n : NULL,
    };
    to[i] = mx_nbits_pack(d, &w, e);
    if (!to[i]) return false;
  }
  return true;
}

static bool prepare_layer(const node *n, mx_device d, int l, expert_weights *to, err *e) {
  const layer_inputs *at = &packed_layers[l];
  packing p = {.bits = bits_of(n, l)};
  float *owned[2] = {NULL, NULL};
  if (!sizes_of(n, l, &p.s)) return FAIL(e, ERR_INVALID, "the weights of layer %d do not fit", l + 1);
  p.block = p.s.block ? p.s.block : 32;
  p.blocks = (p.s.k + p.block - 1) / p.block;
  p.row = p.blocks * p.block * p.bits / 8;
  p.w = n->in[at->w]->constant->data;
  p.z = present(n, at->zeros) ? n->in[at->zeros]->constant->data : NULL;
  p.all_scales = nbits_floats(n->in[at->scales]->constant, &owned[0], e);
  p.all_bias = present(n, at->bias) && err_ok(e) ? nbits_floats(n->in[at->bias]->constant, &owned[1], e) : NULL;
  p.q = mem_alloc((size_t)(p.s.n * p.row));
  p.scales = mem_alloc((size_t)(p.s.n * p.blocks) * sizeof(float));
  p.zeros = mem_alloc((size_t)(p.s.n * p.blocks) * sizeof(float));
  to->experts = (int)p.s.experts;
  to->w[l] = mem_alloc((size_t)p.s.experts * sizeof *to->w[l]);
  if (err_ok(e) && (!p.q || !p.scales || !p.zeros || !to->w[l])) FAIL(e, ERR_NO_MEMORY, "out of memory for %d experts", to->experts);
  bool ok = err_ok(e) && pack_layer(n, d, &p, to->w[l], e);
  void *all[] = {p.q, p.scales, p.zeros, owned[0], owned[1]};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) mem_free(all[i]);
  return ok;
}

static void *qmoe_prepare(const node *n, mx_device d, err *e) {
  expert_weights *p = mem_alloc(sizeof *p);
  if (!p) return FAIL(e, ERR_NO_MEMORY, "out of memory for experts"), NULL;
  for (int l = 0; l < LAYERS; l++)
    if (present(n, packed_layers[l].w) && !prepare_layer(n, d, l, p, e)) return unpack_all(p), NULL;
  return p;
}

// ---- one expert -------------------------------------------------------------------------------------------------------------
static mx of_expert(mx x, int expert) { return mx_squeeze(mx_slice_axis(x, 0, expert, expert + 1), MXI(0)); }

static mx layer(op *o, int l, int expert, mx x) {
  const expert_weights *p = o->prepared;
  if (p) return mx_nbits_matmul(x, p->w[l][expert]);
  const layer_inputs *at = &layers_of(o->n)[l];
  mx w = of_expert(in(o, at->w), expert), bias = in(o, at->bias);
  return mx_linear(x, mx_transpose(w, MXI(1, 0)), bias ? of_expert(bias, expert) : NULL);
}

static mx activated(const node *n, mx x) {
  const char *act = attr_s(n, "activation_type", "relu");
  if (!strcmp(act, "relu")) return mx_maximum(x, mx_scalar(x, 0));
  if (!strcmp(act, "silu")) return mx_mul(x, mx_sigmoid(x));
  if (strcmp(act, "gelu")) return x;
  mx cube = mx_mul(mx_mul(mx_mul(x, x), x), mx_scalar(x, 0.044715));
  mx t = mx_tanh(mx_mul(mx_add(x, cube), mx_scalar(x, 0.7978845608028654)));
  return mx_mul(mx_mul(x, mx_scalar(x, 0.5)), mx_add(t, mx_scalar(x, 1)));
}

static mx swiglu(const node *n, mx gate, mx linear) {
  double limit = (double)attr_f(n, "swiglu_limit", INFINITY);
  if (isfinite(limit)) {
    gate = mx_minimum(gate, mx_scalar(gate, limit));
    linear = mx_clip(linear, mx_scalar(linear, -limit), mx_scalar(linear, limit));
  }
  mx alpha = mx_scalar(gate, (double)attr_f(n, "activation_alpha", 1));
  mx beta = mx_scalar(gate, (double)attr_f(n, "activation_beta", 0));
  return mx_mul(mx_mul(gate, mx_sigmoid(mx_mul(alpha, gate))), mx_add(linear, beta));
}

// Part 0 or 1 of a layer that holds both: every second column, or one half.
static mx fused_part(const node *n, mx x, int part) {
  int rows = mx_dim(x, 0), width = mx_dim(x, 1), half = width / 2;
  if (attr_i(n, "swiglu_fusion", 0) == 2) return mx_slice_axis(x, 1, part * half, (part + 1) * half);
  return mx_slice(x, MXI(0, part), MXI(rows, width), MXI(1, 2));
}

static mx expert_of(op *o, int expert, mx x) {
  dtype t = mx_dtype(x);
  mx h = f32_up(layer(o, FC1, expert, x)), third = NULL;
  if (present(o->n, layers_of(o->n)[FC3].w)) third = f32_up(layer(o, FC3, expert, x));
  if (is_fused(o->n)) h = swiglu(o->n, fused_part(o->n, h, 0), fused_part(o->n, h, 1));
  else if (is_swiglu(o->n)) h = swiglu(o->n, h, third);
  else h = third ? mx_mul(activated(o->n, h), third) : activated(o->n, h);
  return layer(o, FC2, expert, mx_astype(h, t));
}

// ---- choosing -------------------------------------------------------------------------------------------------------------------
// The k best experts of each token, [T, k] int32, and their weights, float32. Of equals the later one is better, as in
// ONNX Runtime.
static mx route(op *o, int k, mx *weights) {
  mx logits = mx_astype(in(o, M_ROUTER), DT_F32), given = in(o, M_ROUTER_WEIGHTS);
  int experts = mx_dim(logits, 1);
  bool normal = attr_i(o->n, "normalize_routing_weights", 0) == 1;
  mx ranked = is_packed(o->n) ? logits : mx_softmax(logits, 1);
  mx best = mx_slice_axis(mx_argsort(ranked, 1), 1, experts - k, experts), w;
  if (given) w = mx_take_along_axis(mx_astype(given, DT_F32), best, 1);
  else if (is_packed(o->n)) w = mx_softmax(mx_take_along_axis(logits, best, 1), 1);
  else w = mx_take_along_axis(ranked, best, 1);
  if (normal) {
    mx sum = mx_sum(w, MXI(1), true), zero = mx_scalar(sum, 0);
    w = mx_where(mx_equal(sum, zero), zero, mx_div(w, mx_where(mx_equal(sum, zero), mx_scalar(sum, 1), sum)));
  }
  *weights = w;
  return mx_astype(best, DT_I32);
}

// The tokens of each expert are taken together, then put back into the order of the choices.
static mx experts_of(op *o, mx x, mx chosen, int k, int experts) {
  int tokens = mx_dim(x, 0), n = tokens * k, done = 0;
  const int32_t *expert = mx_read(chosen);
  mx *parts = mem_alloc((size_t)experts * sizeof *parts);
  int64_t *rows = mem_alloc((size_t)n * sizeof *rows), *back = mem_alloc((size_t)n * sizeof *back);
  size_t n_parts = 0;
  if (expert && (!parts || !rows || !back)) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d choices", n);
  for (int e = 0; e < experts && mx_ok(o->s); e++) {
    int from = done;
    for (int i = 0; i < n; i++)
      if (expert[i] == e) {
        back[i] = done;
        rows[done++] = i / k;
      }
    if (done == from) continue;
    parts[n_parts++] = expert_of(o, e, done - from == tokens ? x : mx_take(x, mx_i64s(o->s, rows + from, done - from), 0));
  }
  mx y = x;
  if (mx_ok(o->s)) y = mx_take(mx_concatenate(o->s, parts, n_parts, 0), mx_i64s(o->s, back, n), 0);
  mem_free(parts);
  mem_free(rows);
  mem_free(back);
  return y;
}

// Experts, outputs and inputs of a layer; false after a failure.
static bool layer_fits(op *o, int l, int experts, int inputs, int *outputs) {
  const layer_inputs *at = &layers_of(o->n)[l];
  layer_sizes s;
  if (o->prepared && !sizes_of(o->n, l, &s)) return op_fail(o, "the weights of layer %d", l + 1), false;
  if (!o->prepared) {
    mx w = in(o, at->w), bias = in(o, at->bias);
    if (mx_ndim(w) != 3 || (bias && (mx_ndim(bias) != 2 || mx_dim(bias, 0) != mx_dim(w, 0) || mx_dim(bias, 1) != mx_dim(w, 1))))
      return op_fail(o, "the weight or bias of layer %d does not fit", l + 1), false;
    s = (layer_sizes){.experts = mx_dim(w, 0), .n = mx_dim(w, 1), .k = mx_dim(w, 2)};
  }
  *outputs = (int)s.n;
  if (s.experts == experts && s.k == inputs) return true;
  op_fail(o, "layer %d has %lld experts of %lld inputs, not %d of %d", l + 1, (long long)s.experts, (long long)s.k, experts, inputs);
  return false;
}

static bool moe_fits(op *o, mx x, int experts) {
  int size = mx_dim(x, 1), wide = 0, third = 0, result = 0;
  if (!layer_fits(o, FC1, experts, size, &wide)) return false;
  if (present(o->n, layers_of(o->n)[FC3].w) && !layer_fits(o, FC3, experts, size, &third)) return false;
  if (third && third != wide) return op_fail(o, "fc1 and fc3 have %d and %d outputs", wide, third), false;
  if (is_fused(o->n) && wide % 2) return op_fail(o, "an odd number of gates (%d)", wide), false;
  if (!layer_fits(o, FC2, experts, is_fused(o->n) ? wide / 2 : wide, &result)) return false;
  if (result != size) op_fail(o, "fc2 gives %d elements for %d", result, size);
  return result == size;
}

static void moe(op *o) {
  mx input = in(o, M_X), router = in(o, M_ROUTER), weights;
  mx_ints shape = mx_shape(input);
  int k = (int)attr_i(o->n, "k", 1), experts = mx_dim(router, 1), size = shape.n ? shape.v[shape.n - 1] : 0;
  if (is_packed(o->n) && !o->prepared) op_fail(o, "the experts are not packed");
  if (mx_ok(o->s) && (shape.n < 2 || mx_ndim(router) != 2 || k > experts || size < 1))
    op_fail(o, "%d of %d experts for an input of rank %d", k, experts, shape.n);
  if (!mx_ok(o->s)) return;
  mx x = mx_reshape(input, MXI((int)(mx_size(input) / (size_t)size), size));
  int tokens = mx_dim(x, 0);
  mx given = in(o, M_ROUTER_WEIGHTS);
  if (mx_dim(router, 0) != tokens || (given && (mx_dim(given, 0) != tokens || mx_dim(given, 1) != experts)) || tokens > INT_MAX / k)
    op_fail(o, "%d rows of router_probs for %d tokens", mx_dim(router, 0), tokens);
  if (!mx_ok(o->s) || !moe_fits(o, x, experts)) return;
  if (!tokens) {
    out(o, 0, input);
    return;
  }
  mx chosen = route(o, k, &weights), y = experts_of(o, x, chosen, k, experts);
  if (!mx_ok(o->s)) return;
  mx each = mx_mul(f32_up(mx_reshape(y, MXI(tokens, k, size))), mx_expand_dims(weights, MXI(2)));
  out(o, 0, mx_reshape(mx_sum(each, MXI(1), false), shape));
}

const op_row ops_moe[] = {
    OP("com.microsoft", "MoE", 1, ANY, moe_claim, moe, .types = DTS_FLOAT, .traits = OP_NO_TRACE,
       .limits = "activation_type is relu, gelu, silu, swiglu or identity; no use_sparse_mixer"),
    OP("com.microsoft", "QMoE", 1, ANY, qmoe_claim, moe, .types = DTS_FLOAT, .traits = OP_NO_TRACE,
       .prepare = qmoe_prepare, .unprepare = unpack_all,
       .prepared_in = IN(2) | IN(3) | IN(4) | IN(5) | IN(6) | IN(7) | IN(8) | IN(9) | IN(10) | IN(11) | IN(12) | IN(13),
       .limits = "constant weights of 2, 4 or 8 bits; quant_type is int; activation_type is relu, gelu, silu, swiglu or identity; no use_sparse_mixer"),
    {0}};
