// Weights of 4 and 8 bits in blocks: the product MatMulNBits and the lookup GatherBlockQuantized.
#include <limits.h>

#include "ops/nbits.h"

// ---- host numbers -----------------------------------------------------------------------------------------------------
static float from_bits(uint32_t bits) {
  union {
    uint32_t u;
    float f;
  } x = {bits};
  return x.f;
}

static float from_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 1023u;
  if (exponent == 31) return from_bits(sign | 0x7f800000u | fraction << 13);
  if (exponent) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
  float subnormal = (float)fraction / 16777216.0f;  // 2^-24 steps
  return sign ? -subnormal : subnormal;
}

static float number_at(const tensor *t, size_t i) {
  if (t->type == DT_F32) return ((const float *)t->data)[i];
  uint16_t h = ((const uint16_t *)t->data)[i];
  return t->type == DT_F16 ? from_f16(h) : from_bits((uint32_t)h << 16);
}

const float *nbits_floats(const tensor *t, float **owned, err *e) {
  size_t n = 0, bytes = 0;
  if (!dims_count(t->dims, t->rank, &n) || !size_mul(n, sizeof(float), &bytes)) {
    FAIL(e, ERR_INVALID, "a constant is too large");
    return NULL;
  }
  if (t->type == DT_F32) return t->data;
  *owned = mem_alloc(bytes ? bytes : 1);
  if (!*owned) FAIL(e, ERR_NO_MEMORY, "out of memory for %zu scales", n);
  for (size_t i = 0; *owned && i < n; i++) (*owned)[i] = number_at(t, i);
  return *owned;
}

static bool block_size_fits(int64_t block) { return block >= 16 && block <= (1 << 30) && (block & (block - 1)) == 0; }

// ---- MatMulNBits --------------------------------------------------------------------------------------------------------
enum { NB_X, NB_Q, NB_SCALES, NB_ZEROS, NB_GROUPS, NB_BIAS };
static const char *const nbits_attrs[] = {"K", "N", "bits", "block_size", "accuracy_level", "weight_prepacked", NULL};

static int64_t blocks_of(const node *n) {
  int64_t block = attr_i(n, "block_size", 0);
  return (attr_i(n, "K", 0) + block - 1) / block;
}

static void require_count(claim *c, size_t i, const char *what, int64_t want) {
  if (!has_in(c, i) || c->declined) return;
  const tensor *t = in_const(c, i);
  size_t n = 0;
  if (!t) claim_decline(c, "%s (input %zu) must be constant", what, i);
  else if (!dims_count(t->dims, t->rank, &n) || n != (size_t)want)
    claim_decline(c, "%s (input %zu) must have %lld elements", what, i, (long long)want);
}

static void nbits_claim_inputs(claim *c) {
  int64_t n = attr_i(c->n, "N", 0), bits = attr_i(c->n, "bits", 4), blocks = blocks_of(c->n);
  require_count(c, NB_Q, "the quantised weight", n * blocks * (attr_i(c->n, "block_size", 0) * bits / 8));
  require_count(c, NB_SCALES, "the scales", n * blocks);
  require_count(c, NB_ZEROS, "the zero points",
                in_type(c, NB_ZEROS) == DT_U8 ? n * ((blocks * bits + 7) / 8) : n * blocks);
  require_count(c, NB_BIAS, "the bias", n);
}

// g_idx names the block of each weight along K.
static void nbits_claim_groups(claim *c, int64_t k) {
  if (!has_in(c, NB_GROUPS)) return;
  const tensor *t = in_const(c, NB_GROUPS);
  size_t n = 0;
  REQUIRE(c, in_type(c, NB_GROUPS) == DT_I32 && t, "g_idx (input 4) must be constant int32");
  REQUIRE(c, dims_count(t->dims, t->rank, &n) && n >= (size_t)k, "g_idx (input 4) must have %lld elements", (long long)k);
  for (int64_t i = 0; i < k; i++) {
    int32_t group = ((const int32_t *)t->data)[i];
    REQUIRE(c, group >= 0 && group < blocks_of(c->n), "g_idx (input 4) names block %d", (int)group);
  }
}

