// Linear models and support vector machines of ai.onnx.ml, as products of matrices. The weights stand in attributes.
#include <math.h>
#include <string.h>

#include "ops/ml.h"
#include "ops/numeric.h"

static size_t count_of(const node *n, const char *attribute) {
  const attr *a = attr_get(n, attribute);
  return a ? a->n : 0;
}

static bool all_at_least_zero(const node *n, const char *attribute) {
  size_t count = 0;
  const float *v = attr_floats(n, attribute, &count);
  for (size_t i = 0; i < count; i++)
    if (!(v[i] >= 0)) return false;
  return true;
}

static mx weights_make(op *o, int rows, const char *attribute) {
  int n = (int)count_of(o->n, attribute);
  return ml_floats(o, attribute, MXI(rows, n / rows));
}

// x [N, F] times rows of weights [R, F], in [N, R].
static mx times_rows(mx x, mx rows) { return mx_matmul(x, mx_transpose(rows, MXI(1, 0))); }

// ---- LinearRegressor ------------------------------------------------------------------------------------------------
static mx regressor_weights(op *o) { return weights_make(o, (int)attr_i(o->n, "targets", 1), "coefficients"); }

static void linear_regressor(op *o) {
  mx w = memo(o, 0, regressor_weights), x = ml_rows(o, mx_dim(w, 1));
  int targets = mx_dim(w, 0);
  mx y = times_rows(x, w);
  if (count_of(o->n, "intercepts")) y = mx_add(y, ml_floats(o, "intercepts", MXI(targets)));
  ml_post post = ml_post_of(o->n);
  out(o, 0, targets > 1 || post == POST_PROBIT ? ml_post_apply(y, post) : y);  // a single score is not transformed
}

static void linear_regressor_claim(claim *c) {
  ml_rows_claim(c);
  ml_post_claim(c);
  CLAIM_GOES_ON(c);
  int64_t targets = attr_i(c->n, "targets", 1);
  size_t n = count_of(c->n, "coefficients"), bias = count_of(c->n, "intercepts");
  REQUIRE(c, targets >= 1 && targets <= 1 << 20 && n > 0 && n < 1u << 30 && n % (size_t)targets == 0,
          "%zu coefficients for %lld targets", n, (long long)targets);
  REQUIRE(c, bias == 0 || bias == (size_t)targets, "%zu intercepts for %lld targets", bias, (long long)targets);
}

// ---- LinearClassifier -----------------------------------------------------------------------------------------------
static mx classifier_weights(op *o) { return weights_make(o, (int)count_of(o->n, "intercepts"), "coefficients"); }

// [1 - y, y] of one score y [N, 1].
static mx with_complement(op *o, mx y) {
  mx both[2] = {mx_sub(mx_scalar(y, 1), y), y};
  return mx_concatenate(o->s, both, 2, 1);
}

static mx labels_of(op *o, mx index) {
  size_t n = 0;
  const int64_t *labels = attr_ints(o->n, "classlabels_ints", &n);
  return ml_labels(index, labels, n);
}

static mx best_of(mx scores) {
  if (mx_size(scores) == 0) return mx_full(mx_scope_of(scores), MXI(mx_dim(scores, 0)), 0, DT_I32);
  return mx_astype(mx_argmax(scores, 1, false), DT_I32);
}
static mx is_positive(mx scores) { return mx_greater(scores, mx_scalar(scores, 0)); }

static void linear_classifier(op *o) {
  mx w = memo(o, 0, classifier_weights), x = ml_rows(o, mx_dim(w, 1));
  mx y = mx_add(times_rows(x, w), ml_floats(o, "intercepts", MXI(mx_dim(w, 0))));
  ml_post post = ml_post_of(o->n);
  if (mx_dim(w, 0) == 1) {
    out(o, 0, labels_of(o, mx_astype(mx_squeeze(is_positive(y), MXI(1)), DT_I32)));
    out(o, 1, with_complement(o, post == POST_LOGISTIC ? ml_post_apply(y, post) : y));
  } else {
    out(o, 0, labels_of(o, best_of(y)));
    out(o, 1, ml_post_apply(y, post));
  }
}

