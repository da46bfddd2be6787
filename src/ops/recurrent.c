// RNN, GRU and LSTM: one product for the inputs of all steps, then the steps in turn. Computed in float32.
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "ops/qint.h"

enum { R_X, R_W, R_R, R_B, R_LENGTHS, R_H, R_C, R_P, R_W_SCALE, R_W_ZERO, R_R_SCALE, R_R_ZERO };
static const char *const attrs[] = {"activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size",
                                    "input_forget", "layout", "linear_before_reset", "output_sequence", NULL};

// ---- activations ----------------------------------------------------------------------------------------------------------
typedef struct activation {
  const char *name;
  mx (*apply)(mx x, double alpha, double beta);
  bool takes_alpha, takes_beta;
  double alpha, beta;  // when not given
} activation;

static mx number(mx like, double v) { return mx_scalar(like, v); }
static mx line(mx x, double a, double b) { return mx_add(mx_mul(x, number(x, a)), number(x, b)); }
static mx negative(mx x, mx below, mx other) { return mx_where(mx_less(x, number(x, 0)), below, other); }

static mx act_affine(mx x, double a, double b) { return line(x, a, b); }
static mx act_relu(mx x, double a, double b) { return (void)a, (void)b, mx_maximum(x, number(x, 0)); }
static mx act_leaky(mx x, double a, double b) { return (void)b, negative(x, mx_mul(x, number(x, a)), x); }
static mx act_threshold(mx x, double a, double b) {
  return (void)b, mx_where(mx_greater_equal(x, number(x, a)), x, number(x, 0));
}
static mx act_tanh(mx x, double a, double b) { return (void)a, (void)b, mx_tanh(x); }
static mx act_scaled_tanh(mx x, double a, double b) { return mx_mul(mx_tanh(mx_mul(x, number(x, b))), number(x, a)); }
static mx act_sigmoid(mx x, double a, double b) { return (void)a, (void)b, mx_sigmoid(x); }
static mx act_hard_sigmoid(mx x, double a, double b) { return mx_clip(line(x, a, b), number(x, 0), number(x, 1)); }
static mx act_elu(mx x, double a, double b) { return (void)b, negative(x, mx_mul(mx_expm1(x), number(x, a)), x); }
static mx act_softsign(mx x, double a, double b) {
  return (void)a, (void)b, mx_div(x, mx_add(mx_abs(x), number(x, 1)));
}
static mx act_softplus(mx x, double a, double b) { return (void)a, (void)b, mx_logaddexp(x, number(x, 0)); }

static const activation activations[] = {
    {"Affine", act_affine, true, true, 1, 0},
    {"Relu", act_relu, false, false, 0, 0},
    {"LeakyRelu", act_leaky, true, false, 0.01, 0},
    {"ThresholdedRelu", act_threshold, true, false, 1, 0},
    {"Tanh", act_tanh, false, false, 0, 0},
    {"ScaledTanh", act_scaled_tanh, true, true, 1, 1},
    {"Sigmoid", act_sigmoid, false, false, 0, 0},
    {"HardSigmoid", act_hard_sigmoid, true, true, 0.2, 0.5},
    {"Elu", act_elu, true, false, 1, 0},
    {"Softsign", act_softsign, false, false, 0, 0},
    {"Softplus", act_softplus, false, false, 0, 0},
};

static const activation *activation_named(const char *name) {
  for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
    if (!strcasecmp(activations[i].name, name)) return &activations[i];
  return NULL;
}

enum { MAX_ACTIVATIONS = 6 };  // three in each of two directions

// The activations of both directions with their parameters: those that take one take the next of the list.
static size_t read_activations(const node *n, size_t each, const char *const *defaults, activation to[MAX_ACTIVATIONS]) {
  size_t n_alpha = 0, n_beta = 0, a = 0, b = 0;
  const float *alpha = attr_floats(n, "activation_alpha", &n_alpha), *beta = attr_floats(n, "activation_beta", &n_beta);
  const attr *given = attr_get(n, "activations");
  size_t count = given && given->kind == ATTR_STRINGS && given->n ? given->n : 2 * each;
  for (size_t i = 0; i < count && i < MAX_ACTIVATIONS; i++) {
    const activation *known = activation_named(count == 2 * each && !(given && given->n) ? defaults[i % each] : given->strings[i]);
    if (!known) return 0;
    to[i] = *known;
    if (known->takes_alpha && a < n_alpha) to[i].alpha = (double)alpha[a++];
    if (known->takes_beta && b < n_beta) to[i].beta = (double)beta[b++];
  }
  return count;
}

