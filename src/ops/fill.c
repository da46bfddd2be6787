// Tensors made of little: constants, ranges, unit matrices.
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/index.h"

static mx from_tensor(op *o, const tensor *t) {
  mx_ints shape;
  if (!dims_ints(o, t->dims, (size_t)t->rank, &shape)) return op_fail(o, "the constant is too large");
  return mx_from(o->s, t->data, t->type, shape);
}

// ---- Constant -------------------------------------------------------------------------------------------------------
static void constant_claim(claim *c) {
  size_t n = 0;
  bool some = attr_t(c->n, "value") || attr_floats(c->n, "value_floats", &n) || attr_ints(c->n, "value_ints", &n);
  const attr *f = attr_get(c->n, "value_float"), *i = attr_get(c->n, "value_int");
  REQUIRE(c, some || (f && f->kind == ATTR_FLOAT) || (i && i->kind == ATTR_INT),
          "its value is sparse, a string or missing");
}

static mx constant_make(op *o) {
  size_t n = 0;
  const tensor *t = attr_t(o->n, "value");
  if (t) return from_tensor(o, t);
  const float *f = attr_floats(o->n, "value_floats", &n);
  if (f) return mx_from(o->s, f, DT_F32, MXI((int)n));
  const int64_t *v = attr_ints(o->n, "value_ints", &n);
  if (v) return mx_i64s(o->s, v, (int)n);
  if (attr_has(o->n, "value_int")) return mx_scalar_i64(o->s, attr_i(o->n, "value_int", 0), DT_I64);
  float one = attr_f(o->n, "value_float", 0);
  return mx_from(o->s, &one, DT_F32, (mx_ints){0});
}

static void constant(op *o) { out(o, 0, memo(o, 0, constant_make)); }

// ---- ConstantOfShape ------------------------------------------------------------------------------------------------
static void constant_of_shape_claim(claim *c) {
  size_t n = 0;
  const tensor *t = attr_t(c->n, "value");
  REQUIRE(c, t || !attr_has(c->n, "value"), "its value is not a tensor");
  REQUIRE(c, !t || (dims_count(t->dims, t->rank, &n) && n == 1), "its value is not one element");
}

static void constant_of_shape(op *o) {
  int64_t dims[MX_MAX_RANK], v[KNOWN_MAX];
  size_t n = 0;
  mx_ints shape;
  if (!host_ints(o, 0, dims, MX_MAX_RANK, &n) || !dims_ints(o, dims, n, &shape)) return;
  const tensor *t = attr_t(o->n, "value");
  int64_t count = dims_span(shape, 0, shape.n);
  if (t && t->type == DT_I64 && count <= KNOWN_MAX) {
    for (int64_t i = 0; i < count; i++) v[i] = *(const int64_t *)t->data;
    out_ints(o, 0, v, shape);
  } else if (t) {
    out(o, 0, mx_broadcast_to(mx_reshape(from_tensor(o, t), (mx_ints){0}), shape));
  } else {
    out(o, 0, mx_full(o->s, shape, 0, DT_F32));
  }
}

// ---- Range ----------------------------------------------------------------------------------------------------------
enum {
  DTS_RANGE_INT = DTYPE_BIT(DT_I16) | DTYPE_BIT(DT_I32) | DTYPE_BIT(DT_I64),
  DTS_RANGE = DTS_RANGE_INT | DTS_FLOAT64
};

static void range_claim(claim *c) {
  int64_t stash = attr_i(c->n, "stash_type", DT_F32);
  REQUIRE(c, !dtype_in(in_type(c, 0), DTS_F16_BF16) || stash == DT_F32 || stash == DT_F64,
          "stash_type %lld is neither float nor double", (long long)stash);
}

static bool range_float(op *o, size_t i, double *v) {
  mx x = in(o, i);
  if (mx_dtype(x) != DT_F64) return host_float(o, i, v);
  if (mx_size(x) != 1) op_fail(o, "input %zu must hold one number", i);
  const double *p = mx_read(x);
  if (p) *v = *p;
  return p != NULL;
}

