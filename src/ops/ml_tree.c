// Tree ensembles: all rows walk all trees at once, one level after the other.
#include <string.h>

#include "ops/forest.h"
#include "ops/ml.h"

static const forest *forest_of(const op *o) { return o->prepared; }

// ---- tables on the device -------------------------------------------------------------------------------------------
enum { T_NODES, T_SPLITS, T_VOTES, T_HAS };
enum { C_FEATURE, C_YES, C_NO, C_MODE, C_MISSING, COLUMNS };

// float64 rows are compared and summed in float64, all others in float32.
static dtype tree_type(const op *o) { return o->n->in[0]->type == DT_F64 ? DT_F64 : DT_F32; }

static mx nodes_make(op *o) {
  const forest *f = forest_of(o);
  const int32_t *columns[COLUMNS] = {f->feature, f->yes, f->no, f->mode, f->missing};
  mx rows[COLUMNS];
  for (int i = 0; i < COLUMNS; i++) rows[i] = mx_from(o->s, columns[i], DT_I32, MXI(f->n));
  return mx_stack(o->s, rows, COLUMNS, 0);
}

static mx doubles(op *o, const double *v, size_t n, mx_ints shape) {
  if (tree_type(o) == DT_F64) return mx_from(o->s, v, DT_F64, shape);
  float *f = mem_alloc((n + 1) * sizeof *f);
  for (size_t i = 0; f && i < n; i++) f[i] = (float)v[i];
  mx x = f ? mx_from(o->s, f, DT_F32, shape) : mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %zu numbers", n);
  mem_free(f);
  return x;
}

static mx splits_make(op *o) { return doubles(o, forest_of(o)->split, (size_t)forest_of(o)->n, MXI(forest_of(o)->n)); }

static mx votes_make(op *o) {
  const forest *f = forest_of(o);
  return doubles(o, f->votes, (size_t)f->n * (size_t)f->targets, MXI(f->n, f->targets));
}

static mx has_make(op *o) { return mx_from(o->s, forest_of(o)->has, DT_BOOL, MXI(forest_of(o)->n, forest_of(o)->targets)); }

static mx column(op *o, int c, mx at) {
  mx row = mx_slice_axis(memo(o, T_NODES, nodes_make), 0, c, c + 1);
  return mx_take(mx_reshape(row, MXI(forest_of(o)->n)), at, 0);
}

// ---- walking --------------------------------------------------------------------------------------------------------
static mx compare(int mode, mx x, mx split) {
  switch (mode) {
    case MODE_LT: return mx_less(x, split);
    case MODE_GTE: return mx_greater_equal(x, split);
    case MODE_GT: return mx_greater(x, split);
    case MODE_EQ: return mx_equal(x, split);
    case MODE_NEQ: return mx_not_equal(x, split);
    default: return mx_less_equal(x, split);
  }
}

static mx decide(op *o, mx x, mx at) {
  const forest *f = forest_of(o);
  mx split = mx_take(memo(o, T_SPLITS, splits_make), at, 0), mode = NULL, yes = NULL;
  for (int m = 0; m < MODE_MEMBER; m++) {
    if (!(f->modes >> m & 1)) continue;
    mx by = compare(m, x, split);
    if (yes && !mode) mode = column(o, C_MODE, at);
    yes = yes ? mx_where(mx_equal(mode, mx_scalar(mode, m)), by, yes) : by;
  }
  return mx_logical_or(yes, mx_logical_and(mx_isnan(x), mx_astype(column(o, C_MISSING, at), DT_BOOL)));
}

// The leaves [N, trees] that rows x [N, F] end at.
static mx leaves_of(op *o, mx x) {
  const forest *f = forest_of(o);
  mx at = mx_broadcast_to(mx_from(o->s, f->root, DT_I32, MXI(f->roots)), MXI(mx_dim(x, 0), f->roots));
  for (int level = 0; level < f->depth; level++) {
    mx seen = mx_take_along_axis(x, column(o, C_FEATURE, at), 1);
    at = mx_where(decide(o, seen, at), column(o, C_YES, at), column(o, C_NO, at));
  }
  return at;
}

typedef enum { SUM_UP, AVERAGE, LEAST, MOST } aggregate;

typedef struct scores {
  mx y;    // [N, targets]; 0 where nothing voted
  mx has;  // bool [N, targets]: did anything vote?
} scores;

static scores add_up(op *o, mx x, aggregate by) {
  const forest *f = forest_of(o);
  mx at = leaves_of(o, x), votes = mx_take(memo(o, T_VOTES, votes_make), at, 0), has = mx_take(memo(o, T_HAS, has_make), at, 0);
  scores s = {.has = mx_any(has, MXI(1), false)};
  if (by == LEAST || by == MOST) {
    mx none = mx_scalar(votes, by == LEAST ? (double)__builtin_inff() : -(double)__builtin_inff());
    votes = mx_where(has, votes, none);
    s.y = by == LEAST ? mx_min(votes, MXI(1), false) : mx_max(votes, MXI(1), false);
    s.y = mx_where(s.has, s.y, mx_scalar(s.y, 0));
  } else {
    s.y = mx_sum(votes, MXI(1), false);
    if (by == AVERAGE) s.y = mx_div(s.y, mx_scalar(s.y, f->roots));
  }
  return s;
}

