// Nodes of constants become constants, computed by the operator's own translator.
#include <string.h>

#include "ops/narrow.h"
#include "ops/registry.h"
#include "rewrite/match.h"
#include "rewrite/passes.h"

// A result may be larger than what it is made from only while it is small: else weights that are stored packed would be
// kept unpacked. A large constant that others read too is not copied just to be moved.
enum { FOLD_SMALL = 64 << 10, FOLD_MOST = 64 << 20, FOLD_SHARED = 1 << 20, FOLD_MAX_IN = 64, FOLD_MAX_OUT = 16 };

// What CastLike takes the type from need not be known: the output has it.
static bool is_read(const node *n, size_t i) { return n->in[i] && !(i == 1 && is_op(n, "CastLike")); }

static bool inputs_are_constant(const node *n, const op_row *row, size_t *bytes) {
  *bytes = 0;
  for (size_t i = 0; i < n->n_in; i++) {
    const value *v = n->in[i];
    if (!is_read(n, i)) continue;
    if (!v->constant || !v->constant->data) return false;
    if ((row->traits & OP_CHEAP) && v->constant->bytes > FOLD_SHARED && v->consumers > 1) return false;
    *bytes += v->constant->bytes;
  }
  return true;
}

static bool may_fold(const node *n, const op_row *row, size_t *bytes) {
  if (!row || row->prepare || (row->traits & OP_RANDOM) || n->n_captures || n->n_in > FOLD_MAX_IN || n->n_out > FOLD_MAX_OUT)
    return false;
  for (size_t i = 0; i < n->n_attrs; i++)
    if (n->attrs[i].kind == ATTR_GRAPH) return false;
  for (size_t i = 0; i < n->n_out; i++)
    if (n->out[i] && !dtype_in(n->out[i]->type, DTS_TENSOR)) return false;
  return inputs_are_constant(n, row, bytes);
}

static bool is_worth(mx x, size_t in_bytes) {
  size_t bytes = mx_size(x) * dtype_size(mx_dtype(x));
  return bytes <= FOLD_MOST && (bytes <= FOLD_SMALL || bytes / 2 <= in_bytes);
}

// The array as a constant; NULL when it cannot be read.
static tensor *read_back(edit *ed, mx x) {
  mx_ints shape = mx_shape(x);
  size_t bytes = mx_size(x) * dtype_size(mx_dtype(x));
  const void *data = bytes ? mx_read(x) : "";
  int64_t dims[MX_MAX_RANK];
  for (int i = 0; i < shape.n; i++) dims[i] = shape.v[i];
  tensor *t = data ? ARENA_NEW(ed->g->mem, tensor) : NULL;
  int64_t *own = t ? arena_copy(ed->g->mem, dims, (size_t)shape.n * sizeof *dims) : NULL;
  void *room = own ? edit_room(ed, bytes) : NULL;
  if (!room) return NULL;
  if (bytes) memcpy(room, data, bytes);
  *t = (tensor){.type = mx_dtype(x), .rank = shape.n, .dims = own, .data = room, .bytes = bytes};
  return t;
}

static bool translate(mx_scope *s, const node *n, const op_row *row, mx *out) {
  mx in[FOLD_MAX_IN] = {NULL};
  for (size_t i = 0; i < n->n_in; i++)
    if (is_read(n, i)) in[i] = narrow_from(s, n->in[i]->constant);
  op o = {.n = n, .s = s, .in = in, .out = out};
  mx_at_node(s, n->op_type, n->name);
  if (mx_ok(s)) row->translate(&o);
  for (size_t i = 0; i < n->n_out; i++)
    if (n->out[i] && !out[i]) return false;
  return mx_ok(s);
}

static bool compute(edit *ed, mx_scope *s, const node *n, const op_row *row, size_t in_bytes, tensor **results) {
  mx out[FOLD_MAX_OUT] = {NULL};
  if (!translate(s, n, row, out)) return false;
  for (size_t i = 0; i < n->n_out; i++)
    if (n->out[i] && !is_worth(out[i], in_bytes)) return false;
  for (size_t i = 0; i < n->n_out; i++)
    if (n->out[i]) {
      results[i] = read_back(ed, out[i]);
      if (!results[i]) return false;
    }
  return true;
}

// A shape that is known is a constant whatever its tensor holds.
static bool fold_shape(edit *ed, const node *n) {
  const value *x = is_op(n, "Shape") ? n->in[0] : NULL;
  if (!x || x->rank < 0) return false;
  int64_t first = attr_i(n, "start", 0), last = attr_i(n, "end", x->rank);
  first = first < 0 ? first + x->rank : first;
  last = last < 0 ? last + x->rank : last > x->rank ? x->rank : last;
  if (first < 0) first = 0;
  int64_t count = last > first ? last - first : 0;
  for (int64_t i = 0; i < count; i++)
    if (x->dims[first + i] < 0) return false;
  int64_t *own = ARENA_ARRAY(ed->g->mem, int64_t, (size_t)count + 1);
  int64_t *data = own ? edit_room(ed, (size_t)count * sizeof *data) : NULL;
  tensor *t = data ? ARENA_NEW(ed->g->mem, tensor) : NULL;
  if (!t) return false;
  own[0] = count;
  for (int64_t i = 0; i < count; i++) data[i] = x->dims[first + i];
  *t = (tensor){.type = DT_I64, .rank = 1, .dims = own, .data = data, .bytes = (size_t)count * sizeof *data};
  edit_make_constant(ed, n->out[0], t);
  return true;
}

// A node that fails here fails in its run too, with its message: it stays.
void rewrite_fold(edit *ed, node *n) {
  const op_row *row = registry_find(n->domain, n->op_type, n->since);
  tensor *results[FOLD_MAX_OUT] = {NULL};
  size_t bytes;
  if (fold_shape(ed, n)) {
    ed->made++;
    return;
  }
  if (!may_fold(n, row, &bytes)) return;
  mx_scope *s = mx_scope_new(ed->device);
  bool done = s && compute(ed, s, n, row, bytes, results);
  mx_scope_free(s);
  if (!done) return;
  size_t n_out = n->n_out;
  value **out = n->out;
  for (size_t i = 0; i < n_out; i++)
    if (out[i]) edit_make_constant(ed, out[i], results[i]);
  ed->made++;
}
