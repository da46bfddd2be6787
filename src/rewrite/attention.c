// softmax(scale * q k^T + mask) v becomes one node; the softmax and the products then stay in float32 for half types.
#include <math.h>
#include <string.h>

#include "rewrite/match.h"
#include "rewrite/passes.h"

typedef struct written {  // what the pattern names
  value *q, *k, *v, *mask;
  double scale;
  bool k_transposed, guarded;
} written;

// ---- products and scales ----------------------------------------------------------------------------------------------------
// Takes multiplications by numbers off v while they serve v alone.
static value *unscaled(value *v, double *scale) {
  for (;;) {
    double x;
    value *other = NULL;
    node *mul = only_use(v) ? made_by(v, "Mul") : NULL, *div = only_use(v) ? made_by(v, "Div") : NULL;
    if (mul && with_number(mul, &other, &x)) *scale *= x;
    else if (div && const_number(div->in[1], div->in[0], &x) && x != 0) {
      *scale /= x;
      other = div->in[0];
    } else return v;
    v = other;
  }
}

static bool swaps_last(const node *transpose) {
  static const int64_t WANT[] = {0, 1, 3, 2};
  size_t n;
  const int64_t *p = attr_ints(transpose, "perm", &n);
  return p && n == 4 && !memcmp(p, WANT, sizeof WANT);
}

static bool is_product(value *scores, written *w) {
  node *mm = only_use(scores) ? made_by(scores, "MatMul") : NULL;
  if (!mm) return false;
  w->q = unscaled(mm->in[0], &w->scale);
  w->k = unscaled(mm->in[1], &w->scale);
  node *transpose = made_by(w->k, "Transpose");
  w->k_transposed = !transpose || !swaps_last(transpose);  // then k is what the product reads, transposed
  if (!w->k_transposed) w->k = unscaled(transpose->in[0], &w->scale);
  return w->q->rank == 4 && w->k->rank == 4 && w->q->type == w->v->type && w->k->type == w->v->type && isfinite(w->scale) && w->scale != 0;
}

// ---- masks ------------------------------------------------------------------------------------------------------------------
// v, or what a cast that serves it alone made it from.
static value *uncast(value *v) {
  node *cast = only_use(v) ? made_by(v, "Cast") : NULL;
  bool floats = cast && dtype_in(cast->in[0]->type, DTS_FLOAT) && dtype_in(v->type, DTS_FLOAT);
  return floats ? cast->in[0] : v;
}

static bool is_scores(value *v, written *w) {
  double scale = w->scale;
  if (is_product(unscaled(uncast(v), &w->scale), w)) return true;
  w->scale = scale;
  return false;
}

static bool is_mask(const value *v) { return v->rank >= 1 && v->rank <= 4 && dtype_in(v->type, DTS_FLOAT64); }

static bool is_added(value *sum, written *w) {
  node *add = only_use(sum) ? made_by(sum, "Add") : NULL;
  for (size_t i = 0; add && i < 2; i++) {
    if (!is_mask(add->in[1 - i]) || !is_scores(add->in[i], w)) continue;
    w->mask = add->in[1 - i];
    return true;
  }
  return false;
}

// A number that swallows any score that it is added to.
static bool hides(const value *v, const value *with) {
  double x;
  return const_number(v, with, &x) && (x == -(double)INFINITY || (v->type == DT_F32 && x <= -1e30));
}

static value *zero_like(edit *ed, const value *like) {
  size_t bytes = dtype_size(like->type);
  void *data = edit_room(ed, bytes);
  if (data) memset(data, 0, bytes);
  return data ? edit_constant(ed, "zero", like->type, 0, (const int64_t[]){0}, data, bytes) : NULL;
}

// Where(seen, scores, -inf), or the other way round: a mask of the same type is put in front of root.
static bool is_chosen(edit *ed, node *root, value *sum, written *w) {
  node *where = only_use(sum) ? made_by(sum, "Where") : NULL;
  for (size_t i = 1; where && i < 3; i++) {
    value *hidden = where->in[3 - i], *cond = where->in[0];
    if (!hides(hidden, where->in[i]) || cond->rank < 1 || cond->rank > 4 || hidden->rank > cond->rank) continue;
    if (!is_scores(where->in[i], w)) continue;
    value *zero = zero_like(ed, hidden), *mask = zero ? edit_value(ed, sum->name, sum->type, cond->rank, cond->dims) : NULL;
    node_spec s = {.domain = "", .op_type = "Where", .since = 16, .in = {cond, i == 1 ? zero : hidden, i == 1 ? hidden : zero}, .n_in = 3};
    if (!mask || !edit_insert(ed, root, &s, &mask, 1)) return false;
    w->mask = mask;
    return true;
  }
  return false;
}

