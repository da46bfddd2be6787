// Linear attention with a recurrent state, the causal convolution before it and the gates around it: LinearAttention and
// CausalConvWithState of ai.onnx and com.microsoft, LinearAttentionGate, GatedRMSNorm. All arithmetic is in float32.
#include <math.h>
#include <string.h>

#include "ops/attn.h"
#include "ops/numeric.h"

enum { MAX_WINDOW = 8 };  // states of the last tokens, kept for a decoder that goes back
static int window_of(const node *n) { return (int)attr_i(n, "state_window", 0); }

// The newest of the states in input i, float32; zeros of that shape where there is none.
static mx past_state(op *o, size_t i, mx_ints shape) {
  mx x = in(o, i);
  int w = window_of(o->n);
  if (!x) return mx_full(o->s, shape, 0, DT_F32);
  if (w && mx_ndim(x) == shape.n + 1 && mx_dim(x, 0) == w) x = mx_squeeze(mx_slice_axis(x, 0, w - 1, w), MXI(0));
  bool fits = mx_ndim(x) == shape.n;
  for (int a = 0; a < shape.n && fits; a++) fits = mx_dim(x, a) == shape.v[a];
  if (!fits) return op_fail(o, "past_state of rank %d does not fit the other inputs", mx_ndim(in(o, i)));
  return mx_astype(x, DT_F32);
}

// Slot j holds the state after token tokens - window + j, zeros where there is no such token.
static mx windowed(const mx *newest, int held, int window) {
  mx slots[MAX_WINDOW];
  for (int j = 0; j < window; j++) {
    int from_end = window - 1 - j;
    slots[j] = from_end < held ? newest[from_end] : mx_full(mx_scope_of(newest[0]), mx_shape(newest[0]), 0, DT_F32);
  }
  return mx_stack(mx_scope_of(newest[0]), slots, (size_t)window, 0);
}

static void claim_window(claim *c) {
  int64_t w = attr_i(c->n, "state_window", 0);
  if (w < 0 || w > MAX_WINDOW) claim_decline(c, "state_window %lld", (long long)w);
}

static void claim_like(claim *c, size_t n) {
  dtype t = in_type(c, 0);
  for (size_t i = 1; i < n; i++) require_types(c, i, DTYPE_BIT(t));
}

// ---- LinearAttention ------------------------------------------------------------------------------------------------------
enum { L_Q, L_K, L_V, L_PAST, L_DECAY, L_BETA };

typedef struct linear {
  mx q, k, v, decay, beta;  // float32 [B, T, ..]: q [G, dk] a state's head, k [dk, 1], v [1, dv], decay [dk or 1, 1], beta [1, 1]
  int batch, tokens, heads, group, key_size, value_size;  // heads: of the state
} linear;

static bool rule_has(const node *n, const char *part) { return strstr(attr_s(n, "update_rule", "gated_delta"), part) != NULL; }

static mx tokens_of(op *o, size_t i, mx_ints shape) {
  mx x = in(o, i);
  if (mx_ndim(x) == 3 && mx_dim(x, 0) == shape.v[0] && mx_dim(x, 1) == shape.v[1] &&
      mx_dim(x, 2) == shape.v[2] * shape.v[3] * shape.v[4])
    return mx_reshape(mx_astype(x, DT_F32), shape);
  return op_fail(o, "input %zu must have shape [%d, %d, %d]", i, shape.v[0], shape.v[1], shape.v[2] * shape.v[3] * shape.v[4]);
}

static bool linear_gates(op *o, linear *l) {
  int b = l->batch, t = l->tokens, h = l->heads;
  if (rule_has(o->n, "gated")) {
    bool each = mx_dim(in(o, L_DECAY), -1) != h;  // one for each channel of a key
    l->decay = mx_exp(tokens_of(o, L_DECAY, MXI(b, t, h, each ? l->key_size : 1, 1)));
  }
  if (rule_has(o->n, "delta")) l->beta = tokens_of(o, L_BETA, MXI(b, t, mx_dim(in(o, L_BETA), -1) == 1 ? 1 : h, 1, 1));
  return mx_ok(o->s);
}