static void linear_classifier_claim(claim *c) {
  ml_rows_claim(c);
  ml_post_claim(c);
  CLAIM_GOES_ON(c);
  size_t n = count_of(c->n, "coefficients"), classes = count_of(c->n, "intercepts"), labels = count_of(c->n, "classlabels_ints");
  REQUIRE(c, classes > 0 && n > 0 && n < 1u << 30 && n % classes == 0, "%zu coefficients for %zu intercepts", n, classes);
  REQUIRE(c, labels == (classes == 1 ? 2 : classes), "%zu class labels for %zu intercepts", labels, classes);
  REQUIRE(c, classes > 1 || ml_post_of(c->n) != POST_PROBIT, "PROBIT of the score of two classes");
}

// ---- kernels of support vectors -------------------------------------------------------------------------------------
static void kernel_claim(claim *c) {
  const char *kernel = attr_s(c->n, "kernel_type", "LINEAR");
  size_t n = count_of(c->n, "kernel_params");
  bool known = !strcmp(kernel, "LINEAR") || !strcmp(kernel, "POLY") || !strcmp(kernel, "RBF") || !strcmp(kernel, "SIGMOID");
  REQUIRE(c, known, "kernel_type '%s'", kernel);
  REQUIRE(c, n == 0 || n == 3, "%zu kernel_params", n);
}

// exp(-gamma |x - v|^2), from the differences: the expanded square would lose the digits of near vectors.
static mx radial(op *o, mx x, mx v, double gamma) {
  enum { CELLS = 1 << 24 };
  int n = mx_dim(x, 0), per = CELLS / (mx_dim(v, 0) * mx_dim(v, 1) + 1) + 1;
  mx all = NULL;
  for (int at = 0; at < n && mx_ok(o->s); at += per) {
    mx part = mx_slice_axis(x, 0, at, at + per < n ? at + per : n);
    mx gap = mx_sub(mx_expand_dims(part, MXI(1)), mx_expand_dims(v, MXI(0)));
    mx pair[2] = {all, mx_sum(mx_square(gap), MXI(2), false)};
    all = all ? mx_concatenate(o->s, pair, 2, 0) : pair[1];
  }
  if (!all) all = mx_full(o->s, MXI(0, mx_dim(v, 0)), 0, DT_F32);
  return num_exp(num_times(all, -gamma));
}

// x [N, F] and vectors [V, F] as [N, V].
static mx kernel(op *o, mx x, mx v) {
  size_t n = 0;
  const float *p = attr_floats(o->n, "kernel_params", &n), zero[3] = {0};
  const char *type = attr_s(o->n, "kernel_type", "LINEAR");
  if (n != 3) p = zero;
  if (!strcmp(type, "RBF")) return radial(o, x, v, (double)p[0]);
  mx dot = times_rows(x, v);
  if (!strcmp(type, "LINEAR")) return dot;
  dot = num_plus(num_times(dot, (double)p[0]), (double)p[1]);
  return strcmp(type, "POLY") ? mx_tanh(dot) : mx_pow(dot, mx_scalar(dot, (double)p[2]));
}

static double first_rho(const op *o) {
  size_t n = 0;
  const float *rho = attr_floats(o->n, "rho", &n);
  return n ? (double)rho[0] : 0;
}

// ---- SVMRegressor ---------------------------------------------------------------------------------------------------
static mx svr_vectors(op *o) {
  int64_t n = attr_i(o->n, "n_supports", 0);
  return n ? weights_make(o, (int)n, "support_vectors") : weights_make(o, 1, "coefficients");
}

