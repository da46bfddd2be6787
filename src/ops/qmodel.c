// Parts of quantised BERT models: QAttention and QEmbedLayerNormalization of com.microsoft.
#include <math.h>
#include <stdint.h>

#include "ops/index.h"
#include "ops/qint.h"

// ---- QAttention -----------------------------------------------------------------------------------------------------------
enum { A_X, A_W, A_BIAS, A_X_SCALE, A_W_SCALE, A_MASK, A_X_ZERO, A_W_ZERO, A_PAST };
static const char *const attention_attrs[] = {"do_rotary", "mask_filter_value", "num_heads", "past_present_share_buffer", "scale",
                                              "unidirectional", NULL};

static void attention_claim(claim *c) {
  require_known(c, attention_attrs);
  require_types(c, A_W, DTS_8);
  require_types(c, A_X_ZERO, DTS_8);
  require_types(c, A_W_ZERO, DTS_8);
  require_types(c, A_MASK, DTYPE_BIT(DT_I32));
  for (size_t i = A_BIAS; i <= A_PAST; i++)
    if (i < A_MASK || i == A_PAST) require_types(c, i, DTYPE_BIT(DT_F32) | DTYPE_BIT(DT_F16));
  CLAIM_GOES_ON(c);
  int64_t heads = attr_i(c->n, "num_heads", 0);
  REQUIRE(c, heads >= 1 && heads <= 65535, "%lld heads", (long long)heads);
  REQUIRE(c, !attr_i(c->n, "do_rotary", 0) && !attr_i(c->n, "past_present_share_buffer", 0), "do_rotary or past_present_share_buffer");
  REQUIRE(c, in_rank(c, A_X) < 0 || in_rank(c, A_X) == 3, "input 0 has rank %d", in_rank(c, A_X));
  REQUIRE(c, in_rank(c, A_W) < 0 || in_rank(c, A_W) == 2, "input 1 has rank %d", in_rank(c, A_W));
  REQUIRE(c, in_rank(c, A_MASK) <= 3, "mask_index has rank %d", in_rank(c, A_MASK));
  REQUIRE(c, has_in(c, A_PAST) || !has_out(c, 1), "present without past");
}

typedef struct qattention {
  int batch, rows, heads, size, past;
  mx q, k, v;  // [B, H, rows, size]
} qattention;

static mx projection(op *o) { return mx_contiguous(qint_centred(o, in(o, A_W), qint_of_matrix(o, A_W_ZERO, true), A_W_ZERO).x); }
static mx projection_bounds(op *o) { return qint_bounds(memo(o, 0, projection), 1); }

static mx part_of(const qattention *a, mx y, int i) {
  mx part = mx_slice_axis(y, 2, i * a->heads * a->size, (i + 1) * a->heads * a->size);
  return mx_transpose(mx_reshape(part, MXI(a->batch, a->rows, a->heads, a->size)), MXI(0, 2, 1, 3));
}

static bool project(op *o, qattention *a) {
  mx x = in(o, A_X), w = in(o, A_W), bias = in(o, A_BIAS);
  int width = mx_dim(w, 1);
  a->heads = (int)attr_i(o->n, "num_heads", 1);
  if (mx_ndim(x) != 3 || mx_ndim(w) != 2 || mx_dim(x, 2) != mx_dim(w, 0) || width % (3 * a->heads) || width < 1 ||
      mx_ndim(bias) != 1 || mx_dim(bias, 0) != width)
    return op_fail(o, "weights [%d, %d] do not fit an input of width %d and %d heads", mx_dim(w, 0), width, mx_dim(x, -1), a->heads), false;
  a->batch = mx_dim(x, 0);
  a->rows = mx_dim(x, 1);
  a->size = width / (3 * a->heads);
  qint weight = qint_weight(o, projection, projection_bounds, 0, A_W, A_W_ZERO);
  mx sums = mx_astype(qint_matmul(o, qint_input(o, A_X, A_X_ZERO), weight), DT_F32);
  mx scale = mx_mul(qint_number(o, A_X_SCALE, 1), qint_of_matrix(o, A_W_SCALE, true));
  if (mx_ok(o->s) && mx_ndim(scale) && mx_dim(scale, -1) != width) op_fail(o, "the scale of the weights does not fit");
  mx y = mx_add(mx_mul(sums, scale), mx_astype(bias, DT_F32));
  a->q = part_of(a, y, 0);
  a->k = part_of(a, y, 1);
  a->v = part_of(a, y, 2);
  return mx_ok(o->s);
}