static void nbits_claim(claim *c) {
  require_known(c, nbits_attrs);
  require_types(c, NB_Q, DTYPE_BIT(DT_U8));
  require_types(c, NB_SCALES, DTS_FLOAT);
  require_types(c, NB_ZEROS, DTS_FLOAT | DTYPE_BIT(DT_U8));
  require_types(c, NB_BIAS, DTS_FLOAT);
  CLAIM_GOES_ON(c);
  int64_t bits = attr_i(c->n, "bits", 4), k = attr_i(c->n, "K", 0), n = attr_i(c->n, "N", 0);
  REQUIRE(c, bits == 2 || bits == 4 || bits == 8, "weights of %lld bits", (long long)bits);
  REQUIRE(c, k > 0 && n > 0 && k <= INT_MAX / 2 && n <= INT_MAX / 2, "K or N is out of range");
  REQUIRE(c, block_size_fits(attr_i(c->n, "block_size", 0)), "block_size must be a power of two of 16 or more");
  nbits_claim_groups(c, k);
  CLAIM_GOES_ON(c);
  REQUIRE(c, attr_i(c->n, "weight_prepacked", 0) == 0, "weights prepacked for another provider");
  REQUIRE(c, in_dim(c, NB_X, -1) < 0 || in_dim(c, NB_X, -1) == k, "the last axis of A must be K");
  nbits_claim_inputs(c);
}

static void *nbits_prepare(const node *n, mx_device d, err *e) {
  if (NB_GROUPS < n->n_in && n->in[NB_GROUPS]) return NULL;
  const tensor *zeros = NB_ZEROS < n->n_in && n->in[NB_ZEROS] ? n->in[NB_ZEROS]->constant : NULL;
  const tensor *bias = NB_BIAS < n->n_in && n->in[NB_BIAS] ? n->in[NB_BIAS]->constant : NULL;
  bool packed = zeros && zeros->type == DT_U8;
  float *owned[3] = {NULL, NULL, NULL};
  mx_nbits_desc w = {
      .k = (int)attr_i(n, "K", 0),
      .n = (int)attr_i(n, "N", 0),
      .bits = (int)attr_i(n, "bits", 4),
      .block_size = (int)attr_i(n, "block_size", 0),
      .accuracy_level = (int)attr_i(n, "accuracy_level", 0),
      .q = n->in[NB_Q]->constant->data,
      .scales = nbits_floats(n->in[NB_SCALES]->constant, &owned[0], e),
      .zero_points = packed ? zeros->data : NULL,
      .float_zero_points = zeros && !packed ? nbits_floats(zeros, &owned[1], e) : NULL,
      .bias = bias ? nbits_floats(bias, &owned[2], e) : NULL,
  };
  void *prepared = err_ok(e) ? mx_nbits_pack(d, &w, e) : NULL;
  for (int i = 0; i < 3; i++) mem_free(owned[i]);
  return prepared;
}

static void nbits_unprepare(void *prepared) { mx_nbits_free(prepared); }

// Fields of `bits` in bytes, the lowest first, along the last axis.
static mx fields(mx x, int bits) {
  mx parts[4];
  int n = 8 / bits;
  if (n == 1) return x;
  for (int i = 0; i < n; i++) parts[i] = mx_bitwise_and(mx_right_shift(x, mx_scalar(x, i * bits)), mx_scalar(x, (1 << bits) - 1));
  mx_ints shape = mx_shape(x);
  shape.v[shape.n - 1] *= n;
  return mx_reshape(mx_stack(mx_scope_of(x), parts, (size_t)n, shape.n), shape);
}

