// Softmax, LogSoftmax, Hardmax, and the losses made of them.
#include <string.h>

#include "ops/index.h"
#include "ops/numeric.h"
#include "ops/op.h"

// The maximum goes first: x - logsumexp(x) would lose the digits of a large x.
static mx log_softmax_of(mx x, int axis) {
  x = f32_up(x);
  mx below = mx_sub(x, mx_max(x, MXI(axis), true));
  mx sum = mx_dtype(x) == DT_F64 ? mx_log(mx_sum(num_exp(below), MXI(axis), true))
                                 : mx_logsumexp(below, MXI(axis), true);
  return mx_sub(below, sum);
}

// One at the first maximum. Comparing x with itself makes zeros of x's shape, also where the shape is not fixed yet.
static mx hardmax_of(mx x, int axis) {
  mx zeros = mx_astype(mx_less(x, x), mx_dtype(x));
  return mx_put_along_axis(zeros, mx_argmax(x, axis, true), mx_scalar(x, 1), axis);
}

// Before opset 13 the axes from `axis` on count as one.
static void along_axis(op *o, mx (*f)(mx, int)) {
  mx x = in(o, 0);
  int rank = mx_ndim(x);
  bool joined = o->n->since < 13;
  int axis = norm_axis(o, attr_i(o->n, "axis", joined ? 1 : -1), rank);
  if (!mx_ok(o->s)) return;
  if (mx_size(x) == 0)
    out(o, 0, x);
  else if (joined && axis < rank - 1)
    out(o, 0, mx_reshape(f(mx_flatten(x, axis, rank - 1), axis), mx_shape(x)));
  else
    out(o, 0, f(x, axis));
}

static void softmax(op *o) { along_axis(o, num_softmax); }
static void log_softmax(op *o) { along_axis(o, log_softmax_of); }
static void hardmax(op *o) { along_axis(o, hardmax_of); }

// ---- NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss -------------------------------------------------------------
// The class numbers, int64 in [0, classes), and 0 for an ignored one. *counted: those that are not, NULL if all are.
static mx classes_checked(op *o, int classes, mx *counted) {
  mx target = mx_astype(in(o, 1), DT_I64);
  *counted = NULL;
  if (attr_has(o->n, "ignore_index")) {
    *counted = mx_not_equal(target, mx_scalar_i64(o->s, attr_i(o->n, "ignore_index", 0), DT_I64));
    target = mx_where(*counted, target, mx_scalar_i64(o->s, 0, DT_I64));
  }
  return index_below(o, target, classes, "class");
}

static mx reduced_loss(const op *o, mx loss, mx weights) {
  const char *reduction = attr_s(o->n, "reduction", "mean");
  if (!strcmp(reduction, "none")) return loss;
  mx_ints axes = all_axes(mx_ndim(loss));
  if (!strcmp(reduction, "sum")) return mx_sum(loss, axes, false);
  return weights ? mx_div(mx_sum(loss, axes, false), mx_sum(weights, axes, false)) : mx_mean(loss, axes, false);
}

// log_p [N, C, ..], targets [N, ..]; what is ignored has neither a loss nor a weight.
static mx likelihood_loss(op *o, mx log_p) {
  mx counted, target = classes_checked(o, mx_dim(log_p, 1), &counted), weights = NULL;
  mx loss = mx_neg(mx_squeeze(mx_take_along_axis(log_p, mx_expand_dims(target, MXI(1)), 1), MXI(1)));
  if (in(o, 2)) {
    weights = mx_take(mx_astype(in(o, 2), mx_dtype(log_p)), target, 0);
    loss = mx_mul(loss, weights);
  }
  if (counted) {
    mx zero = mx_scalar(loss, 0);
    loss = mx_where(counted, loss, zero);
    weights = weights ? mx_where(counted, weights, zero) : mx_astype(counted, mx_dtype(loss));
  }
  return reduced_loss(o, loss, weights);
}

static void nll_loss(op *o) { out(o, 0, likelihood_loss(o, f32_up(in(o, 0)))); }

static void cross_entropy_loss(op *o) {
  mx scores = f32_up(in(o, 0));
  mx log_p = mx_size(scores) ? log_softmax_of(scores, 1) : scores;
  out(o, 0, likelihood_loss(o, log_p));
  out(o, 1, log_p);
}

static void loss_claim(claim *c) {
  require_types(c, 1, DTYPE_BIT(DT_I32) | DTYPE_BIT(DT_I64));
  require_types(c, 2, DTS_FLOAT64);
  CLAIM_GOES_ON(c);
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) > 1, "scores have no axis of classes");
  const char *r = attr_s(c->n, "reduction", "mean");
  REQUIRE(c, !strcmp(r, "mean") || !strcmp(r, "sum") || !strcmp(r, "none"), "reduction '%s' is not known", r);
}

const op_row ops_softmax[] = {
    OP("", "Softmax", 1, ANY, NULL, softmax, .types = DTS_FLOAT64),
    OP("", "LogSoftmax", 1, ANY, NULL, log_softmax, .types = DTS_FLOAT64),
    OP("", "Hardmax", 1, ANY, NULL, hardmax, .types = DTS_FLOAT64),
    OP("", "NegativeLogLikelihoodLoss", 12, ANY, loss_claim, nll_loss, .types = DTS_FLOAT64, .host_in = IN(1),
       .limits = "scores of rank 2 or more; reduction is mean, sum or none"),
    OP("", "SoftmaxCrossEntropyLoss", 12, ANY, loss_claim, cross_entropy_loss, .types = DTS_FLOAT64, .host_in = IN(1),
       .limits = "scores of rank 2 or more; reduction is mean, sum or none"),
    {0}};
