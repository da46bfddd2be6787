// com.microsoft: recurrent layers over packed sequences of different lengths, which stand one behind the other:
// GatedDeltaNet and VarlenCausalConvWithState. Where each begins is read on the host.
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/numeric.h"
#include "ops/op.h"

// Where the sequences begin, and their common end: batch + 1 numbers, to be freed with mem_free. NULL on failure.
static int64_t *starts_of(op *o, size_t i, int batch, int tokens) {
  size_t n = 0, want = (size_t)batch + 1;
  int64_t *v = mem_alloc(want * sizeof *v);
  if (!v) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d sequences", batch);
  bool ok = v && host_ints(o, i, v, want, &n), rises = ok && n == want && v[0] == 0 && v[batch] == tokens;
  for (size_t k = 1; rises && k < want; k++) rises = v[k] >= v[k - 1];
  if (ok && !rises) op_fail(o, "input %zu does not rise from 0 to %d tokens over %d sequences", i, tokens, batch);
  if (rises) return v;
  mem_free(v);
  return NULL;
}

// ---- GatedDeltaNet --------------------------------------------------------------------------------------------------------
enum { N_Q, N_K, N_V, N_STARTS, N_DECAY, N_BETA, N_STATE, N_A_LOG, N_DT_BIAS, N_CAPTURE, N_ACTIVE };

static bool rule_has(const node *n, const char *part) { return strstr(attr_s(n, "update_rule", "gated_delta"), part) != NULL; }

typedef struct net {
  mx q, k, v;       // float32 [tokens, H, 1, dk], [tokens, H, dk, 1], [tokens, H, 1, dv]; H: heads of the values
  mx decay, beta;   // float32 [tokens, H, dk or 1, 1], [tokens, H, 1, 1]; NULL: none
  mx state;         // float32 [B, H, dk, dv]
  int tokens, heads, key_heads, key_size, value_size, batch;
} net;

static mx unit_length(mx x) { return mx_mul(x, mx_rsqrt(num_plus(mx_sum(mx_square(x), MXI(2), true), 1e-6))); }

// x [tokens, heads of keys, size] in float32, a head for each of the values'.
static mx key_heads(op *o, const net *n, mx x) {
  x = mx_astype(mx_reshape(x, MXI(n->tokens, n->key_heads, n->key_size)), DT_F32);
  if (attr_i(o->n, "qk_l2_norm", 0)) x = unit_length(x);
  return n->heads == n->key_heads ? x : mx_repeat(x, n->heads / n->key_heads, 1);
}

static bool net_sizes(op *o, net *n, mx *q, mx *k, mx *v) {
  mx state = in(o, N_STATE);
  int rank = mx_ndim(*q), lead = rank - (*k ? 2 : 1);
  if (!*k) {  // packed: the state tells the sizes
    if (!state || mx_ndim(state) != 4 || lead < 1 || lead > 2) return op_fail(o, "a packed query needs initial_state"), false;
    n->heads = mx_dim(state, 1);
    n->value_size = mx_dim(state, 2);
    n->key_size = mx_dim(state, 3);
    int rest = mx_dim(*q, -1) - n->heads * n->value_size;
    n->key_heads = n->key_size && rest > 0 && rest % (2 * n->key_size) == 0 ? rest / (2 * n->key_size) : 0;
    int w = n->key_heads * n->key_size, all = mx_dim(*q, -1);
    mx packed = *q;
    *q = mx_slice_axis(packed, rank - 1, 0, w);
    *k = mx_slice_axis(packed, rank - 1, w, 2 * w);
    *v = mx_slice_axis(packed, rank - 1, 2 * w, all);
  } else {
    n->key_heads = mx_dim(*q, -2);
    n->key_size = mx_dim(*q, -1);
    n->heads = mx_dim(*v, -2);
    n->value_size = mx_dim(*v, -1);
  }
  if (lead < 1 || lead > 2 || n->key_heads < 1 || n->heads % n->key_heads || !n->key_size || !n->value_size)
    return op_fail(o, "query of rank %d with %d key heads and %d value heads", rank, n->key_heads, n->heads), false;
  n->tokens = mx_dim(*q, 0) * (lead == 2 ? mx_dim(*q, 1) : 1);
  size_t keys = (size_t)n->tokens * (size_t)n->key_heads * (size_t)n->key_size;
  bool fits = mx_size(*q) == keys && mx_size(*k) == keys && mx_size(*v) == (size_t)n->tokens * (size_t)n->heads * (size_t)n->value_size;
  n->batch = state ? mx_dim(state, 0) : (int)mx_size(in(o, N_STARTS)) - 1;
  fits = fits && n->batch >= 0 && (!state || (mx_ndim(state) == 4 && mx_dim(state, 1) == n->heads && mx_dim(state, 2) == n->value_size &&
                                               mx_dim(state, 3) == n->key_size));
  if (!fits) op_fail(o, "query, key, value and state do not fit together");
  return fits;
}

