// Products with block-quantised weights: own kernels on the CPU device, MLX's quantized_matmul (or dense weights) elsewhere.
#include <cstring>
#include <memory>

extern "C" {
#include "cpu/nbits.h"
}
#include "mlx/backend/cpu/encoder.h"
#include "mlx/primitives.h"
#include "mx/mx_impl.h"

using cpu_weights = std::shared_ptr<const cpu_nbits>;

struct mx_nbits {
  int k, n, bits, block, level;
  cpu_weights cpu;                                   // CPU device
  std::optional<mc::array> q, scales, offsets, dense;  // GPU: packed form, or dense when MLX has no such form
  std::optional<mc::array> bias;
};

namespace {

// x [.., k] f32 (contiguous), optional bias [n] -> [.., n] f32.
class NBitsMatmul : public mc::Primitive {
 public:
  NBitsMatmul(mc::Stream s, cpu_weights w, int n, int level, const cpu_pool *pool)
      : Primitive(s), w_(std::move(w)), n_(n), level_(level), pool_(pool) {}

  void eval_cpu(const std::vector<mc::array> &in, std::vector<mc::array> &out) override {
    out[0].set_data(mc::allocator::malloc(out[0].nbytes()));
    if (out[0].size() == 0) return;
    const float *x = in[0].data<float>(), *bias = in.size() > 1 ? in[1].data<float>() : nullptr;
    auto rows = out[0].size() / static_cast<size_t>(n_);
    mc::cpu::get_command_encoder(stream()).dispatch([=, w = w_, level = level_, pool = pool_, y = out[0].data<float>()] {
      if (cpu_nbits_matmul(pool, w.get(), level, rows, x, bias, y) != 0) throw std::bad_alloc();
    });
  }
  void eval_gpu(const std::vector<mc::array> &, std::vector<mc::array> &) override {
    throw std::runtime_error("NBitsMatmul: CPU device only");
  }
  const char *name() const override { return "NBitsMatmul"; }
  bool is_equivalent(const mc::Primitive &other) const override {
    auto &o = static_cast<const NBitsMatmul &>(other);
    return o.w_ == w_ && o.level_ == level_;
  }
  std::vector<mc::Shape> output_shapes(const std::vector<mc::array> &in) override {
    auto shape = in[0].shape();
    shape.back() = n_;
    return {shape};
  }

 private:
  cpu_weights w_;
  int n_, level_;
  const cpu_pool *pool_;
};

mc::array f32_array(const float *p, mc::Shape shape) { return mc::array(p, std::move(shape), mc::float32); }

float zero_of(const mx_nbits_desc *d, int blocks, int row, int block) {
  size_t at = static_cast<size_t>(row) * static_cast<size_t>(blocks) + static_cast<size_t>(block);
  if (d->float_zero_points) return d->float_zero_points[at];
  if (!d->zero_points) return static_cast<float>(1 << (d->bits - 1));
  int each = 8 / d->bits;  // zero points in a byte
  size_t row_bytes = static_cast<size_t>((blocks + each - 1) / each);
  int b = d->zero_points[static_cast<size_t>(row) * row_bytes + static_cast<size_t>(block / each)];
  return static_cast<float>(b >> (block % each * d->bits) & ((1 << d->bits) - 1));
}

// Blocks longer than the kernels have, as blocks of MAX_BLOCK that share a scale and a zero point.
enum { MAX_BLOCK = 256 };
struct split_blocks {
  std::vector<uint8_t> q;
  std::vector<float> scales, zeros;

