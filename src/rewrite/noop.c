// Nodes that give back what they get, and transpositions of transpositions.
#include <string.h>

#include "rewrite/match.h"
#include "rewrite/passes.h"

static bool is_const_false(const value *v) {
  const tensor *t = v ? v->constant : NULL;
  return t && t->type == DT_BOOL && t->bytes == 1 && t->data && !*(const uint8_t *)t->data;
}

static bool is_used(const node *n, size_t i) {
  return i < n->n_out && n->out[i] && (n->out[i]->consumers || n->out[i]->is_output);
}

// Training draws numbers.
static bool rests(const node *n) {
  if (is_used(n, 1)) return false;
  if (n->since < 7) return attr_i(n, "is_test", 0) != 0;
  return n->since < 12 || n->n_in < 3 || !n->in[2] || is_const_false(n->in[2]);
}

static bool keeps_type(const node *n) {
  dtype t = n->in[0]->type;
  return t != DT_NONE && n->out[0]->type == t && (is_op(n, "CastLike") || attr_i(n, "to", 0) == (int64_t)t);
}

static const int64_t *perm_of(const node *n, size_t *count) { return attr_ints(n, "perm", count); }

static bool keeps_order(const node *n) {
  size_t count;
  const int64_t *p = perm_of(n, &count);
  for (size_t i = 0; p && i < count; i++)
    if (p[i] != (int64_t)i) return false;
  return p || n->in[0]->rank == 0 || n->in[0]->rank == 1;
}

// Every target is the input's own dim (0 copies it); at most one is inferred, and then from equals.
static bool keeps_shape(const node *n) {
  int64_t target[GRAPH_MAX_RANK];
  size_t count = 0, inferred = 0, unknown = 0;
  const value *x = n->in[0];
  if (n->since < 5 || n->n_in < 2 || !const_ints(n->in[1], target, GRAPH_MAX_RANK, &count) || x->rank != (int)count) return false;
  for (size_t i = 0; i < count; i++) {
    bool copies = target[i] == 0 && !attr_i(n, "allowzero", 0);
    if (target[i] == -1) inferred++;
    else if (!copies && (target[i] != x->dims[i] || target[i] < 0)) unknown++;
    // An axis without elements leaves nothing to infer from.
    else if (!copies && target[i] == 0) return false;
  }
  return !unknown && inferred <= 1;
}

static bool does_nothing(const node *n) {
  if (n->domain[0] || !n->n_in || !n->in[0] || !n->n_out || !n->out[0]) return false;
  if (is_op(n, "Identity")) return true;
  if (is_op(n, "Dropout")) return rests(n);
  if (is_op(n, "Cast") || is_op(n, "CastLike")) return keeps_type(n);
  if (is_op(n, "Transpose")) return keeps_order(n);
  return is_op(n, "Reshape") && keeps_shape(n);
}

static bool join_transposes(edit *ed, node *n) {
  size_t count, inner_count;
  node *inner = is_op(n, "Transpose") ? made_by(n->in[0], "Transpose") : NULL;
  if (!inner) return false;
  const int64_t *p = perm_of(n, &count), *q = perm_of(inner, &inner_count);
  int64_t joined[GRAPH_MAX_RANK];
  if (!p || !q || count != inner_count || count > GRAPH_MAX_RANK) return false;
  for (size_t i = 0; i < count; i++) {
    if (p[i] < 0 || p[i] >= (int64_t)count) return false;
    joined[i] = q[p[i]];
  }
  node_spec s = {.domain = "", .op_type = "Transpose", .since = n->since, .in = {inner->in[0]}, .n_in = 1, .n_attrs = 1};
  s.attrs[0] = edit_ints(ed, "perm", joined, count);
  return err_ok(ed->e) && edit_replace(ed, n, &s);
}

void rewrite_noop(edit *ed, node *n) {
  if (join_transposes(ed, n)) {
    ed->made++;
    return;
  }
  if (!does_nothing(n) || n->out[0]->is_output) return;
  edit_redirect(ed, n->out[0], n->in[0]);
  edit_remove(ed, n);
  ed->made++;
}