// The weight [K, N] when g_idx spreads its blocks over K.
static mx grouped_weight(op *o) {
  int k = (int)attr_i(o->n, "K", 0), n = (int)attr_i(o->n, "N", 0), bits = (int)attr_i(o->n, "bits", 4);
  int blocks = (int)blocks_of(o->n);
  mx groups = mx_slice_axis(mx_reshape(in(o, NB_GROUPS), MXI(-1)), 0, 0, k), zeros = in(o, NB_ZEROS);
  mx q = mx_astype(mx_slice_axis(fields(mx_reshape(in(o, NB_Q), MXI(n, -1)), bits), 1, 0, k), DT_F32);
  mx scales = mx_take(mx_astype(mx_reshape(in(o, NB_SCALES), MXI(n, blocks)), DT_F32), groups, 1);
  if (!zeros) return mx_transpose(mx_mul(mx_sub(q, mx_scalar(q, 1 << (bits - 1))), scales), MXI(1, 0));
  if (mx_dtype(zeros) == DT_U8) zeros = mx_slice_axis(fields(mx_reshape(zeros, MXI(n, -1)), bits), 1, 0, blocks);
  zeros = mx_take(mx_astype(mx_reshape(zeros, MXI(n, blocks)), DT_F32), groups, 1);
  return mx_contiguous(mx_transpose(mx_mul(mx_sub(q, zeros), scales), MXI(1, 0)));
}

static void nbits_grouped(op *o, mx x) {
  mx bias = in(o, NB_BIAS), w = memo(o, 0, grouped_weight);
  if (mx_ndim(x) < 1 || mx_dim(x, -1) != mx_dim(w, 0)) op_fail(o, "the last axis of A must be %d", mx_dim(w, 0));
  else out(o, 0, mx_linear(mx_astype(x, DT_F32), w, bias ? mx_reshape(mx_astype(bias, DT_F32), MXI(-1)) : NULL));
}

static void nbits(op *o) {
  mx x = in(o, NB_X);
  if (in(o, NB_GROUPS)) nbits_grouped(o, x);
  else if (!o->prepared) op_fail(o, "the quantised weights are not packed");
  else if (mx_size(x)) out(o, 0, mx_nbits_matmul(x, o->prepared));
  else {
    mx_ints shape = mx_shape(x);
    if (shape.n) shape.v[shape.n - 1] = (int)attr_i(o->n, "N", 0);
    out(o, 0, mx_full(o->s, shape, 0, mx_dtype(x)));
  }
}

// ---- GatherBlockQuantized -------------------------------------------------------------------------------------------------
enum { GB_DATA, GB_INDICES, GB_SCALES, GB_ZEROS };
enum { DTS_4BIT = DTYPE_BIT(DT_U4) | DTYPE_BIT(DT_I4) };
static const char *const gbq_attrs[] = {"bits", "block_size", "gather_axis", "quantize_axis", NULL};

typedef struct gbq_table {  // packed rows of 4-bit tensor types, as uint8
  mx_held *data, *zeros;
} gbq_table;

static int64_t axis_in(int64_t axis, int rank) { return axis < 0 ? axis + rank : axis; }

static void gbq_claim_4bit(claim *c, int64_t gather) {
  REQUIRE(c, in_const(c, GB_DATA) && (!has_in(c, GB_ZEROS) || in_const(c, GB_ZEROS)),
          "4-bit data and zero points must be constant");
  REQUIRE(c, in_dim(c, GB_DATA, -1) % 2 == 0, "4-bit data with an odd last axis");
  REQUIRE(c, !has_in(c, GB_ZEROS) || in_dim(c, GB_ZEROS, -1) % 2 == 0, "4-bit zero points with an odd last axis");
  REQUIRE(c, gather != in_rank(c, GB_DATA) - 1, "4-bit data gathered along its last axis");
}