// Joins the past to the keys and values; the present is both.
static bool join_past(op *o, qattention *a) {
  mx past = in(o, A_PAST);
  if (!past) return true;
  if (mx_ndim(past) != 5 || mx_dim(past, 0) != 2 || mx_dim(past, 1) != a->batch || mx_dim(past, 2) != a->heads || mx_dim(past, 4) != a->size)
    return op_fail(o, "past must have shape [2, %d, %d, rows, %d]", a->batch, a->heads, a->size), false;
  a->past = mx_dim(past, 3);
  past = mx_astype(past, DT_F32);
  mx k[2] = {mx_squeeze(mx_slice_axis(past, 0, 0, 1), MXI(0)), a->k}, v[2] = {mx_squeeze(mx_slice_axis(past, 0, 1, 2), MXI(0)), a->v};
  a->k = mx_concatenate(o->s, k, 2, 2);
  a->v = mx_concatenate(o->s, v, 2, 2);
  mx both[2] = {a->k, a->v};
  out(o, 1, mx_stack(o->s, both, 2, 0));
  return mx_ok(o->s);
}

// Which keys count, bool, broadcast to [B, 1, rows, keys]: by an end, an end and a start, or one number for each key.
static mx counted(op *o, const qattention *a, mx mask, int keys) {
  int rank = mx_ndim(mask), n = mx_dim(mask, 0), b = a->batch;
  if (rank == 1 && (n == b || n == 2 * b)) {
    mx key = mx_reshape(mx_arange(o->s, 0, keys, 1, DT_I32), MXI(1, keys));
    mx seen = mx_less(key, mx_reshape(mx_slice_axis(mask, 0, 0, b), MXI(b, 1)));
    if (n == 2 * b) seen = mx_logical_and(seen, mx_greater_equal(key, mx_reshape(mx_slice_axis(mask, 0, b, n), MXI(b, 1))));
    return mx_reshape(seen, MXI(b, 1, 1, keys));
  }
  mx positive = mx_greater(mask, mx_scalar(mask, 0));
  if (rank == 2 && n == b && mx_dim(mask, 1) == keys) return mx_reshape(positive, MXI(b, 1, 1, keys));
  if (rank == 3 && n == b && mx_dim(mask, 1) == a->rows && mx_dim(mask, 2) == keys) return mx_expand_dims(positive, MXI(1));
  if (rank == 2 && (n == b || n == 1) && mx_dim(mask, 1) == 1) return NULL;  // stands for no mask
  return op_fail(o, "a mask of rank %d does not fit %d entries of %d keys", rank, b, keys), NULL;
}

// What is added to the products; NULL if nothing. A masked key gets the filter value, so that it still counts where all
// keys of a query are masked; a key that is yet to come does not count at all.
static mx added(op *o, const qattention *a) {
  int keys = a->past + a->rows;
  mx seen = in(o, A_MASK) ? counted(o, a, in(o, A_MASK), keys) : NULL, bias = NULL;
  mx zero = mx_full(o->s, (mx_ints){0}, 0, DT_F32);
  if (seen) bias = mx_where(seen, zero, mx_scalar(zero, (double)attr_f(o->n, "mask_filter_value", -10000)));
  if (!attr_i(o->n, "unidirectional", 0)) return bias;
  mx query = mx_reshape(mx_arange(o->s, a->past, keys, 1, DT_I32), MXI(1, 1, a->rows, 1));
  mx past = mx_less_equal(mx_reshape(mx_arange(o->s, 0, keys, 1, DT_I32), MXI(1, 1, 1, keys)), query);
  return mx_where(past, bias ? bias : zero, mx_scalar(zero, -(double)INFINITY));
}

static void qattention_run(op *o) {
  qattention a = {0};
  if (!project(o, &a) || !join_past(o, &a)) return;
  mx_ints shape = MXI(a.batch, a.rows, a.heads * a.size);
  if (!a.batch || !a.rows) {
    out(o, 0, mx_full(o->s, shape, 0, DT_F32));
    return;
  }
  float scale = attr_f(o->n, "scale", 0);
  mx mask = added(o, &a);
  if (!mx_ok(o->s)) return;
  mx y = mx_attention(a.q, a.k, a.v, scale == 0 ? 1.0f / sqrtf((float)a.size) : scale, mask);
  out(o, 0, mx_reshape(mx_transpose(y, MXI(0, 2, 1, 3)), shape));
}

