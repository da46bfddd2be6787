// Gelu and SiLU as exporters write them out.
#include "rewrite/match.h"
#include "rewrite/passes.h"

static const double HALF = 0.5, SQRT_HALF = 0.70710678118654752440, SQRT_2_OVER_PI = 0.79788456080286535588,
                    CUBIC = 0.044715;

// v = 1 + fn(..): that fn, when both serve v alone.
static node *one_plus(const value *v, const char *fn) {
  value *other;
  double one;
  node *add = only_use(v) ? made_by(v, "Add") : NULL;
  if (!add || !with_number(add, &other, &one) || one != 1 || !only_use(other)) return NULL;
  return made_by(other, fn);
}

static bool is_power(const factors *f, const value *x, size_t n) {
  if (f->n != n) return false;
  for (size_t i = 0; i < n; i++)
    if (f->v[i] != x) return false;
  return true;
}

static bool is_erf_of(const node *erf, const value *x) {
  factors f;
  if (!erf) return false;
  factors_of(erf->in[0], &f);
  return is_power(&f, x, 1) && about(f.c, SQRT_HALF, x->type);
}

// v = first + 0.044715 * x^power, where first is x or the number 1.
static bool is_cubic(const value *v, const value *x, size_t power) {
  node *add = only_use(v) ? made_by(v, "Add") : NULL;
  for (size_t i = 0; add && i < 2; i++) {
    double one;
    factors f;
    bool first = power == 3 ? add->in[i] == x : const_number(add->in[i], add->in[1 - i], &one) && one == 1;
    if (!first) continue;
    factors_of(add->in[1 - i], &f);
    if (is_power(&f, x, power) && about(f.c, CUBIC, x->type)) return true;
  }
  return false;
}

// tanh(sqrt(2 / pi) * (x + 0.044715 x^3)), or with one x outside of the sum.
static bool is_tanh_of(const node *tanh, const value *x) {
  factors f;
  if (!tanh) return false;
  factors_of(tanh->in[0], &f);
  if (!about(f.c, SQRT_2_OVER_PI, x->type)) return false;
  if (f.n == 1) return is_cubic(f.v[0], x, 3);
  if (f.n != 2) return false;
  return (f.v[0] == x && is_cubic(f.v[1], x, 2)) || (f.v[1] == x && is_cubic(f.v[0], x, 2));
}

static bool become(edit *ed, node *n, const node_spec *s, const value *x) {
  if (n->out[0]->type != x->type || !edit_replace(ed, n, s)) return false;
  ed->made++;
  return true;
}

// 0.5 * x * (1 + erf(x / sqrt 2)) or 0.5 * x * (1 + tanh(..)), the factors in any order.
void rewrite_gelu(edit *ed, node *n) {
  factors f;
  if (!is_op(n, "Mul")) return;
  factors_of(n->out[0], &f);
  for (size_t i = 0; f.n == 2 && i < 2; i++) {
    value *x = f.v[i];
    bool erf = is_erf_of(one_plus(f.v[1 - i], "Erf"), x);
    if (!about(f.c, HALF, x->type) || (!erf && !is_tanh_of(one_plus(f.v[1 - i], "Tanh"), x))) continue;
    node_spec s = {.domain = "", .op_type = "Gelu", .since = 20, .in = {x}, .n_in = 1, .n_attrs = 1};
    s.attrs[0] = edit_string("approximate", erf ? "none" : "tanh");
    if (become(ed, n, &s, x)) return;
  }
}

// x * sigmoid(alpha * x)
void rewrite_silu(edit *ed, node *n) {
  for (size_t i = 0; is_op(n, "Mul") && i < 2; i++) {
    value *x = n->in[i];
    factors f;
    node *sigmoid = only_use(n->in[1 - i]) ? made_by(n->in[1 - i], "Sigmoid") : NULL;
    if (!sigmoid) continue;
    factors_of(sigmoid->in[0], &f);
    if (sigmoid->in[0] == x) f = (factors){.c = 1, .v = {x}, .n = 1};
    if (!is_power(&f, x, 1) || !(f.c > 0)) continue;
    node_spec s = {.domain = "com.microsoft", .op_type = "QuickGelu", .since = 1, .in = {x}, .n_in = 1, .n_attrs = 1};
    s.attrs[0] = edit_float("alpha", (float)f.c);
    if (become(ed, n, &s, x)) return;
  }
}