// In blocks of rows, so that the tables in between stay small.
static scores forest_scores(op *o, aggregate by) {
  enum { CELLS = 1 << 23 };
  const forest *f = forest_of(o);
  mx x = mx_dtype(in(o, 0)) == DT_F64 ? in(o, 0) : mx_astype(in(o, 0), DT_F32);
  scores all = {0};
  if (mx_ndim(x) == 1) x = mx_expand_dims(x, MXI(0));
  if (mx_ndim(x) != 2) op_fail(o, "the input has rank %d, not 1 or 2", mx_ndim(x));
  int n = mx_dim(x, 0), per = CELLS / f->roots / f->targets + 1;
  if (mx_ok(o->s) && mx_dim(x, 1) < f->features) op_fail(o, "%d features in the input, %d in the model", mx_dim(x, 1), f->features);
  if (n == 0) return (scores){mx_full(o->s, MXI(0, f->targets), 0, DT_F32), mx_full(o->s, MXI(0, f->targets), 0, DT_BOOL)};
  if (mx_ok(o->s) && mx_dim(x, 1) == 0) x = mx_full(o->s, MXI(n, 1), 0, mx_dtype(x));  // leaves alone look at nothing
  for (int at = 0; at < n && mx_ok(o->s); at += per) {
    scores part = add_up(o, mx_slice_axis(x, 0, at, at < n - per ? at + per : n), by);
    mx ys[2] = {all.y, part.y}, has[2] = {all.has, part.has};
    all = all.y ? (scores){mx_concatenate(o->s, ys, 2, 0), mx_concatenate(o->s, has, 2, 0)} : part;
  }
  return mx_ok(o->s) ? all : (scores){x, x};
}

// base_values [targets]; NULL when there are none.
static mx base_of(op *o, int targets) {
  size_t n = 0;
  const float *v = attr_floats(o->n, "base_values", &n);
  const tensor *t = attr_t(o->n, "base_values_as_tensor");
  if (v) return mx_astype(mx_from(o->s, v, DT_F32, MXI(targets)), tree_type(o));
  return t ? mx_astype(mx_from(o->s, t->data, t->type, MXI(targets)), tree_type(o)) : NULL;
}

static size_t base_count(const node *n) {
  size_t count = 0;
  const tensor *t = attr_t(n, "base_values_as_tensor");
  if (!attr_floats(n, "base_values", &count) && t && t->data && dtype_in(t->type, DTYPE_BIT(DT_F32) | DTYPE_BIT(DT_F64)))
    dims_count(t->dims, t->rank, &count);
  return count;
}

// ---- TreeEnsembleRegressor, TreeEnsemble ----------------------------------------------------------------------------
static int aggregate_of(const node *n) {
  static const char *const names[] = {"SUM", "AVERAGE", "MIN", "MAX"};
  static const aggregate numbered[] = {AVERAGE, SUM_UP, LEAST, MOST};
  if (!strcmp(n->op_type, "TreeEnsemble")) {
    int64_t k = attr_i(n, "aggregate_function", 1);
    return k < 0 || k > 3 ? -1 : (int)numbered[k];
  }
  for (int i = 0; i < 4; i++)
    if (!strcmp(attr_s(n, "aggregate_function", "SUM"), names[i])) return i;
  return -1;
}

static ml_post tree_post(const node *n) {
  if (strcmp(n->op_type, "TreeEnsemble")) return ml_post_of(n);
  int64_t k = attr_i(n, "post_transform", 0);
  return k < 0 || k >= POST_COUNT ? POST_COUNT : (ml_post)k;
}

static void tree_regressor(op *o) {
  const forest *f = forest_of(o);
  scores s = forest_scores(o, (aggregate)aggregate_of(o->n));
  mx y = s.y, base = base_of(o, f->targets);
  if (base) y = f->targets == 1 ? mx_add(y, base) : mx_where(s.has, mx_add(y, base), y);
  ml_post post = tree_post(o->n);
  out(o, 0, f->targets > 1 || post == POST_PROBIT ? ml_post_apply(y, post) : y);  // a single score is not transformed
}

// ---- TreeEnsembleClassifier -----------------------------------------------------------------------------------------
static mx tree_labels(op *o, mx index) {
  size_t n = 0;
  const int64_t *labels = attr_ints(o->n, "classlabels_int64s", &n);
  return ml_labels(index, labels, n);
}

