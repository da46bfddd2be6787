// Products of one activation with several constant weights (query, key and value; gate and up) become one product, which is
// split afterwards. The joined weights lie beside the old ones until the program is built, at most EDIT_MAX_LOOSE bytes.
#include <string.h>

#include "rewrite/match.h"
#include "rewrite/passes.h"

enum { MERGE_MOST = 4 };

typedef struct branch {
  node *n;
  node *add;        // the sum with a bias that follows, or NULL
  value *bias;      // of it
  int64_t width;
} branch;

typedef struct kind {  // of product
  const char *domain, *op_type;
  const value *(*weight)(const node *n, int64_t *width);  // NULL: not one that can be merged
  bool (*alike)(const node *a, const node *b);
  const char *weights;  // 'r': parts of input i follow one another; 'c': side by side, row by row; ' ' none
} kind;

static const tensor *data_of(const node *n, size_t i) {
  const tensor *t = i < n->n_in && n->in[i] ? n->in[i]->constant : NULL;
  return t && t->data ? t : NULL;
}

static bool has(const node *n, size_t i) { return i < n->n_in && n->in[i]; }

// ---- kinds ----------------------------------------------------------------------------------------------------------------
static const value *matmul_weight(const node *n, int64_t *width) {
  const tensor *t = data_of(n, 1);
  if (!t || t->rank != 2 || !dtype_in(t->type, DTS_FLOAT)) return NULL;
  *width = t->dims[1];
  return n->in[1];
}

static bool matmul_alike(const node *a, const node *b) {
  const tensor *s = data_of(a, 1), *t = data_of(b, 1);
  return s->type == t->type && s->dims[0] == t->dims[0];
}

static bool gemm_trans_b(const node *n) { return attr_i(n, "transB", 0) != 0; }

static const value *gemm_weight(const node *n, int64_t *width) {
  const tensor *t = data_of(n, 1), *c = data_of(n, 2);
  if (!t || t->rank != 2 || !dtype_in(t->type, DTS_FLOAT) || n->since < 7) return NULL;
  if (attr_i(n, "transA", 0) || attr_f(n, "alpha", 1) != 1 || attr_f(n, "beta", 1) != 1) return NULL;
  *width = t->dims[gemm_trans_b(n) ? 0 : 1];
  if (has(n, 2) && (!c || c->rank != 1 || c->dims[0] != *width || c->type != t->type)) return NULL;
  return n->in[1];
}

static bool gemm_alike(const node *a, const node *b) {
  const tensor *s = data_of(a, 1), *t = data_of(b, 1);
  int k = gemm_trans_b(a) ? 1 : 0;
  return gemm_trans_b(a) == gemm_trans_b(b) && has(a, 2) == has(b, 2) && s->type == t->type && s->dims[k] == t->dims[k];
}

enum { NB_Q = 1, NB_SCALES, NB_ZEROS, NB_GROUPS, NB_BIAS };

static const value *nbits_weight(const node *n, int64_t *width) {
  *width = attr_i(n, "N", 0);
  if (*width <= 0 || has(n, NB_GROUPS)) return NULL;
  for (size_t i = NB_Q; i <= NB_BIAS; i++) {
    const tensor *t = data_of(n, i);
    if (has(n, i) && (!t || t->bytes % (size_t)*width)) return NULL;  // rows of N parts each
  }
  return data_of(n, NB_Q) && data_of(n, NB_SCALES) ? n->in[NB_Q] : NULL;
}

static bool nbits_alike(const node *a, const node *b) {
  static const char *const EQUAL[] = {"K", "bits", "block_size", "accuracy_level", "weight_prepacked"};
  for (size_t i = 0; i < sizeof EQUAL / sizeof *EQUAL; i++) {
    int64_t absent = i == 1 ? 4 : 0;
    if (attr_i(a, EQUAL[i], absent) != attr_i(b, EQUAL[i], absent)) return false;
  }
  size_t rows = (size_t)attr_i(a, "N", 0), others = (size_t)attr_i(b, "N", 0);
  for (size_t i = NB_Q; i <= NB_BIAS; i++) {
    if (has(a, i) != has(b, i)) return false;
    if (has(a, i) && (a->in[i]->type != b->in[i]->type || data_of(a, i)->bytes / rows != data_of(b, i)->bytes / others)) return false;
  }
  return true;
}

static const kind KINDS[] = {{"", "MatMul", matmul_weight, matmul_alike, " c"},
                             {"", "Gemm", gemm_weight, gemm_alike, " cr"},
                             {"com.microsoft", "MatMulNBits", nbits_weight, nbits_alike, " rrr r"}};

static const kind *kind_of(const node *n) {
  for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
    if (!strcmp(n->op_type, KINDS[i].op_type) && !strcmp(n->domain, KINDS[i].domain)) return &KINDS[i];
  return NULL;
}