static void gbq_claim(claim *c) {
  require_known(c, gbq_attrs);
  require_types(c, GB_INDICES, DTYPE_BIT(DT_I32) | DTYPE_BIT(DT_I64));
  require_types(c, GB_SCALES, DTS_FLOAT);
  CLAIM_GOES_ON(c);
  REQUIRE(c, !has_in(c, GB_ZEROS) || in_type(c, GB_ZEROS) == in_type(c, GB_DATA), "zero points of another type");
  int64_t bits = attr_i(c->n, "bits", 4);
  bool bytes = in_type(c, GB_DATA) == DT_U8;
  REQUIRE(c, bits == 4 || (bits == 8 && bytes), "data of %lld bits", (long long)bits);
  REQUIRE(c, block_size_fits(attr_i(c->n, "block_size", 128)), "block_size must be a power of two of 16 or more");
  int rank = in_rank(c, GB_DATA), picks = in_rank(c, GB_INDICES);
  REQUIRE(c, rank >= 1, "the rank of data is not known");
  REQUIRE(c, picks < 0 || rank + picks <= MX_MAX_RANK, "rank %d", rank + picks - 1);
  int64_t g = axis_in(attr_i(c->n, "gather_axis", 0), rank), k = axis_in(attr_i(c->n, "quantize_axis", 1), rank);
  REQUIRE(c, g >= 0 && g < rank && k >= 0 && k < rank && g != k, "gather_axis and quantize_axis must be two axes of data");
  REQUIRE(c, !bytes || g == 0, "uint8 data gathered along axis %lld", (long long)g);
  if (!bytes) gbq_claim_4bit(c, g);
}

static mx_held *held_bytes(mx_scope *s, const tensor *t) {
  mx_ints shape = {.n = t->rank};
  for (int i = 0; i < t->rank; i++) shape.v[i] = (int)t->dims[i];
  shape.v[t->rank - 1] /= 2;
  return mx_hold(mx_from(s, t->data, DT_U8, shape));
}

static void gbq_unprepare(void *prepared) {
  gbq_table *t = prepared;
  if (!t) return;
  mx_held_free(t->data);
  mx_held_free(t->zeros);
  mem_free(t);
}

static void *gbq_prepare(const node *n, mx_device d, err *e) {
  const tensor *data = n->in[GB_DATA]->constant;
  if (!dtype_in(n->in[GB_DATA]->type, DTS_4BIT) || !data) return NULL;
  const tensor *zeros = GB_ZEROS < n->n_in && n->in[GB_ZEROS] ? n->in[GB_ZEROS]->constant : NULL;
  gbq_table *t = mem_alloc(sizeof *t);
  mx_scope *s = mx_scope_new(d);
  if (t && s) t->data = held_bytes(s, data);
  if (t && s && zeros) t->zeros = held_bytes(s, zeros);
  mx_scope_free(s);
  if (t && t->data && (t->zeros || !zeros)) return t;
  gbq_unprepare(t);
  FAIL(e, ERR_NO_MEMORY, "out of memory for a 4-bit table");
  return NULL;
}

// Two values a byte, the lower half first, along the last axis.
static mx unpack4(mx x, bool is_signed) {
  mx parts[2] = {mx_bitwise_and(x, mx_scalar(x, 15)), mx_right_shift(x, mx_scalar(x, 4))};
  mx_ints shape = mx_shape(x);
  shape.v[shape.n - 1] *= 2;
  mx y = mx_reshape(mx_stack(mx_scope_of(x), parts, 2, shape.n), shape);
  if (!is_signed) return y;
  y = mx_astype(y, DT_I8);
  return mx_sub(mx_bitwise_xor(y, mx_scalar(y, 8)), mx_scalar(y, 8));
}

typedef struct gbq_rows {  // what the indices picked; axis: the quantised axis there
  mx q, scales, zeros;     // zeros NULL if there are none
  int axis, block;
  double zero;             // when zeros is NULL
} gbq_rows;

// Scales and zero points repeated over the elements of their block, by a split of the axis where blocks are whole.
static mx dequantize(op *o, gbq_rows r) {
  int size = mx_dim(r.q, r.axis), n = mx_dim(r.scales, r.axis);
  mx_ints whole = mx_shape(r.q), split = whole;
  dtype t = mx_dtype(r.scales);
  mx q = mx_astype(r.q, t), zeros = r.zeros ? mx_astype(r.zeros, t) : mx_scalar(r.scales, r.zero), scales = r.scales;
  if ((int64_t)n * r.block != size || split.n == MX_MAX_RANK) {
    if ((int64_t)n * r.block < size) return op_fail(o, "%d scales for an axis of %d elements", n, size);
    scales = mx_slice_axis(mx_repeat(scales, r.block, r.axis), r.axis, 0, size);
    if (r.zeros) zeros = mx_slice_axis(mx_repeat(zeros, r.block, r.axis), r.axis, 0, size);
    return mx_mul(mx_sub(q, zeros), scales);
  }
  split.n++;
  for (int i = split.n - 1; i > r.axis + 1; i--) split.v[i] = split.v[i - 1];
  split.v[r.axis] = n;
  split.v[r.axis + 1] = r.block;
  q = mx_reshape(q, split);
  scales = mx_expand_dims(scales, MXI(r.axis + 1));
  if (r.zeros) zeros = mx_expand_dims(zeros, MXI(r.axis + 1));
  return mx_reshape(mx_mul(mx_sub(q, zeros), scales), whole);
}

