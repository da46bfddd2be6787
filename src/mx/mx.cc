// Runtime, scopes, arrays from and to the host.
#include <dlfcn.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "mx/mx_impl.h"

namespace {

const mc::Dtype DTYPES[] = {
    mc::float32, mc::float32, mc::uint8,   mc::int8,    mc::uint16, mc::int16,  mc::int32,     mc::int64,   mc::float32,
    mc::bool_,   mc::float16, mc::float64, mc::uint32,  mc::uint64, mc::complex64, mc::float32, mc::bfloat16};
const dtypes HELD = DTS_TENSOR | DTYPE_BIT(DT_C64);

mc::Device to_device(mx_device d) { return d == MX_GPU ? mc::Device::gpu : mc::Device::cpu; }

// MLX's CPU streams own a thread that never ends, so streams are handed on from one finished thread to the next.
std::mutex streams_lock;
std::vector<mc::Stream> free_streams[2];
thread_local std::optional<mc::Stream> my_stream;

// MLX's threads outlive every session: from the first stream on, this library (and so libmlx) stays mapped.
void stay_loaded() {
  static std::once_flag once;
  std::call_once(once, [] {
    Dl_info self;
    if (dladdr(reinterpret_cast<void *>(&mx_version), &self) && self.dli_fname)
      dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  });
}

// MLX's CUDA back end rounds float32 products to 19 bits unless it is told not to, before its first product.
void full_precision(mx_device d) {
  static std::once_flag once;
  if (d == MX_GPU) std::call_once(once, [] { setenv("MLX_ENABLE_TF32", "0", 0); });
}

mc::Stream take_stream(mx_device d) {
  std::lock_guard<std::mutex> hold(streams_lock);
  auto &list = free_streams[d];
  if (list.empty()) return mc::new_thread_unsafe_stream(to_device(d));
  mc::Stream s = list.back();
  list.pop_back();
  return s;
}

// In MLX's CPU-only build a buffer points to its size, 8 bytes before the data; a build for a GPU has buffers of its own.
bool plain_buffers() {
  static const bool plain = [] {
    mc::allocator::Data probe = mc::allocator::malloc(64);
    auto buffer = probe.buffer();
    return static_cast<char *>(buffer.ptr()) + sizeof(size_t) == buffer.raw_ptr();
  }();
  return plain;
}

// The CPU back end reads the buffer's size from the 8 bytes before its data, so those must be readable: they are when
// the data does not start a page. Memory wrapped this way is never written or freed by MLX (0.32.4 and later).
bool can_wrap(const mx_scope *s, const void *p, size_t item) {
  auto address = reinterpret_cast<uintptr_t>(p);
  return s->device == MX_CPU && plain_buffers() && address % 4096 >= 8 && address % item == 0;
}

mc::array wrap(const void *p, mc::Shape shape, mc::Dtype t) {
  auto *word = static_cast<size_t *>(const_cast<void *>(p)) - 1;
  return mc::array(mc::allocator::Data(mc::allocator::Buffer(word), [](mc::allocator::Buffer) {}), std::move(shape), t);
}

// A copy at a 64-byte boundary on the CPU device (MLX's own memory starts 8 bytes past one), for whole vector loads.
mc::array aligned_copy(const void *p, size_t bytes, mc::Shape shape, mc::Dtype t) {
  auto *block = static_cast<unsigned char *>(std::aligned_alloc(64, (bytes + 64 + 63) / 64 * 64));
  if (!block) throw std::bad_alloc();
  auto *data = block + 64;
  reinterpret_cast<size_t *>(data)[-1] = bytes;
  if (bytes) std::memcpy(data, p, bytes);
  auto release = [block](mc::allocator::Buffer) { std::free(block); };
  return mc::array(mc::allocator::Data(mc::allocator::Buffer(reinterpret_cast<size_t *>(data) - 1), release),
                   std::move(shape), t);
}

mc::array owned_copy(const void *p, size_t bytes, mc::Shape shape, mc::Dtype t) {
  auto data = mc::allocator::malloc(bytes);
  auto buffer = data.buffer();
  if (bytes) std::memcpy(buffer.raw_ptr(), p, bytes);
  return mc::array(std::move(data), std::move(shape), t);
}

mc::array copy_in(mx_scope *s, const void *p, dtype t, mx_ints shape) {
  mc::Dtype type = mx_to_dtype(t);
  auto sh = mx_to_shape(shape);
  size_t bytes = mc::size_of(type);
  for (int d : sh) bytes *= static_cast<size_t>(d);
  return s->device == MX_CPU && plain_buffers() ? aligned_copy(p, bytes, sh, type) : owned_copy(p, bytes, sh, type);
}

bool is_row_major(const mc::array &a) { return a.flags().row_contiguous; }

std::atomic<long> fail_in{0};
std::atomic<bool> has_failed{false};

}  // namespace

