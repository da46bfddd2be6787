// Sampling by a grid, and the grid of an affine map.
#include <string.h>

#include "ops/index.h"
#include "ops/numeric.h"
#include "ops/taps.h"

static const char *const sample_attrs[] = {"align_corners", "mode", "padding_mode", NULL};

// ---- GridSample ---------------------------------------------------------------------------------------------------------------
// 'n' nearest, 'l' linear, 'c' cubic, 0 for what it cannot be. Version 20 has other names.
static char sample_mode(const node *n) {
  const char *s = attr_s(n, "mode", "linear");
  if (!strcmp(s, "nearest")) return 'n';
  if (!strcmp(s, "linear") || !strcmp(s, "bilinear")) return 'l';
  return !strcmp(s, "cubic") || !strcmp(s, "bicubic") ? 'c' : 0;
}

static int sample_padding(const node *n) {
  const char *s = attr_s(n, "padding_mode", "zeros");
  if (!strcmp(s, "zeros")) return TAPS_ZEROS;
  if (!strcmp(s, "border")) return TAPS_BORDER;
  return !strcmp(s, "reflection") ? TAPS_REFLECTION : -1;
}

static void sample_claim(claim *c) {
  require_known(c, sample_attrs);
  int rank = in_rank(c, 0);
  REQUIRE(c, rank < 0 || (rank >= 3 && rank <= TAPS_AXES + 2), "rank %d", rank);
  REQUIRE(c, in_rank(c, 1) < 0 || rank < 0 || in_rank(c, 1) == rank, "a grid of rank %d for rank %d", in_rank(c, 1), rank);
  REQUIRE(c, sample_mode(c->n), "mode '%s'", attr_s(c->n, "mode", ""));
  REQUIRE(c, sample_padding(c->n) >= 0, "padding_mode '%s'", attr_s(c->n, "padding_mode", ""));
}

// The grid's places for each axis, [N, P], in elements; the grid names the last axis first.
static void places(const taps *t, mx grid, mx at[TAPS_AXES]) {
  int n = mx_dim(grid, 0), k = t->n;
  mx flat = mx_reshape(grid, MXI(n, mx_dim(grid, 0) ? (int)(mx_size(grid) / (size_t)n / (size_t)k) : 0, k));
  for (int d = 0; d < k; d++) {
    mx g = num_plus(mx_squeeze(mx_slice_axis(flat, 2, k - 1 - d, k - d), MXI(2)), 1);
    at[d] = t->corners ? num_times(num_times(g, 0.5), t->size[d] - 1) : num_times(num_plus(num_times(g, t->size[d]), -1), 0.5);
  }
}

// Places outside of the image are reflected: all axes of a place, if one of them is outside. The border needs no help
// here, as each tap goes to it by itself.
static void reflected(const taps *t, mx at[TAPS_AXES]) {
  mx beyond = NULL;
  double lo = t->corners ? 0 : -0.5;
  for (int d = 0; d < t->n; d++) {
    mx x = at[d], out_of = mx_logical_or(mx_less(x, mx_scalar(x, lo)), mx_greater(x, mx_scalar(x, t->size[d] - 1 - lo)));
    beyond = beyond ? mx_logical_or(beyond, out_of) : out_of;
  }
  for (int d = 0; d < t->n; d++) at[d] = mx_where(beyond, taps_reflect(at[d], lo, t->size[d] - 1 - lo), at[d]);
}

