// Traces: a body run once over placeholders, kept as a list of MLX primitives and replayed. MLX's own compile() is not
// enough here: it cannot say whether a trace depends on a size, it wants shape inference even where no shape changed,
// and on the CPU device it writes C++ and calls a compiler.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <typeindex>
#include <unordered_map>
#include <unordered_set>

#include "mlx/compile.h"
#include "mlx/primitives.h"
#include "mx/mx_impl.h"

namespace {

using slot = uint32_t;  // index of a value: the inputs first, then constants, then what the instructions give
using arrays = std::vector<mc::array>;

struct instr {
  std::shared_ptr<mc::Primitive> primitive;
  std::vector<slot> in;
  std::vector<slot> peers;  // of a broadcast that an operator asked for: what it must fit, all earlier than it
  slot out;  // the first; further outputs follow it
  std::vector<mc::Shape> shapes;
  std::vector<mc::Dtype> types;
};

struct constant {
  slot at;
  mc::array a;
};

}  // namespace

struct mx_fn {
  std::vector<mx_spec> in;
  std::vector<constant> constants;
  std::vector<instr> code;
  std::vector<slot> out;
  size_t n_slots = 0;
};

namespace {

// More than this many bytes are computed ahead only when that holds no more memory than what they are made from.
constexpr size_t FOLD_FREELY = size_t{1} << 20;

// MLX's elementwise operators broadcast their operands to a shape that the primitive holds; in a replay it follows from
// the operands.
bool is_broadcast(const mc::Primitive &p) { return std::strcmp(p.name(), "Broadcast") == 0; }
bool is_broadcast(const mc::array &a) { return a.has_primitive() && is_broadcast(a.primitive()); }

arrays placeholders(const std::vector<mx_spec> &in) {
  arrays result;
  for (auto &i : in)
    result.emplace_back(mx_to_shape(i.shape), mx_to_dtype(i.type), std::shared_ptr<mc::Primitive>(), arrays());
  return result;
}

arrays run_body(mx_body body, void *user, size_t n_out, mx_device d, const arrays &in) {
  mx_scope scope(d, mx_thread_stream());
  std::vector<mx> ins, outs(n_out, nullptr);
  for (auto &a : in) ins.push_back(mx_call(&scope, [&] { return a; }));
  body(user, &scope, ins.data(), ins.size(), outs.data(), n_out);
  if (!mx_ok(&scope)) throw std::runtime_error(scope.error.msg);
  arrays result;
  for (mx x : outs) {
    if (!x) throw std::runtime_error("an output was not computed");
    result.push_back(mx_a(x));
  }
  return result;
}

// What must stand before a: its inputs, and before a broadcast the sources of all of them.
arrays needs(const mc::array &a) {
  arrays list;
  for (auto &i : a.inputs())
    if (is_broadcast(i)) list.push_back(i.inputs()[0]);
  list.insert(list.end(), a.inputs().begin(), a.inputs().end());
  std::stable_partition(list.begin(), list.end(), [](const mc::array &x) { return !is_broadcast(x); });
  return list;
}

// The arrays that outs need, inputs before users, without recursion: a trace may be thousands of nodes deep.
arrays in_order(const arrays &outs) {
  struct visit {
    mc::array a;
    arrays needs;
    size_t next;
  };
  arrays order;
  std::unordered_set<uintptr_t> seen;
  std::vector<visit> stack;
  auto enter = [&](const mc::array &a) {
    if (!seen.insert(a.id()).second) return;
    for (auto &s : a.siblings()) seen.insert(s.id());
    stack.push_back({a, needs(a), 0});
  };
  for (auto &o : outs) {
    enter(o);
    while (!stack.empty()) {
      auto &v = stack.back();
      if (v.next < v.needs.size()) {
        auto a = v.needs[v.next++];
        enter(a);
      } else {
        order.push_back(v.a);
        stack.pop_back();
      }
    }
  }
  return order;
}

// Evaluates what depends on no placeholder, so that a replay finds it done.
void fold(const arrays &order, const arrays &outs, const arrays &in) {
  std::unordered_set<uintptr_t> live;  // depends on a placeholder, or is too large to be kept
  for (auto &a : in) live.insert(a.id());
  arrays ready;
  auto wanted = [&](const mc::array &a) {
    if (!live.count(a.id()) && a.has_primitive()) ready.push_back(a);
  };
  // An operand that is only broadcast stays so: its shape follows from the others.
  auto source = [](const mc::array &a) { return is_broadcast(a) ? a.inputs()[0] : a; };
  for (auto &a : order) {
    size_t from = 0, bytes = 0;
    bool depends = live.count(a.id()) > 0;
    for (auto &i : a.inputs()) {
      depends = depends || live.count(i.id());
      from += i.nbytes();
    }
    for (auto &o : a.outputs()) bytes += o.nbytes();
    if (!depends && (!a.has_primitive() || bytes <= FOLD_FREELY || bytes <= from)) continue;
    for (auto &i : a.inputs()) wanted(source(i));
    for (auto &o : a.outputs()) live.insert(o.id());
  }
  for (auto &o : outs) wanted(o);
  mx_maybe_fail();
  mc::eval(ready);
}

struct same_instr {
  bool operator()(const instr *a, const instr *b) const {
    return a->in == b->in && a->types == b->types && a->shapes == b->shapes &&
           typeid(*a->primitive) == typeid(*b->primitive) && a->primitive->stream() == b->primitive->stream() &&
           a->primitive->is_equivalent(*b->primitive);
  }
};
struct hash_instr {
  size_t operator()(const instr *i) const {
    size_t h = std::type_index(typeid(*i->primitive)).hash_code();
    for (slot s : i->in) h = h * 31 + s;
    return h;
  }
};

// Turns MLX's graph into code; of equal instructions only the first stays.
class assembler {
 public:
  assembler(mx_fn *f, const arrays &in) : f_(f) {
    for (auto &a : in) slots_[a.id()] = next_++;
  }

