// Inside of mx.h, for its .cc files only. Invariant: every call into MLX stands inside mx_call or mx_try, so that no
// exception leaves, and a scope that has failed is not touched again.
#pragma once
#include <deque>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "mlx/mlx.h"
#include "mx/mx.h"

namespace mc = mlx::core;

struct mx_cell {
  mx_scope *scope;
  std::optional<mc::array> a;  // empty once let go
};

struct mx_scope {
  mx_device device;
  mc::Stream stream;
  std::deque<mx_cell> cells;
  err error = {};
  const char *op_type = nullptr, *node = nullptr;
  const cpu_pool *pool = nullptr;
  mx_cell poison;
  mx_scope(mx_device d, mc::Stream s) : device(d), stream(s), poison{this, mc::array(0.0f)} {}
};

struct mx_held {
  mc::array a;
};

void mx_maybe_fail();  // throws when mx_fail_after says so
mc::Dtype mx_to_dtype(dtype t);  // throws for a type that MLX has not
dtype mx_from_dtype(mc::Dtype t);
mc::Stream mx_thread_stream();  // throws before mx_thread_begin

inline std::vector<int> mx_vec(mx_ints i) { return {i.v, i.v + i.n}; }
inline mc::Shape mx_to_shape(mx_ints i) { return mc::Shape(i.v, i.v + i.n); }
inline const mc::array &mx_a(mx x) {
  if (!x->a) throw std::logic_error("the array was let go by mx_scope_keep");
  return *x->a;
}

// Runs f; records what it throws on the scope. False once the scope has failed.
template <class F>
bool mx_try(mx_scope *s, F &&f) {
  if (s->error.code != ERR_OK) return false;
  try {
    mx_maybe_fail();
    f();
  } catch (const std::bad_alloc &) {
    mx_fail(s, ERR_NO_MEMORY, "out of memory");
  } catch (const std::exception &x) {
    mx_fail(s, ERR_MLX, "%s", x.what());
  } catch (...) {
    mx_fail(s, ERR_MLX, "MLX failed without a message");
  }
  return s->error.code == ERR_OK;
}

// The same for an f that gives an array.
template <class F>
mx mx_call(mx_scope *s, F &&f) {
  mx x = &s->poison;
  mx_try(s, [&] { x = &s->cells.emplace_back(mx_cell{s, f()}); });
  return x;
}