static bool linear_inputs(op *o, linear *l) {
  mx q = in(o, L_Q), v = in(o, L_V);
  int q_heads = (int)attr_i(o->n, "q_num_heads", 1), h = l->heads = (int)attr_i(o->n, "kv_num_heads", 1);
  if (mx_ndim(q) != 3 || mx_ndim(v) != 3 || !mx_dim(q, 2) || mx_dim(q, 2) % q_heads || mx_dim(v, 2) % h) {
    op_fail(o, "query of width %d and value of width %d for %d and %d heads", mx_dim(q, -1), mx_dim(v, -1), q_heads, h);
    return false;
  }
  int b = l->batch = mx_dim(q, 0), t = l->tokens = mx_dim(q, 1);
  l->key_size = mx_dim(q, 2) / q_heads;
  l->value_size = mx_dim(v, 2) / h;
  l->group = q_heads > h ? q_heads / h : 1;
  l->k = tokens_of(o, L_K, MXI(b, t, h, l->key_size, 1));
  l->v = tokens_of(o, L_V, MXI(b, t, h, 1, l->value_size));
  l->q = mx_astype(q, DT_F32);
  if (q_heads < h)  // a query's head serves several states
    l->q = mx_repeat(mx_reshape(l->q, MXI(b, t, q_heads, 1, l->key_size)), h / q_heads, 2);
  else
    l->q = mx_reshape(l->q, MXI(b, t, h, l->group, l->key_size));
  l->q = num_times(l->q, attn_scale(o, l->key_size));
  return linear_gates(o, l);
}

static mx token(mx x, int t) { return mx_squeeze(mx_slice_axis(x, 1, t, t + 1), MXI(1)); }

// The state [B, H, dk, dv] after token t.
static mx linear_step(const linear *l, mx state, int t) {
  mx k = token(l->k, t), add = token(l->v, t);
  if (l->decay) state = mx_mul(state, token(l->decay, t));
  if (l->beta) add = mx_mul(token(l->beta, t), mx_sub(add, mx_matmul(mx_swapaxes(k, 2, 3), state)));
  return mx_add(state, mx_mul(k, add));
}

static void linear_run(op *o, const linear *l, mx state, mx *y) {
  mx newest[MAX_WINDOW] = {NULL};
  int w = window_of(o->n), held = 0;
  for (int t = 0; t < l->tokens && mx_ok(o->s); t++) {
    state = linear_step(l, state, t);
    y[t] = mx_matmul(token(l->q, t), state);  // [B, H, G, dv]
    if (t < l->tokens - w) continue;
    memmove(newest + 1, newest, (MAX_WINDOW - 1) * sizeof *newest);
    newest[0] = state;
    held++;
  }
  mx_ints shape = MXI(l->batch, l->tokens, l->heads * l->group * l->value_size);
  out(o, 0, l->tokens ? mx_reshape(mx_stack(o->s, y, (size_t)l->tokens, 1), shape) : mx_full(o->s, shape, 0, DT_F32));
  if (!w) out(o, 1, state);
  else if (held) out(o, 1, windowed(newest, held, w));
  else op_fail(o, "no tokens for a window of states");
}

static void linear_attention(op *o) {
  linear l = {0};
  if (!linear_inputs(o, &l)) return;
  mx state = past_state(o, L_PAST, MXI(l.batch, l.heads, l.key_size, l.value_size));
  mx *y = mem_alloc(((size_t)l.tokens + 1) * sizeof *y);
  if (!y) mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
  if (mx_ok(o->s)) linear_run(o, &l, state, y);
  mem_free(y);
}

static const char *const linear_attrs[] = {"chunk_size", "kv_num_heads", "q_num_heads", "scale", "update_rule", "state_window", NULL};

static void linear_claim(claim *c) {
  static const char *const rules[] = {"linear", "gated", "delta", "gated_delta"};
  require_known(c, linear_attrs);
  dtype t = in_type(c, L_Q);
  for (size_t i = L_K; i <= L_BETA; i++) require_types(c, i, i == L_PAST ? DTS_FLOAT : DTYPE_BIT(t));
  claim_window(c);
  CLAIM_GOES_ON(c);
  int64_t q = attr_i(c->n, "q_num_heads", 0), kv = attr_i(c->n, "kv_num_heads", 0);
  REQUIRE(c, q > 0 && kv > 0 && q < 65536 && kv < 65536 && (q % kv == 0 || (kv % q == 0 && *c->n->domain)),
          "%lld heads over %lld key heads", (long long)q, (long long)kv);
  const char *rule = attr_s(c->n, "update_rule", "gated_delta");
  bool known = false;
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) known = known || !strcmp(rule, rules[i]);
  REQUIRE(c, known, "update_rule '%s'", rule);
  REQUIRE(c, !rule_has(c->n, "gated") || has_in(c, L_DECAY), "update_rule '%s' needs decay", rule);
  REQUIRE(c, !rule_has(c->n, "delta") || has_in(c, L_BETA), "update_rule '%s' needs beta", rule);
}

// ---- CausalConvWithState ----------------------------------------------------------------------------------------------------
enum { C_X, C_W, C_BIAS, C_PAST };