  // code grows no more once it is full, so pointers into it hold.
  void run(const arrays &order, const arrays &outs) {
    f_->code.reserve(order.size());
    for (auto &a : order) add(a);
    for (auto &o : outs) f_->out.push_back(slots_.at(o.id()));
    f_->n_slots = next_;
    find_peers();
  }

 private:
  void add(const mc::array &a) {
    if (slots_.count(a.id())) return;
    if (!a.has_primitive()) {
      if (!a.is_available()) throw std::runtime_error("a value of another trace");
      f_->constants.push_back({next_, a});
      slots_[a.id()] = next_++;
      return;
    }
    instr i = {a.primitive_ptr(), {}, {}, next_, {}, {}};
    auto outs = a.outputs();
    for (auto &x : a.inputs()) i.in.push_back(slots_.at(x.id()));
    for (auto &x : outs) {
      i.shapes.push_back(x.shape());
      i.types.push_back(x.dtype());
    }
    auto [known, fresh] = known_.insert(&f_->code.emplace_back(std::move(i)));
    if (!fresh) f_->code.pop_back();
    slot first = (*known)->out;
    for (size_t k = 0; k < outs.size(); k++) slots_[outs[k].id()] = first + static_cast<slot>(k);
    if (fresh) next_ += static_cast<slot>(outs.size());
  }

  void find_peers() {
    std::unordered_map<slot, instr *> broadcasts;
    for (auto &c : f_->code) {
      for (slot s : c.in) {
        auto b = broadcasts.find(s);
        if (b == broadcasts.end() || !b->second->peers.empty()) continue;
        for (slot t : c.in) {
          auto other = broadcasts.find(t);
          slot source = other == broadcasts.end() ? t : other->second->in[0];
          if (source < b->second->out) b->second->peers.push_back(source);
        }
      }
      if (is_broadcast(*c.primitive)) broadcasts[c.out] = &c;
    }
  }