// The count is taken in double whatever the type, as ONNX Runtime does.
static void range_floats(op *o, bool wide) {
  double v[3] = {0, 0, 1};
  for (size_t i = 0; i < 3; i++)
    if (in(o, i) && !range_float(o, i, &v[i])) return;
  double count = ceil((v[1] - v[0]) / v[2]);
  if (!(fabs(v[2]) > 0) || !isfinite(v[2]) || !(count < 2147483647.0)) {
    op_fail(o, "from %g to %g by %g is no range", v[0], v[1], v[2]);
    return;
  }
  size_t n = count > 0 ? (size_t)count : 0, item = wide ? sizeof(double) : sizeof(float);
  void *all = mem_alloc((n + 1) * item);
  for (size_t i = 0; all && i < n; i++) {
    if (wide) ((double *)all)[i] = v[0] + (double)i * v[2];
    if (!wide) ((float *)all)[i] = (float)v[0] + (float)i * (float)v[2];
  }
  out(o, 0, all ? mx_from(o->s, all, wide ? DT_F64 : DT_F32, MXI((int)n)) : mx_fail(o->s, ERR_NO_MEMORY, "out of memory"));
  mem_free(all);
}

static void range_ints(op *o) {
  int64_t v[3] = {0, 0, 1}, gap, count = 0;
  for (size_t i = 0; i < 3; i++)
    if (in(o, i) && !host_int(o, i, &v[i])) return;
  if (v[2] == 0 || __builtin_sub_overflow(v[1], v[0], &gap) || v[2] == INT64_MIN) {
    op_fail(o, "from %lld to %lld by %lld is no range", (long long)v[0], (long long)v[1], (long long)v[2]);
    return;
  }
  if (gap != 0 && (gap > 0) == (v[2] > 0)) count = gap / v[2] + (gap % v[2] != 0);
  int n = 0;
  int64_t *all = fits_int(o, count, &n) ? mem_alloc(((size_t)n + 1) * sizeof *all) : NULL;
  for (int i = 0; all && i < n; i++) all[i] = v[0] + i * v[2];
  if (all && n <= KNOWN_MAX && want_type(o, 0) != DT_I16) {
    out_ints(o, 0, all, MXI(n));
  } else {
    out(o, 0, all ? mx_i64s(o->s, all, n) : mx_fail(o->s, ERR_NO_MEMORY, "out of memory"));
  }
  mem_free(all);
}

static void range(op *o) {
  if (dtype_in(mx_dtype(in(o, 0)), DTS_RANGE_INT)) {
    range_ints(o);
  } else {
    range_floats(o, mx_dtype(in(o, 0)) == DT_F64);
  }
}

// ---- EyeLike --------------------------------------------------------------------------------------------------------
static void eye_like_claim(claim *c) {
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) == 2, "the input's rank is %d, not 2", in_rank(c, 0));
}

static void eye_like(op *o) {
  mx x = in(o, 0);
  int64_t k = attr_i(o->n, "k", 0), far = INT64_C(1) << 33;
  k = k > far ? far : k < -far ? -far : k;
  if (mx_ndim(x) != 2) op_fail(o, "the input has rank %d, not 2", mx_ndim(x));
  mx row = mx_reshape(mx_arange(o->s, 0, mx_dim(x, 0), 1, DT_I64), MXI(mx_dim(x, 0), 1));
  mx column = mx_arange(o->s, 0, mx_dim(x, 1), 1, DT_I64);
  out(o, 0, mx_equal(column, mx_add(row, mx_scalar_i64(o->s, k, DT_I64))));
}

const op_row ops_fill[] = {
    OP("", "Constant", 1, ANY, constant_claim, constant, .traits = OP_CHEAP, .limits = "no string, no sparse value"),
    OP("", "ConstantOfShape", 9, ANY, constant_of_shape_claim, constant_of_shape, .host_in = IN(0), .traits = OP_CHEAP,
       .limits = "value is a tensor of one element"),
    OP("", "Range", 11, ANY, range_claim, range, .types = DTS_RANGE, .host_in = IN(0) | IN(1) | IN(2),
       .traits = OP_CHEAP, .limits = "stash_type of float16 and bfloat16 is float or double"),
    OP("com.microsoft", "Range", 1, ANY, range_claim, range, .types = DTS_RANGE, .host_in = IN(0) | IN(1) | IN(2),
       .traits = OP_CHEAP, .limits = "stash_type of float16 and bfloat16 is float or double"),
    OP("", "EyeLike", 9, ANY, eye_like_claim, eye_like, .traits = OP_CHEAP, .limits = "data of rank 2"),
    {0}};