static void svm_regressor(op *o) {
  mx v = memo(o, 0, svr_vectors), x = ml_rows(o, mx_dim(v, 1)), y;
  if (attr_i(o->n, "n_supports", 0)) {
    y = times_rows(kernel(o, x, v), ml_floats(o, "coefficients", MXI(1, mx_dim(v, 0))));
  } else {
    y = times_rows(x, v);
  }
  y = num_plus(y, first_rho(o));
  out(o, 0, attr_i(o->n, "one_class", 0) ? mx_where(is_positive(y), mx_scalar(y, 1), mx_scalar(y, -1)) : y);
}

static void svm_regressor_claim(claim *c) {
  ml_rows_claim(c);
  kernel_claim(c);
  CLAIM_GOES_ON(c);
  int64_t n = attr_i(c->n, "n_supports", 0);
  size_t vectors = count_of(c->n, "support_vectors"), weights = count_of(c->n, "coefficients");
  REQUIRE(c, ml_post_of(c->n) == POST_NONE, "a post_transform, which runtimes do not agree about");
  REQUIRE(c, count_of(c->n, "rho") > 0 && weights > 0 && weights < 1u << 30, "rho or coefficients are missing");
  if (n == 0) return;
  REQUIRE(c, n > 0 && (size_t)n <= weights && vectors > 0 && vectors < 1u << 30 && vectors % (size_t)n == 0,
          "%zu coordinates and %zu coefficients for %lld support vectors", vectors, weights, (long long)n);
}

// ---- SVMClassifier --------------------------------------------------------------------------------------------------
static size_t vectors_of(const node *n) {
  size_t classes = 0, all = 0;
  const int64_t *per = attr_ints(n, "vectors_per_class", &classes);
  for (size_t i = 0; i < classes; i++) all += (size_t)per[i];
  return all;
}

static mx svc_vectors(op *o) {
  size_t n = vectors_of(o->n);
  return n ? weights_make(o, (int)n, "support_vectors") : weights_make(o, (int)count_of(o->n, "classlabels_ints"), "coefficients");
}

// The score of class i against class j from kernels k [N, V] and coefficients w [classes - 1, V]: [N, 1].
static mx duel(mx k, mx w, const int64_t *start, int i, int j) {
  int i0 = (int)start[i], i1 = (int)start[i + 1], j0 = (int)start[j], j1 = (int)start[j + 1];
  mx of_i = mx_slice_axis(mx_slice_axis(w, 0, j - 1, j), 1, i0, i1), of_j = mx_slice_axis(mx_slice_axis(w, 0, i, i + 1), 1, j0, j1);
  return mx_add(times_rows(mx_slice_axis(k, 1, i0, i1), of_i), times_rows(mx_slice_axis(k, 1, j0, j1), of_j));
}

enum { CLASSES_MAX = 64 };

typedef struct duels {
  mx scores;  // [N, pairs]
  mx best;    // int32 [N], the class that wins most often, of equal ones the first
} duels;

static duels all_duels(op *o, mx k, int classes) {
  size_t n = 0, n_rho = 0;
  const int64_t *per = attr_ints(o->n, "vectors_per_class", &n);
  const float *rho = attr_floats(o->n, "rho", &n_rho);
  int64_t start[CLASSES_MAX + 1] = {0};
  for (int i = 0; i < classes; i++) start[i + 1] = start[i] + per[i];
  mx w = ml_floats(o, "coefficients", MXI(classes - 1, mx_dim(k, 1))), votes[CLASSES_MAX] = {NULL};
  mx scores[CLASSES_MAX * (CLASSES_MAX - 1) / 2];
  size_t at = 0;
  for (int i = 0; i < classes; i++)
    for (int j = i + 1; j < classes; j++, at++) {
      scores[at] = num_plus(duel(k, w, start, i, j), (double)rho[at]);
      mx won = mx_astype(is_positive(scores[at]), DT_I32), lost = mx_sub(mx_scalar(won, 1), won);
      votes[i] = votes[i] ? mx_add(votes[i], won) : won;
      votes[j] = votes[j] ? mx_add(votes[j], lost) : lost;
    }
  return (duels){mx_concatenate(o->s, scores, at, 1), best_of(mx_concatenate(o->s, votes, (size_t)classes, 1))};
}

