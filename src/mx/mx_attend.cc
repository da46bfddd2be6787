// Attention over a cache: own kernels on the CPU device, MLX's operators elsewhere. Neither form holds the cache's length.
#include <memory>

extern "C" {
#include "cpu/attend.h"
}
#include "mlx/backend/cpu/encoder.h"
#include "mlx/primitives.h"
#include "mx/mx_impl.h"

namespace {

using arrays = std::vector<mc::array>;

enum part { HAS_PAST = 1, HAS_LEN = 2, HAS_MASK = 4, HAS_SINK = 8 };

cpu_rows rows_of(const mc::array &a) {
  cpu_rows r = {a.data<char>(), {}};
  for (size_t i = 0; i < 4; i++) r.stride[i] = a.shape(static_cast<int>(i)) == 1 ? 0 : a.strides()[i];
  if (a.shape(3) == 1) r.stride[3] = 1;
  return r;
}

// A mask of rank 4 at most, aligned with [B, H, S, T] from its end.
cpu_rows mask_of(const mc::array &a) {
  cpu_rows r = {a.data<char>(), {}};
  size_t skip = 4 - a.ndim();
  for (size_t i = 0; i < a.ndim(); i++) r.stride[i + skip] = a.shape(static_cast<int>(i)) == 1 ? 0 : a.strides()[i];
  return r;
}

cpu_float float_of(mc::Dtype t) { return t == mc::float32 ? CPU_F32 : t == mc::float16 ? CPU_F16 : CPU_BF16; }

// q, k, v, then as `has` says: past_k, past_v, past_len, mask, sink.
class CachedAttention : public mc::Primitive {
 public:
  CachedAttention(mc::Stream s, unsigned has, const mx_attend_desc &d, const cpu_pool *pool)
      : Primitive(s), has_(has), scale_(d.scale), cap_(d.cap), window_(d.window), causal_(d.causal), pool_(pool) {}

  void eval_cpu(const arrays &in, arrays &out) override {
    out[0].set_data(mc::allocator::malloc(out[0].nbytes()));
    cpu_attend a = describe(in, out[0]);
    mc::cpu::get_command_encoder(stream()).dispatch([=, pool = pool_] {
      if (!cpu_attend_run(pool, &a, CPU_ATTEND_AUTO)) throw std::bad_alloc();
    });
  }
  void eval_gpu(const arrays &, arrays &) override { throw std::runtime_error("CachedAttention: CPU device only"); }
  const char *name() const override { return "CachedAttention"; }
  bool is_equivalent(const mc::Primitive &other) const override {
    auto &o = static_cast<const CachedAttention &>(other);
    return o.has_ == has_ && o.scale_ == scale_ && o.cap_ == cap_ && o.window_ == window_ && o.causal_ == causal_;
  }
  std::vector<mc::Shape> output_shapes(const arrays &in) override {
    auto shape = in[0].shape();
    shape.back() = in[2].shape(3);
    return {shape};
  }

 private:
  cpu_attend describe(const arrays &in, mc::array &y) const {
    auto &q = in[0], &v = in[2];
    cpu_attend a = {};
    a.batch = q.shape(0), a.heads = q.shape(1), a.rows = q.shape(2), a.size = q.shape(3);
    a.kv_heads = in[1].shape(1), a.value_size = v.shape(3);
    a.type = float_of(q.dtype());
    a.q = rows_of(q), a.k = rows_of(in[1]), a.v = rows_of(v);
    size_t at = 3;
    if (has_ & HAS_PAST) {
      a.past = in[at].shape(2);
      if (in[at + 1].shape(2) != a.past) throw std::invalid_argument("past keys and values of different lengths");
      a.past_k = rows_of(in[at++]);
      a.past_v = rows_of(in[at++]);
    }
    if (has_ & HAS_LEN) a.past_len = in[at++].data<int32_t>();
    if (has_ & HAS_MASK) {
      auto &m = in[at++];
      a.mask = mask_of(m);
      a.columns = m.shape(-1) == 1 ? INT64_MAX : m.shape(-1);
      a.mask_kind = m.dtype() == mc::bool_ ? CPU_MASK_BOOL : m.dtype() == mc::float32 ? CPU_MASK_F32 : CPU_MASK_TYPE;
    }
    if (has_ & HAS_SINK) a.sink = in[at++].data<float>();
    a.scale = scale_, a.cap = cap_, a.window = window_, a.causal = causal_;
    a.y = y.data<char>();
    return a;
  }