void mx_maybe_fail() {
  if (fail_in.load(std::memory_order_relaxed) <= 0 || fail_in.fetch_sub(1) != 1) return;
  has_failed = true;
  throw std::runtime_error("a failure that a test asked for");
}

mc::Dtype mx_to_dtype(dtype t) {
  if (!dtype_in(t, HELD)) throw std::invalid_argument(std::string("MLX has no type ") + dtype_name(t));
  return DTYPES[t];
}

dtype mx_from_dtype(mc::Dtype t) {
  for (int i = DT_F32; i <= DT_BF16; i++)
    if (dtype_in(static_cast<dtype>(i), HELD) && DTYPES[i] == t) return static_cast<dtype>(i);
  return DT_NONE;
}

mc::Stream mx_thread_stream() {
  if (!my_stream) throw std::logic_error("mx_thread_begin was not called on this thread");
  return *my_stream;
}

extern "C" {

const char *mx_version(void) { return mc::version(); }

bool mx_gpu_available(void) {
  try {
    return mc::is_available(mc::Device::gpu);
  } catch (...) {
    return false;
  }
}

bool mx_thread_begin(mx_device d, err *e) {
  if (my_stream) return FAIL(e, ERR_INTERNAL, "mx_thread_begin was called twice on one thread");
  try {
    stay_loaded();
    full_precision(d);
    my_stream = take_stream(d);
    mc::set_default_stream(*my_stream);
    return true;
  } catch (const std::exception &x) {
    return FAIL(e, ERR_MLX, "MLX cannot start on the %s device: %s", d == MX_GPU ? "gpu" : "cpu", x.what());
  }
}

void mx_thread_end(void) {
  if (!my_stream) return;
  try {
    mc::synchronize(*my_stream);
  } catch (...) {  // an error left on the stream belongs to a run that has reported it
  }
  std::lock_guard<std::mutex> hold(streams_lock);
  free_streams[my_stream->device == mc::Device::gpu].push_back(*my_stream);
  my_stream.reset();
}

bool mx_has_dtype(mx_device d, dtype t) {
  if (d == MX_GPU && (t == DT_F64 || t == DT_C64)) return false;
  return dtype_in(t, HELD);
}

bool mx_fail_after(long n) {
  bool failed = has_failed.exchange(false);
  fail_in = n;
  return failed;
}

mx_scope *mx_scope_new(mx_device d) {
  try {
    return new mx_scope(d, mx_thread_stream());
  } catch (...) {
    return nullptr;
  }
}

void mx_scope_free(mx_scope *s) { delete s; }
bool mx_ok(const mx_scope *s) { return s->error.code == ERR_OK; }
const err *mx_error(const mx_scope *s) { return &s->error; }
mx_scope *mx_scope_of(mx x) { return x->scope; }
mx_device mx_device_of(const mx_scope *s) { return s->device; }

mx mx_fail(mx_scope *s, err_code code, const char *fmt, ...) {
  if (s->error.code == ERR_OK) {
    char msg[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(msg, sizeof msg, fmt, args);
    va_end(args);
    err_set_at(&s->error, code, __FILE__, __LINE__, "%s", msg);
    if (s->op_type) err_add(&s->error, "node '%s' (%s): ", s->node, s->op_type);
  }
  return &s->poison;
}

void mx_at_node(mx_scope *s, const char *op_type, const char *name) {
  s->op_type = op_type;
  s->node = name ? name : "";
}

void mx_scope_keep(mx_scope *s, const mx *keep, size_t n) {
  mx_try(s, [&] {
    std::vector<std::pair<mx, mc::array>> kept;
    kept.reserve(n);
    for (size_t i = 0; i < n; i++)
      if (keep[i] && keep[i]->a) kept.emplace_back(keep[i], *keep[i]->a);
    for (auto &cell : s->cells) cell.a.reset();
    for (auto &[x, a] : kept) x->a = std::move(a);
  });
}

size_t mx_scope_mark(const mx_scope *s) { return s->cells.size(); }

void mx_scope_rewind(mx_scope *s, size_t mark, mx *keep, size_t n) {
  mx_try(s, [&] {
    std::vector<std::optional<mc::array>> kept(n);
    for (size_t i = 0; i < n; i++)
      if (keep[i]) kept[i] = mx_a(keep[i]);
    while (s->cells.size() > mark) s->cells.pop_back();
    for (size_t i = 0; i < n; i++)
      if (keep[i]) keep[i] = &s->cells.emplace_back(mx_cell{s, std::move(kept[i])});
  });
}

void mx_set_pool(mx_scope *s, const cpu_pool *pool) { s->pool = pool; }

mx mx_from(mx_scope *s, const void *data, dtype t, mx_ints shape) {
  return mx_call(s, [&] { return copy_in(s, data, t, shape); });
}

mx mx_wrap(mx_scope *s, const void *data, dtype t, mx_ints shape) {
  return mx_call(s, [&] {
    if (!can_wrap(s, data, dtype_size(t) ? dtype_size(t) : 1)) return copy_in(s, data, t, shape);
    return wrap(data, mx_to_shape(shape), mx_to_dtype(t));
  });
}

mx mx_i64s(mx_scope *s, const int64_t *v, int n) { return mx_from(s, v, DT_I64, mx_ints{1, {n}}); }

mx mx_full(mx_scope *s, mx_ints shape, double v, dtype t) {
  return mx_call(s, [&] { return mc::full(mx_to_shape(shape), mc::array(v, mx_to_dtype(t)), s->stream); });
}

mx mx_scalar(mx like, double v) {
  return mx_call(like->scope, [&] { return mc::array(v, mx_a(like).dtype()); });
}

mx mx_scalar_i64(mx_scope *s, int64_t v, dtype t) {
  return mx_call(s, [&] { return mc::array(v, mx_to_dtype(t)); });
}

bool mx_eval(mx_scope *s, const mx *xs, size_t n) {
  return mx_try(s, [&] {
    std::vector<mc::array> list;
    for (size_t i = 0; i < n; i++)
      if (xs[i]) list.push_back(mx_a(xs[i]));
    mc::eval(std::move(list));
  });
}

const void *mx_read(mx x) {
  const void *p = nullptr;
  mx_try(x->scope, [&] {
    x->a->eval();
    if (!is_row_major(*x->a)) {
      x->a = mc::contiguous(*x->a, false, x->scope->stream);
      x->a->eval();
    }
    p = x->a->size() ? x->a->data<char>() : "";  // a GPU's empty buffer has no address
  });
  return p;
}

bool mx_read_i64(mx x, int64_t *out, size_t cap, size_t *n) {
  *n = mx_size(x);
  if (!mx_ok(x->scope)) return false;
  if (*n > cap) return mx_fail(x->scope, ERR_INVALID, "%zu integers where at most %zu are expected", *n, cap), false;
  mx wide = mx_astype(x, DT_I64);
  const void *p = mx_read(wide);
  if (p && *n) std::memcpy(out, p, *n * sizeof *out);
  return p != nullptr;
}

bool mx_ready(mx x) {
  return mx_ok(x->scope) && x->a && !x->a->is_tracer() && x->a->status() == mc::array::Status::available;
}

bool mx_copy_out(mx x, void *dst, size_t bytes) {
  const void *p = mx_read(x);
  if (!p) return false;
  size_t have = x->a->nbytes();
  if (have != bytes) return mx_fail(x->scope, ERR_INTERNAL, "%zu bytes for an output of %zu", have, bytes), false;
  if (bytes) std::memcpy(dst, p, bytes);
  return true;
}

mx_held *mx_hold(mx x) {
  mx_held *h = nullptr;
  mx_try(x->scope, [&] { h = new mx_held{mx_a(x)}; });
  return h;
}

mx mx_use(mx_scope *s, const mx_held *h) {
  return mx_call(s, [&] { return h->a; });
}

void mx_held_free(mx_held *h) { delete h; }

dtype mx_dtype(mx x) { return x->a ? mx_from_dtype(x->a->dtype()) : DT_F32; }
int mx_ndim(mx x) { return x->a ? static_cast<int>(x->a->ndim()) : 0; }

int mx_dim(mx x, int axis) {
  int n = mx_ndim(x);
  if (axis < 0) axis += n;
  return axis < 0 || axis >= n ? 1 : x->a->shape(axis);
}

mx_ints mx_shape(mx x) {
  mx_ints s = {};
  int n = mx_ndim(x);
  for (s.n = 0; s.n < n && s.n < MX_MAX_RANK; s.n++) s.v[s.n] = x->a->shape(s.n);
  return s;
}

size_t mx_size(mx x) { return x->a ? x->a->size() : 1; }

}  // extern "C"
