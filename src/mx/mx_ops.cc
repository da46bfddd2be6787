// Operators over arrays: each is one call of MLX on the scope's stream.
#include "mx/mx_layout.h"

namespace {

mc::array axis_slice(const mc::array &a, int axis, int start, int stop, mc::Stream s) {
  int n = static_cast<int>(a.ndim());
  if (axis < 0) axis += n;
  if (axis < 0 || axis >= n) throw std::invalid_argument("slice: the axis is out of range");
  mc::Shape lo(static_cast<size_t>(n), 0), hi(a.shape());
  lo[static_cast<size_t>(axis)] = start;
  hi[static_cast<size_t>(axis)] = stop;
  return mc::slice(a, lo, hi, mc::Shape(static_cast<size_t>(n), 1), s);
}

std::vector<mc::array> arrays(const mx *xs, size_t n) {
  std::vector<mc::array> v;
  v.reserve(n);
  for (size_t i = 0; i < n; i++) v.push_back(mx_a(xs[i]));
  return v;
}

std::optional<mc::array> maybe(mx x) { return x ? std::optional<mc::array>(mx_a(x)) : std::nullopt; }

mc::array scatter(const mc::array &a, const std::vector<mc::array> &idx, const mc::array &up, const std::vector<int> &ax,
                  mx_scatter_mode mode, mc::Stream s) {
  switch (mode) {
    case MX_ADD: return mc::scatter_add(a, idx, up, ax, s);
    case MX_PROD: return mc::scatter_prod(a, idx, up, ax, s);
    case MX_MAX: return mc::scatter_max(a, idx, up, ax, s);
    case MX_MIN: return mc::scatter_min(a, idx, up, ax, s);
    case MX_SET: break;
  }
  return mc::scatter(a, idx, up, ax, s);
}

mc::array concatenate(const std::vector<mc::array> &list, int axis, mc::Stream s) {
  auto t = list.empty() ? std::nullopt : mx_turned(list[0]);
  std::vector<mc::array> bases;
  for (auto &a : list)
    if (auto other = mx_turned(a); t && other && other->perm == t->perm) bases.push_back(other->base);
  if (!t || bases.size() < list.size()) return mc::concatenate(list, axis, s);
  int there = t->perm.at(static_cast<size_t>(axis < 0 ? axis + static_cast<int>(list[0].ndim()) : axis));
  return mx_transposed(mc::concatenate(bases, there, s), t->perm, s);
}

// CUDA kernels of these crash the process on arrays without elements.
mc::array matmul(const mc::array &a, const mc::array &b, mc::Stream s) {
  auto y = mc::matmul(a, b, s);
  return a.size() && b.size() ? y : mc::zeros(y.shape(), y.dtype(), s);
}
mc::array sort(const mc::array &a, int axis, mc::Stream s) { return a.size() ? mc::sort(a, axis, s) : a; }
mc::array order(const mc::array &a, const mc::array &sorted, mc::Stream s) {
  return a.size() ? sorted : mc::zeros(a.shape(), mc::uint32, s);
}

// The CPU device keeps the exponentials of a half type in that type, and so rounds twice.
mc::array softmax(const mc::array &a, int axis, const mx_scope *s) {
  bool half = a.dtype() == mc::float16 || a.dtype() == mc::bfloat16;
  if (!half || s->device != MX_CPU) return mc::softmax(a, axis, true, s->stream);
  return mc::astype(mc::softmax(mc::astype(a, mc::float32, s->stream), axis, true, s->stream), a.dtype(), s->stream);
}

}  // namespace

#define ON(x) (x)->scope, [&] { auto s = (x)->scope->stream; return
#define END ; }

extern "C" {

#define MX_1(name, fn) \
  mx mx_##name(mx x) { return mx_call(ON(x) mx_follow(mx_a(x), s, [&](auto &a) { return mc::fn(a, s); }) END); }
#define MX_2(name, fn) \
  mx mx_##name(mx x, mx y) { \
    return mx_call(ON(x) mx_follow(mx_a(x), mx_a(y), s, [&](auto &a, auto &b) { return mc::fn(a, b, s); }) END); \
  }
