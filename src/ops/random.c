// Random numbers from MLX's generator: the right distribution, never another runtime's values. A seed gives the same
// numbers in every run; without one each run draws others.
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "ops/index.h"
#include "ops/numeric.h"

// ---- seeds ----------------------------------------------------------------------------------------------------------
// Spreads the bits of neighbouring numbers (the finaliser of splitmix64).
static uint64_t spread(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static uint64_t fresh_seed(void) {
  static atomic_uint_fast64_t drawn;
  struct timespec now = {0};
  timespec_get(&now, TIME_UTC);
  uint64_t time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  return spread(time + spread(atomic_fetch_add(&drawn, 1) + 1));
}

static uint64_t seed_of(const op *o) {
  if (!attr_has(o->n, "seed")) return fresh_seed();
  float seed = attr_f(o->n, "seed", 0);
  uint32_t bits = 0;
  memcpy(&bits, &seed, sizeof bits);
  return spread(bits);
}

// ---- RandomNormal, RandomUniform and the forms that take a tensor's shape ---------------------------------------------
static bool shape_of(op *o, mx_ints *shape) {
  if (in(o, 0)) return *shape = mx_shape(in(o, 0)), true;
  size_t n = 0;
  const int64_t *dims = attr_ints(o->n, "shape", &n);
  return dims_ints(o, dims, n, shape);
}

static void normal(op *o) {
  mx_ints shape = {0};
  if (!shape_of(o, &shape)) return;
  mx x = mx_random_normal(o->s, shape, seed_of(o));
  out(o, 0, num_plus(num_times(x, (double)attr_f(o->n, "scale", 1)), (double)attr_f(o->n, "mean", 0)));
}

static void uniform(op *o) {
  mx_ints shape = {0};
  double low = (double)attr_f(o->n, "low", 0), high = (double)attr_f(o->n, "high", 1);
  if (!shape_of(o, &shape)) return;
  out(o, 0, num_plus(num_times(mx_random_uniform(o->s, shape, seed_of(o)), high - low), low));
}

static void output_claim(claim *c) {
  REQUIRE(c, dtype_is_float(out_type(c, 0)), "the output has type %s", dtype_name(out_type(c, 0)));
}

static void shape_claim(claim *c) {
  output_claim(c);
  CLAIM_GOES_ON(c);
  size_t n = 0;
  const int64_t *dims = attr_ints(c->n, "shape", &n);
  REQUIRE(c, attr_has(c->n, "shape") && n <= MX_MAX_RANK, "there is no shape of rank %d or less", MX_MAX_RANK);
  for (size_t i = 0; i < n; i++) REQUIRE(c, dims[i] >= 0 && dims[i] <= INT_MAX, "a dimension of %lld", (long long)dims[i]);
}

// ---- Bernoulli --------------------------------------------------------------------------------------------------------
static void bernoulli(op *o) {
  mx p = mx_astype(in(o, 0), DT_F32);
  out(o, 0, mx_less(mx_random_uniform(o->s, mx_shape(p), seed_of(o)), p));
}

// ---- Multinomial ------------------------------------------------------------------------------------------------------
// A class is where the running sum of weights first exceeds a uniform share of the total. Weights: exp of the logits
// that are finite, else 0.
static void multinomial(op *o) {
  mx x = mx_astype(in(o, 0), DT_F32);
  int64_t samples = attr_i(o->n, "sample_size", 1);
  if (mx_ndim(x) != 2) op_fail(o, "the input has rank %d, not 2", mx_ndim(x));
  int64_t rows = mx_dim(x, 0), classes = mx_dim(x, 1);
  if (classes < 1) op_fail(o, "there are no classes");
  if (mx_ok(o->s) && rows > 0 && samples > (INT64_C(1) << 28) / rows / classes)
    op_fail(o, "%lld samples of %lld classes for each of %lld rows are too many", (long long)samples, (long long)classes, (long long)rows);
  if (!mx_ok(o->s)) return;
  if (rows == 0) {
    out(o, 0, mx_full(o->s, MXI(0, (int)samples), 0, DT_I32));
    return;
  }
  mx some = mx_isfinite(x), zero = mx_scalar(x, 0);
  mx top = mx_max(mx_where(some, x, mx_scalar(x, -3e38)), MXI(1), true);
  mx running = mx_cumsum(mx_where(some, num_exp(mx_sub(x, top)), zero), 1, false, true);
  mx total = mx_slice_axis(running, 1, (int)classes - 1, (int)classes);
  mx share = mx_mul(mx_random_uniform(o->s, MXI((int)rows, (int)samples), seed_of(o)), num_times(total, 1 - 1e-7));
  mx below = mx_less_equal(mx_expand_dims(running, MXI(1)), mx_expand_dims(share, MXI(2)));
  mx drawn = mx_sum(mx_astype(below, DT_I32), MXI(2), false);
  out(o, 0, mx_minimum(drawn, mx_scalar(drawn, (double)(classes - 1))));
}

static void multinomial_claim(claim *c) {
  int64_t samples = attr_i(c->n, "sample_size", 1);
  REQUIRE(c, samples >= 1 && samples <= 1 << 28, "sample_size is %lld", (long long)samples);
}

enum { RANDOM = OP_NO_TRACE | OP_RANDOM };  // a trace would draw once and for all
const op_row ops_random[] = {
    OP("", "RandomNormal", 1, ANY, shape_claim, normal, .traits = RANDOM, .limits = "a float output of rank 10 at most"),
    OP("", "RandomNormalLike", 1, ANY, output_claim, normal, .traits = RANDOM, .limits = "a float output"),
    OP("", "RandomUniform", 1, ANY, shape_claim, uniform, .traits = RANDOM,
       .limits = "a float output of rank 10 at most"),
    OP("", "RandomUniformLike", 1, ANY, output_claim, uniform, .traits = RANDOM, .limits = "a float output"),
    OP("", "Bernoulli", 15, ANY, NULL, bernoulli, .types = DTS_FLOAT64, .traits = RANDOM),
    OP("", "Multinomial", 7, ANY, multinomial_claim, multinomial, .types = DTS_FLOAT64, .traits = RANDOM,
       .limits = "sample_size of at most 2^28"),
    {0}};
