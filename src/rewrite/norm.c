// LayerNormalization and RMSNormalization over the last axis as exporters write them out.
#include "rewrite/match.h"
#include "rewrite/passes.h"

static node *mean_of(const value *v) {
  node *n = made_by(v, "ReduceMean");
  return n && over_last_axis(n) ? n : NULL;
}

// v = d * d: d.
static value *square_of(const value *v) {
  node *pow = made_by(v, "Pow"), *mul = made_by(v, "Mul");
  if (pow && is_number(pow->in[1], pow->in[0], 2)) return pow->in[0];
  return mul && mul->in[0] == mul->in[1] ? mul->in[0] : NULL;
}

// v = mean(d * d) + eps: d.
static value *spread_of(const value *v, double *eps) {
  node *add = made_by(v, "Add");
  value *mean;
  if (!add || !with_number(add, &mean, eps) || !(*eps >= 0)) return NULL;
  node *reduce = mean_of(mean);
  return reduce ? square_of(reduce->in[0]) : NULL;
}

static value *root_of(const value *v) {
  node *n = made_by(v, "Sqrt");
  return n ? n->in[0] : NULL;
}

// v = 1 / sqrt(a): a.
static value *inverse_root_of(const value *v) {
  node *reciprocal = made_by(v, "Reciprocal"), *div = made_by(v, "Div"), *pow = made_by(v, "Pow");
  if (reciprocal) return root_of(reciprocal->in[0]);
  if (div && is_number(div->in[0], div->in[1], 1)) return root_of(div->in[1]);
  return pow && is_number(pow->in[1], pow->in[0], -0.5) ? pow->in[0] : NULL;
}

// One value computed by two equal nodes: exporters subtract the mean twice.
static bool same(const value *a, const value *b) {
  if (a == b) return true;
  const node *m = made_by(a, "Sub"), *n = made_by(b, "Sub");
  return m && n && m->in[0] == n->in[0] && m->in[1] == n->in[1];
}

// v = d / sqrt(mean(d * d) + eps): d.
static value *standard_of(const value *v, double *eps) {
  node *div = made_by(v, "Div"), *mul = made_by(v, "Mul");
  value *a = div ? root_of(div->in[1]) : NULL, *d = a ? spread_of(a, eps) : NULL;
  if (d && same(d, div->in[0])) return d;
  for (size_t i = 0; mul && i < 2; i++) {
    a = inverse_root_of(mul->in[i]);
    d = a ? spread_of(a, eps) : NULL;
    if (d && same(d, mul->in[1 - i])) return d;
  }
  return NULL;
}

// A scale or bias for each place of x's last axis.
static bool fits(const value *w, const value *x) {
  if (!w || w->rank != 1 || w->type != x->type || x->rank < 1) return false;
  int64_t width = x->dims[x->rank - 1];
  return w->dims[0] == width ? width >= 0 : width < 0 && w->dims[0] > 1;
}

static bool same_type(const node *n, const value *x) { return n->out[0]->type == x->type; }

// ---- LayerNormalization -----------------------------------------------------------------------------------------------------
// d = x - mean(x): x.
static value *centred(const value *d) {
  node *sub = made_by(d, "Sub"), *mean = sub ? mean_of(sub->in[1]) : NULL;
  return mean && mean->in[0] == sub->in[0] ? sub->in[0] : NULL;
}

// The sum that follows the scale, with the bias in it; NULL if there is none.
static node *biased(const edit *ed, const node *scaled, const value *x, value **bias) {
  node *add = edit_only_user(ed, scaled->out[0]);
  for (size_t i = 0; is_op(add, "Add") && i < 2; i++)
    if (add->in[1 - i] == scaled->out[0] && fits(add->in[i], x)) {
      *bias = add->in[i];
      return add;
    }
  return NULL;
}