// ---- a cell ---------------------------------------------------------------------------------------------------------------
typedef struct lane lane;
typedef struct cell {
  int gates, n_act;
  const char *const *defaults;
  void (*step)(const lane *l, mx x, mx *h, mx *c);  // x: [B, gates * H], the input's part with its bias
} cell;

typedef struct rnn {
  op *o;
  const cell *cell;
  int steps, batch, hidden, dirs;
  mx x;     // [T, B, I]
  mx seen;  // [T, B, 1] bool: is this step inside the entry's length? NULL: always
  activation act[MAX_ACTIVATIONS];
} rnn;

struct lane {  // one direction
  const rnn *r;
  const activation *act;
  mx recurrent;  // [H, gates * H]
  mx scale;      // of it when it is quantised, broadcast to [B, gates * H]; else NULL
  mx bias;       // [gates * H], the recurrent one; NULL when it is part of x
  mx peephole;   // [3 * H] or NULL
};

// x [.., K] times weights that are quantised if they have a scale; then x is quantised too, by its own range.
static mx product(mx x, mx w, mx scale) {
  if (!scale) return mx_matmul(x, w);
  mx x_scale, zero, q = qint_dynamic(x, &x_scale, &zero);
  return mx_mul(mx_matmul(mx_sub(q, zero), w), mx_mul(x_scale, scale));
}

static mx gate(const lane *l, mx x, int i) { return mx_slice_axis(x, -1, i * l->r->hidden, (i + 1) * l->r->hidden); }
static mx applied(const lane *l, int i, mx x) { return l->act[i].apply(x, l->act[i].alpha, l->act[i].beta); }

static mx clipped(const lane *l, mx x) {
  double limit = (double)attr_f(l->r->o->n, "clip", 0);
  return limit > 0 ? mx_clip(x, number(x, -limit), number(x, limit)) : x;
}

static void rnn_step(const lane *l, mx x, mx *h, mx *c) {
  (void)c;
  *h = applied(l, 0, clipped(l, mx_add(x, mx_matmul(*h, l->recurrent))));
}

static void gru_step(const lane *l, mx x, mx *h, mx *c) {
  (void)c;
  int hidden = l->r->hidden;
  bool reset_after = attr_i(l->r->o->n, "linear_before_reset", 0) != 0;
  mx both = mx_slice_axis(l->recurrent, 1, 0, 2 * hidden), last = gate(l, l->recurrent, 2);
  mx zr = mx_add(mx_slice_axis(x, -1, 0, 2 * hidden), mx_matmul(*h, both));
  if (l->bias) zr = mx_add(zr, mx_slice_axis(l->bias, -1, 0, 2 * hidden));
  zr = applied(l, 0, clipped(l, zr));
  mx z = gate(l, zr, 0), r = gate(l, zr, 1), part;
  if (reset_after) {
    part = mx_matmul(*h, last);
    if (l->bias) part = mx_add(part, gate(l, l->bias, 2));
    part = mx_mul(r, part);
  } else {
    part = mx_matmul(mx_mul(r, *h), last);
    if (l->bias) part = mx_add(part, gate(l, l->bias, 2));
  }
  mx next = applied(l, 1, clipped(l, mx_add(gate(l, x, 2), part)));
  *h = mx_add(next, mx_mul(z, mx_sub(*h, next)));
}

static void lstm_step(const lane *l, mx x, mx *h, mx *c) {
  mx g = mx_add(x, product(*h, l->recurrent, l->scale));
  mx i = gate(l, g, 0), o = gate(l, g, 1), f = gate(l, g, 2), n = gate(l, g, 3);
  if (l->peephole) {
    i = mx_add(i, mx_mul(gate(l, l->peephole, 0), *c));
    f = mx_add(f, mx_mul(gate(l, l->peephole, 2), *c));
  }
  i = applied(l, 0, clipped(l, i));
  f = attr_i(l->r->o->n, "input_forget", 0) ? mx_sub(number(i, 1), i) : applied(l, 0, clipped(l, f));
  *c = mx_add(mx_mul(f, *c), mx_mul(i, applied(l, 1, clipped(l, n))));
  if (l->peephole) o = mx_add(o, mx_mul(gate(l, l->peephole, 1), *c));
  *h = mx_mul(applied(l, 0, clipped(l, o)), applied(l, 2, *c));
}