typedef struct causal {
  mx x;                // [B, T, C], float32: tokens before channels
  mx w;                // [C, k], float32
  int taps, dilation, kept;  // kept: positions in a state
} causal;

static bool last_channels(const node *n) { return attr_i(n, "channels_last", 0) != 0; }

static bool causal_inputs(op *o, causal *c) {
  mx x = in(o, C_X), w = in(o, C_W), bias = in(o, C_BIAS);
  int rank = mx_ndim(x);
  bool last = last_channels(o->n), fits = last ? rank >= 3 : rank == 3;
  int channels = mx_ndim(w) == 3 ? mx_dim(w, 0) : 0, taps = channels ? mx_dim(w, 2) : 0;
  int64_t kept = (int64_t)(taps - 1) * attr_i(o->n, "dilation", 1);
  fits = fits && taps > 0 && mx_dim(w, 1) == 1 && kept < 1 << 24 &&
         (!bias || (mx_ndim(bias) == 1 && mx_dim(bias, 0) == channels)) &&
         mx_size(x) == (size_t)mx_dim(x, 0) * (size_t)mx_dim(x, last ? 1 : 2) * (size_t)channels;
  if (!fits || (!last && mx_dim(x, 1) != channels)) {
    op_fail(o, "input of rank %d and weights of rank %d with %d channels and %d taps do not fit", rank, mx_ndim(w), channels, taps);
    return false;
  }
  x = last ? mx_reshape(x, MXI(mx_dim(x, 0), mx_dim(x, 1), channels)) : mx_swapaxes(x, 1, 2);
  *c = (causal){.x = mx_astype(x, DT_F32), .w = mx_astype(mx_reshape(w, MXI(channels, taps)), DT_F32), .taps = taps};
  c->dilation = (int)attr_i(o->n, "dilation", 1);
  c->kept = (int)kept;
  return true;
}

// [B, rows, C] in the layout of input 0, of which all but the rows is kept.
static mx as_input(op *o, mx x) {
  if (!last_channels(o->n)) return mx_swapaxes(x, 1, 2);
  mx_ints shape = mx_shape(in(o, C_X));
  shape.v[1] = mx_dim(x, 1);
  return mx_reshape(x, shape);
}

static mx causal_past(op *o, const causal *c) {
  mx_ints shape = mx_shape(in(o, C_X));
  shape.v[last_channels(o->n) ? 1 : 2] = c->kept;
  mx past = past_state(o, C_PAST, shape);
  if (!last_channels(o->n)) return mx_swapaxes(past, 1, 2);
  return mx_reshape(past, MXI(mx_dim(c->x, 0), c->kept, mx_dim(c->x, 2)));
}

static void causal_states(op *o, const causal *c, mx all) {
  int tokens = mx_dim(c->x, 1), w = window_of(o->n), n = w ? w : 1, held = 0;
  mx newest[MAX_WINDOW] = {NULL};
  for (int j = 0; j < n && (j < tokens || !w); j++, held++)
    newest[j] = as_input(o, mx_slice_axis(all, 1, tokens - j, tokens - j + c->kept));
  if (!held) op_fail(o, "no tokens for a window of states");
  else out(o, 1, w ? windowed(newest, held, w) : newest[0]);
}

static void causal_conv(op *o) {
  causal c;
  if (!causal_inputs(o, &c)) return;
  mx parts[2] = {causal_past(o, &c), c.x};
  if (!mx_ok(o->s)) return;
  mx all = mx_concatenate(o->s, parts, 2, 1), y = NULL;
  for (int j = 0; j < c.taps; j++) {
    mx tap = mx_reshape(mx_slice_axis(c.w, 1, j, j + 1), MXI(mx_dim(c.w, 0)));
    mx part = mx_mul(mx_slice_axis(all, 1, j * c.dilation, j * c.dilation + mx_dim(c.x, 1)), tap);
    y = y ? mx_add(y, part) : part;
  }
  if (in(o, C_BIAS)) y = mx_add(y, in(o, C_BIAS));
  if (strcmp(attr_s(o->n, "activation", "none"), "none") != 0) y = mx_mul(y, mx_sigmoid(y));
  out(o, 0, as_input(o, y));
  causal_states(o, &c, all);
}

static const char *const causal_attrs[] = {"activation", "dilation", "ndim", "channels_last", "state_window", NULL};

static void causal_claim(claim *c) {
  require_known(c, causal_attrs);
  claim_like(c, C_PAST + 1);
  claim_window(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, attr_i(c->n, "ndim", 1) == 1, "ndim %lld", (long long)attr_i(c->n, "ndim", 1));
  int64_t dilation = attr_i(c->n, "dilation", 1);
  REQUIRE(c, dilation > 0 && dilation < 1 << 20, "dilation %lld", (long long)dilation);
  const char *a = attr_s(c->n, "activation", "none");
  REQUIRE(c, !strcmp(a, "none") || !strcmp(a, "silu") || !strcmp(a, "swish"), "activation '%s'", a);
}

