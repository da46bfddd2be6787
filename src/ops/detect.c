// Choices that are made step by step, on the host: suppression of boxes, the path of time warping.
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "ops/index.h"

// ---- NonMaxSuppression --------------------------------------------------------------------------------------------------------
typedef struct scored {
  float score;
  int32_t box;
} scored;

typedef struct suppression {
  int batches, classes, boxes;
  int64_t most;  // boxes kept of each class
  float overlap, least;
  bool has_least, centers;
} suppression;

static void suppress_claim(claim *c) {
  require_known(c, (const char *const[]){"center_point_box", NULL});
  int64_t center = attr_i(c->n, "center_point_box", 0);
  REQUIRE(c, center == 0 || center == 1, "center_point_box %lld", (long long)center);
}

// The highest score first, of equal ones the lower box; NaN last.
static int by_score(const void *a, const void *b) {
  const scored *x = a, *y = b;
  bool nx = isnan(x->score), ny = isnan(y->score);
  if (nx != ny) return nx ? 1 : -1;
  if (!nx && x->score > y->score) return -1;
  if (!nx && x->score < y->score) return 1;
  return x->box < y->box ? -1 : 1;
}

// Lower and upper corner of a box: x, y, x, y.
static void corners(const float *b, bool centers, float to[4]) {
  for (int d = 0; d < 2; d++) {
    float p = centers ? b[d] - b[d + 2] / 2 : b[1 - d], q = centers ? b[d] + b[d + 2] / 2 : b[3 - d];
    to[d] = centers || p < q ? p : q;
    to[d + 2] = centers || p < q ? q : p;
  }
}

static bool overlaps(const suppression *s, const float *a, const float *b) {
  float x[4], y[4], inner = 1, area[2] = {1, 1};
  corners(a, s->centers, x);
  corners(b, s->centers, y);
  for (int d = 0; d < 2; d++) {
    float lo = x[d] > y[d] ? x[d] : y[d], hi = x[d + 2] < y[d + 2] ? x[d + 2] : y[d + 2];
    if (!(hi > lo)) return false;
    inner *= hi - lo;
    area[0] *= x[d + 2] - x[d];
    area[1] *= y[d + 2] - y[d];
  }
  float both = area[0] + area[1] - inner;
  return inner > 0 && area[0] > 0 && area[1] > 0 && both > 0 && inner / both > s->overlap;
}

// Boxes of one class that stay, in order of their scores, into kept.
static int64_t suppress_class(const suppression *s, const float *boxes, const float *scores, scored *order, int32_t *kept) {
  size_t n = 0;
  int64_t stay = 0;
  for (int i = 0; i < s->boxes; i++)
    if (!s->has_least || scores[i] > s->least) order[n++] = (scored){scores[i], i};
  qsort(order, n, sizeof *order, by_score);
  for (size_t i = 0; i < n && stay < s->most; i++) {
    bool free = true;
    for (int64_t k = 0; k < stay && free; k++) free = !overlaps(s, boxes + 4 * (size_t)order[i].box, boxes + 4 * (size_t)kept[k]);
    if (free) kept[stay++] = order[i].box;
  }
  return stay;
}

static bool read_limits(op *o, suppression *s) {
  double v = 0;
  s->centers = attr_i(o->n, "center_point_box", 0) != 0;
  if (in(o, 2) && !host_int(o, 2, &s->most)) return false;
  if (in(o, 3) && !host_float(o, 3, &v)) return false;
  if (!(v >= 0 && v <= 1)) return op_fail(o, "iou_threshold %g is not in [0, 1]", v), false;
  s->overlap = (float)v;
  s->has_least = in(o, 4) != NULL;
  if (s->has_least && !host_float(o, 4, &v)) return false;
  s->least = (float)v;
  return true;
}