#define MX_R(name, fn) \
  mx mx_##name(mx x, mx_ints axes, bool keepdims) { \
    if (!keepdims) return mx_call(ON(x) mc::fn(mx_a(x), mx_vec(axes), false, s) END); \
    return mx_call(ON(x) mx_follow_along(mx_a(x), mx_vec(axes), s, \
                                         [&](auto &a, auto &along) { return mc::fn(a, along, true, s); }) END); \
  }
#define MX_A(name, fn) \
  mx mx_##name(mx x, int axis, bool keepdims) { return mx_call(ON(x) mc::fn(mx_a(x), axis, keepdims, s) END); }
#define MX_S(name, fn) \
  mx mx_##name(mx x, int axis, bool reverse, bool inclusive) { \
    return mx_call(ON(x) mc::fn(mx_a(x), axis, reverse, inclusive, s) END); \
  }
#include "mx/mx_ops.inc"

mx mx_length(mx x, int axis) { return mx_call(ON(x) mc::number_of_elements(mx_a(x), {axis}, false, mc::int32, s) END); }
mx mx_astype(mx x, dtype t) {
  if (mx_dtype(x) == t) return x;
  return mx_call(ON(x) mx_follow(mx_a(x), s, [&](auto &a) { return mc::astype(a, mx_to_dtype(t), s); }) END);
}
mx mx_view(mx x, dtype t) { return mx_call(ON(x) mc::view(mx_a(x), mx_to_dtype(t), s) END); }

mx mx_reshape(mx x, mx_ints shape) { return mx_call(ON(x) mc::reshape(mx_a(x), mx_to_shape(shape), s) END); }
mx mx_flatten(mx x, int first, int last) { return mx_call(ON(x) mc::flatten(mx_a(x), first, last, s) END); }
mx mx_transpose(mx x, mx_ints perm) { return mx_call(ON(x) mx_transposed(mx_a(x), mx_vec(perm), s) END); }
mx mx_swapaxes(mx x, int a, int b) { return mx_call(ON(x) mc::swapaxes(mx_a(x), a, b, s) END); }
mx mx_expand_dims(mx x, mx_ints axes) {
  return axes.n == 0 ? x : mx_call(ON(x) mc::expand_dims(mx_a(x), mx_vec(axes), s) END);
}
mx mx_squeeze(mx x, mx_ints axes) {
  return axes.n == 0 ? x : mx_call(ON(x) mc::squeeze(mx_a(x), mx_vec(axes), s) END);
}
mx mx_broadcast_to(mx x, mx_ints shape) { return mx_call(ON(x) mc::broadcast_to(mx_a(x), mx_to_shape(shape), s) END); }
mx mx_concatenate(mx_scope *sc, const mx *xs, size_t n, int axis) {
  return mx_call(sc, [&] { return concatenate(arrays(xs, n), axis, sc->stream); });
}
mx mx_stack(mx_scope *sc, const mx *xs, size_t n, int axis) {
  return mx_call(sc, [&] { return mc::stack(arrays(xs, n), axis, sc->stream); });
}
mx mx_slice(mx x, mx_ints start, mx_ints stop, mx_ints stride) {
  return mx_call(ON(x) mc::slice(mx_a(x), mx_to_shape(start), mx_to_shape(stop), mx_to_shape(stride), s) END);
}
mx mx_slice_axis(mx x, int axis, int start, int stop) {
  return mx_call(ON(x) axis_slice(mx_a(x), axis, start, stop, s) END);
}
mx mx_slice_at(mx x, mx start, mx_ints axes, mx_ints size) {
  return mx_call(ON(x) mc::slice(mx_a(x), mx_a(start), mx_vec(axes), mx_to_shape(size), s) END);
}
mx mx_slice_update(mx x, mx update, mx_ints start, mx_ints stop, mx_ints stride) {
  return mx_call(
      ON(x) mc::slice_update(mx_a(x), mx_a(update), mx_to_shape(start), mx_to_shape(stop), mx_to_shape(stride), s) END);
}
mx mx_slice_update_at(mx x, mx update, mx start, mx_ints axes) {
  return mx_call(ON(x) mc::slice_update(mx_a(x), mx_a(update), mx_a(start), mx_vec(axes), s) END);
}
mx mx_pad(mx x, mx_ints axes, mx_ints low, mx_ints high, mx value, const char *mode) {
  return mx_call(ON(x) mc::pad(mx_a(x), mx_vec(axes), mx_to_shape(low), mx_to_shape(high),
                               value ? mx_a(value) : mc::array(0, mx_a(x).dtype()), mode, s) END);
}
mx mx_tile(mx x, mx_ints reps) { return mx_call(ON(x) mc::tile(mx_a(x), mx_vec(reps), s) END); }
mx mx_repeat(mx x, int repeats, int axis) {
  return mx_call(ON(x) mx_follow_along(mx_a(x), {axis}, s,
                                       [&](auto &a, auto &at) { return mc::repeat(a, repeats, at[0], s); }) END);
}
mx mx_contiguous(mx x) { return mx_call(ON(x) mc::contiguous(mx_a(x), false, s) END); }
mx mx_as_strided(mx x, mx_ints shape, const int64_t *strides, size_t offset) {
  return mx_call(ON(x) mc::as_strided(mx_a(x), mx_to_shape(shape), mc::Strides(strides, strides + shape.n), offset, s) END);
}