// ---- LinearAttentionGate, GatedRMSNorm --------------------------------------------------------------------------------------
static bool per_head(op *o, size_t i, int heads) {
  mx x = in(o, i);
  if (mx_ndim(x) == 1 && mx_dim(x, 0) == heads) return true;
  op_fail(o, "input %zu must have shape [%d]", i, heads);
  return false;
}

static void attention_gate(op *o) {
  mx a = in(o, 0);
  if (!per_head(o, 1, mx_dim(a, -1)) || !per_head(o, 2, mx_dim(a, -1))) return;
  out(o, 0, mx_mul(num_softplus(mx_add(mx_astype(a, DT_F32), in(o, 1))), in(o, 2)));
  if (in(o, 3)) out(o, 1, mx_sigmoid(mx_astype(in(o, 3), DT_F32)));
}

static void gate_claim(claim *c) {
  dtype t = in_type(c, 0);
  require_types(c, 1, DTYPE_BIT(DT_F32));
  require_types(c, 2, DTYPE_BIT(DT_F32));
  require_types(c, 3, DTYPE_BIT(t));
  REQUIRE(c, !has_out(c, 1) || has_in(c, 3), "the output beta needs input b");
}

static void gated_rms_norm(op *o) {
  mx x = in(o, 0), scale = in(o, 1), gate = mx_astype(in(o, 2), DT_F32);
  mx_ints shape = mx_shape(x), other = mx_shape(gate);
  int c = mx_ndim(scale) == 1 ? mx_dim(scale, 0) : 0;
  bool fits = c > 0 && shape.n > 0 && shape.n == other.n && shape.v[shape.n - 1] % c == 0;
  for (int i = 0; i < shape.n && fits; i++) fits = shape.v[i] == other.v[i];
  if (!fits) {
    op_fail(o, "a scale of %d and a gate of rank %d do not fit an input of rank %d and width %d", c, other.n, shape.n, mx_dim(x, -1));
    return;
  }
  if (!mx_size(x)) {
    out(o, 0, x);
    return;
  }
  mx y = mx_rms_norm(mx_reshape(mx_astype(x, DT_F32), MXI(-1, c)), mx_astype(scale, DT_F32), attr_f(o->n, "epsilon", 1e-5f));
  mx open = mx_sigmoid(gate);
  if (strcmp(attr_s(o->n, "activation", "silu"), "sigmoid") != 0) open = mx_mul(gate, open);
  out(o, 0, mx_mul(mx_reshape(y, shape), open));
}

static void gated_norm_claim(claim *c) {
  claim_like(c, 3);
  CLAIM_GOES_ON(c);
  REQUIRE(c, attr_has(c->n, "epsilon"), "epsilon is missing");
  const char *a = attr_s(c->n, "activation", "silu");
  REQUIRE(c, !strcmp(a, "silu") || !strcmp(a, "swish") || !strcmp(a, "sigmoid"), "activation '%s'", a);
}

const op_row ops_linear_attn[] = {
    OP("", "LinearAttention", 27, ANY, linear_claim, linear_attention, .types = DTS_FLOAT, .traits = OP_KV,
       .limits = "update_rule is linear, gated, delta or gated_delta; state_window of 8 at most"),
    OP("com.microsoft", "LinearAttention", 1, ANY, linear_claim, linear_attention, .types = DTS_FLOAT, .traits = OP_KV,
       .limits = "update_rule is linear, gated, delta or gated_delta; state_window of 8 at most"),
    OP("", "CausalConvWithState", 27, ANY, causal_claim, causal_conv, .types = DTS_FLOAT,
       .limits = "ndim is 1; activation is none, silu or swish; state_window of 8 at most"),
    OP("com.microsoft", "CausalConvWithState", 1, ANY, causal_claim, causal_conv, .types = DTS_FLOAT,
       .limits = "ndim is 1; activation is none, silu or swish; state_window of 8 at most"),
    OP("com.microsoft", "LinearAttentionGate", 1, ANY, gate_claim, attention_gate, .types = DTS_FLOAT,
       .limits = "A_log and dt_bias are float32; the output beta needs b"),
    OP("com.microsoft", "GatedRMSNorm", 1, ANY, gated_norm_claim, gated_rms_norm, .types = DTS_FLOAT,
       .limits = "activation is silu, swish or sigmoid"),
    {0}};
