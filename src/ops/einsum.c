// Einsum. Floats are MLX's; integers are multiplied here, pair by pair, exact modulo their size.
#include <ctype.h>
#include <string.h>

#include "ops/index.h"
#include "ops/matmul.h"

enum { EINSUM_MAX = 256, OPERANDS = 16, LETTERS = 52, LABELS = LETTERS + MX_MAX_RANK };

// The equation without spaces.
static bool read_equation(const node *n, char equation[EINSUM_MAX]) {
  size_t len = 0;
  for (const char *s = attr_s(n, "equation", ""); *s; s++) {
    unsigned char ch = (unsigned char)*s;
    if (ch == ' ') continue;
    if (len + 1 >= EINSUM_MAX || !(isalpha(ch) || ch == ',' || ch == '.' || ch == '-' || ch == '>')) return false;
    equation[len++] = *s;
  }
  equation[len] = 0;
  return len > 0;
}

static void einsum_claim(claim *c) {
  char equation[EINSUM_MAX];
  REQUIRE(c, read_equation(c->n, equation), "the equation is empty, too long or holds more than letters");
  REQUIRE(c, c->n->n_in <= OPERANDS, "%zu operands", c->n->n_in);
}

// ---- labels ---------------------------------------------------------------------------------------------------------------
// An axis has a label: a letter, or its place from the end of an ellipsis.
typedef struct term {
  mx x;
  mx_ints labels;  // one for each axis
} term;

typedef struct sum {
  term terms[OPERANDS];
  int n;
  mx_ints out;
  int size[LABELS];
} sum;

static int letter(char ch) { return isupper((unsigned char)ch) ? ch - 'A' : 26 + ch - 'a'; }

// The labels of text[0, len) for an array of `rank` axes, of which an ellipsis takes what is left. False if they do not fit.
static bool read_labels(const char *text, size_t len, int rank, mx_ints *labels) {
  int letters = 0;
  for (size_t i = 0; i < len; i++) letters += isalpha((unsigned char)text[i]) != 0;
  *labels = (mx_ints){0};
  for (size_t i = 0; i < len && labels->n <= rank; i++) {
    if (isalpha((unsigned char)text[i])) {
      if (labels->n < MX_MAX_RANK) labels->v[labels->n] = letter(text[i]);
      labels->n++;
    } else {
      if (len - i < 3 || strncmp(text + i, "...", 3) != 0 || rank < letters) return false;
      for (int k = rank - letters; k > 0 && labels->n < MX_MAX_RANK; k--) labels->v[labels->n++] = LABELS - k;
      i += 2;
    }
  }
  return labels->n == rank;
}

static bool has_label(const mx_ints *labels, int label) {
  for (int i = 0; i < labels->n; i++)
    if (labels->v[i] == label) return true;
  return false;
}

// Without an arrow: the axes of ellipses, then the letters that stand once, in their order.
static void implied_output(sum *s) {
  int count[LABELS] = {0};
  for (int t = 0; t < s->n; t++)
    for (int i = 0; i < s->terms[t].labels.n; i++) count[s->terms[t].labels.v[i]]++;
  for (int l = LETTERS; l < LABELS; l++)
    if (count[l] && s->out.n < MX_MAX_RANK) s->out.v[s->out.n++] = l;
  for (int l = 0; l < LETTERS; l++)
    if (count[l] == 1 && s->out.n < MX_MAX_RANK) s->out.v[s->out.n++] = l;
}

static bool read_sum(op *o, const char *equation, sum *s) {
  const char *arrow = strstr(equation, "->"), *at = equation, *end = arrow ? arrow : equation + strlen(equation);
  int widest = 0;
  *s = (sum){.n = (int)o->n->n_in};
  for (int l = 0; l < LABELS; l++) s->size[l] = 1;
  for (int t = 0; t < s->n; t++) {
    const char *comma = memchr(at, ',', (size_t)(end - at)), *stop = comma ? comma : end;
    s->terms[t].x = in(o, (size_t)t);
    if ((comma == NULL) != (t == s->n - 1) || !read_labels(at, (size_t)(stop - at), mx_ndim(s->terms[t].x), &s->terms[t].labels))
      return op_fail(o, "the equation '%s' does not fit operand %d", equation, t), false;
    for (int i = 0; i < s->terms[t].labels.n; i++) {
      int label = s->terms[t].labels.v[i], size = mx_dim(s->terms[t].x, i), *known = &s->size[label];
      if (*known != 1 && size != 1 && size != *known) return op_fail(o, "sizes %d and %d of one label", *known, size), false;
      if (label >= LETTERS && LABELS - label > widest) widest = LABELS - label;
      if (size != 1) *known = size;
    }
    at = stop + 1;
  }
  if (!arrow) implied_output(s);
  int letters = 0;
  for (const char *c = arrow ? arrow + 2 : ""; *c; c++) letters += isalpha((unsigned char)*c) != 0;
  bool dots = arrow && strchr(arrow + 2, '.');
  if (arrow && !read_labels(arrow + 2, strlen(arrow + 2), letters + (dots ? widest : 0), &s->out))
    return op_fail(o, "the result of equation '%s' cannot be read", equation), false;
  return true;
}

// ---- one term -------------------------------------------------------------------------------------------------------------
static void drop(term *t, int axis) {
  for (int i = axis; i + 1 < t->labels.n; i++) t->labels.v[i] = t->labels.v[i + 1];
  t->labels.n--;
}

