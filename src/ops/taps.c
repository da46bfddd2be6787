#include "ops/taps.h"

#include "ops/index.h"
#include "ops/numeric.h"

mx taps_rows(op *o, mx x) {
  mx_ints shape = mx_shape(x), perm = {.n = shape.n, .v = {0}};
  int rows = 0;
  if (!fits_int(o, shape.v[0] * dims_span(shape, 2, shape.n), &rows)) return x;
  for (int i = 1; i + 1 < perm.n; i++) perm.v[i] = i + 1;
  perm.v[perm.n - 1] = 1;
  return mx_reshape(mx_transpose(x, perm), MXI(rows, shape.v[1]));
}

mx taps_base(op *o, int images, int places) {
  mx first = mx_arange(o->s, 0, images, 1, DT_I32);
  return mx_reshape(mx_mul(first, mx_scalar_i64(o->s, places, DT_I32)), MXI(images, 1));
}

mx taps_reflect(mx at, double lo, double hi) {
  double range = hi - lo;
  if (!(range > 0)) return mx_add(mx_mul(at, mx_scalar(at, 0)), mx_scalar(at, lo));
  mx turn = mx_remainder(mx_abs(num_plus(at, -lo)), mx_scalar(at, 2 * range));
  return num_plus(mx_minimum(turn, mx_sub(mx_scalar(at, 2 * range), turn)), lo);
}

mx taps_at(const taps *t, const mx *whole) {
  mx flat = NULL, inside = NULL;
  for (int d = 0; d < t->n; d++) {
    mx p = whole[d];
    double last = t->size[d] - 1;
    if (t->padding == TAPS_ZEROS) {
      mx ok = mx_logical_and(mx_greater_equal(p, mx_scalar(p, 0)), mx_less_equal(p, mx_scalar(p, last)));
      inside = inside ? mx_logical_and(inside, ok) : ok;
    }
    if (t->padding == TAPS_REFLECTION) {
      double lo = t->corners ? 0 : -0.5;
      mx out_of = mx_logical_or(mx_less(p, mx_scalar(p, lo)), mx_greater(p, mx_scalar(p, last - lo)));
      p = mx_where(out_of, taps_reflect(p, lo, last - lo), p);
    }
    // NaN passes the first clip and becomes any integer at all: the second one holds it.
    mx i = mx_astype(mx_clip(p, mx_scalar(p, 0), mx_scalar(p, last)), DT_I32);
    i = mx_clip(i, mx_scalar(i, 0), mx_scalar(i, last));
    flat = flat ? mx_add(mx_mul(flat, mx_scalar(i, t->size[d])), i) : i;
  }
  mx v = mx_take(t->rows, mx_add(flat, t->base), 0);
  return inside ? mx_where(mx_expand_dims(inside, MXI(-1)), v, mx_scalar(v, 0)) : v;
}

// Joins the weighted taps: places lo[d] + k with weight w[d][k], k below `each`, along every axis.
static mx weighted(const taps *t, const mx *lo, mx w[][4], int each, mx (*join)(mx, mx)) {
  int all = 1;
  for (int d = 0; d < t->n; d++) all *= each;
  mx sum = NULL;
  for (int k = 0; k < all && mx_ok(mx_scope_of(t->rows)); k++) {
    mx place[TAPS_AXES], weight = NULL;
    for (int d = t->n - 1, rest = k; d >= 0; d--, rest /= each) {
      place[d] = num_plus(lo[d], rest % each);
      weight = weight ? mx_mul(weight, w[d][rest % each]) : w[d][rest % each];
    }
    mx v = mx_mul(taps_at(t, place), mx_expand_dims(weight, MXI(-1)));
    sum = sum ? join(sum, v) : v;
  }
  return sum ? sum : t->rows;
}

mx taps_linear(const taps *t, const mx *at, mx (*join)(mx, mx)) {
  mx lo[TAPS_AXES], w[TAPS_AXES][4];
  for (int d = 0; d < t->n; d++) {
    lo[d] = mx_floor(at[d]);
    w[d][1] = mx_sub(at[d], lo[d]);
    w[d][0] = mx_sub(mx_scalar(at[d], 1), w[d][1]);
  }
  return weighted(t, lo, w, 2, join);
}

static mx cubic(mx x, bool near) {
  double a = -0.75;
  if (near) return num_plus(mx_mul(mx_mul(num_plus(num_times(x, a + 2), -(a + 3)), x), x), 1);
  return num_plus(mx_mul(num_plus(mx_mul(num_plus(num_times(x, a), -5 * a), x), 8 * a), x), -4 * a);
}

mx taps_cubic(const taps *t, const mx *at) {
  mx lo[TAPS_AXES], w[TAPS_AXES][4];
  for (int d = 0; d < t->n; d++) {
    mx floor = mx_floor(at[d]), r = mx_sub(at[d], floor), s = mx_sub(mx_scalar(r, 1), r);
    lo[d] = num_plus(floor, -1);
    w[d][0] = cubic(num_plus(r, 1), false);
    w[d][1] = cubic(r, true);
    w[d][2] = cubic(s, true);
    w[d][3] = cubic(num_plus(s, 1), false);
  }
  return weighted(t, lo, w, 4, mx_add);
}