  unsigned has_;
  float scale_, cap_;
  int window_;
  bool causal_;
  const cpu_pool *pool_;
};

mc::array with_kernel(const mx_attend_desc *d, const mx_scope *s) {
  arrays in = {mx_a(d->q), mx_a(d->k), mx_a(d->v)};
  unsigned has = 0;
  auto add = [&](mx x, unsigned part, bool packed) {
    if (!x) return;
    has |= part;
    in.push_back(packed ? mc::contiguous(mx_a(x), false, s->stream) : mx_a(x));
  };
  add(d->past_k, HAS_PAST, false);
  add(d->past_v, HAS_PAST, false);
  add(d->past_len, HAS_LEN, true);
  add(d->mask, HAS_MASK, false);
  add(d->sink, HAS_SINK, true);
  auto shape = mx_a(d->q).shape();
  shape.back() = mx_a(d->v).shape(3);
  auto p = std::make_shared<CachedAttention>(s->stream, has, *d, s->pool);
  return mc::array(std::move(shape), mx_a(d->q).dtype(), std::move(p), std::move(in));
}

// ---- of MLX's operators -----------------------------------------------------------------------------------------------
// Shapes: heads apart as [B, Hkv, G, S, keys] where a rule needs a query's row, together as [B, Hkv, G * S, keys] else.
class composed {
 public:
  composed(const mx_attend_desc *d, const mx_scope *s)
      : d_(d), s_(s->stream), q_(mx_a(d->q)), groups_(q_.shape(1) / mx_a(d->k).shape(1)), rows_(q_.shape(2)) {}

  mc::array run() {
    if (d_->mask && d_->past_len && d_->past_k)
      throw std::runtime_error("a mask over a cache of given lengths has no form on this device");
    arrays products, values;
    if (d_->past_k) {
      products.push_back(hide_past(product(mx_a(d_->past_k))));
      values.push_back(clean_past(mx_a(d_->past_v)));
    }
    products.push_back(hide_new(product(mx_a(d_->k))));
    values.push_back(mx_a(d_->v));
    auto x = masked(mc::concatenate(products, 4, s_));
    return weighted(mc::flatten(x, 2, 3, s_), mc::concatenate(values, 2, s_));
  }

 private:
  mc::array f32(const mc::array &a) const { return mc::astype(a, mc::float32, s_); }
  mc::array lowest() const { return mc::array(-std::numeric_limits<float>::infinity()); }

  mc::array product(const mc::array &k) const {
    auto q = mc::flatten(mc::unflatten(q_, 1, {k.shape(1), groups_}, s_), 2, 3, s_);
    auto x = mc::multiply(f32(mc::matmul(q, mc::swapaxes(k, 2, 3, s_), s_)), mc::array(d_->scale), s_);
    if (d_->cap > 0) x = mc::multiply(mc::tanh(mc::divide(x, mc::array(d_->cap), s_), s_), mc::array(d_->cap), s_);
    return mc::unflatten(x, 2, {groups_, rows_}, s_);
  }

  // 0, 1, .. along the last axis of x, whose length no step may hold.
  mc::array places(const mc::array &x) const {
    auto any = mc::any(mc::isnan(x, s_), {0, 1, 2, 3}, true, s_);
    auto ones = mc::astype(mc::logical_or(any, mc::array(true), s_), mc::int32, s_);
    return mc::subtract(mc::cumsum(ones, 4, false, true, s_), mc::array(1), s_);
  }

  mc::array query_rows() const { return mc::reshape(mc::arange(rows_, mc::int32, s_), {rows_, 1}, s_); }

  mc::array hide_past(const mc::array &x) const {
    if (!d_->past_len && d_->window <= 0) return x;
    auto at = places(x);
    auto end = d_->past_len ? mc::reshape(mx_a(d_->past_len), {-1, 1, 1, 1, 1}, s_)
                            : mc::add(mc::max(at, std::vector<int>{4}, true, s_), mc::array(1), s_);
    auto seen = mc::less(at, end, s_);
    if (d_->window > 0) {
      auto nearest = mc::subtract(mc::add(end, query_rows(), s_), mc::array(d_->window), s_);
      seen = mc::logical_and(seen, mc::greater(at, nearest, s_), s_);
    }
    return mc::where(seen, x, lowest(), s_);
  }

  mc::array hide_new(const mc::array &x) const {
    if (!d_->causal && d_->window <= 0) return x;
    auto key = mc::arange(rows_, mc::int32, s_), row = query_rows();
    auto seen = d_->causal ? mc::less_equal(key, row, s_) : mc::less_equal(key, mc::array(rows_), s_);
    if (d_->window > 0) seen = mc::logical_and(seen, mc::greater(key, mc::subtract(row, mc::array(d_->window), s_), s_), s_);
    return mc::where(seen, x, lowest(), s_);
  }

