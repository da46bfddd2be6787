// Preparation of features in ai.onnx.ml: element by element, or column by column of the last axis.
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/index.h"
#include "ops/ml.h"
#include "ops/numeric.h"

// ---- ArrayFeatureExtractor ------------------------------------------------------------------------------------------
static void extract(op *o) {
  mx x = in(o, 0), at = in(o, 1);
  int rank = mx_ndim(x), size = mx_dim(x, -1), n = (int)mx_size(at);
  if (rank < 1 || n < 1) op_fail(o, "a scalar, or no indices");
  if (!mx_ok(o->s)) return;
  mx index = mx_reshape(index_checked(o, 1, &size, 1), MXI(n));
  if (mx_ok(o->s) && mx_size(x) == 0) op_fail(o, "indices into nothing");
  x = mx_take(x, index, rank - 1);
  out(o, 0, rank == 1 ? mx_expand_dims(x, MXI(0)) : x);
}

// ---- Binarizer ------------------------------------------------------------------------------------------------------
// Integers compare with the threshold's floor: x > t exactly when x > floor(t).
static void binarizer(op *o) {
  mx x = in(o, 0);
  double t = (double)attr_f(o->n, "threshold", 0);
  mx limit = dtype_is_float(mx_dtype(x)) ? mx_scalar(x, t) : mx_scalar_i64(o->s, (int64_t)floor(t), mx_dtype(x));
  mx y = mx_greater(x, limit);
  out(o, 0, mx_astype(y, mx_dtype(x)));
}

static void binarizer_claim(claim *c) {
  float t = attr_f(c->n, "threshold", 0);
  REQUIRE(c, dtype_is_float(in_type(c, 0)) || fabsf(t) < 2e9f, "an integer input with threshold %g", (double)t);
}

// ---- FeatureVectorizer ----------------------------------------------------------------------------------------------
// A column block of exactly `width` features: more are cut, missing ones are zeros.
static mx block(op *o, mx x, int width) {
  if (mx_ndim(x) != 1 && mx_ndim(x) != 2) return op_fail(o, "an input of rank %d, not 1 or 2", mx_ndim(x));
  if (mx_ndim(x) == 1) x = mx_expand_dims(x, MXI(0));
  x = mx_astype(x, DT_F32);
  int have = mx_dim(x, 1);
  if (have > width) return mx_slice_axis(x, 1, 0, width);
  mx pair[2] = {x, mx_full(o->s, MXI(mx_dim(x, 0), width - have), 0, DT_F32)};
  return have < width ? mx_concatenate(o->s, pair, 2, 1) : x;
}

static void feature_vectorizer(op *o) {
  size_t n = 0;
  const int64_t *widths = attr_ints(o->n, "inputdimensions", &n);
  mx *blocks = mem_alloc((n + 1) * sizeof *blocks);
  if (!blocks) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %zu inputs", n);
  for (size_t i = 0; i < n && mx_ok(o->s); i++) {
    blocks[i] = block(o, in(o, i), (int)widths[i]);
    if (mx_dim(blocks[i], 0) != mx_dim(blocks[0], 0)) op_fail(o, "inputs 0 and %zu differ in their rows", i);
  }
  if (mx_ok(o->s)) out(o, 0, mx_concatenate(o->s, blocks, n, 1));
  mem_free(blocks);
}

static void feature_vectorizer_claim(claim *c) {
  size_t n = 0;
  const int64_t *widths = attr_ints(c->n, "inputdimensions", &n);
  REQUIRE(c, n > 0 && n == c->n->n_in, "%zu inputdimensions for %zu inputs", n, c->n->n_in);
  for (size_t i = 0; i < n; i++) {
    REQUIRE(c, widths[i] >= 0 && widths[i] < 1 << 28, "inputdimension %lld", (long long)widths[i]);
    REQUIRE(c, has_in(c, i) && in_rank(c, i) != 0 && in_rank(c, i) <= 2, "input %zu has rank %d, not 1 or 2", i, in_rank(c, i));
  }
}