// The pair of probabilities of two classes that fits p, the calibrated probability of the first against the second.
typedef struct fit {
  mx p[2];     // [N, 1] each
  mx q[2][2];  // the symmetric matrix whose form p minimises
} fit;

static mx weighted(const fit *f, int row) { return mx_add(mx_mul(f->q[row][0], f->p[0]), mx_mul(f->q[row][1], f->p[1])); }

// One round of coordinate descent; rows that fit already stay as they are, as the customary iteration leaves them.
static void fit_round(fit *f) {
  mx g[2] = {weighted(f, 0), weighted(f, 1)}, p[2] = {f->p[0], f->p[1]}, one = mx_scalar(p[0], 1);
  mx form = mx_add(mx_mul(p[0], g[0]), mx_mul(p[1], g[1]));
  mx error = mx_maximum(mx_abs(mx_sub(g[0], form)), mx_abs(mx_sub(g[1], form)));
  mx done = mx_less(error, mx_scalar(error, 0.0025));
  for (int t = 0; t < 2; t++) {
    mx step = mx_div(mx_sub(form, g[t]), f->q[t][t]), scale = mx_add(one, step);
    mx rise = mx_mul(step, mx_add(mx_mul(step, f->q[t][t]), num_times(g[t], 2)));
    p[t] = mx_add(p[t], step);
    form = mx_div(mx_add(form, rise), mx_square(scale));
    for (int j = 0; j < 2; j++) {
      p[j] = mx_div(p[j], scale);
      g[j] = mx_div(mx_add(g[j], mx_mul(step, f->q[t][j])), scale);
    }
  }
  for (int t = 0; t < 2; t++) f->p[t] = mx_where(done, f->p[t], p[t]);
}

static mx calibrated(op *o, mx score) {
  size_t n = 0;
  const float *a = attr_floats(o->n, "prob_a", &n), *b = attr_floats(o->n, "prob_b", &n);
  mx p = mx_sub(mx_scalar(score, 1), num_sigmoid(num_plus(num_times(score, (double)a[0]), (double)b[0])));
  p = mx_clip(p, mx_scalar(p, 1e-7), mx_scalar(p, 1 - 1e-7));
  mx q = mx_sub(mx_scalar(p, 1), p), half = mx_add(mx_sub(p, p), mx_scalar(p, 0.5)), cross = mx_neg(mx_mul(p, q));
  fit f = {{half, half}, {{mx_square(q), cross}, {cross, mx_square(p)}}};
  for (int round = 0; round < 3; round++) fit_round(&f);  // two suffice for every p
  return mx_concatenate(o->s, f.p, 2, 1);
}

// Two classes without probabilities have one score.
static mx pair_scores(op *o, mx score, ml_post post) {
  if (post == POST_SOFTMAX || post == POST_SOFTMAX_ZERO) return with_complement(o, score);
  mx both[2] = {mx_neg(score), score};
  return ml_post_apply(mx_concatenate(o->s, both, 2, 1), post);
}

static void svc_linear(op *o, mx x, mx v, int classes) {
  mx y = num_plus(times_rows(x, v), first_rho(o)), best = best_of(y);
  if (classes == 2 && !count_of(o->n, "prob_a")) {
    bool positive = all_at_least_zero(o->n, "coefficients");
    mx top = mx_take_along_axis(y, mx_expand_dims(best, MXI(1)), 1);
    top = mx_squeeze(top, MXI(1));
    mx second = positive ? mx_greater_equal(top, mx_scalar(top, 0.5)) : is_positive(top);
    best = mx_where(second, mx_scalar_i64(o->s, 1, DT_I32), best);
  }
  out(o, 0, labels_of(o, best));
  out(o, 1, ml_post_apply(y, ml_post_of(o->n)));
}

