// PackedMultiHeadAttention and PackedAttention of com.microsoft: sequences of different lengths stand one behind the other,
// without padding, and each attends to itself only. Where each begins is read on the host.
#include "ops/attn.h"

enum { P_Q, P_K, P_V, P_BIAS, P_OFFSETS, P_STARTS, P_ADDED };
enum { W_X, W_W, W_BIAS, W_OFFSETS, W_STARTS, W_ADDED };

typedef struct packed {
  mx q, k, v;   // [1, H, tokens, ..]
  int heads, batch, tokens;
  mx added;     // attention_bias or NULL
} packed;

// The starts of the sequences and their common end, batch + 1 numbers; to be freed with mem_free. NULL on failure.
static int64_t *starts_of(op *o, size_t i, packed *p) {
  size_t n = mx_size(in(o, i)), got = 0;
  if (mx_ndim(in(o, i)) != 1 || n < 1 || n > 1 << 20) {
    op_fail(o, "cumulative_sequence_length must hold batch + 1 numbers");
    return NULL;
  }
  int64_t *v = mem_alloc(n * sizeof *v);
  if (!v) mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
  bool ok = v && host_ints(o, i, v, n, &got) && got == n;
  bool rises = ok && v[0] == 0 && v[n - 1] == p->tokens;
  for (size_t k = 1; k < n && rises; k++) rises = v[k] >= v[k - 1];
  if (ok && !rises) op_fail(o, "cumulative_sequence_length does not rise from 0 to the %d tokens", p->tokens);
  p->batch = (int)n - 1;
  if (rises) return v;
  mem_free(v);
  return NULL;
}

// The bias of one sequence: [1, H or 1, rows, rows] of the [B or 1, H or 1, longest, longest] that was given.
static mx added_of(op *o, const packed *p, int entry, int rows) {
  mx x = p->added;
  if (!x) return NULL;
  bool fits = mx_ndim(x) == 4 && (mx_dim(x, 0) == 1 || mx_dim(x, 0) == p->batch) && (mx_dim(x, 1) == 1 || mx_dim(x, 1) == p->heads) &&
              mx_dim(x, 2) >= rows && mx_dim(x, 3) >= rows;
  if (!fits) return op_fail(o, "attention_bias must have shape [batch or 1, heads or 1, at least %d, at least %d]", rows, rows);
  if (mx_dim(x, 0) > 1) x = mx_slice_axis(x, 0, entry, entry + 1);
  return mx_slice_axis(mx_slice_axis(x, 2, 0, rows), 3, 0, rows);
}

static void packed_run(op *o, packed *p, size_t starts) {
  int64_t *at = starts_of(o, starts, p);
  size_t n = at ? (size_t)p->batch : 0, parts = 0;
  mx *ys = mem_alloc((n + 1) * sizeof *ys);
  if (!ys) mx_fail(o->s, ERR_NO_MEMORY, "out of memory");
  for (size_t b = 0; ys && b < n && mx_ok(o->s); b++) {
    int from = (int)at[b], to = (int)at[b + 1];
    if (from == to) continue;
    attn a = {.q = mx_slice_axis(p->q, 2, from, to), .k = mx_slice_axis(p->k, 2, from, to), .v = mx_slice_axis(p->v, 2, from, to)};
    a.scale = attn_scale(o, mx_dim(p->q, 3));
    a.bias = added_of(o, p, (int)b, to - from);
    if (mx_ok(o->s)) ys[parts++] = attn_join(attn_apply(&a));
  }
  if (mx_ok(o->s)) {
    int width = p->heads * mx_dim(p->v, 3);
    out(o, 0, parts ? mx_reshape(mx_concatenate(o->s, ys, parts, 1), MXI(p->tokens, width))
                    : mx_full(o->s, MXI(0, width), 0, mx_dtype(p->q)));
  }
  mem_free(ys);
  mem_free(at);
}

// x [tokens, width] as [1, H, tokens, D].
static mx heads_apart(mx x, int heads) { return attn_split(mx_expand_dims(x, MXI(0)), heads); }

static mx third_of(mx x, int i) {
  mx part = mx_squeeze(mx_slice_axis(x, 2, i, i + 1), MXI(2));  // [tokens, H, D]
  return mx_expand_dims(mx_transpose(part, MXI(1, 0, 2)), MXI(0));
}

static bool bias_added(op *o, packed *p) {
  mx bias = in(o, P_BIAS);
  int size = mx_dim(p->q, 3), value_size = mx_dim(p->v, 3), h = p->heads, w = h * size;
  if (!bias) return true;
  if (mx_ndim(bias) != 1 || mx_dim(bias, 0) != 2 * w + h * value_size) {
    op_fail(o, "the bias must hold %d numbers", 2 * w + h * value_size);
    return false;
  }
  p->q = mx_add(p->q, mx_reshape(mx_slice_axis(bias, 0, 0, w), MXI(1, h, 1, size)));
  p->k = mx_add(p->k, mx_reshape(mx_slice_axis(bias, 0, w, 2 * w), MXI(1, h, 1, size)));
  p->v = mx_add(p->v, mx_reshape(mx_slice_axis(bias, 0, 2 * w, 2 * w + h * value_size), MXI(1, h, 1, value_size)));
  return true;
}

