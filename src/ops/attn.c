#include "ops/attn.h"

#include <math.h>

#include "ops/numeric.h"

static mx lowest(mx like) { return mx_scalar(like, -(double)INFINITY); }

// What is added to the products, unseen keys included; NULL if there is nothing to add.
static mx merged_bias(const attn *a) {
  return a->bias && a->seen ? mx_where(a->seen, a->bias, lowest(a->bias)) : a->bias;
}

// Bool, of the mask's shape with a last axis of 1: does the query see any key?
static mx sees_any(const attn *a, mx bias) {
  if (bias) return mx_logical_not(mx_isneginf(mx_max(bias, MXI(mx_ndim(bias) - 1), true)));
  return mx_any(a->seen, MXI(mx_ndim(a->seen) - 1), true);
}

static mx zero_unless(mx cond, mx x) { return mx_where(cond, x, mx_scalar(x, 0)); }

static mx softmax_of(const attn *a, mx logits, int keys) {
  dtype t = mx_dtype(logits);
  if (a->softmax != DT_NONE) logits = mx_astype(logits, a->softmax);
  if (a->sink) {
    mx_ints one = mx_shape(logits);
    one.v[3] = 1;
    mx parts[2] = {logits, mx_broadcast_to(mx_astype(a->sink, mx_dtype(logits)), one)};
    logits = mx_concatenate(mx_scope_of(logits), parts, 2, 3);
  }
  mx weights = num_softmax(logits, 3);
  if (a->sink) weights = mx_slice_axis(weights, 3, 0, keys);
  return mx_astype(weights, t);
}

static mx empty_result(const attn *a, attn_stages *st) {
  mx_scope *s = mx_scope_of(a->q);
  int b = mx_dim(a->q, 0), h = mx_dim(a->q, 1), rows = mx_dim(a->q, 2);
  mx none = mx_full(s, MXI(b, h, rows, mx_dim(a->k, 2)), 0, DT_F32);
  if (st) *st = (attn_stages){none, none, none, none};
  return mx_full(s, MXI(b, h, rows, mx_dim(a->v, 3)), 0, mx_dtype(a->q));
}

static bool is_empty(const attn *a) { return !mx_size(a->q) || !mx_size(a->k) || !mx_size(a->v); }

mx attn_stepwise(const attn *a, attn_stages *stages) {
  if (is_empty(a)) return empty_result(a, stages);
  dtype wide = mx_dtype(a->q) == DT_F64 ? DT_F64 : DT_F32;
  int b = mx_dim(a->q, 0), h = mx_dim(a->q, 1), rows = mx_dim(a->q, 2), size = mx_dim(a->q, 3);
  int kv = mx_dim(a->k, 1), keys = mx_dim(a->k, 2), grouped = h / kv * rows;
  attn_stages st;
  mx q = num_times(mx_reshape(mx_astype(a->q, wide), MXI(b, kv, grouped, size)), a->scale);
  st.products = mx_reshape(mx_matmul(q, mx_swapaxes(mx_astype(a->k, wide), 2, 3)), MXI(b, h, rows, keys));
  st.capped = a->cap > 0 ? num_times(mx_tanh(num_times(st.products, 1 / a->cap)), a->cap) : st.products;
  mx bias = merged_bias(a);
  st.biased = bias ? mx_add(st.capped, mx_astype(bias, wide)) : st.capped;
  if (a->seen) st.biased = mx_where(a->seen, st.biased, lowest(st.biased));
  st.weights = softmax_of(a, st.biased, keys);
  if (a->guarded) st.weights = zero_unless(sees_any(a, bias), st.weights);
  mx y = mx_matmul(mx_reshape(st.weights, MXI(b, kv, grouped, keys)), mx_astype(a->v, wide));
  if (stages) *stages = st;
  return mx_astype(mx_reshape(y, MXI(b, h, rows, mx_dim(a->v, 3))), mx_dtype(a->q));
}

// MLX's fused form rounds the products of halves on the CPU device.
static bool has_fused(const attn *a) {
  dtype t = mx_dtype(a->q);
  bool rounds = is_half(a->q) && mx_device_of(mx_scope_of(a->q)) == MX_CPU;
  return !(a->cap > 0) && !a->sink && a->softmax == DT_NONE && t != DT_F64 && !rounds && mx_dtype(a->k) == t &&
         mx_dtype(a->v) == t;
}

mx attn_apply(const attn *a) {
  if (!has_fused(a)) return attn_stepwise(a, NULL);
  if (is_empty(a)) return empty_result(a, NULL);
  mx bias = merged_bias(a);
  mx y = mx_attention(a->q, a->k, a->v, (float)a->scale, bias ? mx_astype(bias, mx_dtype(a->q)) : a->seen);
  return a->guarded ? zero_unless(sees_any(a, bias), y) : y;
}