// Two classes of which only one gets votes: its score against one half, or against 0 where weights may be negative.
static void two_classes(op *o, mx y) {
  const forest *f = forest_of(o);
  ml_post post = ml_post_of(o->n);
  mx s = mx_slice_axis(y, 1, f->vote_class, f->vote_class + 1), base = f->vote_class == 0 ? base_of(o, 1) : NULL;
  if (base) s = mx_add(s, base);
  mx second = mx_greater(s, mx_scalar(s, f->positive ? 0.5 : 0));
  out(o, 0, tree_labels(o, mx_astype(mx_squeeze(second, MXI(1)), DT_I32)));
  if (f->vote_class == 1) {
    out(o, 1, ml_post_apply(y, post));
  } else {
    bool logistic = post == POST_LOGISTIC, complement = f->positive && !logistic;
    mx pair[2] = {complement ? mx_sub(mx_scalar(s, 1), s) : mx_neg(s), s};
    mx both = mx_concatenate(o->s, pair, 2, 1);
    out(o, 1, logistic ? ml_post_apply(both, post) : both);
  }
}

static void tree_classifier(op *o) {
  const forest *f = forest_of(o);
  scores s = forest_scores(o, SUM_UP);
  if (!mx_ok(o->s)) return;
  if (f->targets == 2) {
    two_classes(o, s.y);
    return;
  }
  mx base = base_of(o, f->targets), y = base ? mx_add(s.y, base) : s.y;
  mx counted = base ? y : mx_where(s.has, y, mx_scalar(y, -(double)__builtin_inff()));
  mx best = mx_dim(y, 0) ? mx_astype(mx_argmax(counted, 1, false), DT_I32) : mx_full(o->s, MXI(0), 0, DT_I32);
  out(o, 0, tree_labels(o, best));
  out(o, 1, ml_post_apply(y, ml_post_of(o->n)));
}

// ---- claims ---------------------------------------------------------------------------------------------------------
static void *tree_prepare(const node *n, mx_device d, err *e) {
  char why[200];
  (void)d;
  forest *f = forest_new(n, why, sizeof why);
  if (!f) FAIL(e, ERR_NO_MEMORY, "%s", why);
  return f;
}

static void tree_unprepare(void *f) { forest_free(f); }

static void two_class_claim(claim *c, const forest *f) {
  size_t base = base_count(c->n);
  REQUIRE(c, f->one_vote_class && f->vote_class >= 0, "there are votes for both of two classes");
  REQUIRE(c, base == 0 || (base == 1 && f->vote_class == 0), "%zu base values for two classes", base);
  REQUIRE(c, ml_post_of(c->n) != POST_PROBIT, "PROBIT of the score of two classes");
}

enum { DTS_TREE = DTS_ML | DTYPE_BIT(DT_F16) };

static void tree_claim(claim *c) {
  bool classes = !strcmp(c->n->op_type, "TreeEnsembleClassifier");
  char why[160];
  int rank = in_rank(c, 0);
  REQUIRE(c, rank < 0 || rank == 1 || rank == 2, "the input has rank %d, not 1 or 2", rank);
  bool whole = !strcmp(c->n->op_type, "TreeEnsemble");
  ml_post post = tree_post(c->n);
  REQUIRE(c, post != POST_COUNT, "an unknown post_transform");
  REQUIRE(c, !whole || (post != POST_SOFTMAX && post != POST_LOGISTIC), "runtimes differ in which post_transform is 1 and which is 2");
  REQUIRE(c, classes || aggregate_of(c->n) >= 0, "an unknown aggregate_function");
  forest *f = forest_new(c->n, why, sizeof why);
  REQUIRE(c, f, "%s", why);
  size_t base = base_count(c->n);
  if (f->depth > 512) claim_decline(c, "a tree is %d levels deep", f->depth);
  if (classes && f->targets < 2) claim_decline(c, "%d class labels", f->targets);
  if (classes && f->targets == 2) two_class_claim(c, f);
  else if (base && base != (size_t)f->targets) claim_decline(c, "%zu base values for %d targets", base, f->targets);
  forest_free(f);
}

#define TREE .prepare = tree_prepare, .unprepare = tree_unprepare
const op_row ops_ml_tree[] = {
    OP("ai.onnx.ml", "TreeEnsembleRegressor", 1, 4, tree_claim, tree_regressor, .types = DTS_TREE, TREE,
       .limits = "rows: rank 1 or 2; at most 512 levels"),
    OP("ai.onnx.ml", "TreeEnsembleClassifier", 1, 4, tree_claim, tree_classifier, .types = DTS_TREE, TREE,
       .limits = "rows: rank 1 or 2; at most 512 levels; integer labels; two classes with votes for one of them only"),
    OP("ai.onnx.ml", "TreeEnsemble", 5, ANY, tree_claim, tree_regressor, .types = DTS_TREE, TREE,
       .limits = "rows: rank 1 or 2; at most 512 levels; post_transform is not SOFTMAX or LOGISTIC"),
    {0}};