static void packed_mha(op *o) {
  mx q = in(o, P_Q), k = in(o, P_K), v = in(o, P_V);
  packed p = {.heads = (int)attr_i(o->n, "num_heads", 1), .tokens = mx_dim(q, 0), .added = in(o, P_ADDED)};
  int h = p.heads, width = mx_dim(q, 1);
  bool whole = !k && !v && mx_ndim(q) == 4 && mx_dim(q, 1) == h && mx_dim(q, 2) == 3 && mx_dim(q, 3);
  bool apart = k && v && mx_ndim(q) == 2 && mx_ndim(k) == 2 && mx_ndim(v) == 2 && width && width % h == 0 && mx_dim(k, 1) == width &&
               mx_dim(v, 1) % h == 0 && mx_dim(k, 0) == p.tokens && mx_dim(v, 0) == p.tokens;
  if (!whole && !apart) {
    op_fail(o, "query of rank %d and width %d, key and value do not split into %d heads", mx_ndim(q), width, h);
    return;
  }
  p.q = whole ? third_of(q, 0) : heads_apart(q, h);
  p.k = whole ? third_of(q, 1) : heads_apart(k, h);
  p.v = whole ? third_of(q, 2) : heads_apart(v, h);
  if (bias_added(o, &p)) packed_run(o, &p, P_STARTS);
}

static void packed_attention(op *o) {
  mx x = in(o, W_X), w = in(o, W_W), bias = in(o, W_BIAS);
  packed p = {.heads = (int)attr_i(o->n, "num_heads", 1), .tokens = mx_dim(x, 0), .added = in(o, W_ADDED)};
  size_t n = 0;
  const int64_t *sizes = attr_ints(o->n, "qkv_hidden_sizes", &n);
  int width = mx_dim(w, 1), size = n ? (int)sizes[0] : width / 3, value_size = width - 2 * size;
  if (mx_ndim(x) != 2 || mx_ndim(w) != 2 || mx_dim(x, 1) != mx_dim(w, 0) || size < 1 || size % p.heads || value_size < 0 ||
      value_size % p.heads || (n ? value_size != sizes[2] : width % 3 != 0) || mx_ndim(bias) != 1 || mx_dim(bias, 0) != width) {
    op_fail(o, "weights [%d, %d] and bias do not fit an input of width %d and %d heads", mx_dim(w, 0), width, mx_dim(x, -1), p.heads);
    return;
  }
  mx y = mx_linear(x, w, bias);
  p.q = heads_apart(mx_slice_axis(y, 1, 0, size), p.heads);
  p.k = heads_apart(mx_slice_axis(y, 1, size, 2 * size), p.heads);
  p.v = heads_apart(mx_slice_axis(y, 1, 2 * size, width), p.heads);
  packed_run(o, &p, W_STARTS);
}

// ---- claiming -----------------------------------------------------------------------------------------------------------
static const char *const packed_attrs[] = {"num_heads", "scale", "mask_filter_value", "qkv_hidden_sizes", NULL};

static void packed_claim(claim *c, size_t starts, size_t added) {
  require_known(c, packed_attrs);
  dtype t = in_type(c, 0);
  for (size_t i = 1; i <= added; i++) require_types(c, i, i == starts || i == starts - 1 ? DTYPE_BIT(DT_I32) : DTYPE_BIT(t));
  CLAIM_GOES_ON(c);
  int64_t heads = attr_i(c->n, "num_heads", 0);
  REQUIRE(c, heads > 0 && heads < 65536, "%lld heads", (long long)heads);
  size_t n = 0;
  const int64_t *w = attr_ints(c->n, "qkv_hidden_sizes", &n);
  REQUIRE(c, !n || (n == 3 && w[0] > 0 && w[2] > 0 && w[0] == w[1] && w[0] < 1 << 28 && w[2] < 1 << 28), "qkv_hidden_sizes");
}

static void packed_mha_claim(claim *c) { packed_claim(c, P_STARTS, P_ADDED); }
static void packed_attention_claim(claim *c) { packed_claim(c, W_STARTS, W_ADDED); }

const op_row ops_packed[] = {
    OP("com.microsoft", "PackedMultiHeadAttention", 1, ANY, packed_mha_claim, packed_mha, .types = DTS_FLOAT,
       .host_in = IN(P_STARTS), .traits = OP_NO_TRACE, .limits = "queries as wide as keys"),
    OP("com.microsoft", "PackedAttention", 1, ANY, packed_attention_claim, packed_attention, .types = DTS_FLOAT,
       .host_in = IN(W_STARTS), .traits = OP_NO_TRACE, .limits = "queries as wide as keys"),
    {0}};
