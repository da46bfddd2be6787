// Determinants and inverses, by elimination in float64 on the host, which no GPU back end of MLX has; and distances.
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/index.h"
#include "ops/numeric.h"

static void square_claim(claim *c) {
  int rank = in_rank(c, 0);
  REQUIRE(c, rank < 0 || rank >= 2, "rank %d", rank);
}

// Brings the row with the greatest entry of column k, from row k down, to row k. Returns whether rows changed places.
static bool pivot(double *a, int n, int width, int k) {
  int best = k;
  for (int i = k + 1; i < n; i++)
    if (fabs(a[i * width + k]) > fabs(a[best * width + k])) best = i;
  for (int j = 0; best != k && j < width; j++) {
    double t = a[k * width + j];
    a[k * width + j] = a[best * width + j];
    a[best * width + j] = t;
  }
  return best != k;
}

static double determinant(double *a, int n) {
  double d = 1;
  for (int k = 0; k < n; k++) {
    if (pivot(a, n, n, k)) d = -d;
    double p = a[k * n + k];
    d *= p;
    if (!(p < 0 || p > 0)) return p + 0 * d;  // zero, or NaN
    for (int i = k + 1; i < n; i++) {
      double f = a[i * n + k] / p;
      for (int j = k; j < n; j++) a[i * n + j] -= f * a[k * n + j];
    }
  }
  return d;
}

// a holds n rows of the matrix and of the identity; afterwards the right half is the inverse.
static void invert(double *a, int n) {
  int w = 2 * n;
  for (int k = 0; k < n; k++) {
    pivot(a, n, w, k);
    double p = a[k * w + k];
    for (int j = 0; j < w; j++) a[k * w + j] /= p;
    for (int i = 0; i < n; i++) {
      double f = i == k ? 0 : a[i * w + k];
      for (int j = 0; j < w && i != k; j++) a[i * w + j] -= f * a[k * w + j];
    }
  }
}

// Input 0 on the host: float64 data if it has that type, else float32; NULL after a failure.
static const void *matrices(op *o, int *n, size_t *count) {
  mx x = in(o, 0);
  int rank = mx_ndim(x);
  *n = mx_dim(x, -1);
  if (rank < 2 || mx_dim(x, -2) != *n || *n > 1 << 14) return op_fail(o, "a matrix of %d by %d", mx_dim(x, -2), *n), NULL;
  int64_t all = dims_span(mx_shape(x), 0, rank - 2);
  *count = (size_t)all;
  return mx_read(mx_dtype(x) == DT_F64 ? x : mx_astype(x, DT_F32));
}

static double entry(const void *p, bool wide, size_t i) { return wide ? ((const double *)p)[i] : (double)((const float *)p)[i]; }

// Results as float64 or float32, in place of the doubles.
static mx from_doubles(op *o, double *v, size_t n, bool wide, mx_ints shape) {
  if (wide) return mx_from(o->s, v, DT_F64, shape);
  char *narrow = (char *)v;
  for (size_t i = 0; i < n; i++) {
    float f = (float)v[i];
    memcpy(narrow + i * sizeof f, &f, sizeof f);
  }
  return mx_from(o->s, narrow, DT_F32, shape);
}

static void each_matrix(op *o, bool inverse) {
  int n = 0;
  size_t count = 0, size, work, bytes, results;
  bool wide = mx_dtype(in(o, 0)) == DT_F64;
  mx_ints shape = mx_shape(in(o, 0));
  const void *p = matrices(o, &n, &count);
  if (!p) return;
  size = (size_t)n * (size_t)n;
  work = inverse ? 2 * size : size;
  bool fits = size_mul(count, inverse ? size : 1, &results) && size_mul(results, sizeof(double), &bytes);
  double *a = mem_alloc(work * sizeof *a + 8), *v = fits ? mem_alloc(bytes + 8) : NULL;
  if (!a || !v) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %zu matrices of %d by %d", count, n, n);
  for (size_t m = 0; a && v && m < count; m++) {
    size_t width = inverse ? 2 * (size_t)n : (size_t)n;
    memset(a, 0, work * sizeof *a);
    for (size_t i = 0; i < size; i++) a[i / (size_t)n * width + i % (size_t)n] = entry(p, wide, m * size + i);
    for (size_t i = 0; inverse && i < (size_t)n; i++) a[i * width + (size_t)n + i] = 1;
    if (inverse) invert(a, n);
    if (!inverse) v[m] = determinant(a, n);
    for (size_t i = 0; inverse && i < size; i++) v[m * size + i] = a[i / (size_t)n * width + (size_t)n + i % (size_t)n];
  }
  if (!inverse) shape.n -= 2;
  if (a && v) out(o, 0, from_doubles(o, v, results, wide, shape));
  mem_free(a);
  mem_free(v);
}

static void det(op *o) { each_matrix(o, false); }
static void inverse(op *o) { each_matrix(o, true); }

// ---- CDist --------------------------------------------------------------------------------------------------------------------
enum { LARGE = 1 << 24 };

static void distance_claim(claim *c) {
  require_known(c, (const char *const[]){"metric", NULL});
  const char *metric = attr_s(c->n, "metric", "sqeuclidean");
  REQUIRE(c, !strcmp(metric, "euclidean") || !strcmp(metric, "sqeuclidean"), "metric '%s'", metric);
}

// By differences, not by products: equal points have distance 0.
static mx distances(mx a, mx b) {
  mx d = mx_sub(mx_expand_dims(a, MXI(1)), mx_expand_dims(b, MXI(0)));
  return mx_sum(mx_square(d), MXI(2), false);
}

static void cdist(op *o) {
  mx a = f32_up(in(o, 0)), b = f32_up(in(o, 1));
  if (mx_ndim(a) != 2 || mx_ndim(b) != 2 || mx_dim(a, 1) != mx_dim(b, 1)) {
    op_fail(o, "points of rank %d and %d with %d and %d coordinates", mx_ndim(a), mx_ndim(b), mx_dim(a, -1), mx_dim(b, -1));
    return;
  }
  int m = mx_dim(a, 0);
  int64_t row = (int64_t)mx_size(b), step = row > 0 && row < LARGE ? LARGE / row : 1, n = 0;
  mx all = m == 0 ? distances(a, b) : NULL, *part = mem_alloc(((size_t)(m / step) + 2) * sizeof *part);
  if (!part) mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d points", m);
  for (int64_t i = 0; part && mx_ok(o->s) && i < m; i += step)
    part[n++] = distances(mx_slice_axis(a, 0, (int)i, (int)(i + step < m ? i + step : m)), b);
  if (part && !all) all = n == 1 ? part[0] : mx_concatenate(o->s, part, (size_t)n, 0);
  mem_free(part);
  bool root = !strcmp(attr_s(o->n, "metric", "sqeuclidean"), "euclidean");
  if (mx_ok(o->s)) out(o, 0, root ? mx_sqrt(all) : all);
}

const op_row ops_linalg[] = {
    OP("", "Det", 11, ANY, square_claim, det, .types = DTS_FLOAT64, .host_in = IN(0), .traits = OP_NO_TRACE,
       .limits = "matrices: rank 2 or more"),
    OP("com.microsoft", "Inverse", 1, ANY, square_claim, inverse, .types = DTS_FLOAT64, .host_in = IN(0),
       .traits = OP_NO_TRACE, .limits = "matrices: rank 2 or more"),
    OP("com.microsoft", "CDist", 1, ANY, distance_claim, cdist, .types = DTS_FLOAT64,
       .limits = "metric is euclidean or sqeuclidean"),
    {0}};
