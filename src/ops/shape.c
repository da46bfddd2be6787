// Shapes as data, and the operators that change a shape or the order of axes.
#include <limits.h>
#include <string.h>

#include "ops/index.h"

// ---- Shape, Size ----------------------------------------------------------------------------------------------------
static int64_t clamp_axis(int64_t axis, int rank) {
  if (axis < 0) axis += rank;
  return axis < 0 ? 0 : axis > rank ? rank : axis;
}

static void shape(op *o) {
  mx_ints dims = mx_shape(in(o, 0));
  int64_t v[MX_MAX_RANK];
  for (int i = 0; i < dims.n; i++) v[i] = dims.v[i];
  int64_t start = clamp_axis(attr_i(o->n, "start", 0), dims.n);
  int64_t end = clamp_axis(attr_i(o->n, "end", dims.n), dims.n);
  out(o, 0, mx_i64s(o->s, v + start, end > start ? (int)(end - start) : 0));
}

static void size(op *o) { out(o, 0, mx_scalar_i64(o->s, (int64_t)mx_size(in(o, 0)), DT_I64)); }

// ---- Reshape, Flatten -----------------------------------------------------------------------------------------------
static bool reshape_target(op *o, int64_t *v, size_t *n) {
  if (o->n->since >= 5) return host_ints(o, 1, v, MX_MAX_RANK, n);
  const int64_t *a = attr_ints(o->n, "shape", n);
  if (*n > MX_MAX_RANK) op_fail(o, "attribute shape has %zu entries", *n);
  if (*n > MX_MAX_RANK) return false;
  if (*n) memcpy(v, a, *n * sizeof *v);
  return true;
}

// Puts the input's dims where v copies them. Gives the position of -1, or -1 without one; -2 after a failure.
static int reshape_copy_dims(op *o, int64_t *v, size_t n, mx_ints from) {
  bool keep_zero = attr_i(o->n, "allowzero", 0) != 0, zero = false;
  int infer = -1;
  for (size_t i = 0; i < n; i++) {
    if (v[i] == -1 && infer < 0) {
      infer = (int)i;
    } else if (v[i] < 0) {
      op_fail(o, "shape entry %zu is %lld; only one -1 is allowed and nothing below it", i, (long long)v[i]);
      return -2;
    } else if (v[i] == 0 && !keep_zero) {
      if ((int)i >= from.n) {
        op_fail(o, "shape entry %zu copies a dim that the input of rank %d has not", i, from.n);
        return -2;
      }
      v[i] = from.v[i];
    } else if (v[i] == 0) {
      zero = true;
    }
  }
  if (infer >= 0 && zero) op_fail(o, "shape holds both -1 and 0 while allowzero is set");
  return infer >= 0 && zero ? -2 : infer;
}

static void reshape(op *o) {
  int64_t v[MX_MAX_RANK];
  size_t n = 0;
  mx x = in(o, 0);
  if (!reshape_target(o, v, &n)) return;
  int infer = reshape_copy_dims(o, v, n, mx_shape(x));
  if (infer == -2) return;
  int64_t total = (int64_t)mx_size(x), known = 1;
  if (infer >= 0) v[infer] = 1;
  for (size_t i = 0; i < n; i++)
    if (__builtin_mul_overflow(known, v[i], &known)) known = -1;
  bool fits = infer >= 0 ? known > 0 && total % known == 0 : known == total;
  if (!fits) {
    op_fail(o, "%lld elements do not fit the requested shape", (long long)total);
    return;
  }
  mx_ints full, target;
  if (infer >= 0) v[infer] = total / known;
  if (!dims_ints(o, v, n, &full)) return;
  target = full;
  if (infer >= 0 && total > 0) target.v[infer] = -1;
  out_reshaped(o, target, full);
}

static void flatten(op *o) {
  mx x = in(o, 0);
  mx_ints s = mx_shape(x);
  int64_t axis = attr_i(o->n, "axis", 1);
  int split = axis == s.n ? s.n : norm_axis(o, axis, s.n ? s.n : 1);
  int64_t v[2] = {dims_span(s, 0, split), dims_span(s, split, s.n)};
  mx_ints full;
  if (!mx_ok(o->s) || !dims_ints(o, v, 2, &full)) return;
  mx_ints target = full;
  if (split > 0 && mx_size(x) > 0) target.v[0] = -1;
  out_reshaped(o, target, full);
}

// ---- Transpose ------------------------------------------------------------------------------------------------------
static void transpose(op *o) {
  mx x = in(o, 0);
  size_t n = 0;
  const int64_t *a = attr_ints(o->n, "perm", &n);
  int rank = mx_ndim(x);
  mx_ints perm = {.n = rank};
  if (a && n != (size_t)rank) {
    op_fail(o, "perm has %zu entries for rank %d", n, rank);
    return;
  }
  for (int i = 0; i < rank; i++) perm.v[i] = a ? norm_axis(o, a[i], rank) : rank - 1 - i;
  out(o, 0, mx_transpose(x, perm));
}