// Keeps the diagonal where a label stands twice.
static void diagonals(term *t) {
  for (int b = t->labels.n - 1; b > 0; b--)
    for (int a = 0; a < b; a++) {
      if (t->labels.v[a] != t->labels.v[b]) continue;
      mx_ints rows = {.n = t->labels.n}, columns = rows;
      for (int i = 0; i < rows.n; i++) rows.v[i] = columns.v[i] = 1;
      int n = rows.v[a] = columns.v[b] = mx_dim(t->x, a);
      mx at = mx_arange(mx_scope_of(t->x), 0, n, 1, DT_I32), zero = mx_scalar(t->x, 0);
      t->x = mx_sum(mx_where(mx_equal(mx_reshape(at, rows), mx_reshape(at, columns)), t->x, zero), MXI(b), false);
      drop(t, b);
      break;
    }
}

// Sums over the labels that `needed` does not have.
static void sum_out(term *t, const bool *needed) {
  for (int i = t->labels.n - 1; i >= 0; i--)
    if (!needed[t->labels.v[i]]) {
      t->x = mx_sum(t->x, MXI(i), false);
      drop(t, i);
    }
}

static mx ordered(const term *t, mx_ints labels) {
  mx_ints perm = {.n = labels.n};
  for (int i = 0; i < labels.n; i++)
    for (int k = 0; k < t->labels.n; k++)
      if (t->labels.v[k] == labels.v[i]) perm.v[i] = k;
  return mx_transpose(t->x, perm);
}

static void append(mx_ints *to, const mx_ints *more) {
  for (int i = 0; i < more->n && to->n < MX_MAX_RANK; i++) to->v[to->n++] = more->v[i];
}

// The product of two terms as one of matrices: labels of both that are needed are its batch, the others of both are summed.
static term product(op *o, const sum *s, const term *a, const term *b, const bool *needed) {
  mx_ints batch = {0}, inner = {0}, left = {0}, right = {0}, a_order, b_order;
  int64_t sizes[4] = {1, 1, 1, 1};
  for (int i = 0; i < a->labels.n; i++) {
    int l = a->labels.v[i], kind = !has_label(&b->labels, l) ? 2 : needed[l] ? 0 : 1;
    append(kind == 2 ? &left : kind == 0 ? &batch : &inner, &(mx_ints){1, {l}});
    sizes[kind] *= s->size[l];
  }
  for (int i = 0; i < b->labels.n; i++) {
    int l = b->labels.v[i];
    if (has_label(&a->labels, l)) continue;
    append(&right, &(mx_ints){1, {l}});
    sizes[3] *= s->size[l];
  }
  term y = {.labels = batch};
  int v[4];
  for (int i = 0; i < 4; i++)
    if (!fits_int(o, sizes[i], &v[i])) return *a;
  if (batch.n + left.n + right.n > MX_MAX_RANK) op_fail(o, "a product of rank %d", batch.n + left.n + right.n);
  a_order = b_order = batch;
  append(&a_order, &left);
  append(&a_order, &inner);
  append(&b_order, &inner);
  append(&b_order, &right);
  append(&y.labels, &left);
  append(&y.labels, &right);
  if (!mx_ok(o->s)) return *a;
  mx_ints shape = {.n = y.labels.n};
  for (int i = 0; i < shape.n; i++) shape.v[i] = s->size[y.labels.v[i]];
  mx x = mx_reshape(ordered(a, a_order), MXI(v[0], v[2], v[1]));
  y.x = mx_reshape(matmul_int(o, x, mx_reshape(ordered(b, b_order), MXI(v[0], v[1], v[3]))), shape);
  return y;
}

static void spread(sum *s, term *t) {
  mx_ints shape = {.n = t->labels.n};
  for (int i = 0; i < shape.n; i++) shape.v[i] = s->size[t->labels.v[i]];
  t->x = mx_broadcast_to(t->x, shape);
}

static void integer_einsum(op *o, const char *equation) {
  sum s;
  if (!read_sum(o, equation, &s)) return;
  for (int t = 0; t < s.n; t++) {
    spread(&s, &s.terms[t]);
    diagonals(&s.terms[t]);
  }
  term all = s.terms[0];
  for (int t = 1; t <= s.n && mx_ok(o->s); t++) {
    bool needed[LABELS] = {false};
    for (int i = 0; i < s.out.n; i++) needed[s.out.v[i]] = true;
    for (int u = t + 1; u < s.n; u++)
      for (int i = 0; i < s.terms[u].labels.n; i++) needed[s.terms[u].labels.v[i]] = true;
    if (t < s.n) all = product(o, &s, &all, &s.terms[t], needed);
    sum_out(&all, needed);
  }
  bool fits = all.labels.n == s.out.n;
  for (int i = 0; i < s.out.n; i++) fits = fits && has_label(&all.labels, s.out.v[i]);
  if (mx_ok(o->s) && !fits) op_fail(o, "the result of equation '%s' has a label twice, or one that no operand has", equation);
  if (mx_ok(o->s)) out(o, 0, ordered(&all, s.out));
}

static void einsum(op *o) {
  char equation[EINSUM_MAX];
  mx xs[OPERANDS];
  if (!read_equation(o->n, equation)) {
    op_fail(o, "the equation cannot be read");
    return;
  }
  if (dtype_is_int(mx_dtype(in(o, 0)))) {
    integer_einsum(o, equation);
    return;
  }
  for (size_t i = 0; i < o->n->n_in; i++) xs[i] = f32_up(in(o, i));
  out(o, 0, mx_einsum(o->s, equation, xs, o->n->n_in));
}

const op_row ops_einsum[] = {OP("", "Einsum", 12, ANY, einsum_claim, einsum, .types = DTS_FLOAT64 | DTS_WIDE_INT,
                                .limits = "16 operands at most; an equation of letters"), {0}};