static bool net_gates(op *o, net *n) {
  mx decay = in(o, N_DECAY), beta = in(o, N_BETA);
  size_t each = (size_t)n->tokens * (size_t)n->heads;
  if (rule_has(o->n, "gated")) {
    int channels = mx_size(decay) == each ? 1 : n->key_size;
    if (mx_size(decay) != each * (size_t)channels) return op_fail(o, "decay has %zu elements", mx_size(decay)), false;
    mx g = mx_reshape(decay, MXI(n->tokens, n->heads, channels, 1));
    if (!strcmp(attr_s(o->n, "gate_activation", "none"), "qwen")) {
      if ((int)mx_size(in(o, N_A_LOG)) != n->heads || (int)mx_size(in(o, N_DT_BIAS)) != n->heads)
        return op_fail(o, "a_log and dt_bias must hold %d numbers", n->heads), false;
      mx_ints heads = MXI(n->heads, 1, 1);
      g = num_softplus(mx_add(g, mx_reshape(in(o, N_DT_BIAS), heads)));
      g = mx_neg(mx_mul(mx_exp(mx_reshape(in(o, N_A_LOG), heads)), g));
    }
    n->decay = mx_exp(g);
  }
  if (rule_has(o->n, "delta")) {
    if (mx_size(beta) != each) return op_fail(o, "beta has %zu elements, not %zu", mx_size(beta), each), false;
    n->beta = mx_reshape(beta, MXI(n->tokens, n->heads, 1, 1));
    if (!strcmp(attr_s(o->n, "beta_activation", "none"), "sigmoid")) n->beta = mx_sigmoid(n->beta);
  }
  return mx_ok(o->s);
}

static bool net_inputs(op *o, net *n) {
  mx q = in(o, N_Q), k = in(o, N_K), v = in(o, N_V), state = in(o, N_STATE);
  if (!net_sizes(o, n, &q, &k, &v)) return false;
  double scale = (double)attr_f(o->n, "scale", 0);
  q = num_times(key_heads(o, n, q), scale != 0 ? scale : 1 / sqrt((double)n->key_size));
  n->q = mx_expand_dims(q, MXI(2));
  n->k = mx_expand_dims(key_heads(o, n, k), MXI(3));
  n->v = mx_astype(mx_reshape(v, MXI(n->tokens, n->heads, 1, n->value_size)), DT_F32);
  n->state = state ? mx_swapaxes(state, 2, 3) : mx_full(o->s, MXI(n->batch, n->heads, n->key_size, n->value_size), 0, DT_F32);
  return net_gates(o, n);
}

// One step of `count` sequences whose tokens stand `apart` from each other, from token t of the first. state [count, ..].
static mx rows_at(mx x, int t, int apart, int count) {
  mx_ints from = {.n = mx_ndim(x), .v = {t}}, to = mx_shape(x), by = {.n = mx_ndim(x)};
  for (int i = 0; i < by.n; i++) by.v[i] = i ? 1 : apart;
  to.v[0] = t + (count - 1) * apart + 1;
  return mx_slice(x, from, to, by);
}

static mx net_step(const net *n, mx state, mx *y, int t, int apart, int count) {
  mx k = rows_at(n->k, t, apart, count), add = rows_at(n->v, t, apart, count);
  if (n->decay) state = mx_mul(state, rows_at(n->decay, t, apart, count));
  if (n->beta) add = mx_mul(rows_at(n->beta, t, apart, count), mx_sub(add, mx_matmul(mx_swapaxes(k, 2, 3), state)));
  state = mx_add(state, mx_mul(k, add));
  *y = mx_matmul(rows_at(n->q, t, apart, count), state);  // [count, H, 1, dv]
  return state;
}

// Sequences of one length advance together.
static void net_even(op *o, const net *n, mx *ys) {
  int length = n->batch ? n->tokens / n->batch : 0;
  mx state = n->state;
  for (int t = 0; t < length && mx_ok(o->s); t++) state = net_step(n, state, &ys[t], t, length, n->batch);
  mx_ints shape = MXI(n->tokens, n->heads, n->value_size);
  ys[0] = length ? mx_reshape(mx_stack(o->s, ys, (size_t)length, 1), shape) : mx_full(o->s, shape, 0, DT_F32);
  ys[1] = state;
}

