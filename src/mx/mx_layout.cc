#include "mx/mx_layout.h"

#include <algorithm>
#include <cstring>

#include "mlx/primitives.h"

std::optional<turned> mx_turned(const mc::array &a) {
  if (a.ndim() < 3 || !a.has_primitive() || std::strcmp(a.primitive().name(), "Transpose") != 0) return std::nullopt;
  return turned{a.inputs()[0], static_cast<mc::Transpose &>(a.primitive()).state()};
}

mc::array mx_transposed(const mc::array &a, const std::vector<int> &perm, mc::Stream s) {
  auto t = mx_turned(a);
  if (!t) return mc::transpose(a, perm, s);
  std::vector<int> both;
  for (int axis : perm) both.push_back(t->perm.at(static_cast<size_t>(axis < 0 ? axis + static_cast<int>(a.ndim()) : axis)));
  for (size_t i = 0; i < both.size(); i++)
    if (both[i] != static_cast<int>(i)) return mc::transpose(t->base, both, s);
  return t->base;
}

std::optional<mc::array> mx_beside(const turned &t, const mc::array &y, mc::Stream s) {
  if (auto other = mx_turned(y); other && other->perm == t.perm) return other->base;
  size_t rank = t.perm.size(), long_axes = 0;
  for (int d : y.shape()) long_axes += d != 1;
  if (y.ndim() > rank || long_axes > 1) return std::nullopt;
  if (y.ndim() == 0) return y;
  mc::Shape shape(rank, 1), turned_shape(rank, 1);
  std::copy(y.shape().begin(), y.shape().end(), shape.end() - static_cast<long>(y.ndim()));
  for (size_t i = 0; i < rank; i++) turned_shape[static_cast<size_t>(t.perm[i])] = shape[i];
  return mc::reshape(y, turned_shape, s);  // one long axis: the order of the data is the same
}