static void svm_classifier(op *o) {
  mx v = memo(o, 0, svc_vectors), x = ml_rows(o, mx_dim(v, 1));
  int classes = (int)count_of(o->n, "classlabels_ints");
  ml_post post = ml_post_of(o->n);
  if (!mx_ok(o->s)) return;
  if (vectors_of(o->n) == 0) {
    svc_linear(o, x, v, classes);
    return;
  }
  duels d = all_duels(o, kernel(o, x, v), classes);
  out(o, 0, labels_of(o, d.best));
  if (count_of(o->n, "prob_a")) {
    out(o, 1, ml_post_apply(calibrated(o, d.scores), post));
  } else {
    out(o, 1, classes == 2 ? pair_scores(o, d.scores, post) : ml_post_apply(d.scores, post));
  }
}

static void svc_support_claim(claim *c, size_t classes) {
  size_t n = 0, pairs = classes * (classes - 1) / 2, probabilities = count_of(c->n, "prob_a");
  const int64_t *per = attr_ints(c->n, "vectors_per_class", &n);
  for (size_t i = 0; i < n; i++) REQUIRE(c, per[i] >= 0 && per[i] < 1 << 24, "vectors_per_class is out of range");
  size_t vectors = vectors_of(c->n), coordinates = count_of(c->n, "support_vectors");
  if (vectors == 0) return;
  REQUIRE(c, n == classes && classes <= CLASSES_MAX, "%zu vectors_per_class for %zu classes", n, classes);
  REQUIRE(c, coordinates > 0 && coordinates < 1u << 30 && coordinates % vectors == 0, "%zu coordinates for %zu vectors",
          coordinates, vectors);
  REQUIRE(c, count_of(c->n, "coefficients") >= (classes - 1) * vectors && count_of(c->n, "rho") >= pairs,
          "too few coefficients or entries of rho");
  REQUIRE(c, probabilities == 0 || classes == 2, "probabilities of %zu classes", classes);
  REQUIRE(c, probabilities == count_of(c->n, "prob_b"), "prob_a and prob_b differ in size");
  REQUIRE(c, probabilities || classes > 2 || ml_post_of(c->n) != POST_PROBIT, "PROBIT of the score of two classes");
}

static void svm_classifier_claim(claim *c) {
  ml_rows_claim(c);
  ml_post_claim(c);
  kernel_claim(c);
  CLAIM_GOES_ON(c);
  size_t classes = count_of(c->n, "classlabels_ints"), n = count_of(c->n, "coefficients");
  REQUIRE(c, classes >= 2 && classes < 65536, "%zu class labels", classes);
  REQUIRE(c, n > 0 && n < 1u << 30 && count_of(c->n, "rho") > 0, "rho or coefficients are missing");
  svc_support_claim(c, classes);
  CLAIM_GOES_ON(c);
  REQUIRE(c, vectors_of(c->n) || n % classes == 0, "%zu coefficients for %zu classes", n, classes);
}

const op_row ops_ml_linear[] = {
    OP("ai.onnx.ml", "LinearRegressor", 1, ANY, linear_regressor_claim, linear_regressor, .types = DTS_ML,
       .limits = "rows: rank 1 or 2"),
    OP("ai.onnx.ml", "LinearClassifier", 1, ANY, linear_classifier_claim, linear_classifier, .types = DTS_ML,
       .limits = "rows: rank 1 or 2; integer labels; PROBIT with more than two classes only"),
    OP("ai.onnx.ml", "SVMRegressor", 1, ANY, svm_regressor_claim, svm_regressor, .types = DTS_ML,
       .limits = "rows: rank 1 or 2; no post_transform"),
    OP("ai.onnx.ml", "SVMClassifier", 1, ANY, svm_classifier_claim, svm_classifier, .types = DTS_ML,
       .limits = "rows: rank 1 or 2; integer labels; probabilities of two classes only"),
    {0}};