mx mx_take(mx x, mx indices, int axis) {
  if (mx_ndim(indices) != 1) return mx_call(ON(x) mc::take(mx_a(x), mx_a(indices), axis, s) END);
  return mx_call(ON(x) mx_follow_along(mx_a(x), {axis}, s,
                                       [&](auto &a, auto &at) { return mc::take(a, mx_a(indices), at[0], s); }) END);
}
mx mx_take_along_axis(mx x, mx indices, int axis) {
  return mx_call(ON(x) mc::take_along_axis(mx_a(x), mx_a(indices), axis, s) END);
}
mx mx_put_along_axis(mx x, mx indices, mx values, int axis) {
  return mx_call(ON(x) mc::put_along_axis(mx_a(x), mx_a(indices), mx_a(values), axis, s) END);
}
mx mx_scatter_add_axis(mx x, mx indices, mx values, int axis) {
  return mx_call(ON(x) mc::scatter_add_axis(mx_a(x), mx_a(indices), mx_a(values), axis, s) END);
}
mx mx_scatter(mx x, const mx *indices, size_t n, mx updates, mx_ints axes, mx_scatter_mode mode) {
  return mx_call(ON(x) scatter(mx_a(x), arrays(indices, n), mx_a(updates), mx_vec(axes), mode, s) END);
}
mx mx_gather(mx x, const mx *indices, size_t n, mx_ints axes, mx_ints slice_sizes) {
  return mx_call(ON(x) mc::gather(mx_a(x), arrays(indices, n), mx_vec(axes), mx_to_shape(slice_sizes), s) END);
}