// ---- Imputer, Scaler ------------------------------------------------------------------------------------------------
// A list of one entry for all features or of one each.
static mx per_feature(op *o, mx x, mx list, const char *what) {
  int n = mx_dim(list, 0);
  if (n != 1 && n != mx_dim(x, -1)) return op_fail(o, "%d entries of %s for %d features", n, what, mx_dim(x, -1));
  return list;
}

static void imputer(op *o) {
  mx x = in(o, 0), instead, missing;
  size_t n = 0;
  if (dtype_is_float(mx_dtype(x))) {
    const float *v = attr_floats(o->n, "imputed_value_floats", &n);
    float old = attr_f(o->n, "replaced_value_float", 0);
    instead = mx_astype(mx_from(o->s, v, DT_F32, MXI((int)n)), mx_dtype(x));
    missing = isnan(old) ? mx_isnan(x) : mx_equal(x, mx_scalar(x, (double)old));
  } else {
    const int64_t *v = attr_ints(o->n, "imputed_value_int64s", &n);
    instead = mx_astype(mx_i64s(o->s, v, (int)n), mx_dtype(x));
    missing = mx_equal(mx_astype(x, DT_I64), mx_scalar_i64(o->s, attr_i(o->n, "replaced_value_int64", 0), DT_I64));
  }
  out(o, 0, mx_where(missing, per_feature(o, x, instead, "imputed values"), x));
}

static void imputer_claim(claim *c) {
  size_t floats = 0, ints = 0;
  attr_floats(c->n, "imputed_value_floats", &floats);
  const int64_t *v = attr_ints(c->n, "imputed_value_int64s", &ints);
  bool is_float = dtype_is_float(in_type(c, 0));
  REQUIRE(c, is_float ? floats > 0 : ints > 0, "there is no imputed value of the input's kind");
  REQUIRE(c, in_rank(c, 0) != 0, "the input is a scalar");
  for (size_t i = 0; i < ints; i++)
    REQUIRE(c, in_type(c, 0) != DT_I32 || (v[i] >= INT32_MIN && v[i] <= INT32_MAX), "imputed value %lld", (long long)v[i]);
}

static mx scaler_list(op *o, mx x, const char *attribute) {
  size_t n = 0;
  const float *v = attr_floats(o->n, attribute, &n);
  return per_feature(o, x, mx_from(o->s, v, DT_F32, MXI((int)n)), attribute);
}

static void scaler(op *o) {
  mx x = mx_astype(in(o, 0), mx_dtype(in(o, 0)) == DT_F64 ? DT_F64 : DT_F32);
  if (mx_ndim(x) < 1) op_fail(o, "the input is a scalar");
  if (mx_ok(o->s)) out(o, 0, mx_mul(mx_sub(x, scaler_list(o, x, "offset")), scaler_list(o, x, "scale")));
}

static void scaler_claim(claim *c) {
  size_t offsets = 0, scales = 0;
  attr_floats(c->n, "offset", &offsets);
  attr_floats(c->n, "scale", &scales);
  REQUIRE(c, offsets > 0 && offsets == scales, "%zu offsets and %zu scales", offsets, scales);
  REQUIRE(c, in_rank(c, 0) != 0, "the input is a scalar");
}

// ---- Normalizer -----------------------------------------------------------------------------------------------------
static void normalizer(op *o) {
  mx x = mx_astype(in(o, 0), DT_F32), by;
  const char *norm = attr_s(o->n, "norm", "MAX");
  int last = mx_ndim(x) - 1;
  if (last != 0 && last != 1) op_fail(o, "the input has rank %d, not 1 or 2", last + 1);
  if (!mx_ok(o->s) || mx_size(x) == 0) {
    out(o, 0, x);
    return;
  }
  if (!strcmp(norm, "MAX")) {
    by = mx_max(x, MXI(last), true);
  } else if (!strcmp(norm, "L1")) {
    by = mx_sum(mx_abs(x), MXI(last), true);
  } else {
    by = mx_sqrt(mx_sum(mx_square(x), MXI(last), true));
  }
  out(o, 0, mx_where(mx_equal(by, mx_scalar(by, 0)), x, mx_div(x, by)));
}