static gbq_rows gbq_pick(op *o, mx data, mx zeros, mx indices, int gather, int axis) {
  bool is_signed = o->n->in[GB_DATA]->type == DT_I4, bytes = o->n->in[GB_DATA]->type == DT_U8;
  int64_t bits = attr_i(o->n, "bits", 4);
  gbq_rows r = {
      .q = mx_take(data, indices, gather),
      .scales = mx_take(in(o, GB_SCALES), indices, gather),
      .zeros = zeros ? mx_take(zeros, indices, gather) : NULL,
      .axis = axis < gather ? axis : axis + mx_ndim(indices) - 1,
      .block = (int)attr_i(o->n, "block_size", 128),
      .zero = !bytes ? 0 : bits == 4 ? 8 : 128,
  };
  if (bits == 8) return r;
  r.q = unpack4(r.q, is_signed);
  if (r.zeros) r.zeros = mx_slice_axis(unpack4(r.zeros, is_signed), -1, 0, mx_dim(r.scales, -1));
  return r;
}

// The rows that the indices name are gathered while packed; an index out of range gives zeros, as the operator says.
static void gbq(op *o) {
  const gbq_table *t = o->prepared;
  mx data = t ? mx_use(o->s, t->data) : in(o, GB_DATA);
  mx zeros = t ? (t->zeros ? mx_use(o->s, t->zeros) : NULL) : in(o, GB_ZEROS);
  int rank = mx_ndim(data);
  int gather = norm_axis(o, attr_i(o->n, "gather_axis", 0), rank);
  int axis = norm_axis(o, attr_i(o->n, "quantize_axis", 1), rank);
  mx i = in(o, GB_INDICES);
  int count = mx_dim(data, gather);
  if (!count && mx_size(i)) {
    op_fail(o, "indices into a table without rows");
    return;
  }
  i = mx_where(mx_less(i, mx_scalar(i, 0)), mx_add(i, mx_scalar(i, count)), i);
  mx inside = mx_logical_and(mx_greater_equal(i, mx_scalar(i, 0)), mx_less(i, mx_scalar(i, count)));
  mx y = dequantize(o, gbq_pick(o, data, zeros, mx_where(inside, i, mx_scalar(i, 0)), gather, axis));
  int after = rank - 1 - gather;
  if (after) {
    mx_ints axes = {.n = after};
    for (int a = 0; a < after; a++) axes.v[a] = mx_ndim(i) + a;
    inside = mx_expand_dims(inside, axes);
  }
  out(o, 0, mx_where(inside, y, mx_scalar(y, 0)));
}

const op_row ops_nbits[] = {
    OP("com.microsoft", "MatMulNBits", 1, ANY, nbits_claim, nbits, .types = DTS_FLOAT, .prepare = nbits_prepare,
       .unprepare = nbits_unprepare, .prepared_in = IN(NB_Q) | IN(NB_SCALES) | IN(NB_ZEROS) | IN(NB_BIAS),
       .limits = "constant weights of 2, 4 or 8 bits; blocks of a power of two of 16 or more"),
    OP("com.microsoft", "GatherBlockQuantized", 1, ANY, gbq_claim, gbq, .types = DTYPE_BIT(DT_U8) | DTS_4BIT,
       .traits = OP_ANY_TYPE, .prepare = gbq_prepare, .unprepare = gbq_unprepare,
       .prepared_in = IN(GB_DATA) | IN(GB_ZEROS),
       .limits = "blocks of a power of two of 16 or more; 4-bit data constant, not gathered along its last axis; uint8 along the first"),
    {0}};
