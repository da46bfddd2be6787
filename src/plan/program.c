#include "plan/program.h"

#include <limits.h>

#include "ops/narrow.h"
#include "ops/registry.h"

static size_t count_bodies(const node *n) {
  size_t count = 0;
  for (size_t i = 0; i < n->n_attrs; i++) count += n->attrs[i].kind == ATTR_GRAPH && n->attrs[i].g;
  return count;
}

static bool make_bodies(program *p, step *st, const node *n, err *e) {
  size_t count = count_bodies(n);
  if (count) st->bodies = ARENA_ARRAY(p->g->mem, program *, count);
  if (count && !st->bodies) return FAIL(e, ERR_NO_MEMORY, "out of memory for a program");
  for (size_t i = 0; i < n->n_attrs; i++) {
    if (n->attrs[i].kind != ATTR_GRAPH || !n->attrs[i].g) continue;
    program *body = program_new(n->attrs[i].g, p->device, e);
    if (!body) return err_add(e, "node '%s' (%s): ", n->name, n->op_type);
    st->bodies[st->n_bodies++] = body;
    p->traits |= body->traits;
  }
  return true;
}

static bool make_step(program *p, step *st, const node *n, err *e) {
  st->n = n;
  st->row = registry_find(n->domain, n->op_type, n->since);
  if (!st->row)
    return FAIL(e, ERR_UNSUPPORTED, "node '%s': no translation for %s:%s version %d", n->name, n->domain, n->op_type, n->since);
  if (st->row->prepare) {
    st->prepared = st->row->prepare(n, p->device, e);
    if (!err_ok(e)) return err_add(e, "node '%s' (%s): ", n->name, n->op_type);
  }
  if (!make_bodies(p, st, n, e)) return false;
  p->traits |= st->row->traits;
  if (n->n_in > p->max_in) p->max_in = n->n_in;
  if (n->n_out > p->max_out) p->max_out = n->n_out;
  return true;
}

// A constant is kept as an array unless every use of it went into a packed form.
static void mark_captured(const program *body, bool *used) {
  for (size_t i = 0; i < body->g->n_values; i++) {
    const value *v = body->g->values[i];
    if (v->outer && body->used[i]) used[v->outer->id] = true;
  }
}

static void mark_used(const program *p, bool *used) {
  for (size_t i = 0; i < p->n_steps; i++) {
    const step *st = &p->steps[i];
    for (size_t k = 0; k < st->n_bodies; k++) mark_captured(st->bodies[k], used);
    for (size_t k = 0; k < st->n->n_in; k++) {
      bool packed = st->prepared && k < 32 && (st->row->prepared_in & IN(k));
      if (st->n->in[k] && !packed) used[st->n->in[k]->id] = true;
    }
  }
  for (size_t i = 0; i < p->g->n_outputs; i++) used[p->g->outputs[i]->id] = true;
}

static bool has_all_bytes(const value *v, err *e) {
  const tensor *t = v->constant;
  size_t count, bytes, each = dtype_shared(t->type);
  bool fits = dims_count(t->dims, t->rank, &count) && size_mul(count, each > 1 ? 1 : dtype_size(t->type), &bytes);
  if (fits && bytes / each + (bytes % each != 0) == t->bytes) return true;
  return FAIL(e, ERR_INVALID, "constant '%s' holds %zu bytes, which its shape and type do not give", v->name, t->bytes);
}

static bool hold_constant(program *p, mx_scope *s, const value *v, err *e) {
  if (!has_all_bytes(v, e)) return false;
  mx x = narrow_from(s, v->constant);
  p->constants[v->id] = mx_hold(x);
  if (p->constants[v->id]) return true;
  *e = *mx_error(s);
  if (err_ok(e)) FAIL(e, ERR_NO_MEMORY, "out of memory");
  return err_add(e, "constant '%s': ", v->name);
}

// The host's data goes away once the program is built. What translators read on the host, and what is small, is copied
// into the graph; of the rest only type and shape stay.
enum { SMALL_CONSTANT = 1024 };

static void mark_host_read(const program *p, bool *host) {
  for (size_t i = 0; i < p->n_steps; i++) {
    const step *st = &p->steps[i];
    for (size_t k = 0; k < st->n->n_in && k < 32; k++)
      if (st->n->in[k] && ((st->row->host_in | st->row->index_in) & IN(k))) host[st->n->in[k]->id] = true;
  }
}

static bool keep_host_copies(program *p, err *e) {
  graph *g = p->g;
  bool *host = ARENA_ARRAY(g->mem, bool, g->n_values);
  if (!host) return FAIL(e, ERR_NO_MEMORY, "out of memory for a program");
  mark_host_read(p, host);
  for (size_t i = 0; i < g->n_values; i++) {
    value *v = g->values[i];
    if (!v->constant) continue;
    tensor *t = arena_copy(g->mem, v->constant, sizeof *t);
    if (!t) return FAIL(e, ERR_NO_MEMORY, "out of memory for constant '%s'", v->name);
    bool keep = host[i] || t->bytes <= SMALL_CONSTANT;
    t->data = keep ? arena_copy(g->mem, t->data, t->bytes) : NULL;
    if (keep && !t->data) return FAIL(e, ERR_NO_MEMORY, "out of memory for constant '%s'", v->name);
    v->constant = t;
  }
  return true;
}

static bool hold_constants(program *p, err *e) {
  graph *g = p->g;
  p->used = ARENA_ARRAY(g->mem, bool, g->n_values);
  p->constants = ARENA_ARRAY(g->mem, mx_held *, g->n_values);
  mx_scope *s = mx_scope_new(p->device);
  bool ok = p->used && p->constants && s;
  if (!ok) FAIL(e, ERR_NO_MEMORY, "out of memory for a program");
  if (ok) mark_used(p, p->used);
  for (size_t i = 0; ok && i < g->n_values; i++)
    if (p->used[i] && g->values[i]->constant && !g->values[i]->outer) ok = hold_constant(p, s, g->values[i], e);
  mx_scope_free(s);
  return ok;
}

program *program_new(graph *g, mx_device device, err *e) {
  program *p = ARENA_NEW(g->mem, program);
  step *steps = p ? ARENA_ARRAY(g->mem, step, g->n_nodes) : NULL;
  if (!steps) {
    graph_free(g);
    FAIL(e, ERR_NO_MEMORY, "out of memory for a program");
    return NULL;
  }
  *p = (program){.g = g, .device = device, .steps = steps};
  bool ok = true;
  while (ok && p->n_steps < g->n_nodes) {
    ok = make_step(p, &steps[p->n_steps], &g->nodes[p->n_steps], e);
    p->n_steps++;
  }
  if (!ok || !hold_constants(p, e) || !keep_host_copies(p, e)) {
    program_free(p);
    return NULL;
  }
  graph_let_go(g);
  return p;
}

void program_free(program *p) {
  if (!p) return;
  for (size_t i = 0; i < p->n_steps; i++) {
    step *st = &p->steps[i];
    if (st->prepared && st->row->unprepare) st->row->unprepare(st->prepared);
    op_memo_clear(&st->memo);
    for (size_t k = 0; k < st->n_bodies; k++) program_free(st->bodies[k]);
  }
  for (size_t i = 0; p->constants && i < p->g->n_values; i++) mx_held_free(p->constants[i]);
  graph_free(p->g);
}