  mx_fn *f_;
  slot next_ = 0;
  std::unordered_map<uintptr_t, slot> slots_;
  std::unordered_set<const instr *, hash_instr, same_instr> known_;
};

void assemble(mx_fn *f, const arrays &in, const arrays &outs) {
  auto order = in_order(outs);
  fold(order, outs, in);
  assembler(f, in).run(in_order(outs), outs);
}

using values = std::vector<std::optional<mc::array>>;  // by slot; empty: an input that the code does not use

// What a step gives when an operand has another shape than in the trace.
mc::Shape broadcast_shape(const instr &c, const values &v) {
  auto shape = v[c.in[0]]->shape();
  for (slot s : c.peers) shape = mc::broadcast_shapes(shape, v[s]->shape());
  return shape;
}

void step_moved(const instr &c, values &v, std::vector<bool> &moved, const arrays &args) {
  arrays outs;
  if (!c.peers.empty()) {
    outs.push_back(mc::broadcast_to(args[0], broadcast_shape(c, v), c.primitive->stream()));
  } else {
    auto shapes = c.primitive->output_shapes(args);
    if (shapes.size() != c.shapes.size()) throw std::runtime_error(std::string(c.primitive->name()) + " lost an output");
    outs = mc::array::make_arrays(std::move(shapes), c.types, c.primitive, args);
  }
  for (size_t k = 0; k < outs.size(); k++) {
    moved[c.out + k] = outs[k].shape() != c.shapes[k];
    v[c.out + k] = std::move(outs[k]);
  }
}

bool any_moved(const instr &c, const std::vector<bool> &moved) {
  auto is = [&](slot s) { return static_cast<bool>(moved[s]); };
  return std::any_of(c.in.begin(), c.in.end(), is) || std::any_of(c.peers.begin(), c.peers.end(), is);
}

values replay(const mx_fn &f, const arrays &in) {
  mx_maybe_fail();
  values v(f.n_slots);
  std::vector<bool> moved;  // has another shape than in the trace; empty: nothing has
  for (size_t i = 0; i < in.size(); i++) {
    v[i] = in[i];
    if (in[i].shape() == mx_to_shape(f.in[i].shape)) continue;
    moved.resize(f.n_slots);
    moved[i] = true;
  }
  for (auto &c : f.constants) v[c.at] = c.a;
  for (auto &c : f.code) {
    arrays args;
    args.reserve(c.in.size());
    for (slot s : c.in) args.push_back(*v[s]);
    if (!moved.empty() && any_moved(c, moved)) {
      step_moved(c, v, moved, args);
    } else if (c.shapes.size() == 1) {
      v[c.out].emplace(c.shapes[0], c.types[0], c.primitive, std::move(args));
    } else {
      auto outs = mc::array::make_arrays(c.shapes, c.types, c.primitive, args);
      for (size_t k = 0; k < outs.size(); k++) v[c.out + k] = std::move(outs[k]);
    }
  }
  return v;
}

arrays outputs(const mx_fn &f, const values &v) {
  arrays result;
  for (slot s : f.out) result.push_back(*v[s]);
  return result;
}

// MLX's compile() joins elementwise primitives into kernels: its result, given placeholders, is a graph again.
std::unique_ptr<mx_fn> joined(const mx_fn &f) {
  auto in = placeholders(f.in);
  auto outs = mc::compile(std::function<arrays(const arrays &)>(
      [&](const arrays &args) { return outputs(f, replay(f, args)); }))(in);
  auto result = std::make_unique<mx_fn>();
  result->in = f.in;
  assemble(result.get(), in, outs);
  return result;
}

bool same_output_shapes(const mx_fn &a, const mx_fn &b, const std::vector<mx_spec> &in) {
  auto args = placeholders(in);
  auto x = outputs(a, replay(a, args)), y = outputs(b, replay(b, args));
  for (size_t i = 0; i < x.size(); i++)
    if (x[i].shape() != y[i].shape()) return false;
  return true;
}

bool same_bytes(const mc::array &a, const mc::array &b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  if (a.size() == 0 || (a.data<char>() == b.data<char>() && a.strides() == b.strides())) return true;
  auto s = mx_thread_stream();
  auto x = mc::contiguous(a, false, s), y = mc::contiguous(b, false, s);
  mc::eval(x, y);
  return std::memcmp(x.data<char>(), y.data<char>(), x.nbytes()) == 0;
}

void differ(const std::string &why) { throw std::runtime_error(why); }

void compare_code(const mx_fn &a, const mx_fn &b) {
  if (a.code.size() != b.code.size() || a.constants.size() != b.constants.size() || a.out != b.out)
    differ("it makes other steps at another size");
  for (size_t i = 0; i < a.code.size(); i++) {
    auto &x = a.code[i], &y = b.code[i];
    if (x.in != y.in || x.peers != y.peers || x.out != y.out || x.types != y.types || typeid(*x.primitive) != typeid(*y.primitive))
      differ("it makes other steps at another size");
    if (x.peers.empty() && !x.primitive->is_equivalent(*y.primitive)) differ(std::string(x.primitive->name()) + " holds a size that changes");
  }
  for (size_t i = 0; i < a.constants.size(); i++)
    if (a.constants[i].at != b.constants[i].at || !same_bytes(a.constants[i].a, b.constants[i].a))
      differ("a constant was made from a size that changes");
}

// Replays a at b's shapes: every value must get the shape that b's trace gave it.
void compare_shapes(const mx_fn &a, const mx_fn &b) {
  auto v = replay(a, placeholders(b.in));
  for (auto &c : b.code)
    for (size_t k = 0; k < c.shapes.size(); k++)
      if (v[c.out + k]->shape() != c.shapes[k]) differ(std::string(c.primitive->name()) + " gets another shape in a replay");
}

}  // namespace

