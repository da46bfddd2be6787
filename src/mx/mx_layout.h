// Keeps data in the order that it was computed in. A convolution of MLX has its channels last and one of ONNX second, so
// translators put a transpose on both sides; an elementwise step between two of them would work on strided memory, which
// MLX does slowly. Here such a step works on the array before its transpose, and the transpose moves behind it, where it
// meets the next one and both go.
#pragma once
#include "mx/mx_impl.h"

// The array under a transpose that has not been computed, and its permutation.
struct turned {
  mc::array base;
  std::vector<int> perm;
};
std::optional<turned> mx_turned(const mc::array &a);  // of rank 3 and above only

// y as it must stand beside t.base so that an elementwise step gives t's order back: y's own base under the same
// permutation, or y itself turned if it spans at most one axis. Empty if neither.
std::optional<mc::array> mx_beside(const turned &t, const mc::array &y, mc::Stream s);
mc::array mx_transposed(const mc::array &a, const std::vector<int> &perm, mc::Stream s);

template <class F>
mc::array mx_follow(const mc::array &a, mc::Stream s, F &&f) {
  auto t = mx_turned(a);
  return t ? mx_transposed(f(t->base), t->perm, s) : f(a);
}

template <class F>
mc::array mx_follow(const mc::array &a, const mc::array &b, mc::Stream s, F &&f) {
  if (auto t = mx_turned(a))
    if (auto y = mx_beside(*t, b, s)) return mx_transposed(f(t->base, *y), t->perm, s);
  if (auto t = mx_turned(b))
    if (auto x = mx_beside(*t, a, s)) return mx_transposed(f(*x, t->base), t->perm, s);
  return f(a, b);
}

// For a step along axes that keeps the rank: f gets the array and the axes that it has there.
template <class F>
mc::array mx_follow_along(const mc::array &a, std::vector<int> axes, mc::Stream s, F &&f) {
  auto t = mx_turned(a);
  if (!t) return f(a, axes);
  for (int &axis : axes) axis = t->perm.at(static_cast<size_t>(axis < 0 ? axis + static_cast<int>(a.ndim()) : axis));
  return mx_transposed(f(t->base, axes), t->perm, s);
}