static bool make_layer_norm(edit *ed, node *root, value *x, value *scale, value *bias, double eps) {
  node_spec s = {.domain = "", .op_type = "LayerNormalization", .since = 17, .in = {x, scale, bias}, .n_in = bias ? 3 : 2, .n_attrs = 2};
  s.attrs[0] = edit_int("axis", -1);
  s.attrs[1] = edit_float("epsilon", (float)eps);
  if (!edit_replace(ed, root, &s)) return false;
  ed->made++;
  return true;
}

// g = scale / sqrt(mean(d * d) + eps), where d = x - mean(x): that scale.
static value *scale_in(const value *g, const value *x, double *eps) {
  node *mul = made_by(g, "Mul");
  for (size_t i = 0; mul && i < 2; i++) {
    value *a = inverse_root_of(mul->in[i]), *d = a ? spread_of(a, eps) : NULL;
    if (d && centred(d) == x && fits(mul->in[1 - i], x)) return mul->in[1 - i];
  }
  return NULL;
}

// x * g + (bias - mean(x) * g), as TensorFlow writes it.
static bool woven_layer_norm(edit *ed, node *n, const node *mul, const node *sub) {
  const node *shift = sub ? made_by(sub->in[1], "Mul") : NULL;
  for (size_t i = 0; mul && shift && i < 4; i++) {
    value *g = mul->in[i & 1], *x = mul->in[1 - (i & 1)];
    if (shift->in[i >> 1] != g || !fits(sub->in[0], x) || !same_type(n, x)) continue;
    node *mean = mean_of(shift->in[1 - (i >> 1)]);
    double eps;
    value *scale = mean && mean->in[0] == x ? scale_in(g, x, &eps) : NULL;
    if (scale) return make_layer_norm(ed, n, x, scale, sub->in[0], eps);
  }
  return false;
}

void rewrite_layer_norm(edit *ed, node *n) {
  for (size_t i = 0; is_op(n, "Add") && i < 2; i++)
    if (woven_layer_norm(ed, n, made_by(n->in[i], "Mul"), made_by(n->in[1 - i], "Sub"))) return;
  for (size_t i = 0; is_op(n, "Mul") && i < 2; i++) {
    double eps;
    value *d = only_use(n->in[i]) ? standard_of(n->in[i], &eps) : NULL, *x = d ? centred(d) : NULL, *bias = NULL;
    if (!x || !fits(n->in[1 - i], x) || !same_type(n, x)) continue;
    node *add = biased(ed, n, x, &bias);
    if (make_layer_norm(ed, add ? add : n, x, n->in[1 - i], bias, eps)) return;
  }
}

// ---- RMSNormalization ---------------------------------------------------------------------------------------------------------
// v = standardised x, also when that is done in float32 between two casts: x.
static value *rms_of(const value *v, double *eps) {
  value *x = standard_of(v, eps);
  if (x) return x;
  node *narrow = made_by(v, "Cast");
  value *wide = narrow && only_use(narrow->in[0]) ? standard_of(narrow->in[0], eps) : NULL;
  node *widen = wide && wide->type == DT_F32 ? made_by(wide, "Cast") : NULL;
  return widen && widen->in[0]->type == v->type && dtype_in(v->type, DTS_FLOAT) ? widen->in[0] : NULL;
}

void rewrite_rms_norm(edit *ed, node *n) {
  for (size_t i = 0; is_op(n, "Mul") && i < 2; i++) {
    double eps;
    value *x = only_use(n->in[i]) ? rms_of(n->in[i], &eps) : NULL;
    if (!x || !fits(n->in[1 - i], x) || !same_type(n, x)) continue;
    node_spec s = {.domain = "", .op_type = "RMSNormalization", .since = 23, .in = {x, n->in[1 - i]}, .n_in = 2, .n_attrs = 2};
    s.attrs[0] = edit_int("axis", -1);
    s.attrs[1] = edit_float("epsilon", (float)eps);
    if (!edit_replace(ed, n, &s)) continue;
    ed->made++;
    return;
  }
}
