#include "ops/spatial.h"

#include <string.h>

enum { LARGEST = 1 << 30 };  // for sizes, pads and steps: sums of a few of them stay inside 64 bits

char spatial_auto_pad(const node *n) {
  const char *s = attr_s(n, "auto_pad", "NOTSET");
  if (!strcmp(s, "SAME_UPPER")) return 'U';
  if (!strcmp(s, "SAME_LOWER")) return 'L';
  if (!strcmp(s, "VALID")) return 'V';
  return !strcmp(s, "NOTSET") || !*s ? 'N' : 0;
}

static void claim_list(claim *c, const char *name, int n, int64_t least) {
  size_t count = 0;
  const int64_t *v = attr_ints(c->n, name, &count);
  if (v && n > 0 && count != (size_t)n) claim_decline(c, "%s has %zu entries, not %d", name, count, n);
  for (size_t i = 0; v && i < count; i++)
    if (v[i] < least || v[i] > LARGEST) claim_decline(c, "%s holds %lld", name, (long long)v[i]);
}

void spatial_claim(claim *c) {
  int rank = in_rank(c, 0), n = rank - 2;
  REQUIRE(c, rank < 0 || (n >= 1 && n <= SPATIAL_MAX), "rank %d", rank);
  claim_list(c, "kernel_shape", n, 1);
  claim_list(c, "strides", n, 1);
  claim_list(c, "dilations", n, 1);
  claim_list(c, "pads", 2 * n, 0);
  REQUIRE(c, spatial_auto_pad(c->n), "auto_pad '%s'", attr_s(c->n, "auto_pad", ""));
}

// The attribute's n entries, or `dflt` n times.
static bool read_list(op *o, const char *name, int n, int64_t least, int dflt, int *to) {
  size_t count = 0;
  const int64_t *v = attr_ints(o->n, name, &count);
  if (v && count != (size_t)n) return op_fail(o, "%s has %zu entries for %d", name, count, n), false;
  for (int i = 0; i < n; i++) {
    if (v && (v[i] < least || v[i] > LARGEST)) return op_fail(o, "%s holds %lld", name, (long long)v[i]), false;
    to[i] = v ? (int)v[i] : dflt;
  }
  return true;
}

int spatial_reach(const spatial *w, int axis) { return w->dilation[axis] * (w->kernel[axis] - 1) + 1; }

bool spatial_read(op *o, mx x, const int *kernel, spatial *w) {
  *w = (spatial){.n = mx_ndim(x) - 2};
  if (w->n < 1 || w->n > SPATIAL_MAX) return op_fail(o, "rank %d", mx_ndim(x)), false;
  int pads[2 * SPATIAL_MAX];
  if (!read_list(o, "kernel_shape", w->n, 1, 0, w->kernel) || !read_list(o, "strides", w->n, 1, 1, w->stride) ||
      !read_list(o, "dilations", w->n, 1, 1, w->dilation) || !read_list(o, "pads", 2 * w->n, 0, 0, pads))
    return false;
  for (int i = 0; i < w->n; i++) {
    if (kernel && w->kernel[i] && w->kernel[i] != kernel[i])
      return op_fail(o, "kernel_shape has %d where the weight has %d", w->kernel[i], kernel[i]), false;
    if (kernel) w->kernel[i] = kernel[i];
    if (w->kernel[i] < 1 || (int64_t)w->dilation[i] * w->kernel[i] > LARGEST)
      return op_fail(o, "a kernel of %d", w->kernel[i]), false;
    w->size[i] = mx_dim(x, i + 2);
    w->lo[i] = pads[i];
    w->hi[i] = pads[w->n + i];
  }
  return true;
}

// The pads of SAME; negative when windows leave elements out at both ends.
static void same_pads(spatial *w, int i, bool upper, int reach) {
  int64_t windows = ((int64_t)w->size[i] + w->stride[i] - 1) / w->stride[i];
  int64_t total = (windows - 1) * w->stride[i] + reach - w->size[i];
  w->lo[i] = (int)((upper ? total : total + 1) / 2);
  w->hi[i] = (int)(total - w->lo[i]);
}

bool spatial_windows(op *o, spatial *w) {
  char pad = spatial_auto_pad(o->n);
  for (int i = 0; i < w->n; i++) {
    if (pad == 'V') w->lo[i] = w->hi[i] = 0;
    if (pad == 'U' || pad == 'L') same_pads(w, i, pad == 'U', spatial_reach(w, i));
    if (pad != 'N' && w->lo[i] + w->hi[i] < 0) w->lo[i] = w->hi[i] = 0;
    int64_t padded = (int64_t)w->size[i] + w->lo[i] + w->hi[i], room = padded - spatial_reach(w, i);
    if (room < 0) return op_fail(o, "a window of %d over %lld elements", spatial_reach(w, i), (long long)padded), false;
    if (!fits_int(o, room / w->stride[i] + 1, &w->out[i])) return false;
  }
  return true;
}

bool spatial_pool_windows(op *o, spatial *w, bool ceil) {
  char pad = spatial_auto_pad(o->n);
  for (int i = 0; i < w->n; i++) {
    if (pad == 'V') w->lo[i] = w->hi[i] = 0;
    if (pad == 'U' || pad == 'L') same_pads(w, i, pad == 'U', w->kernel[i]);
    int64_t padded = (int64_t)w->size[i] + w->lo[i] + w->hi[i], room = padded - spatial_reach(w, i), s = w->stride[i];
    int64_t windows = (ceil && room > 0 ? (room + s - 1) / s : room / s) + 1;
    if (ceil && (windows - 1) * s >= (int64_t)w->size[i] + w->lo[i]) windows--;
    if (windows < 0) return op_fail(o, "a window of %d over %lld elements", spatial_reach(w, i), (long long)padded), false;
    if (!fits_int(o, windows, &w->out[i])) return false;
  }
  return true;
}