  // What stands behind the valid rows may be anything, NaN too, and a weight of zero does not stop that.
  mc::array clean_past(const mc::array &v) const {
    if (!d_->past_len) return v;
    auto any = mc::any(mc::isnan(v, s_), {0, 1, 3}, true, s_);
    auto at = mc::cumsum(mc::astype(mc::logical_or(any, mc::array(true), s_), mc::int32, s_), 2, false, true, s_);
    return mc::where(mc::less_equal(at, mc::reshape(mx_a(d_->past_len), {-1, 1, 1, 1}, s_), s_), v, mc::array(0.0f, v.dtype()), s_);
  }

  mc::array masked(const mc::array &x) const {
    if (!d_->mask) return x;
    auto m = mx_a(d_->mask);
    while (m.ndim() < 4) m = mc::expand_dims(m, 0, s_);
    m = m.shape(1) == 1 ? mc::expand_dims(m, 2, s_) : mc::unflatten(m, 1, {m.shape(1) / groups_, groups_}, s_);
    if (m.dtype() == mc::bool_) return mc::where(m, x, lowest(), s_);
    return mc::add(x, f32(m), s_);
  }

  mc::array weighted(const mc::array &x, const mc::array &v) const {
    auto most = mc::max(x, -1, true, s_);
    auto sink = mc::array(0.0f);
    if (d_->sink) {
      sink = mc::reshape(mc::repeat(f32(mx_a(d_->sink)), rows_, 0, s_), {1, v.shape(1), groups_ * rows_, 1}, s_);
      most = mc::maximum(most, sink, s_);
    }
    most = mc::where(mc::equal(most, lowest(), s_), mc::array(0.0f), most, s_);
    auto e = mc::exp(mc::subtract(x, most, s_), s_);
    auto sum = mc::sum(e, -1, true, s_);
    if (d_->sink) sum = mc::add(sum, mc::exp(mc::subtract(sink, most, s_), s_), s_);
    auto y = mc::divide(f32(mc::matmul(mc::astype(e, v.dtype(), s_), v, s_)), sum, s_);
    y = mc::where(mc::equal(sum, mc::array(0.0f), s_), mc::array(0.0f), y, s_);
    y = mc::flatten(mc::unflatten(mc::astype(y, v.dtype(), s_), 2, {groups_, rows_}, s_), 1, 2, s_);
    return y;
  }

  const mx_attend_desc *d_;
  mc::Stream s_;
  mc::array q_;
  int groups_, rows_;
};

bool is_rank4(mx x) { return mx_ndim(x) == 4; }

void check(const mx_attend_desc *d) {
  mx_scope *s = mx_scope_of(d->q);
  bool four = is_rank4(d->q) && is_rank4(d->k) && is_rank4(d->v);
  int b = mx_dim(d->q, 0), kv = mx_dim(d->k, 1), rows = mx_dim(d->q, 2), size = mx_dim(d->q, 3);
  bool fit = four && kv > 0 && mx_dim(d->q, 1) % kv == 0 && mx_dim(d->k, 0) == b && mx_dim(d->v, 0) == b &&
             mx_dim(d->v, 1) == kv && mx_dim(d->k, 2) == rows && mx_dim(d->v, 2) == rows && mx_dim(d->k, 3) == size;
  if (!fit) mx_fail(s, ERR_INVALID, "queries, keys and values of these shapes do not fit together");
  dtype t = mx_dtype(d->q);
  if (t != DT_F32 && !dtype_in(t, DTS_F16_BF16)) mx_fail(s, ERR_UNSUPPORTED, "attention of type %s", dtype_name(t));
  if (d->mask) {
    int keys = rows + (d->past_k ? mx_dim(d->past_k, 2) : 0), columns = mx_dim(d->mask, -1), n = mx_ndim(d->mask);
    const int want[4] = {b, mx_dim(d->q, 1), rows, keys};
    bool ok = n >= 1 && n <= 4 && (columns == keys || columns == 1 || (d->past_len && columns > 1));
    for (int i = 0; ok && i + 1 < n; i++) ok = mx_dim(d->mask, i) == 1 || mx_dim(d->mask, i) == want[4 - n + i];
    if (!ok) mx_fail(s, ERR_INVALID, "the mask does not broadcast to [%d, %d, %d, %d]", want[0], want[1], want[2], want[3]);
  }
}

}  // namespace

extern "C" mx mx_attend(const mx_attend_desc *d) {
  mx_scope *s = mx_scope_of(d->q);
  check(d);
  return mx_call(s, [&] {
    if (s->device == MX_CPU && !d->stock) return with_kernel(d, s);
    return composed(d, s).run();
  });
}
