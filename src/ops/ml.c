#include "ops/ml.h"

#include <limits.h>
#include <string.h>

#include "ops/numeric.h"

// ---- post transforms ------------------------------------------------------------------------------------------------
ml_post ml_post_of(const node *n) {
  static const char *const names[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  const char *name = attr_s(n, "post_transform", "NONE");
  int i = 0;
  while (i < POST_COUNT && strcmp(name, names[i])) i++;
  return (ml_post)i;
}

void ml_post_claim(claim *c) {
  REQUIRE(c, ml_post_of(c->n) != POST_COUNT, "post_transform '%s'", attr_s(c->n, "post_transform", "NONE"));
}

// Softmax of the scores that are not zero; the others are scaled alike but do not count.
static mx softmax_zero(mx x) {
  mx top = mx_max(x, MXI(mx_ndim(x) - 1), true), counts = mx_greater(mx_abs(x), mx_scalar(x, 1e-7));
  mx e = num_exp(mx_sub(x, top)), rest = mx_mul(x, num_exp(mx_neg(top)));
  mx sum = mx_sum(mx_where(counts, e, mx_scalar(x, 0)), MXI(mx_ndim(x) - 1), true);
  return mx_div(mx_where(counts, e, rest), sum);
}

// sqrt(2) erfinv(2 p - 1), with the closed form of erfinv that other runtimes and so the models' scores use.
static mx probit(mx p) {
  const double a = 0.147, pi = 3.14159265358979323846;
  mx x = num_plus(num_times(p, 2), -1), one = mx_scalar(x, 1);
  mx log = mx_log(mx_mul(mx_sub(one, x), mx_add(one, x)));
  mx v = num_plus(num_times(log, 0.5), 2 / (pi * a));
  mx root = mx_sqrt(mx_sub(mx_sqrt(mx_sub(mx_square(v), num_times(log, 1 / a))), v));
  return num_times(mx_where(mx_less(x, mx_scalar(x, 0)), mx_neg(root), root), 1.41421356);
}

mx ml_post_apply(mx scores, ml_post post) {
  if (mx_size(scores) == 0) return scores;
  switch (post) {
    case POST_SOFTMAX: return mx_softmax(scores, mx_ndim(scores) - 1);
    case POST_LOGISTIC: return num_sigmoid(scores);
    case POST_SOFTMAX_ZERO: return softmax_zero(scores);
    case POST_PROBIT: return probit(scores);
    case POST_NONE:
    case POST_COUNT: break;
  }
  return scores;
}

// ---- inputs, attributes, labels -------------------------------------------------------------------------------------
void ml_rows_claim(claim *c) {
  int rank = in_rank(c, 0);
  REQUIRE(c, rank < 0 || rank == 1 || rank == 2, "the input has rank %d, not 1 or 2", rank);
}

mx ml_rows(op *o, int64_t features) {
  mx x = mx_astype(in(o, 0), DT_F32);
  int rank = mx_ndim(x);
  if (rank != 1 && rank != 2) return op_fail(o, "the input has rank %d, not 1 or 2", rank);
  if (rank == 1) x = mx_expand_dims(x, MXI(0));
  if (features >= 0 && mx_dim(x, 1) != features)
    return op_fail(o, "%d features in the input, %lld in the model", mx_dim(x, 1), (long long)features);
  return x;
}

mx ml_floats(const op *o, const char *attribute, mx_ints shape) {
  size_t n = 0, want = 1;
  const float *v = attr_floats(o->n, attribute, &n);
  for (int i = 0; i < shape.n; i++) want *= (size_t)shape.v[i];
  if (n < want) return mx_fail(o->s, ERR_INVALID, "attribute %s has %zu entries, not %zu", attribute, n, want);
  return mx_from(o->s, v, DT_F32, shape);
}

mx ml_labels(mx index, const int64_t *labels, size_t count) {
  return mx_take(mx_i64s(mx_scope_of(index), labels, (int)count), index, 0);
}