// ---- the group ------------------------------------------------------------------------------------------------------------
// A weight that others read too would be there twice.
static bool fits(const kind *k, const node *n, branch *b) {
  const value *w = n->n_in > 1 && n->in[0] ? k->weight(n, &b->width) : NULL;
  return w && w->consumers == 1 && !w->is_output && n->out[0]->type == n->in[0]->type;
}

static void find_bias(const edit *ed, branch *b) {
  node *add = edit_only_user(ed, b->n->out[0]);
  for (size_t i = 0; is_op(add, "Add") && i < 2; i++) {
    const tensor *t = data_of(add, i);
    if (!t || add->in[1 - i] != b->n->out[0] || t->rank != 1 || t->dims[0] != b->width || t->type != b->n->out[0]->type) continue;
    b->add = add;
    b->bias = add->in[i];
  }
}

static size_t gather(const edit *ed, const kind *k, node *first, branch *b) {
  size_t n = 0;
  for (size_t i = 0; i < ed->n && n <= MERGE_MOST; i++) {
    node *m = ed->order[i];
    if (!m || kind_of(m) != k || m->in[0] != first->in[0]) continue;
    branch found = {.n = m};
    if (!fits(k, m, &found) || (m != first && !k->alike(first, m))) continue;
    if (n == MERGE_MOST) return 0;
    find_bias(ed, &found);
    b[n++] = found;
  }
  return n;
}

// ---- joined constants -------------------------------------------------------------------------------------------------------
static void put_rows(char *to, const tensor *t) { memcpy(to, t->data, t->bytes); }

static void put_columns(char *to, const tensor *t, int64_t at, int64_t total) {
  size_t each = dtype_size(t->type), row = (size_t)t->dims[1] * each;
  const char *from = t->data;
  for (int64_t r = 0; r < t->dims[0]; r++) memcpy(to + ((size_t)r * (size_t)total + (size_t)at) * each, from + (size_t)r * row, row);
}

// The parts of one input as one constant: dims of the first with their sum along the axis that they are joined on.
static value *joined(edit *ed, const value *const *parts, size_t n, bool columns) {
  const tensor *first = parts[0]->constant;
  int axis = columns ? 1 : 0;
  int64_t dims[GRAPH_MAX_RANK], total = 0, at = 0;
  size_t bytes = 0;
  for (size_t i = 0; i < n; i++) {
    const tensor *t = parts[i]->constant;
    if (t->rank != first->rank || t->rank <= axis) return NULL;
    total += t->dims[axis];
    bytes += t->bytes;
  }
  char *data = edit_room(ed, bytes);
  if (!data) return NULL;
  char *end = data;
  for (size_t i = 0; i < n; i++) {
    const tensor *t = parts[i]->constant;
    if (columns) put_columns(data, t, at, total);
    else put_rows(end, t);
    end += t->bytes;
    at += t->dims[axis];
  }
  for (int i = 0; i < first->rank; i++) dims[i] = i == axis ? total : first->dims[i];
  return edit_constant(ed, parts[0]->name, first->type, first->rank, dims, data, bytes);
}

static bool join_inputs(edit *ed, const kind *k, const branch *b, size_t n, node_spec *s) {
  const node *first = b[0].n;
  s->in[0] = first->in[0];
  for (size_t i = 1; i < s->n_in; i++) {
    const value *parts[MERGE_MOST];
    if (!has(first, i)) continue;
    for (size_t m = 0; m < n; m++) parts[m] = b[m].n->in[i];
    bool columns = k->weights[i] == 'c' && !(is_op(first, "Gemm") && gemm_trans_b(first));
    s->in[i] = joined(ed, parts, n, columns);
    if (!s->in[i]) return false;
  }
  return true;
}

// ---- the new nodes ------------------------------------------------------------------------------------------------------------
static value *wide_value(edit *ed, const value *like, int64_t width) {
  int64_t dims[GRAPH_MAX_RANK];
  for (int i = 0; i < like->rank; i++) dims[i] = i + 1 == like->rank ? width : like->dims[i];
  return edit_value(ed, like->name, like->type, like->rank, dims);
}

static bool copy_attrs(const node *n, int64_t width, node_spec *s) {
  if (n->n_attrs > EDIT_ATTRS) return false;
  for (size_t i = 0; i < n->n_attrs; i++) {
    s->attrs[i] = n->attrs[i];
    if (!strcmp(n->attrs[i].name, "N")) s->attrs[i].i = width;
  }
  s->n_attrs = n->n_attrs;
  return true;
}

static value *add_product(edit *ed, const kind *k, const branch *b, size_t n, int64_t width) {
  const node *first = b[0].n;
  node_spec s = {.domain = k->domain, .op_type = k->op_type, .since = first->since, .n_in = first->n_in};
  if (first->n_in > EDIT_IN || first->n_in > strlen(k->weights) || !copy_attrs(first, width, &s)) return NULL;
  value *y = join_inputs(ed, k, b, n, &s) ? wide_value(ed, first->out[0], width) : NULL;
  return y && edit_insert(ed, b[0].n, &s, &y, 1) ? y : NULL;
}