// ---- Squeeze, Unsqueeze ---------------------------------------------------------------------------------------------
static void squeeze(op *o) {
  mx_ints s = mx_shape(in(o, 0)), axes = op_axes(o, "axes", 1, s.n), left = {0};
  if (!mx_ok(o->s)) return;
  for (int i = 0, k = 0; i < s.n; i++) {
    bool named = k < axes.n && axes.v[k] == i;
    if (named) k++;
    if (named && s.v[i] != 1) {
      op_fail(o, "axis %d has size %d and cannot be squeezed", i, s.v[i]);
      return;
    }
    if (!named && (axes.n || s.v[i] != 1)) left.v[left.n++] = s.v[i];
  }
  int64_t v[KNOWN_MAX];
  size_t n = 0;
  mx_ints drop = axes;
  for (int i = 0; !axes.n && i < s.n; i++)
    if (s.v[i] == 1) drop.v[drop.n++] = i;
  if (known_ints(o, 0, v, &n)) {
    out_ints(o, 0, v, left);
  } else {
    out(o, 0, drop.n ? mx_squeeze(in(o, 0), drop) : in(o, 0));
  }
}

static void unsqueeze(op *o) {
  size_t n = 0;
  if (in(o, 1)) {
    n = mx_size(in(o, 1));
  } else {
    attr_ints(o->n, "axes", &n);
  }
  mx_ints s = mx_shape(in(o, 0)), full = {0};
  if (n > (size_t)(MX_MAX_RANK - s.n)) {
    op_fail(o, "rank %d with %zu axes more is above %d", s.n, n, MX_MAX_RANK);
    return;
  }
  full.n = s.n + (int)n;
  mx_ints axes = op_axes(o, "axes", 1, full.n);
  if (!mx_ok(o->s)) return;
  for (int i = 0, k = 0; i < full.n; i++) {
    bool added = k < axes.n && axes.v[k] == i;
    full.v[i] = added ? 1 : s.v[i - k];
    if (added) k++;
  }
  int64_t v[KNOWN_MAX];
  if (known_ints(o, 0, v, &n)) {
    out_ints(o, 0, v, full);
  } else {
    out(o, 0, axes.n ? mx_expand_dims(in(o, 0), axes) : in(o, 0));
  }
}

// ---- Expand, Tile ---------------------------------------------------------------------------------------------------
static void expand(op *o) {
  int64_t v[MX_MAX_RANK], w[MX_MAX_RANK];
  size_t n = 0;
  mx x = in(o, 0);
  if (!host_ints(o, 1, v, MX_MAX_RANK, &n)) return;
  mx_ints s = mx_shape(x), target;
  int rank = (int)n > s.n ? (int)n : s.n;
  for (int i = 0; i < rank; i++) {
    int from = i - (rank - s.n), to = i - (rank - (int)n);
    int64_t have = from < 0 ? 1 : s.v[from], want = to < 0 ? 1 : v[to];
    if (have != 1 && want != 1 && have != want) {
      op_fail(o, "a dim of %lld cannot be broadcast to %lld", (long long)have, (long long)want);
      return;
    }
    w[i] = have == 1 ? want : have;
  }
  if (dims_ints(o, w, (size_t)rank, &target)) out(o, 0, mx_broadcast_to(x, target));
}

// Opset 1 names one axis and a count, as floats of the data's type.
static bool tile_v1(op *o, int rank, int64_t *reps, size_t *n) {
  double count = 0, axis = 0;
  if (!host_float(o, 1, &count) || !host_float(o, 2, &axis)) return false;
  if (!(count >= 0 && count <= INT_MAX && axis >= -rank && axis < rank)) {
    op_fail(o, "tiles %g along axis %g is out of range for rank %d", count, axis, rank);
    return false;
  }
  for (int i = 0; i < rank; i++) reps[i] = 1;
  reps[norm_axis(o, (int64_t)axis, rank)] = (int64_t)count;
  *n = (size_t)rank;
  return true;
}

static void tile(op *o) {
  int64_t reps[MX_MAX_RANK], w[MX_MAX_RANK];
  size_t n = 0;
  mx x = in(o, 0);
  mx_ints s = mx_shape(x), r = {.n = s.n}, full;
  bool read = o->n->since < 6 ? tile_v1(o, s.n, reps, &n) : host_ints(o, 1, reps, MX_MAX_RANK, &n);
  if (!read) return;
  if ((int)n != s.n) {
    op_fail(o, "repeats has %zu entries for rank %d", n, s.n);
    return;
  }
  for (int i = 0; i < s.n; i++) {
    if (reps[i] < 0 || !fits_int(o, reps[i], &r.v[i])) {
      op_fail(o, "repeat %lld of axis %d is out of range", (long long)reps[i], i);
      return;
    }
    w[i] = reps[i] * s.v[i];
  }
  if (dims_ints(o, w, n, &full)) out(o, 0, dims_span(full, 0, full.n) ? mx_tile(x, r) : mx_full(o->s, full, 0, mx_dtype(x)));
}