static const char *const rnn_defaults[] = {"Tanh"}, *const gru_defaults[] = {"Sigmoid", "Tanh"},
                         *const lstm_defaults[] = {"Sigmoid", "Tanh", "Tanh"};
static const cell rnn_cell = {1, 1, rnn_defaults, rnn_step};
static const cell gru_cell = {3, 2, gru_defaults, gru_step};
static const cell lstm_cell = {4, 3, lstm_defaults, lstm_step};

static const cell *cell_of(const node *n) {
  if (!strcmp(n->op_type, "DynamicQuantizeLSTM")) return &lstm_cell;
  return !strcmp(n->op_type, "LSTM") ? &lstm_cell : !strcmp(n->op_type, "GRU") ? &gru_cell : &rnn_cell;
}

// DynamicQuantizeLSTM: its weights are 8-bit integers, [dirs, inputs, gates * H].
static bool is_quantised(const node *n) { return n->n_in > R_W_SCALE; }

static int directions(const node *n) {
  const char *s = attr_s(n, "direction", "forward");
  if (!strcmp(s, "bidirectional")) return 2;
  return !strcmp(s, "forward") || !strcmp(s, "reverse") ? 1 : 0;
}

// ---- claiming ---------------------------------------------------------------------------------------------------------------
static void recurrent_claim(claim *c) {
  require_known(c, attrs);
  for (size_t i = 0; i <= R_P; i++)
    if (i != R_LENGTHS) require_types(c, i, is_quantised(c->n) && (i == R_W || i == R_R) ? DTS_8 : DTS_FLOAT);
  require_types(c, R_LENGTHS, DTYPE_BIT(DT_I32));
  CLAIM_GOES_ON(c);
  int dirs = directions(c->n);
  const cell *k = cell_of(c->n);
  REQUIRE(c, dirs, "direction '%s'", attr_s(c->n, "direction", ""));
  REQUIRE(c, in_rank(c, R_X) < 0 || in_rank(c, R_X) == 3, "X has rank %d", in_rank(c, R_X));
  const attr *given = attr_get(c->n, "activations");
  size_t need = (size_t)(k->n_act * dirs);
  // RNN's own default names an activation for two directions, whatever the direction.
  bool fits = !given || (given->kind == ATTR_STRINGS && (!given->n || given->n == need || (k == &rnn_cell && given->n == 2)));
  REQUIRE(c, fits, "activations must hold %zu names", need);
  activation act[MAX_ACTIVATIONS];
  REQUIRE(c, read_activations(c->n, (size_t)k->n_act, k->defaults, act), "an activation is not known");
  int64_t layout = attr_i(c->n, "layout", 0);
  REQUIRE(c, layout == 0 || layout == 1, "layout %lld", (long long)layout);
}

// ---- running ------------------------------------------------------------------------------------------------------------------
static bool has_shape(mx x, int rank, int a, int b, int c) {
  return mx_ndim(x) == rank && mx_dim(x, 0) == a && mx_dim(x, 1) == b && (rank < 3 || mx_dim(x, 2) == c);
}

static bool rnn_fits(const rnn *r, bool batch_first) {
  op *o = r->o;
  int rows = r->cell->gates * r->hidden, a = batch_first ? r->batch : r->dirs, b = batch_first ? r->dirs : r->batch;
  int inputs = mx_dim(r->x, 2);
  bool ok = is_quantised(o->n) ? has_shape(in(o, R_W), 3, r->dirs, inputs, rows) && has_shape(in(o, R_R), 3, r->dirs, r->hidden, rows)
                               : has_shape(in(o, R_W), 3, r->dirs, rows, inputs) && has_shape(in(o, R_R), 3, r->dirs, rows, r->hidden);
  ok = ok &&
            (!in(o, R_B) || has_shape(in(o, R_B), 2, r->dirs, 2 * rows, 0)) &&
            (!in(o, R_H) || has_shape(in(o, R_H), 3, a, b, r->hidden)) &&
            (!in(o, R_C) || has_shape(in(o, R_C), 3, a, b, r->hidden)) &&
            (!in(o, R_P) || has_shape(in(o, R_P), 2, r->dirs, 3 * r->hidden, 0)) &&
            (!in(o, R_LENGTHS) || (mx_ndim(in(o, R_LENGTHS)) == 1 && mx_dim(in(o, R_LENGTHS), 0) == r->batch));
  if (!ok) op_fail(o, "the inputs do not fit %d directions, a batch of %d and a hidden size of %d", r->dirs, r->batch, r->hidden);
  return ok;
}