static void grid_sample(op *o) {
  mx x = in(o, 0), grid = in(o, 1), at[TAPS_AXES];
  mx_ints s = mx_shape(x), g = mx_shape(grid), shape = {.n = s.n, .v = {s.v[0], s.v[1]}};
  taps t = {.n = s.n - 2, .padding = (taps_padding)sample_padding(o->n), .corners = attr_i(o->n, "align_corners", 0) != 0};
  if (t.n < 1 || t.n > TAPS_AXES || g.n != s.n || g.v[g.n - 1] != t.n || g.v[0] != s.v[0]) {
    op_fail(o, "a grid of rank %d for X of rank %d, or of another batch", g.n, s.n);
    return;
  }
  for (int d = 0; d < t.n; d++) {
    t.size[d] = s.v[d + 2];
    shape.v[d + 2] = g.v[d + 1];
  }
  int64_t n_out = dims_span(shape, 0, shape.n), n_places = dims_span(s, 2, s.n);
  if (n_out && !n_places) op_fail(o, "X has no elements");
  if (!mx_ok(o->s)) return;
  if (!n_out) {
    out(o, 0, mx_full(o->s, shape, 0, mx_dtype(x)));
    return;
  }
  bool wide = mx_dtype(x) == DT_F64 || mx_dtype(grid) == DT_F64;
  t.rows = taps_rows(o, mx_astype(x, wide ? DT_F64 : DT_F32));
  if (!mx_ok(o->s)) return;
  t.base = taps_base(o, s.v[0], (int)n_places);
  places(&t, mx_astype(grid, wide ? DT_F64 : DT_F32), at);
  char mode = sample_mode(o->n);
  for (int d = 0; d < t.n && mode == 'n'; d++) at[d] = mx_round(at[d]);
  if (t.padding == TAPS_REFLECTION) reflected(&t, at);
  mx y = mode == 'n' ? taps_at(&t, at) : mode == 'l' ? taps_linear(&t, at, mx_add) : taps_cubic(&t, at);
  out(o, 0, mx_reshape(mx_swapaxes(y, 1, 2), shape));
}

// ---- AffineGrid ---------------------------------------------------------------------------------------------------------------
static void affine_claim(claim *c) {
  require_known(c, (const char *const[]){"align_corners", NULL});
}

// Centres of n elements in [-1, 1], or from edge to edge, along one axis of k + 1.
static mx centres(op *o, int n, bool corners, dtype t, int axis, int k) {
  mx i = mx_arange(o->s, 0, n, 1, t);
  mx v = corners ? num_plus(num_times(i, n > 1 ? 2.0 / (n - 1) : 0), -1) : num_plus(num_times(num_plus(i, 0.5), 2.0 / n), -1);
  mx_ints along = {.n = k + 1};
  for (int a = 0; a <= k; a++) along.v[a] = a == axis ? n : 1;
  return mx_reshape(v, along);
}

static void affine_grid(op *o) {
  int64_t size[5];
  size_t n = 0;
  mx theta = in(o, 0);
  if (!host_ints(o, 1, size, 5, &n)) return;
  int k = (int)n - 2;
  if (k < 2 || mx_ndim(theta) != 3 || mx_dim(theta, 1) != k || mx_dim(theta, 2) != k + 1 || mx_dim(theta, 0) != size[0]) {
    op_fail(o, "theta does not fit a size of %zu numbers", n);
    return;
  }
  mx_ints checked, shape = {.n = k + 2}, grid = {.n = k + 1};
  if (!dims_ints(o, size, n, &checked)) return;
  bool wide = mx_dtype(theta) == DT_F64, corners = attr_i(o->n, "align_corners", 0) != 0;
  dtype t = wide ? DT_F64 : DT_F32;
  shape.v[0] = checked.v[0];
  for (int a = 0; a < k; a++) shape.v[a + 1] = grid.v[a] = checked.v[a + 2];
  shape.v[k + 1] = k;
  grid.v[k] = 1;
  int64_t n_places = dims_span(grid, 0, k);
  if (!n_places || !shape.v[0]) {
    out(o, 0, mx_full(o->s, shape, 0, t));
    return;
  }
  mx part[TAPS_AXES + 1], rows = NULL;
  for (int a = 0; a < k; a++) part[k - 1 - a] = mx_broadcast_to(centres(o, grid.v[a], corners, t, a, k), grid);
  part[k] = mx_full(o->s, grid, 1, t);
  rows = mx_reshape(mx_concatenate(o->s, part, (size_t)k + 1, k), MXI(-1, k + 1));
  out(o, 0, mx_reshape(mx_matmul(rows, mx_swapaxes(mx_astype(theta, t), 1, 2)), shape));
}

const op_row ops_sample[] = {
    OP("", "GridSample", 16, ANY, sample_claim, grid_sample, .types = DTS_FLOAT64, .typed_in = ALL_IN,
       .limits = "1 to 3 spatial axes"),
    OP("com.microsoft", "GridSample", 1, ANY, sample_claim, grid_sample, .types = DTS_FLOAT64, .typed_in = ALL_IN,
       .limits = "1 to 3 spatial axes"),
    OP("", "AffineGrid", 20, ANY, affine_claim, affine_grid, .types = DTS_FLOAT64, .host_in = IN(1)),
    {0}};