extern "C" {

mx_fn *mx_trace(mx_body body, void *user, const mx_spec *in, size_t n_in, size_t n_out, mx_device d, err *e) {
  try {
    mx_maybe_fail();
    auto f = std::make_unique<mx_fn>();
    f->in.assign(in, in + n_in);
    auto holders = placeholders(f->in);
    assemble(f.get(), holders, run_body(body, user, n_out, d, holders));
    return f.release();
  } catch (const std::bad_alloc &) {
    FAIL(e, ERR_NO_MEMORY, "out of memory in a trace");
  } catch (const std::exception &x) {
    FAIL(e, ERR_MLX, "%s", x.what());
  } catch (...) {
    FAIL(e, ERR_MLX, "a trace failed without a message");
  }
  return nullptr;
}

bool mx_fn_same(const mx_fn *a, const mx_fn *b, err *e) {
  try {
    compare_code(*a, *b);
    compare_shapes(*a, *b);
    return true;
  } catch (const std::exception &x) {
    return FAIL(e, ERR_UNSUPPORTED, "%s", x.what());
  } catch (...) {
    return FAIL(e, ERR_MLX, "a comparison of traces failed without a message");
  }
}

mx_fn *mx_fn_join(mx_fn *f, const mx_fn *other, mx_device d) {
  if (d == MX_CPU) return f;
  try {
    auto g = joined(*f);
    if (other && !same_output_shapes(*g, *f, other->in)) return f;
    delete f;
    return g.release();
  } catch (...) {  // then the steps stay single
    return f;
  }
}

size_t mx_fn_steps(const mx_fn *f) { return f->code.size(); }

bool mx_apply(const mx_fn *f, mx_scope *s, const mx *in, size_t n_in, mx *out) {
  for (size_t i = 0; i < f->out.size(); i++) out[i] = &s->poison;
  return mx_try(s, [&] {
    if (n_in != f->in.size()) throw std::runtime_error("a trace got the wrong number of inputs");
    arrays args;
    for (size_t i = 0; i < n_in; i++) {
      args.push_back(mx_a(in[i]));
      if (args[i].dtype() != mx_to_dtype(f->in[i].type) || args[i].ndim() != static_cast<size_t>(f->in[i].shape.n))
        throw std::runtime_error("a trace got an input of another type or rank");
    }
    auto result = outputs(*f, replay(*f, args));
    for (size_t i = 0; i < result.size(); i++) out[i] = mx_call(s, [&] { return result[i]; });
  });
}

void mx_fn_free(mx_fn *f) { delete f; }

}  // extern "C"