  split_blocks(const mx_nbits_desc *d, cpu_nbits_source *src) {
    size_t from = blocks_of(d->k, d->block_size), to = blocks_of(d->k, MAX_BLOCK), n = src->n;
    size_t from_row = from * bytes_of(d->block_size, d->bits), to_row = to * bytes_of(MAX_BLOCK, d->bits);
    size_t parts = static_cast<size_t>(d->block_size / MAX_BLOCK);
    q.resize(n * to_row);
    for (size_t r = 0; r < n; r++) {
      std::memcpy(q.data() + r * to_row, d->q + r * from_row, to_row);
      for (size_t b = 0; b < to; b++) {
        scales.push_back(d->scales[r * from + b / parts]);
        zeros.push_back(zero_of(d, static_cast<int>(from), static_cast<int>(r), static_cast<int>(b / parts)));
      }
    }
    src->block = MAX_BLOCK;
    src->q = q.data();
    src->scales = scales.data();
    src->zeros = nullptr;
    src->float_zeros = zeros.data();
  }
  static size_t blocks_of(int k, int block) { return static_cast<size_t>((k + block - 1) / block); }
  static size_t bytes_of(int block, int bits) { return static_cast<size_t>(block * bits / 8); }
};

bool pack_cpu(mx_nbits *w, const mx_nbits_desc *d, err *e) {
  cpu_nbits_source src = {};
  src.n = static_cast<size_t>(d->n);
  src.k = static_cast<size_t>(d->k);
  src.bits = d->bits;
  src.block = d->block_size;
  src.q = d->q;
  src.scales = d->scales;
  src.zeros = d->zero_points;
  src.float_zeros = d->float_zero_points;
  std::optional<split_blocks> split;
  if (d->block_size > MAX_BLOCK) split.emplace(d, &src);
  if (!cpu_nbits_accepts(d->bits, src.block))
    return FAIL(e, ERR_UNSUPPORTED, "%d-bit weights in blocks of %d have no kernel", d->bits, d->block_size);
  cpu_nbits *packed = cpu_nbits_pack(&src, CPU_NBITS_AUTO);
  if (!packed) return FAIL(e, ERR_NO_MEMORY, "out of memory for %d x %d quantised weights", d->n, d->k);
  w->cpu = cpu_weights(packed, [](const cpu_nbits *p) { cpu_nbits_free(const_cast<cpu_nbits *>(p)); });
  return true;
}

// MLX's affine form: w = scale * q + offset; the bytes of ONNX's packing are MLX's.
void pack_gpu(mx_nbits *w, const mx_nbits_desc *d) {
  int blocks = (d->k + d->block_size - 1) / d->block_size, words = blocks * d->block_size * d->bits / 32;
  std::vector<float> offsets(static_cast<size_t>(d->n) * static_cast<size_t>(blocks));
  for (int r = 0; r < d->n; r++)
    for (int b = 0; b < blocks; b++) {
      size_t at = static_cast<size_t>(r) * static_cast<size_t>(blocks) + static_cast<size_t>(b);
      offsets[at] = -d->scales[at] * zero_of(d, blocks, r, b);
    }
  std::vector<uint32_t> q(static_cast<size_t>(d->n) * static_cast<size_t>(words));
  std::memcpy(q.data(), d->q, q.size() * 4);
  w->q = mc::array(q.data(), {d->n, words}, mc::uint32);
  w->scales = f32_array(d->scales, {d->n, blocks});
  w->offsets = f32_array(offsets.data(), {d->n, blocks});
  bool native = (d->block_size == 32 || d->block_size == 64 || d->block_size == 128) && d->k % d->block_size == 0;
  if (native) return;
  // Dense, [k, n]: unpack on the device, once.
  auto s = mx_thread_stream();
  auto each = mc::reshape(mc::view(*w->q, mc::uint8, s), {d->n, blocks, d->block_size * d->bits / 8, 1}, s);
  std::vector<mc::array> fields;
  for (int shift = 0; shift < 8; shift += d->bits)
    fields.push_back(mc::bitwise_and(mc::right_shift(each, mc::array(shift, mc::uint8), s), mc::array((1 << d->bits) - 1, mc::uint8), s));
  each = mc::concatenate(fields, 3, s);
  auto full = mc::add(mc::multiply(mc::astype(mc::reshape(each, {d->n, blocks, d->block_size}, s), mc::float32, s),
                                   mc::expand_dims(*w->scales, 2, s), s),
                      mc::expand_dims(*w->offsets, 2, s), s);
  full = mc::slice(mc::reshape(full, {d->n, blocks * d->block_size}, s), {0, 0}, {d->n, d->k}, s);
  w->dense = mc::contiguous(mc::transpose(full, s), false, s);
  w->dense->eval();
  w->q.reset();
}

mc::array product_cpu(const mc::array &x, const mx_nbits *w, const mx_scope *s) {
  std::vector<mc::array> in = {mc::contiguous(mc::astype(x, mc::float32, s->stream), false, s->stream)};
  if (w->bias) in.push_back(*w->bias);
  auto shape = x.shape();
  shape.back() = w->n;
  auto p = std::make_shared<NBitsMatmul>(s->stream, w->cpu, w->n, w->level, s->pool);
  return mc::astype(mc::array(std::move(shape), mc::float32, std::move(p), std::move(in)), x.dtype(), s->stream);
}

mc::array product_gpu(const mc::array &x, const mx_nbits *w, const mx_scope *s) {
  auto t = x.dtype();
  auto cast = [&](const mc::array &a) { return mc::astype(a, t, s->stream); };
  auto y = w->dense ? mc::matmul(x, cast(*w->dense), s->stream)
                    : mc::quantized_matmul(x, *w->q, cast(*w->scales), cast(*w->offsets), true, w->block, w->bits,
                                           "affine", s->stream);
  return w->bias ? mc::add(y, cast(*w->bias), s->stream) : y;
}

}  // namespace

extern "C" {

mx_nbits *mx_nbits_pack(mx_device device, const mx_nbits_desc *d, err *e) {
  if (d->k <= 0 || d->n <= 0 || (d->bits != 2 && d->bits != 4 && d->bits != 8) || d->block_size < 16)
    return FAIL(e, ERR_INVALID, "quantised weights %d x %d, %d bits, blocks of %d", d->n, d->k, d->bits, d->block_size),
           nullptr;
  try {
    auto w = std::make_unique<mx_nbits>(
        mx_nbits{d->k, d->n, d->bits, d->block_size, d->accuracy_level, nullptr, {}, {}, {}, {}, {}});
    if (d->bias) w->bias = f32_array(d->bias, {d->n});
    if (device == MX_GPU) pack_gpu(w.get(), d);
    else if (!pack_cpu(w.get(), d, e)) return nullptr;
    return w.release();
  } catch (const std::exception &x) {
    FAIL(e, ERR_MLX, "packing quantised weights: %s", x.what());
    return nullptr;
  }
}

void mx_nbits_free(mx_nbits *w) { delete w; }

mx mx_nbits_matmul(mx x, const mx_nbits *w) {
  if (mx_ndim(x) < 1 || mx_dim(x, -1) != w->k)
    return mx_fail(x->scope, ERR_INVALID, "the last axis has %d elements, the weights need %d", mx_dim(x, -1), w->k);
  return mx_call(x->scope, [&] {
    return w->cpu ? product_cpu(mx_a(x), w, x->scope) : product_gpu(mx_a(x), w, x->scope);
  });
}

}  // extern "C"