static void normalizer_claim(claim *c) {
  const char *norm = attr_s(c->n, "norm", "MAX");
  ml_rows_claim(c);
  CLAIM_GOES_ON(c);
  REQUIRE(c, !strcmp(norm, "MAX") || !strcmp(norm, "L1") || !strcmp(norm, "L2"), "norm '%s'", norm);
}

// ---- OneHotEncoder --------------------------------------------------------------------------------------------------
static void one_hot_encoder(op *o) {
  size_t n = 0;
  const int64_t *categories = attr_ints(o->n, "cats_int64s", &n);
  mx x = mx_astype(in(o, 0), DT_I64), all = mx_i64s(o->s, categories, (int)n);
  mx hot = mx_equal(mx_expand_dims(x, MXI(mx_ndim(x))), all);
  if (!attr_i(o->n, "zeros", 1) && mx_size(x)) {  // every value must be known
    const bool *ok = mx_read(mx_all(mx_any(hot, MXI(mx_ndim(x)), false), all_axes(mx_ndim(x)), false));
    if (ok && !*ok) op_fail(o, "a value is none of the categories");
  }
  out(o, 0, hot);
}

static void one_hot_encoder_claim(claim *c) {
  size_t n = 0;
  attr_ints(c->n, "cats_int64s", &n);
  REQUIRE(c, n > 0 && n < 1u << 28, "there are no integer categories");
  REQUIRE(c, in_rank(c, 0) < MX_MAX_RANK, "the output would have rank %d", in_rank(c, 0) + 1);
}

// ---- LabelEncoder ---------------------------------------------------------------------------------------------------
typedef struct table {
  const void *data;
  dtype type;  // DT_NONE: there is none of numbers
  size_t n;
} table;

static table table_of(const node *n, const char *ints, const char *floats, const char *tensors) {
  table t = {0};
  const tensor *whole = tensors ? attr_t(n, tensors) : NULL;
  if ((t.data = attr_ints(n, ints, &t.n))) t.type = DT_I64;
  else if ((t.data = attr_floats(n, floats, &t.n))) t.type = DT_F32;
  else if (whole && whole->data && dims_count(whole->dims, whole->rank, &t.n)) t = (table){whole->data, whole->type, t.n};
  return t;
}

static table keys_of(const node *n) { return table_of(n, "keys_int64s", "keys_floats", "keys_tensor"); }
static table values_of(const node *n) { return table_of(n, "values_int64s", "values_floats", "values_tensor"); }

static mx label_default(op *o, dtype type) {
  mx_ints scalar = {0};
  const tensor *t = attr_t(o->n, "default_tensor");
  size_t n = 0;
  if (t && t->type == type && t->data && dims_count(t->dims, t->rank, &n) && n == 1) return mx_from(o->s, t->data, type, scalar);
  if (!dtype_is_float(type)) return mx_scalar_i64(o->s, attr_i(o->n, "default_int64", -1), type);
  return mx_full(o->s, scalar, (double)attr_f(o->n, "default_float", -0.0f), type);
}

// Where x [N] stands among the keys, int32 [N]: 0 for nowhere, else from 1 on. From version 4 on NaN matches NaN.
static mx key_places(op *o, mx x, mx keys) {
  mx wide = mx_expand_dims(x, MXI(1)), same = mx_equal(wide, keys);
  if (dtype_is_float(mx_dtype(x)) && o->n->since >= 4)
    same = mx_logical_or(same, mx_logical_and(mx_isnan(wide), mx_isnan(keys)));
  mx numbers = mx_arange(o->s, 1, (double)mx_dim(keys, 0) + 1, 1, DT_I32);
  return mx_max(mx_mul(mx_astype(same, DT_I32), numbers), MXI(1), false);
}

