// Closures: a body that translates nodes, traced by MLX once and replayed.
#include <functional>
#include <memory>

#include "mlx/compile.h"
#include "mx/mx_impl.h"

using closure = std::function<std::vector<mc::array>(const std::vector<mc::array> &)>;

struct mx_fn {
  closure apply;
  size_t n_out;
};

namespace {

std::vector<mc::array> trace(mx_body body, void *user, size_t n_out, mx_device d, const std::vector<mc::array> &in) {
  mx_scope scope(d, mx_thread_stream());
  std::vector<mx> ins, outs(n_out, nullptr);
  for (auto &a : in) ins.push_back(mx_call(&scope, [&] { return a; }));
  body(user, &scope, ins.data(), ins.size(), outs.data(), n_out);
  if (!mx_ok(&scope)) throw std::runtime_error(scope.error.msg);
  std::vector<mc::array> result;
  for (mx x : outs) {
    if (!x) throw std::runtime_error("an output was not computed");
    result.push_back(mx_a(x));
  }
  return result;
}

}  // namespace

extern "C" {

mx_fn *mx_compile(mx_body body, void *user, size_t n_out, mx_device d, bool shapeless, err *e) {
  try {
    // On the CPU device MLX's fusion would write C++ and call a compiler at run time: trace and simplify only.
    if (d == MX_CPU) mc::set_compile_mode(mc::CompileMode::no_fuse);
    auto f = [=](const std::vector<mc::array> &in) { return trace(body, user, n_out, d, in); };
    return new mx_fn{mc::compile(closure(f), shapeless), n_out};
  } catch (const std::exception &x) {
    FAIL(e, ERR_MLX, "compile: %s", x.what());
    return nullptr;
  }
}

bool mx_apply(mx_fn *f, mx_scope *s, const mx *in, size_t n_in, mx *out) {
  for (size_t i = 0; i < f->n_out; i++) out[i] = &s->poison;
  return mx_try(s, [&] {
    std::vector<mc::array> args;
    for (size_t i = 0; i < n_in; i++) args.push_back(mx_a(in[i]));
    auto result = f->apply(args);
    if (result.size() != f->n_out) throw std::runtime_error("a closure gave the wrong number of outputs");
    for (size_t i = 0; i < result.size(); i++) out[i] = mx_call(s, [&] { return result[i]; });
  });
}

void mx_fn_free(mx_fn *f) { delete f; }

}  // extern "C"