static void net_ragged(op *o, const net *n, const int64_t *starts, mx *ys, mx *states) {
  for (int b = 0; b < n->batch && mx_ok(o->s); b++) {
    states[b] = mx_slice_axis(n->state, 0, b, b + 1);
    for (int t = (int)starts[b]; t < starts[b + 1] && mx_ok(o->s); t++) states[b] = net_step(n, states[b], &ys[t], t, 1, 1);
  }
  mx_ints shape = MXI(n->tokens, n->heads, n->value_size);
  mx y = n->tokens ? mx_reshape(mx_concatenate(o->s, ys, (size_t)n->tokens, 0), shape) : mx_full(o->s, shape, 0, DT_F32);
  ys[1] = n->batch ? mx_concatenate(o->s, states, (size_t)n->batch, 0) : n->state;
  ys[0] = y;
}

static void gated_delta_net(op *o) {
  net n = {0};
  if (!net_inputs(o, &n)) return;
  int64_t *starts = in(o, N_STARTS) ? starts_of(o, N_STARTS, n.batch, n.tokens) : NULL;
  if (!in(o, N_STARTS) && (n.batch ? n.tokens % n.batch : n.tokens)) op_fail(o, "%d tokens of %d sequences", n.tokens, n.batch);
  mx *ys = mem_alloc(((size_t)n.tokens + (size_t)n.batch + 2) * sizeof *ys);
  if (!ys) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d tokens", n.tokens);
  if (mx_ok(o->s)) {
    if (starts) net_ragged(o, &n, starts, ys, ys + n.tokens + 2);
    else net_even(o, &n, ys);
    mx_ints shape = mx_shape(in(o, N_Q));
    if (!in(o, N_K)) shape.n++;
    shape.v[shape.n - 2] = n.heads;
    shape.v[shape.n - 1] = n.value_size;
    out(o, 0, mx_reshape(ys[0], shape));
    out(o, 1, mx_swapaxes(ys[1], 2, 3));
  }
  mem_free(ys);
  mem_free(starts);
}

static const char *const net_attrs[] = {"beta_activation", "chunk_size", "gate_activation", "qk_l2_norm", "scale",
                                        "state_update_capacity", "update_rule", NULL};

static void net_claim(claim *c) {
  require_known(c, net_attrs);
  dtype t = in_type(c, N_Q);
  require_types(c, N_K, DTYPE_BIT(t));
  require_types(c, N_V, DTYPE_BIT(t));
  for (size_t i = N_DECAY; i <= N_DT_BIAS; i++) require_types(c, i, DTYPE_BIT(DT_F32));
  CLAIM_GOES_ON(c);
  const char *rule = attr_s(c->n, "update_rule", "gated_delta"), *gate = attr_s(c->n, "gate_activation", "none");
  const char *beta = attr_s(c->n, "beta_activation", "none");
  REQUIRE(c, !strcmp(rule, "linear") || !strcmp(rule, "gated") || !strcmp(rule, "delta") || !strcmp(rule, "gated_delta"), "update_rule '%s'", rule);
  REQUIRE(c, !strcmp(gate, "none") || !strcmp(gate, "qwen"), "gate_activation '%s'", gate);
  REQUIRE(c, !strcmp(beta, "none") || !strcmp(beta, "sigmoid"), "beta_activation '%s'", beta);
  REQUIRE(c, !strcmp(gate, "none") || (has_in(c, N_A_LOG) && has_in(c, N_DT_BIAS)), "gate_activation '%s' needs a_log and dt_bias", gate);
  REQUIRE(c, !rule_has(c->n, "gated") || has_in(c, N_DECAY), "update_rule '%s' needs decay", rule);
  REQUIRE(c, !rule_has(c->n, "delta") || has_in(c, N_BETA), "update_rule '%s' needs beta", rule);
  REQUIRE(c, has_in(c, N_K) == has_in(c, N_V), "key without value");
  REQUIRE(c, has_in(c, N_STATE) || (has_in(c, N_STARTS) && has_in(c, N_K)), "initial_state is missing");
  REQUIRE(c, attr_i(c->n, "state_update_capacity", 0) == 0 && !has_out(c, 2), "compact state updates");
}

// ---- VarlenCausalConvWithState ----------------------------------------------------------------------------------------------
enum { V_X, V_W, V_STARTS, V_BIAS, V_STATE };