static mx entry(mx x, int axis, int i) { return mx_squeeze(mx_slice_axis(x, axis, i, i + 1), MXI(axis)); }

static mx start_of(const rnn *r, size_t input, int dir, bool batch_first) {
  mx x = in(r->o, input);
  if (!x) return mx_full(r->o->s, MXI(r->batch, r->hidden), 0, DT_F32);
  return mx_astype(entry(x, batch_first ? 1 : 0, dir), DT_F32);
}

// Scales or zero points: one for each direction, or one for each of its columns.
static mx of_direction(const rnn *r, size_t i) {
  op *o = r->o;
  mx x = mx_astype(in(o, i), DT_F32);
  int each = (int)mx_size(x) / r->dirs, columns = r->cell->gates * r->hidden;
  if (each * r->dirs != (int)mx_size(x) || (each != 1 && each != columns))
    return op_fail(o, "input %zu must have 1 or %d elements for each of %d directions", i, columns, r->dirs);
  return mx_reshape(x, MXI(r->dirs, 1, each));
}

static mx less_zero(op *o, size_t w, size_t zero) {
  int dirs = mx_dim(in(o, w), 0);
  return mx_sub(mx_astype(in(o, w), DT_F32), mx_reshape(mx_astype(in(o, zero), DT_F32), MXI(dirs, 1, -1)));
}
static mx input_weight(op *o) { return less_zero(o, R_W, R_W_ZERO); }
static mx recurrent_weight(op *o) { return less_zero(o, R_R, R_R_ZERO); }

static mx quantised_weight(const rnn *r, int slot, mx (*make)(op *o), size_t w, size_t zero, int dir) {
  op *o = r->o;
  of_direction(r, zero);  // fails when it does not fit
  bool fixed = is_const(o, w) && is_const(o, zero);
  return mx_ok(o->s) ? entry(fixed ? memo(o, slot, make) : make(o), 0, dir) : r->x;
}

static mx quantised_begin(const rnn *r, int dir, lane *l) {
  l->recurrent = quantised_weight(r, 1, recurrent_weight, R_R, R_R_ZERO, dir);
  l->scale = entry(of_direction(r, R_R_SCALE), 0, dir);
  mx w = quantised_weight(r, 0, input_weight, R_W, R_W_ZERO, dir);
  return product(r->x, w, entry(of_direction(r, R_W_SCALE), 0, dir));
}

// The inputs' part of every step; the biases join it where nothing stands between.
static mx lane_begin(const rnn *r, int dir, lane *l) {
  op *o = r->o;
  int rows = r->cell->gates * r->hidden;
  *l = (lane){.r = r, .act = r->act + dir * r->cell->n_act};
  if (in(o, R_P)) l->peephole = mx_astype(entry(in(o, R_P), 0, dir), DT_F32);
  mx w = NULL, xs = NULL;
  if (is_quantised(o->n)) xs = quantised_begin(r, dir, l);
  else {
    l->recurrent = mx_transpose(mx_astype(entry(in(o, R_R), 0, dir), DT_F32), MXI(1, 0));
    w = mx_transpose(mx_astype(entry(in(o, R_W), 0, dir), DT_F32), MXI(1, 0));
  }
  if (!in(o, R_B)) return xs ? xs : mx_matmul(r->x, w);
  mx b = mx_astype(entry(in(o, R_B), 0, dir), DT_F32);
  mx own = mx_slice_axis(b, 0, 0, rows), other = mx_slice_axis(b, 0, rows, 2 * rows);
  if (r->cell->gates == 3) l->bias = other;
  else own = mx_add(own, other);
  return xs ? mx_add(xs, own) : mx_linear(r->x, w, own);
}