static value *add_bias(edit *ed, const branch *b, size_t n, value *y, int64_t width) {
  const value *parts[MERGE_MOST];
  for (size_t m = 0; m < n; m++) parts[m] = b[m].bias;
  value *sum = wide_value(ed, y, width);
  node_spec s = {.domain = "", .op_type = "Add", .since = b[0].add->since, .in = {y, joined(ed, parts, n, false)}, .n_in = 2};
  return sum && s.in[1] && edit_insert(ed, b[0].n, &s, &sum, 1) ? sum : NULL;
}

static node *last_of(const branch *b, bool sums) { return sums ? b->add : b->n; }

// Split takes the outputs of the old nodes, which go.
static bool add_split(edit *ed, const branch *b, size_t n, value *y, bool sums) {
  int64_t *sizes = edit_room(ed, n * sizeof *sizes);
  value *out[MERGE_MOST];
  for (size_t m = 0; sizes && m < n; m++) sizes[m] = b[m].width;
  for (size_t m = 0; m < n; m++) out[m] = last_of(&b[m], sums)->out[0];
  value *split = sizes ? edit_constant(ed, "split", DT_I64, 1, (const int64_t[]){(int64_t)n}, sizes, n * sizeof *sizes) : NULL;
  node_spec s = {.domain = "", .op_type = "Split", .since = 13, .in = {y, split}, .n_in = 2, .n_attrs = 1};
  s.attrs[0] = edit_int("axis", -1);
  if (!split || !edit_insert(ed, b[0].n, &s, out, n)) return false;
  for (size_t m = 0; m < n; m++) {
    node *old = last_of(&b[m], sums);
    old->n_out = 0;  // they are the split's now
    edit_remove(ed, old);
  }
  return true;
}

// ---- the packed form of GroupQueryAttention -------------------------------------------------------------------------------------
enum { GQA_MOST_IN = 32 };

static bool feeds(const edit *ed, const value *v, const node *gqa, size_t i) {
  return edit_only_user(ed, v) == gqa && gqa->in[i] == v;
}

// The node that takes the three as query, key and value, which are sorted so; NULL if there is none.
static node *packed_user(const edit *ed, branch *b, size_t n, bool sums) {
  node *gqa = n == 3 ? edit_only_user(ed, last_of(&b[0], sums)->out[0]) : NULL;
  if (!gqa || strcmp(gqa->op_type, "GroupQueryAttention") || gqa->n_in < 3) return NULL;
  branch sorted[3] = {{NULL}};
  for (size_t i = 0; i < 3; i++)
    for (size_t m = 0; m < 3; m++)
      if (feeds(ed, last_of(&b[m], sums)->out[0], gqa, i)) sorted[i] = b[m];
  int64_t heads = attr_i(gqa, "num_heads", 0), kv = attr_i(gqa, "kv_num_heads", 0);
  if (!sorted[0].n || !sorted[1].n || !sorted[2].n || heads <= 0 || kv <= 0 || sorted[0].width % heads) return NULL;
  int64_t size = sorted[0].width / heads;
  if (sorted[1].width != kv * size || sorted[2].width != kv * size) return NULL;
  memcpy(b, sorted, sizeof sorted);
  return gqa;
}

static bool takes_packed(const edit *ed, const node *gqa, value *y) {
  value *in[GQA_MOST_IN];
  node packed = *gqa;
  if (gqa->n_in > GQA_MOST_IN) return false;
  memcpy(in, gqa->in, gqa->n_in * sizeof *in);
  in[0] = y;
  in[1] = in[2] = NULL;
  packed.in = in;
  return edit_accepts(ed, &packed);
}

static bool give_packed(edit *ed, node *gqa, value *y) {
  if (!takes_packed(ed, gqa, y)) return false;
  edit_set_in(ed, gqa, 0, y);
  edit_set_in(ed, gqa, 1, NULL);
  edit_set_in(ed, gqa, 2, NULL);
  return true;
}

// ---- the rewrite ------------------------------------------------------------------------------------------------------------------
void rewrite_merge(edit *ed, node *n) {
  const kind *k = kind_of(n);
  branch b[MERGE_MOST + 1];
  branch own = {.n = n};
  if (!k || !fits(k, n, &own)) return;
  size_t count = gather(ed, k, n, b);
  if (count < 2 || b[0].n != n) return;
  int64_t width = 0;
  bool sums = true;
  for (size_t m = 0; m < count; m++) {
    width += b[m].width;
    sums = sums && b[m].add;
  }
  node *gqa = packed_user(ed, b, count, sums);
  value *product = add_product(ed, k, b, count, width);
  value *y = product && sums ? add_bias(ed, b, count, product, width) : product;
  bool done = y && ((gqa && give_packed(ed, gqa, y)) || add_split(ed, b, count, y, sums));
  if (done) ed->made++;
  else if (product) edit_drop_unused(ed, (y ? y : product)->producer);
}
