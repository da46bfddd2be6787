#include "rewrite/edit.h"

#include <stdio.h>
#include <string.h>

#include "ops/registry.h"

static bool no_memory(edit *ed) { return FAIL(ed->e, ERR_NO_MEMORY, "out of memory for a rewritten graph"); }

static bool grow(edit *ed) {
  if (ed->n < ed->cap) return true;
  size_t cap = ed->cap ? ed->cap * 2 : ed->n + 64, bytes = 0;
  node **order = size_mul(cap, sizeof *order, &bytes) ? mem_alloc(bytes) : NULL;
  if (!order) return no_memory(ed);
  if (ed->n) memcpy(order, ed->order, ed->n * sizeof *order);
  mem_free(ed->order);
  ed->order = order;
  ed->cap = cap;
  return true;
}

bool edit_open(edit *ed, graph *g, mx_device d, err *e) {
  *ed = (edit){.g = g, .device = d, .e = e};
  for (size_t i = 0; i < g->n_nodes; i++) {
    if (!grow(ed)) return false;
    ed->order[ed->n++] = &g->nodes[i];
  }
  return true;
}

static bool relink(edit *ed) {
  graph *g = ed->g;
  size_t n = 0;
  for (size_t i = 0; i < ed->n; i++) n += ed->order[i] != NULL;
  if (!graph_set_nodes(g, n, ed->e)) return false;
  for (size_t i = 0, k = 0; i < ed->n; i++)
    if (ed->order[i]) g->nodes[k++] = *ed->order[i];
  for (size_t i = 0; i < g->n_values; i++) {
    g->values[i]->producer = NULL;
    g->values[i]->consumers = 0;
  }
  return graph_link(g, ed->e);
}

bool edit_close(edit *ed) {
  bool ok = err_ok(ed->e) && (!ed->changed || relink(ed));
  mem_free(ed->order);
  ed->order = NULL;
  return ok;
}

static size_t place_of(const edit *ed, const node *n) {
  size_t i = 0;
  while (i < ed->n && ed->order[i] != n) i++;
  return i;
}

// ---- nodes --------------------------------------------------------------------------------------------------------------
bool edit_accepts(const edit *ed, const node *n) {
  const op_row *row = registry_find(n->domain, n->op_type, n->since);
  claim c = {.n = n, .device = ed->device};
  if (row) claim_row(&c, row);
  return row && !c.declined;
}

static node *build(edit *ed, const node *like, const node_spec *spec, value **out, size_t n_out) {
  arena *mem = ed->g->mem;
  node *n = ARENA_NEW(mem, node);
  value **in = arena_copy(mem, spec->in, spec->n_in * sizeof *in), **outs = arena_copy(mem, out, n_out * sizeof *outs);
  attr *attrs = arena_copy(mem, spec->attrs, spec->n_attrs * sizeof *attrs);
  if (!n || !in || !outs || !attrs || !grow(ed)) {
    no_memory(ed);
    return NULL;
  }
  *n = (node){.name = like->name, .domain = spec->domain, .op_type = spec->op_type, .since = spec->since, .in = in, .out = outs,
              .n_in = spec->n_in, .n_out = n_out, .attrs = attrs, .n_attrs = spec->n_attrs};
  return edit_accepts(ed, n) ? n : NULL;
}

static void enter(edit *ed, node *n, size_t at) {
  memmove(ed->order + at + 1, ed->order + at, (ed->n - at) * sizeof *ed->order);
  ed->order[at] = n;
  ed->n++;
  ed->changed = true;
  for (size_t i = 0; i < n->n_in; i++)
    if (n->in[i]) n->in[i]->consumers++;
  for (size_t i = 0; i < n->n_out; i++)
    if (n->out[i]) n->out[i]->producer = n;
}

node *edit_insert(edit *ed, node *before, const node_spec *spec, value **out, size_t n_out) {
  node *n = build(ed, before, spec, out, n_out);
  if (n) enter(ed, n, place_of(ed, before));
  return n;
}

bool edit_replace(edit *ed, node *root, const node_spec *spec) {
  node *n = build(ed, root, spec, root->out, root->n_out);
  if (!n) return false;
  enter(ed, n, place_of(ed, root));
  root->n_out = 0;  // they are n's now
  edit_remove(ed, root);
  return true;
}

static bool is_needed(const node *n) {
  for (size_t i = 0; i < n->n_out; i++)
    if (n->out[i] && (n->out[i]->consumers || n->out[i]->is_output)) return true;
  return false;
}

static void let_go(edit *ed, value *v) {
  if (!v) return;
  v->consumers--;
  if (!v->consumers && v->producer) edit_drop_unused(ed, v->producer);
}