// ---- QEmbedLayerNormalization -----------------------------------------------------------------------------------------------
enum { E_IDS, E_SEGMENTS, E_WORD, E_POSITION, E_SEGMENT, E_GAMMA, E_BETA, E_MASK, E_WORD_SCALE, E_WORD_ZERO = E_WORD_SCALE + 5 };

static void embed_claim(claim *c) {
  static const char *const attrs[] = {"epsilon", NULL};
  require_known(c, attrs);
  for (size_t i = E_IDS; i < E_WORD_ZERO + 5; i++) {
    bool ints = i == E_IDS || i == E_SEGMENTS || i == E_MASK, scale = i >= E_WORD_SCALE && i < E_WORD_ZERO;
    require_types(c, i, ints ? DTYPE_BIT(DT_I32) : scale ? DTYPE_BIT(DT_F32) : DTS_8);
  }
  CLAIM_GOES_ON(c);
  REQUIRE(c, has_in(c, E_SEGMENTS) == has_in(c, E_SEGMENT), "segment_ids and segment_embedding must come together");
  for (size_t i = E_IDS; i <= E_SEGMENT; i++)
    REQUIRE(c, in_rank(c, i) < 0 || in_rank(c, i) == 2, "input %zu has rank %d", i, in_rank(c, i));
}

// Quantised rows of input i (E_WORD to E_BETA) as floats.
static mx real(op *o, size_t i, mx x) {
  size_t at = i - E_WORD;
  mx q = mx_sub(mx_astype(x, DT_F32), qint_number(o, E_WORD_ZERO + at, 0));
  return mx_mul(q, qint_number(o, E_WORD_SCALE + at, 1));
}

// Rows of input `table` by the numbers in input `ids`, all of which are checked first.
static mx looked_up(op *o, size_t table, size_t ids) {
  mx at = index_below(o, in(o, ids), mx_dim(in(o, table), 0), "id");
  return real(o, table, mx_take(in(o, table), at, 0));
}

static void embed(op *o) {
  mx ids = in(o, E_IDS), position = in(o, E_POSITION);
  int width = mx_dim(in(o, E_WORD), -1), rows = mx_dim(ids, 1);
  if (mx_ndim(ids) != 2 || mx_ndim(position) != 2 || mx_dim(position, 0) < rows || mx_dim(position, 1) != width ||
      mx_size(in(o, E_GAMMA)) != (size_t)width || mx_size(in(o, E_BETA)) != (size_t)width) {
    op_fail(o, "%d position embeddings of width %d for %d words of width %d", mx_dim(position, 0), mx_dim(position, -1), rows, width);
    return;
  }
  mx x = mx_add(looked_up(o, E_WORD, E_IDS), real(o, E_POSITION, mx_slice_axis(position, 0, 0, rows)));
  if (in(o, E_SEGMENTS)) x = mx_add(x, looked_up(o, E_SEGMENT, E_SEGMENTS));
  mx gamma = mx_reshape(real(o, E_GAMMA, in(o, E_GAMMA)), MXI(width)), beta = mx_reshape(real(o, E_BETA, in(o, E_BETA)), MXI(width));
  if (mx_ok(o->s)) out(o, 0, mx_size(x) ? mx_layer_norm(x, gamma, beta, attr_f(o->n, "epsilon", 1e-12f)) : x);
  mx mask = in(o, E_MASK);
  mx count = mask ? mx_sum(mx_astype(mx_equal(mask, mx_scalar(mask, 1)), DT_I32), MXI(1), false) : mx_full(o->s, MXI(mx_dim(ids, 0)), 0, DT_I32);
  out(o, 1, count);
}

const op_row ops_qmodel[] = {
    OP("com.microsoft", "QAttention", 1, ANY, attention_claim, qattention_run, .types = DTS_8, .traits = OP_KV,
       .limits = "no do_rotary; no shared buffer of the past; a mask of rank 3 at most; present needs past"),
    OP("com.microsoft", "QEmbedLayerNormalization", 1, ANY, embed_claim, embed, .types = DTS_8, .typed_in = IN(E_WORD),
       .index_in = IN(E_IDS) | IN(E_SEGMENTS), .limits = "ids of rank 2"),
    {0}};