mx mx_where(mx cond, mx x, mx y) { return mx_call(ON(x) mc::where(mx_a(cond), mx_a(x), mx_a(y), s) END); }
mx mx_clip(mx x, mx lo, mx hi) {
  bool bounds = (!lo || mx_ndim(lo) == 0) && (!hi || mx_ndim(hi) == 0);
  if (!bounds) return mx_call(ON(x) mc::clip(mx_a(x), maybe(lo), maybe(hi), s) END);
  return mx_call(ON(x) mx_follow(mx_a(x), s, [&](auto &a) { return mc::clip(a, maybe(lo), maybe(hi), s); }) END);
}
mx mx_softmax(mx x, int axis) {
  return mx_call(x->scope, [&] { return softmax(mx_a(x), axis, x->scope); });
}
mx mx_sort(mx x, int axis) { return mx_call(ON(x) sort(mx_a(x), axis, s) END); }
mx mx_argsort(mx x, int axis) { return mx_call(ON(x) order(mx_a(x), mc::argsort(mx_a(x), axis, s), s) END); }
mx mx_argpartition(mx x, int kth, int axis) {
  return mx_call(ON(x) order(mx_a(x), mc::argpartition(mx_a(x), kth, axis, s), s) END);
}
mx mx_arange(mx_scope *sc, double start, double stop, double step, dtype t) {
  return mx_call(sc, [&] { return mc::arange(start, stop, step, mx_to_dtype(t), sc->stream); });
}
mx mx_tri(mx_scope *sc, int n, int m, int k, dtype t) {
  return mx_call(sc, [&] { return mc::tri(n, m, k, mx_to_dtype(t), sc->stream); });
}

mx mx_matmul(mx x, mx y) { return mx_call(ON(x) matmul(mx_a(x), mx_a(y), s) END); }
mx mx_linear(mx x, mx w, mx bias) {
  mx y = mx_matmul(x, w);
  return bias ? mx_add(y, bias) : y;
}
mx mx_einsum(mx_scope *sc, const char *equation, const mx *xs, size_t n) {
  return mx_call(sc, [&] { return mc::einsum(equation, arrays(xs, n), sc->stream); });
}
mx mx_conv(mx x, mx w, mx_ints stride, mx_ints pad_lo, mx_ints pad_hi, mx_ints kernel_dilation, mx_ints input_dilation,
           int groups, bool flip) {
  return mx_call(ON(x) mc::conv_general(mx_a(x), mx_a(w), mx_vec(stride), mx_vec(pad_lo), mx_vec(pad_hi),
                                        mx_vec(kernel_dilation), mx_vec(input_dilation), groups, flip, s) END);
}
mx mx_rms_norm(mx x, mx weight, float eps) { return mx_call(ON(x) mc::fast::rms_norm(mx_a(x), maybe(weight), eps, s) END); }
mx mx_layer_norm(mx x, mx weight, mx bias, float eps) {
  return mx_call(ON(x) mc::fast::layer_norm(mx_a(x), maybe(weight), maybe(bias), eps, s) END);
}
mx mx_fft(mx x, int n, int axis, bool inverse) {
  return mx_call(ON(x) inverse ? mc::fft::ifft(mx_a(x), n, axis, mc::fft::FFTNorm::Backward, s)
                               : mc::fft::fft(mx_a(x), n, axis, mc::fft::FFTNorm::Backward, s) END);
}
mx mx_rfft(mx x, int n, int axis) {
  return mx_call(ON(x) mc::fft::rfft(mx_a(x), n, axis, mc::fft::FFTNorm::Backward, s) END);
}
mx mx_irfft(mx x, int n, int axis) {
  return mx_call(ON(x) mc::fft::irfft(mx_a(x), n, axis, mc::fft::FFTNorm::Backward, s) END);
}
mx mx_random_uniform(mx_scope *sc, mx_ints shape, uint64_t seed) {
  return mx_call(sc, [&] {
    return mc::random::uniform(0.0f, 1.0f, mx_to_shape(shape), mc::float32, mc::random::key(seed), sc->stream);
  });
}
mx mx_random_normal(mx_scope *sc, mx_ints shape, uint64_t seed) {
  return mx_call(sc, [&] {
    return mc::random::normal(mx_to_shape(shape), mc::float32, mc::random::key(seed), sc->stream);
  });
}
mx mx_attention(mx q, mx k, mx v, float scale, mx mask) {
  return mx_call(ON(q) mc::fast::scaled_dot_product_attention(mx_a(q), mx_a(k), mx_a(v), scale, mask ? "array" : "",
                                                              maybe(mask), std::nullopt, false, s) END);
}

}  // extern "C"