static mx suppressed(op *o, const suppression *s, const float *boxes, const float *scores) {
  size_t lists = (size_t)s->batches * (size_t)s->classes, all = 0, n = 0;
  size_t most = s->most < s->boxes ? (size_t)(s->most > 0 ? s->most : 0) : (size_t)s->boxes;
  bool fits = size_mul(lists, most, &all) && all < INT32_MAX / 3;
  scored *order = mem_alloc((size_t)s->boxes * sizeof *order + 8);
  int32_t *kept = mem_alloc((size_t)s->boxes * sizeof *kept + 8);
  int64_t *rows = fits ? mem_alloc(all * 3 * sizeof *rows + 8) : NULL;
  for (size_t k = 0; order && kept && rows && most && k < lists; k++) {
    size_t batch = k / (size_t)s->classes;
    int64_t stay = suppress_class(s, boxes + batch * (size_t)s->boxes * 4, scores + k * (size_t)s->boxes, order, kept);
    for (int64_t i = 0; i < stay; i++, n++) {
      rows[3 * n] = (int64_t)batch;
      rows[3 * n + 1] = (int64_t)(k % (size_t)s->classes);
      rows[3 * n + 2] = kept[i];
    }
  }
  bool ok = order && kept && rows;
  mx result = ok ? mx_from(o->s, rows, DT_I64, MXI((int)n, 3)) : mx_fail(o->s, ERR_NO_MEMORY, "out of memory for %d boxes", s->boxes);
  mem_free(order);
  mem_free(kept);
  mem_free(rows);
  return result;
}

static void non_max_suppression(op *o) {
  mx boxes = in(o, 0), scores = in(o, 1);
  bool fits = mx_ndim(boxes) == 3 && mx_ndim(scores) == 3 && mx_dim(boxes, 2) == 4 && mx_dim(boxes, 0) == mx_dim(scores, 0) &&
              mx_dim(boxes, 1) == mx_dim(scores, 2);
  suppression s = {.batches = mx_dim(scores, 0), .classes = mx_dim(scores, 1), .boxes = mx_dim(boxes, 1)};
  if (!fits) op_fail(o, "boxes and scores do not fit each other");
  if (!mx_ok(o->s) || !read_limits(o, &s)) return;
  const float *b = mx_read(boxes), *p = b ? mx_read(scores) : NULL;
  if (p) out(o, 0, suppressed(o, &s, b, p));
}

// ---- DynamicTimeWarping -------------------------------------------------------------------------------------------------------
// The cheapest path from the first element to the last: right, down or both. Of equal costs: both, then down.
static mx warped(op *o, const float *cost, size_t m, size_t n) {
  size_t cells = 0;
  bool fits = m + n < INT32_MAX && size_mul(m + 1, n + 1, &cells) && cells < SIZE_MAX / 16;
  float *sum = fits ? mem_alloc(cells * sizeof *sum) : NULL;
  uint8_t *step = fits ? mem_alloc(cells) : NULL;
  int32_t *path = fits ? mem_alloc(2 * (m + n) * sizeof *path + 8) : NULL;
  mx result = NULL;
  if (sum && step && path) {
    size_t w = n + 1, k = 0;
    for (size_t i = 0; i < cells; i++) sum[i] = i ? INFINITY : 0;
    for (size_t i = 1; i <= m; i++)
      for (size_t j = 1; j <= n; j++) {
        float both = sum[(i - 1) * w + j - 1], down = sum[(i - 1) * w + j], right = sum[i * w + j - 1], best = right;
        step[i * w + j] = 2;
        if (both < down && both < right) best = both, step[i * w + j] = 0;
        else if (down < both && down < right) best = down, step[i * w + j] = 1;
        sum[i * w + j] = cost[(i - 1) * n + j - 1] + best;
      }
    for (size_t i = m, j = n; i > 0 || j > 0; k++) {
      path[k] = (int32_t)i - 1;
      path[m + n + k] = (int32_t)j - 1;
      uint8_t s = i == 0 ? 2 : j == 0 ? 1 : step[i * w + j];
      i -= s != 2;
      j -= s != 1;
    }
    mx both = mx_from(o->s, path, DT_I32, MXI(2, (int)(m + n)));
    mx_ints from = {2, {0, (int)k - 1}}, to = {2, {2, -(int)(m + n) - 1}}, back = {2, {1, -1}};
    result = mx_slice(both, from, to, back);
  }
  mem_free(sum);
  mem_free(step);
  mem_free(path);
  return result ? result : mx_fail(o->s, ERR_NO_MEMORY, "out of memory for a path");
}

static void time_warping(op *o) {
  mx x = in(o, 0);
  int rank = mx_ndim(x);
  if ((rank != 2 && rank != 3) || (rank == 3 && mx_dim(x, 0) != 1) || !mx_size(x)) {
    op_fail(o, "a cost matrix of rank %d with %zu elements", rank, mx_size(x));
    return;
  }
  const float *cost = mx_read(x);
  if (cost) out(o, 0, warped(o, cost, (size_t)mx_dim(x, -2), (size_t)mx_dim(x, -1)));
}