// In blocks, so that the table of comparisons stays small.
static void label_encoder(op *o) {
  enum { CELLS = 1 << 22 };
  table k = keys_of(o->n), v = values_of(o->n);
  mx_ints shape = mx_shape(in(o, 0));
  int n = (int)mx_size(in(o, 0)), per = CELLS / (int)k.n + 1;
  mx x = mx_reshape(in(o, 0), MXI(n)), keys = mx_from(o->s, k.data, k.type, MXI((int)k.n)), place = NULL;
  mx choice[2] = {mx_reshape(label_default(o, v.type), MXI(1)), mx_from(o->s, v.data, v.type, MXI((int)v.n))};
  mx all = mx_concatenate(o->s, choice, 2, 0);
  for (int at = 0; at < n && mx_ok(o->s); at += per) {
    mx pair[2] = {place, key_places(o, mx_slice_axis(x, 0, at, at < n - per ? at + per : n), keys)};
    place = place ? mx_concatenate(o->s, pair, 2, 0) : pair[1];
    if (at > n - per) break;
  }
  out(o, 0, place ? mx_reshape(mx_take(all, place, 0), shape) : mx_full(o->s, shape, 0, v.type));
}

// Which of two equal keys counts is not agreed upon.
static bool keys_differ(const table *k) {
  size_t size = dtype_size(k->type);
  for (size_t i = 0; i < k->n; i++)
    for (size_t j = 0; j < i; j++)
      if (!memcmp((const char *)k->data + i * size, (const char *)k->data + j * size, size)) return false;
  return true;
}

enum { DTS_LABEL = DTS_ML | DTYPE_BIT(DT_I16) };

static void label_encoder_claim(claim *c) {
  table k = keys_of(c->n), v = values_of(c->n);
  REQUIRE(c, dtype_in(k.type, DTS_LABEL) && dtype_in(v.type, DTS_LABEL), "keys and values are not both numbers");
  REQUIRE(c, k.n == v.n && k.n > 0, "%zu keys and %zu values", k.n, v.n);
  REQUIRE(c, k.n <= 4096, "%zu keys are too many to compare with each", k.n);
  REQUIRE(c, keys_differ(&k), "a key is there twice");
  REQUIRE(c, in_type(c, 0) == k.type, "the input has type %s, the keys %s", dtype_name(in_type(c, 0)), dtype_name(k.type));
  REQUIRE(c, in_rank(c, 0) < MX_MAX_RANK, "the input has rank %d", in_rank(c, 0));
}

const op_row ops_ml_prep[] = {
    OP("ai.onnx.ml", "ArrayFeatureExtractor", 1, ANY, NULL, extract, .types = DTS_ML, .index_in = IN(1),
       .traits = OP_CHEAP),
    OP("ai.onnx.ml", "Binarizer", 1, ANY, binarizer_claim, binarizer, .types = DTS_ML,
       .limits = "integers need a threshold below 2e9"),
    OP("ai.onnx.ml", "FeatureVectorizer", 1, ANY, feature_vectorizer_claim, feature_vectorizer, .types = DTS_ML,
       .typed_in = ALL_IN, .traits = OP_CHEAP, .limits = "rows: rank 1 or 2"),
    OP("ai.onnx.ml", "Imputer", 1, ANY, imputer_claim, imputer, .types = DTS_ML,
       .limits = "no scalar; imputed values of the input's kind"),
    OP("ai.onnx.ml", "LabelEncoder", 2, ANY, label_encoder_claim, label_encoder, .types = DTS_LABEL,
       .limits = "numbers to numbers; at most 4096 keys, no key twice"),
    OP("ai.onnx.ml", "Normalizer", 1, ANY, normalizer_claim, normalizer, .types = DTS_ML, .limits = "rows: rank 1 or 2"),
    OP("ai.onnx.ml", "OneHotEncoder", 1, ANY, one_hot_encoder_claim, one_hot_encoder, .types = DTS_ML,
       .traits = OP_NO_TRACE, .limits = "integer categories; rank 9 at most"),
    OP("ai.onnx.ml", "Scaler", 1, ANY, scaler_claim, scaler, .types = DTS_ML, .limits = "no scalar"),
    {0}};