// One direction over all steps; y [T, B, H] in time order, h and c as the last step leaves them.
static bool run_lane(const rnn *r, int dir, mx *y, mx *h, mx *c) {
  op *o = r->o;
  lane l;
  mx xs = lane_begin(r, dir, &l), *ys = mem_alloc(((size_t)r->steps + 1) * sizeof *ys);
  if (!ys) return mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d steps", r->steps), false;
  bool backwards = dir == 1 || !strcmp(attr_s(o->n, "direction", "forward"), "reverse");
  for (int i = 0; i < r->steps && mx_ok(o->s); i++) {
    int t = backwards ? r->steps - 1 - i : i;
    mx h0 = *h, c0 = *c;
    r->cell->step(&l, entry(xs, 0, t), h, c);
    ys[t] = *h;
    if (!r->seen) continue;
    mx seen = entry(r->seen, 0, t);
    ys[t] = mx_where(seen, *h, number(*h, 0));
    *h = mx_where(seen, *h, h0);
    *c = mx_where(seen, *c, c0);
  }
  bool ok = mx_ok(o->s);
  if (ok) *y = r->steps ? mx_stack(o->s, ys, (size_t)r->steps, 0) : mx_full(o->s, MXI(0, r->batch, r->hidden), 0, DT_F32);
  mem_free(ys);
  return ok;
}

static bool rnn_begin(op *o, rnn *r, bool batch_first) {
  mx x = in(o, R_X);
  if (mx_ndim(x) != 3 || mx_ndim(in(o, R_R)) != 3) return op_fail(o, "X and R must have rank 3"), false;
  *r = (rnn){.o = o, .cell = cell_of(o->n), .dirs = directions(o->n), .hidden = mx_dim(in(o, R_R), is_quantised(o->n) ? 1 : 2)};
  r->x = f32_up(batch_first ? mx_swapaxes(x, 0, 1) : x);
  r->steps = mx_dim(r->x, 0);
  r->batch = mx_dim(r->x, 1);
  if (!rnn_fits(r, batch_first)) return false;
  if (!read_activations(o->n, (size_t)r->cell->n_act, r->cell->defaults, r->act)) return op_fail(o, "an activation"), false;
  if (in(o, R_LENGTHS)) {
    mx t = mx_reshape(mx_arange(o->s, 0, r->steps, 1, DT_I32), MXI(r->steps, 1, 1));
    r->seen = mx_less(t, mx_reshape(in(o, R_LENGTHS), MXI(1, r->batch, 1)));
  }
  return true;
}

static void recurrent(op *o) {
  bool batch_first = attr_i(o->n, "layout", 0) == 1;
  rnn r;
  mx y[2], h[2], c[2];
  if (!rnn_begin(o, &r, batch_first)) return;
  for (int d = 0; d < r.dirs; d++) {
    h[d] = start_of(&r, R_H, d, batch_first);
    c[d] = start_of(&r, R_C, d, batch_first);
    if (!run_lane(&r, d, &y[d], &h[d], &c[d])) return;
  }
  size_t n = (size_t)r.dirs;
  mx all = mx_stack(o->s, y, n, 1);  // [T, dirs, B, H]
  out(o, 0, batch_first ? mx_transpose(all, MXI(2, 0, 1, 3)) : all);
  out(o, 1, mx_stack(o->s, h, n, batch_first ? 1 : 0));
  if (r.cell == &lstm_cell) out(o, 2, mx_stack(o->s, c, n, batch_first ? 1 : 0));
}

const op_row ops_recurrent[] = {
    OP("", "RNN", 1, ANY, recurrent_claim, recurrent, .types = DTS_FLOAT,
       .limits = "X of rank 3; the activations that ONNX names"),
    OP("", "GRU", 1, ANY, recurrent_claim, recurrent, .types = DTS_FLOAT,
       .limits = "X of rank 3; the activations that ONNX names"),
    OP("", "LSTM", 1, ANY, recurrent_claim, recurrent, .types = DTS_FLOAT,
       .limits = "X of rank 3; the activations that ONNX names"),
    OP("com.microsoft", "DynamicQuantizeLSTM", 1, ANY, recurrent_claim, recurrent, .types = DTS_FLOAT,
       .limits = "X of rank 3; the activations that ONNX names"),
    {0}};