// ---- UnfoldTensor, ExpandDims, TorchEmbedding -----------------------------------------------------------------------------------
static void unfold_claim(claim *c) {
  int64_t size = attr_i(c->n, "size", -1), step = attr_i(c->n, "step", 1);
  REQUIRE(c, size > 0 && size < 1 << 30 && step > 0 && step < 1 << 30, "size %lld, step %lld", (long long)size, (long long)step);
  REQUIRE(c, in_rank(c, 0) != 0 && in_rank(c, 0) < MX_MAX_RANK, "rank %d", in_rank(c, 0));
}

static void unfold(op *o) {
  mx x = in(o, 0);
  int rank = mx_ndim(x), size = (int)attr_i(o->n, "size", 1), step = (int)attr_i(o->n, "step", 1);
  int axis = norm_axis(o, attr_i(o->n, "dim", -1), rank), n = mx_dim(x, axis);
  if (rank >= MX_MAX_RANK || n < size) op_fail(o, "slices of %d from axis %d of %d, rank %d", size, axis, n, rank);
  if (!mx_ok(o->s)) return;
  int many = (n - size) / step + 1;
  mx first = mx_mul(mx_arange(o->s, 0, many, 1, DT_I32), mx_scalar_i64(o->s, step, DT_I32));
  mx at = mx_add(mx_reshape(first, MXI(many, 1)), mx_arange(o->s, 0, size, 1, DT_I32));
  mx_ints perm = {.n = rank + 1}, shape = mx_shape(x);
  for (int i = 0; i <= rank; i++) perm.v[i] = i <= axis ? i : i < rank ? i + 1 : axis + 1;
  shape.v[axis] = many;
  shape.v[shape.n++] = size;
  out(o, 0, mx_size(x) ? mx_transpose(mx_take(x, at, axis), perm) : mx_full(o->s, shape, 0, mx_dtype(x)));
}

static void expand_claim(claim *c) { REQUIRE(c, in_rank(c, 0) < MX_MAX_RANK, "rank %d", in_rank(c, 0)); }

static void expand(op *o) {
  int64_t axis = 0;
  if (!host_int(o, 1, &axis)) return;
  int at = norm_axis(o, axis, mx_ndim(in(o, 0)) + 1);
  if (mx_ndim(in(o, 0)) >= MX_MAX_RANK) op_fail(o, "the output would have a rank above %d", MX_MAX_RANK);
  if (mx_ok(o->s)) out(o, 0, mx_expand_dims(in(o, 0), MXI(at)));
}

static void embedding(op *o) {
  mx w = in(o, 0);
  if (mx_ndim(w) != 2) {
    op_fail(o, "a weight of rank %d", mx_ndim(w));
    return;
  }
  int rows = mx_dim(w, 0);
  mx at = index_checked(o, 1, &rows, 1);
  mx_ints shape = mx_shape(at);
  if (shape.n >= MX_MAX_RANK) op_fail(o, "indices of rank %d", shape.n);
  if (!mx_ok(o->s)) return;
  shape.v[shape.n++] = mx_dim(w, 1);
  out(o, 0, dims_span(shape, 0, shape.n) ? mx_take(w, at, 0) : mx_full(o->s, shape, 0, mx_dtype(w)));
}

#define MS "com.microsoft"
const op_row ops_detect[] = {
    OP("", "NonMaxSuppression", 10, ANY, suppress_claim, non_max_suppression, .types = DTYPE_BIT(DT_F32),
       .host_in = IN(0) | IN(1) | IN(2) | IN(3) | IN(4), .traits = OP_NO_TRACE, .limits = "center_point_box is 0 or 1"),
    OP(MS, "DynamicTimeWarping", 1, ANY, NULL, time_warping, .types = DTYPE_BIT(DT_F32), .host_in = IN(0),
       .traits = OP_NO_TRACE),
    OP(MS, "UnfoldTensor", 1, ANY, unfold_claim, unfold, .types = DTS_TENSOR,
       .limits = "data of rank 1 to 9; size and step below 2^30"),
    OP(MS, "ExpandDims", 1, ANY, expand_claim, expand, .host_in = IN(1), .traits = OP_CHEAP,
       .limits = "data of rank 9 at most"),
    OP(MS, "TorchEmbedding", 1, ANY, NULL, embedding, .index_in = IN(1), .traits = OP_CHEAP),
    {0}};