// One sequence x [T, C] behind its state [C, kept]: the taps' sum, and the last rows as the next state.
static mx causal(mx x, mx state, mx w, int taps, int dilation, mx *next) {
  mx both[2] = {mx_transpose(state, MXI(1, 0)), x}, all = mx_concatenate(mx_scope_of(x), both, 2, 0), y = NULL;
  int length = mx_dim(x, 0), kept = mx_dim(state, 1);
  for (int tap = 0; tap < taps; tap++) {
    mx at = mx_mul(mx_slice_axis(all, 0, tap * dilation, tap * dilation + length), mx_reshape(mx_slice_axis(w, 1, tap, tap + 1), MXI(-1)));
    y = y ? mx_add(y, at) : at;
  }
  *next = mx_transpose(mx_slice_axis(all, 0, length, length + kept), MXI(1, 0));
  return y;
}

static bool varlen_fits(op *o, int channels, int taps, int64_t kept) {
  mx x = in(o, V_X), w = in(o, V_W), bias = in(o, V_BIAS), state = in(o, V_STATE);
  bool fits = mx_ndim(x) == 2 && mx_ndim(w) == 3 && mx_dim(w, 1) == 1 && taps > 0 && mx_dim(x, 1) == channels && kept < 1 << 24 &&
              mx_ndim(state) == 3 && mx_dim(state, 1) == channels && mx_dim(state, 2) == kept &&
              (!bias || (mx_ndim(bias) == 1 && mx_dim(bias, 0) == channels));
  if (!fits) op_fail(o, "input, weights, bias and state do not fit %d channels and %d taps", channels, taps);
  return fits;
}

static void varlen_conv(op *o) {
  mx x = mx_astype(in(o, V_X), DT_F32), weight = in(o, V_W), state = mx_astype(in(o, V_STATE), DT_F32);
  int channels = mx_dim(weight, 0), taps = mx_ndim(weight) == 3 ? mx_dim(weight, 2) : 0, batch = mx_dim(state, 0), dilation = (int)attr_i(o->n, "dilation", 1);
  if (!varlen_fits(o, channels, taps, (int64_t)(taps - 1) * dilation)) return;
  mx w = mx_astype(mx_reshape(weight, MXI(channels, taps)), DT_F32), bias = in(o, V_BIAS);
  int64_t *starts = starts_of(o, V_STARTS, batch, mx_dim(x, 0));
  mx *ys = mem_alloc((2 * (size_t)batch + 1) * sizeof *ys);
  if (!ys) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d sequences", batch);
  for (int b = 0; mx_ok(o->s) && b < batch; b++) {
    mx one = mx_squeeze(mx_slice_axis(state, 0, b, b + 1), MXI(0));
    ys[b] = causal(mx_slice_axis(x, 0, (int)starts[b], (int)starts[b + 1]), one, w, taps, dilation, &ys[batch + b]);
  }
  if (mx_ok(o->s)) {
    mx y = batch ? mx_concatenate(o->s, ys, (size_t)batch, 0) : x;
    if (bias) y = mx_add(y, mx_astype(bias, DT_F32));
    if (strcmp(attr_s(o->n, "activation", "none"), "none") != 0) y = mx_mul(y, mx_sigmoid(y));
    out(o, 0, y);
    out(o, 1, batch ? mx_stack(o->s, ys + batch, (size_t)batch, 0) : state);
  }
  mem_free(ys);
  mem_free(starts);
}

static void varlen_claim(claim *c) {
  require_known(c, (const char *const[]){"activation", "dilation", "state_update_capacity", NULL});
  dtype t = in_type(c, V_X);
  for (size_t i = V_W; i <= V_STATE; i++) require_types(c, i, DTYPE_BIT(i == V_STARTS ? DT_I32 : t));
  CLAIM_GOES_ON(c);
  const char *a = attr_s(c->n, "activation", "none");
  int64_t dilation = attr_i(c->n, "dilation", 1);
  REQUIRE(c, !strcmp(a, "none") || !strcmp(a, "silu") || !strcmp(a, "swish"), "activation '%s'", a);
  REQUIRE(c, dilation > 0 && dilation < 1 << 20, "dilation %lld", (long long)dilation);
  REQUIRE(c, attr_i(c->n, "state_update_capacity", 0) == 0 && !has_out(c, 2), "compact state updates");
}

#define MS "com.microsoft"
const op_row ops_delta[] = {
    OP(MS, "GatedDeltaNet", 1, ANY, net_claim, gated_delta_net, .types = DTS_FLOAT, .host_in = IN(N_STARTS),
       .traits = OP_KV,
       .limits = "update_rule is linear, gated, delta or gated_delta; gate_activation is none or qwen; no compact state updates"),
    OP(MS, "VarlenCausalConvWithState", 1, ANY, varlen_claim, varlen_conv, .types = DTS_FLOAT, .host_in = IN(V_STARTS),
       .traits = OP_NO_TRACE, .limits = "activation is none, silu or swish; no compact state updates"),
    {0}};