mx attn_split(mx x, int heads) {
  return mx_transpose(mx_reshape(x, MXI(mx_dim(x, 0), mx_dim(x, 1), heads, mx_dim(x, 2) / heads)), MXI(0, 2, 1, 3));
}

void attn_unpack(mx *q, mx *k, mx *v, int heads, int kv_heads, int size) {
  int axis = mx_ndim(*q) - 1, k_at = heads * size, v_at = k_at + kv_heads * size;
  *k = mx_slice_axis(*q, axis, k_at, v_at);
  *v = mx_slice_axis(*q, axis, v_at, v_at + kv_heads * size);
  *q = mx_slice_axis(*q, axis, 0, k_at);
}

mx attn_join(mx x) {
  return mx_reshape(mx_transpose(x, MXI(0, 2, 1, 3)), MXI(mx_dim(x, 0), mx_dim(x, 2), mx_dim(x, 1) * mx_dim(x, 3)));
}

bool attn_past_fits(op *o, size_t i, size_t key, mx fresh) {
  mx past = in(o, i);
  if (!past || (mx_ndim(past) == 4 && mx_dim(past, 0) == mx_dim(fresh, 0) && mx_dim(past, 1) == mx_dim(fresh, 1) &&
                mx_dim(past, 3) == mx_dim(fresh, 3) && mx_dim(past, 2) == mx_dim(in(o, key), 2)))
    return true;
  op_fail(o, "past input %zu must have shape [%d, %d, rows, %d]", i, mx_dim(fresh, 0), mx_dim(fresh, 1), mx_dim(fresh, 3));
  return false;
}

mx attn_append(mx past, mx fresh) {
  mx parts[2] = {past, fresh};
  return past && mx_dim(past, 2) ? mx_concatenate(mx_scope_of(fresh), parts, 2, 2) : fresh;
}

mx attn_causal(mx_scope *s, int rows, int keys, int offset) {
  if (keys - 1 <= offset) return NULL;
  mx key = mx_reshape(mx_arange(s, 0, keys, 1, DT_I32), MXI(1, 1, 1, keys));
  mx query = mx_reshape(mx_arange(s, offset, (double)offset + rows, 1, DT_I32), MXI(1, 1, rows, 1));
  return mx_less_equal(key, query);
}

double attn_scale(const op *o, int size) {
  float scale = attr_f(o->n, "scale", 0);
  return scale != 0 ? (double)scale : 1 / sqrt((double)size);
}

bool attn_broadcasts(mx x, int batch, int heads, int rows, int keys) {
  const int want[4] = {batch, heads, rows, keys};
  int rank = mx_ndim(x);
  for (int i = 0; i < rank && rank <= 4; i++) {
    int d = mx_dim(x, i);
    if (d != 1 && d != want[4 - rank + i]) return false;
  }
  return rank <= 4;
}

// ---- rotary positions -------------------------------------------------------------------------------------------------
static mx rotate_split(mx x, mx cos, mx sin) {
  int half = mx_dim(cos, -1);
  mx a = mx_slice_axis(x, 3, 0, half), b = mx_slice_axis(x, 3, half, 2 * half);
  mx parts[3] = {mx_sub(mx_mul(a, cos), mx_mul(b, sin)), mx_add(mx_mul(b, cos), mx_mul(a, sin))};
  int n = 2, size = mx_dim(x, 3);
  if (2 * half < size) parts[n++] = mx_slice_axis(x, 3, 2 * half, size);
  return mx_concatenate(mx_scope_of(x), parts, (size_t)n, 3);
}

static mx rotate_pairs(mx x, mx cos, mx sin) {
  int half = mx_dim(cos, -1), size = mx_dim(x, 3);
  mx turned = 2 * half < size ? mx_slice_axis(x, 3, 0, 2 * half) : x;
  mx_ints whole = mx_shape(turned), pairs = {5, {whole.v[0], whole.v[1], whole.v[2], half, 2}};
  mx split = mx_reshape(turned, pairs);
  mx a = mx_squeeze(mx_slice_axis(split, 4, 0, 1), MXI(4)), b = mx_squeeze(mx_slice_axis(split, 4, 1, 2), MXI(4));
  mx both[2] = {mx_sub(mx_mul(a, cos), mx_mul(b, sin)), mx_add(mx_mul(b, cos), mx_mul(a, sin))};
  mx parts[2] = {mx_reshape(mx_stack(mx_scope_of(x), both, 2, 4), whole)};
  if (2 * half == size) return parts[0];
  parts[1] = mx_slice_axis(x, 3, 2 * half, size);
  return mx_concatenate(mx_scope_of(x), parts, 2, 3);
}

mx attn_rotate(mx x, mx cos, mx sin, bool interleaved) {
  mx (*turn)(mx, mx, mx) = interleaved ? rotate_pairs : rotate_split;
  return mx_astype(turn(f32_up(x), f32_up(cos), f32_up(sin)), mx_dtype(x));
}