// ---- DepthToSpace, SpaceToDepth -------------------------------------------------------------------------------------
static void blocks_claim(claim *c) {
  int64_t block = attr_i(c->n, "blocksize", 0);
  const char *mode = attr_s(c->n, "mode", "DCR");
  REQUIRE(c, block > 0 && block <= 1 << 15, "blocksize %lld is out of range", (long long)block);
  REQUIRE(c, !strcmp(mode, "DCR") || !strcmp(mode, "CRD"), "mode '%s' is not known", mode);
  REQUIRE(c, in_rank(c, 0) < 0 || in_rank(c, 0) == 4, "the input's rank is %d, not 4", in_rank(c, 0));
}

static bool is_crd(const op *o) { return !strcmp(attr_s(o->n, "mode", "DCR"), "CRD"); }

static void depth_to_space(op *o) {
  mx x = in(o, 0);
  mx_ints s = mx_shape(x), to;
  int b = (int)attr_i(o->n, "blocksize", 1);
  if (s.n != 4 || s.v[1] % (b * b)) {
    op_fail(o, "the input must have rank 4 and channels that are a multiple of %d", b * b);
    return;
  }
  int c = s.v[1] / (b * b);
  int64_t w[4] = {s.v[0], c, (int64_t)s.v[2] * b, (int64_t)s.v[3] * b};
  if (!dims_ints(o, w, 4, &to)) return;
  mx y = is_crd(o) ? mx_transpose(mx_reshape(x, MXI(s.v[0], c, b, b, s.v[2], s.v[3])), MXI(0, 1, 4, 2, 5, 3))
                   : mx_transpose(mx_reshape(x, MXI(s.v[0], b, b, c, s.v[2], s.v[3])), MXI(0, 3, 4, 1, 5, 2));
  out(o, 0, mx_reshape(y, to));
}

static void space_to_depth(op *o) {
  mx x = in(o, 0);
  mx_ints s = mx_shape(x), to;
  int b = (int)attr_i(o->n, "blocksize", 1);
  if (s.n != 4 || s.v[2] % b || s.v[3] % b) {
    op_fail(o, "the input must have rank 4 and a height and width that are multiples of %d", b);
    return;
  }
  int h = s.v[2] / b, w = s.v[3] / b;
  int64_t dims[4] = {s.v[0], (int64_t)s.v[1] * b * b, h, w};
  if (!dims_ints(o, dims, 4, &to)) return;
  mx y = mx_reshape(x, MXI(s.v[0], s.v[1], h, b, w, b));
  out(o, 0, mx_reshape(mx_transpose(y, is_crd(o) ? MXI(0, 1, 3, 5, 2, 4) : MXI(0, 3, 5, 1, 2, 4)), to));
}

const op_row ops_shape[] = {
    OP("", "Shape", 1, ANY, NULL, shape, .traits = OP_CHEAP),
    OP("", "Size", 1, ANY, NULL, size, .traits = OP_CHEAP),
    OP("", "Reshape", 1, 4, NULL, reshape, .traits = OP_CHEAP | OP_NARROW),
    OP("", "Reshape", 5, ANY, NULL, reshape, .host_in = IN(1), .traits = OP_CHEAP | OP_NARROW),
    OP("", "Flatten", 1, ANY, NULL, flatten, .traits = OP_CHEAP | OP_NARROW),
    OP("", "Transpose", 1, ANY, NULL, transpose, .traits = OP_CHEAP | OP_NARROW),
    OP("", "Squeeze", 1, 12, NULL, squeeze, .traits = OP_CHEAP | OP_NARROW),
    OP("", "Squeeze", 13, ANY, NULL, squeeze, .host_in = IN(1), .traits = OP_CHEAP | OP_NARROW),
    OP("", "Unsqueeze", 1, 12, NULL, unsqueeze, .traits = OP_CHEAP | OP_NARROW),
    OP("", "Unsqueeze", 13, ANY, NULL, unsqueeze, .host_in = IN(1), .traits = OP_CHEAP | OP_NARROW),
    OP("", "Expand", 8, ANY, NULL, expand, .host_in = IN(1), .traits = OP_CHEAP),
    OP("", "Tile", 1, 5, NULL, tile, .host_in = IN(1) | IN(2), .traits = OP_CHEAP),
    OP("", "Tile", 6, ANY, NULL, tile, .host_in = IN(1), .traits = OP_CHEAP),
    OP("", "DepthToSpace", 1, ANY, blocks_claim, depth_to_space, .traits = OP_CHEAP,
       .limits = "data of rank 4; a blocksize of at most 32768"),
    OP("", "SpaceToDepth", 1, ANY, blocks_claim, space_to_depth, .traits = OP_CHEAP,
       .limits = "data of rank 4; a blocksize of at most 32768"),
    {0}};