// ---- rows that see no key -----------------------------------------------------------------------------------------------------
static bool is_lowest(const tensor *t, size_t i) {
  if (t->type == DT_F32) return ((const float *)t->data)[i] == -INFINITY;
  uint16_t low = t->type == DT_F16 ? 0xfc00 : 0xff80;
  return ((const uint16_t *)t->data)[i] == low;
}

// Is cond [.., 1] true for just those rows of the mask [.., keys] that are all -inf?
static bool marks_hidden_rows(const tensor *cond, const tensor *mask) {
  size_t rows, n;
  if (!cond || !mask || !cond->data || !mask->data || cond->type != DT_BOOL || !dtype_in(mask->type, DTS_FLOAT)) return false;
  if (cond->rank != mask->rank || cond->rank < 1 || cond->dims[cond->rank - 1] != 1 || mask->dims[mask->rank - 1] < 1) return false;
  for (int i = 0; i + 1 < cond->rank; i++)
    if (cond->dims[i] != mask->dims[i]) return false;
  if (!dims_count(cond->dims, cond->rank, &rows) || !dims_count(mask->dims, mask->rank, &n)) return false;
  size_t keys = (size_t)mask->dims[mask->rank - 1];
  for (size_t r = 0; r < rows; r++) {
    bool hidden = true;
    for (size_t k = 0; k < keys; k++) hidden = hidden && is_lowest(mask, r * keys + k);
    if (hidden != (((const uint8_t *)cond->data)[r] != 0)) return false;
  }
  return true;
}

// cond = (max over the mask's last axis == -inf).
static bool finds_hidden_rows(const value *cond, const value *mask) {
  node *equal = made_by(cond, "Equal");
  for (size_t i = 0; equal && i < 2; i++) {
    double x;
    node *max = made_by(equal->in[i], "ReduceMax");
    if (max && max->in[0] == mask && over_last_axis(max) && const_number(equal->in[1 - i], max->in[0], &x) && x == -(double)INFINITY)
      return true;
  }
  return false;
}

// ---- the whole ------------------------------------------------------------------------------------------------------------------
static value *softmaxed(value *weights) {
  node *softmax = only_use(weights) ? made_by(weights, "Softmax") : NULL;
  if (!softmax) return NULL;
  int64_t axis = attr_i(softmax, "axis", softmax->since < 13 ? 1 : -1);
  return axis == -1 || axis == 3 ? softmax->in[0] : NULL;
}

// weights = Where(no key is seen, 0, softmax): the softmax's output, and the condition.
static value *unguarded(value *weights, value **cond) {
  node *where = only_use(weights) ? made_by(weights, "Where") : NULL;
  double zero;
  if (!where || !const_number(where->in[1], where->in[2], &zero) || zero != 0) return weights;
  *cond = where->in[0];
  return where->in[2];
}

static bool is_written(edit *ed, node *root, written *w) {
  value *cond = NULL;
  value *sum = softmaxed(uncast(unguarded(root->in[0], &cond)));
  w->v = root->in[1];
  if (sum) sum = uncast(sum);
  if (!sum || sum->rank != 4 || w->v->rank != 4 || root->out[0]->type != w->v->type) return false;
  if (cond) {
    if (!is_added(sum, w)) return false;
    w->guarded = marks_hidden_rows(cond->constant, w->mask->constant) || finds_hidden_rows(cond, w->mask);
    return w->guarded;
  }
  return is_added(sum, w) || is_scores(sum, w) || is_chosen(ed, root, sum, w);
}

void rewrite_attention(edit *ed, node *n) {
  written w = {.scale = 1};
  if (!is_op(n, "MatMul") || !is_written(ed, n, &w)) return;
  node_spec s = {.domain = "mlx", .op_type = "Attention", .since = 1, .in = {w.q, w.k, w.v, w.mask}, .n_in = w.mask ? 4 : 3, .n_attrs = 3};
  s.attrs[0] = edit_float("scale", (float)w.scale);
  s.attrs[1] = edit_int("k_transposed", w.k_transposed);
  s.attrs[2] = edit_int("guarded", w.guarded);
  if (edit_replace(ed, n, &s)) ed->made++;
  else if (w.mask && w.mask->producer) edit_drop_unused(ed, w.mask->producer);
}