void edit_remove(edit *ed, node *n) {
  size_t at = place_of(ed, n);
  if (at == ed->n) return;
  ed->order[at] = NULL;
  ed->changed = true;
  for (size_t i = 0; i < n->n_out; i++)
    if (n->out[i] && n->out[i]->producer == n) n->out[i]->producer = NULL;
  for (size_t i = 0; i < n->n_in; i++) let_go(ed, n->in[i]);
  for (size_t i = 0; i < n->n_captures; i++) let_go(ed, n->captures[i]);
}

void edit_drop_unused(edit *ed, node *n) {
  if (!is_needed(n)) edit_remove(ed, n);
}

// ---- uses ---------------------------------------------------------------------------------------------------------------
void edit_set_in(edit *ed, node *n, size_t i, value *v) {
  value *before = n->in[i];
  if (v) v->consumers++;
  n->in[i] = v;
  ed->changed = true;
  let_go(ed, before);
}

static void redirect_bodies(const node *n, const value *from, value *to) {
  for (size_t i = 0; i < n->n_attrs; i++) {
    const graph *body = n->attrs[i].kind == ATTR_GRAPH ? n->attrs[i].g : NULL;
    for (size_t k = 0; body && k < body->n_values; k++)
      if (body->values[k]->outer == from) body->values[k]->outer = to;
  }
}

void edit_redirect(edit *ed, value *from, value *to) {
  for (size_t k = 0; k < ed->n; k++) {
    node *n = ed->order[k];
    for (size_t i = 0; n && i < n->n_in; i++)
      if (n->in[i] == from) {
        n->in[i] = to;
        to->consumers++;
        from->consumers--;
      }
    for (size_t i = 0; n && i < n->n_captures; i++)
      if (n->captures[i] == from) {
        n->captures[i] = to;
        to->consumers++;
        from->consumers--;
        redirect_bodies(n, from, to);
      }
  }
  ed->changed = true;
}

void edit_make_constant(edit *ed, value *v, const tensor *t) {
  node *n = v->producer;
  v->constant = t;
  v->type = t->type;
  v->rank = t->rank;
  for (int i = 0; i < t->rank; i++) v->dims[i] = t->dims[i];
  v->producer = NULL;
  if (n) edit_remove(ed, n);
}

node *edit_only_user(const edit *ed, const value *v) {
  if (v->consumers != 1 || v->is_output) return NULL;
  for (size_t k = 0; k < ed->n; k++)
    for (size_t i = 0; ed->order[k] && i < ed->order[k]->n_in; i++)
      if (ed->order[k]->in[i] == v) return ed->order[k];
  return NULL;
}

// ---- values -------------------------------------------------------------------------------------------------------------
value *edit_value(edit *ed, const char *like, dtype type, int rank, const int64_t *dims) {
  char name[256];
  snprintf(name, sizeof name, "%.180s:rewritten:%zu", like, ed->g->n_values);
  return graph_value(ed->g, name, type, rank, dims, ed->e);
}

void *edit_room(edit *ed, size_t bytes) {
  graph *top = ed->g;
  while (top->parent) top = top->parent;
  if (bytes > EDIT_MAX_LOOSE || ed->loose > EDIT_MAX_LOOSE - bytes) return NULL;
  if (!top->loose) top->loose = arena_new();
  void *p = top->loose ? arena_alloc(top->loose, bytes, 1) : NULL;
  if (!p) no_memory(ed);
  ed->loose += bytes;
  return p;
}

value *edit_constant(edit *ed, const char *like, dtype type, int rank, const int64_t *dims, const void *data, size_t bytes) {
  value *v = edit_value(ed, like, type, rank, dims);
  tensor *t = v ? ARENA_NEW(ed->g->mem, tensor) : NULL;
  int64_t *own = t ? arena_copy(ed->g->mem, dims, (size_t)rank * sizeof *dims) : NULL;
  if (!own) return NULL;
  *t = (tensor){.type = type, .rank = rank, .dims = own, .data = data, .bytes = bytes};
  v->constant = t;
  return v;
}

attr edit_int(const char *name, int64_t v) { return (attr){.name = name, .kind = ATTR_INT, .i = v}; }
attr edit_float(const char *name, float v) { return (attr){.name = name, .kind = ATTR_FLOAT, .f = v}; }
attr edit_string(const char *name, const char *v) { return (attr){.name = name, .kind = ATTR_STRING, .s = v}; }

attr edit_ints(edit *ed, const char *name, const int64_t *v, size_t n) {
  int64_t *copy = arena_copy(ed->g->mem, v, n * sizeof *v);
  if (!copy) no_memory(ed);
  return (attr){.name = name, .kind = ATTR_INTS, .n = copy ? n : 0, .ints = copy};
}
