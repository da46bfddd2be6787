#include "run/layout.h"

#include <string.h>

// ---- a program --------------------------------------------------------------------------------------------------------
static int output_at(const graph *g, const value *v) {
  for (size_t i = 0; v && i < g->n_outputs; i++)
    if (g->outputs[i] == v) return (int)i;
  return -1;
}

static int input_named(const graph *g, const char *name) {
  for (size_t i = 0; i < g->n_inputs; i++)
    if (!strcmp(g->inputs[i]->name, name)) return (int)i;
  return -1;
}

static const value *at(value **list, size_t n, size_t i) { return i < n ? list[i] : NULL; }

// The graph's inputs that v is computed from, by their values: what Shape and Size give depends on shapes alone.
static void mark_by_value(const graph *g, const value *v, bool *seen, bool *by_value) {
  while (v && v->outer) v = v->outer;
  if (!v || v->constant || v->id >= g->n_values || g->values[v->id] != v || seen[v->id]) return;
  seen[v->id] = true;
  int i = graph_input_of(g, v);
  if (i >= 0) by_value[i] = true;
  const node *n = v->producer;
  if (!n || !strcmp(n->op_type, "Shape") || !strcmp(n->op_type, "Size")) return;
  for (size_t k = 0; k < n->n_in; k++) mark_by_value(g, n->in[k], seen, by_value);
  for (size_t k = 0; k < n->n_captures; k++) mark_by_value(g, n->captures[k], seen, by_value);
}

// A cache is the border's when its past is read, and its present made, by this node alone.
static bool cache_at_border(const graph *g, const step *st, cache_node *c) {
  const node *n = st->n;
  c->n = n;
  for (size_t k = 0; k < 2; k++) {
    const value *past = at(n->in, n->n_in, st->row->past_in + k), *present = at(n->out, n->n_out, st->row->present_out + k);
    int in = graph_input_of(g, past), out = output_at(g, present);
    if (in < 0 || out < 0 || past->consumers != 1 || present->consumers || past->type != present->type) return false;
    c->past[k] = (size_t)in;
    c->present[k] = (size_t)out;
  }
  return true;
}

static bool has_past(const step *st) {
  return st->row->past_in && at(st->n->in, st->n->n_in, st->row->past_in) != NULL;
}

static void find_caches(const program *p, layout *l) {
  for (size_t i = 0; i < p->n_steps; i++) {
    const step *st = &p->steps[i];
    if (!has_past(st)) continue;
    cache_node *c = &l->caches[l->n_caches];
    if (!cache_at_border(p->g, st, c)) {
      l->never = WHY_CACHE;
      return;
    }
    for (size_t k = 0; k < 2; k++) {
      l->past_of[c->past[k]] = (int)l->n_caches;
      l->cache_of[c->present[k]] = (int)l->n_caches;
    }
    l->n_caches++;
  }
}

static void find_host_reads(const program *p, layout *l, bool *seen) {
  for (size_t i = 0; i < p->n_steps; i++) {
    const step *st = &p->steps[i];
    // A node whose cache is the route's takes lengths and positions as data.
    for (size_t k = 0; k < st->n->n_in && k < 32 && !has_past(st); k++)
      if (st->row->host_in & IN(k)) mark_by_value(p->g, st->n->in[k], seen, l->by_value);
  }
}

// Where the number of new rows stands: the ids' last axis, the embeddings' middle one, or an attention node's own query.
static void find_rows(const graph *g, layout *l) {
  static const char *const NAMES[] = {"input_ids", "inputs_embeds", "position_ids"};
  l->rows_of = -1;
  for (size_t k = 0; k < 3 && l->rows_of < 0; k++) {
    l->rows_of = input_named(g, NAMES[k]);
    l->rows_axis = k == 1 ? 1 : -1;
  }
  for (size_t c = 0; c < l->n_caches && l->rows_of < 0; c++) {
    l->rows_of = graph_input_of(g, l->caches[c].n->in[0]);
    l->rows_axis = l->rows_of >= 0 && g->inputs[l->rows_of]->rank == 4 ? CACHE_ROWS : 1;
  }
}

static void find_total(const graph *g, layout *l) {
  l->total = l->mask = -1;
  for (size_t c = 0; c < l->n_caches && l->total < 0; c++) {
    const node *n = l->caches[c].n;
    if (!strcmp(n->op_type, "GroupQueryAttention")) l->total = graph_input_of(g, at(n->in, n->n_in, 6));
  }
  if (l->total >= 0 && g->inputs[l->total]->type != DT_I32) l->total = -1;
  if (l->n_caches) l->mask = input_named(g, "attention_mask");
}

bool layout_of(const program *p, layout *l, err *e) {
  const graph *g = p->g;
  *l = (layout){.by_value = ARENA_ARRAY(g->mem, bool, g->n_inputs),
                .cache_of = ARENA_ARRAY(g->mem, int, g->n_outputs),
                .past_of = ARENA_ARRAY(g->mem, int, g->n_inputs),
                .caches = ARENA_ARRAY(g->mem, cache_node, p->n_steps)};
  bool *seen = ARENA_ARRAY(g->mem, bool, g->n_values);
  if (!l->by_value || !l->cache_of || !l->past_of || !l->caches || !seen)
    return FAIL(e, ERR_NO_MEMORY, "out of memory for a program");
  for (size_t i = 0; i < g->n_inputs; i++) l->past_of[i] = -1;
  for (size_t i = 0; i < g->n_outputs; i++) l->cache_of[i] = -1;
  if (p->traits & (OP_NO_TRACE | OP_RANDOM)) l->never = WHY_DATA;
  find_caches(p, l);
  find_host_reads(p, l, seen);
  find_rows(g, l);
  find_total(g, l);
  for (size_t i = 0; i < g->n_inputs; i++) l->n_traced += !l->by_value[i];
  if (!l->n_traced || !g->n_outputs) l->never = WHY_BORDER;
  return true;
}

// ---- a run --------------------------------------------------------------------------------------------------------------
static int64_t dim_at(const tensor *t, int axis) {
  int a = axis < 0 ? axis + t->rank : axis;
  return a >= 0 && a < t->rank ? t->dims[a] : -1;
}

// Past and new rows; -1 if nothing tells.
static int64_t total_of(const layout *l, const run_io *io) {
  if (l->total >= 0 && io->in[l->total].bytes >= sizeof(int32_t)) return *(const int32_t *)io->in[l->total].data;
  return l->mask >= 0 && io->in[l->mask].rank == 2 ? io->in[l->mask].dims[1] : -1;
}

static bool lengths_agree(const layout *l, const run_io *io) {
  for (size_t c = 0; c < l->n_caches; c++)
    if (dim_at(&io->in[l->caches[c].past[0]], CACHE_ROWS) != dim_at(&io->in[l->caches[c].past[1]], CACHE_ROWS)) return false;
  return true;
}

facts facts_of(const layout *l, const run_io *io) {
  facts f = {.kind = ROUTE_GENERAL, .rows = 1, .sound = true};
  if (!l->n_caches) return f;
  int64_t rows = l->rows_of >= 0 ? dim_at(&io->in[l->rows_of], l->rows_axis) : -1, total = total_of(l, io);
  int64_t capacity = dim_at(&io->in[l->caches[0].past[0]], CACHE_ROWS);
  if (rows > 0) f.rows = rows;
  f.kind = f.rows == 1 ? ROUTE_DECODE : ROUTE_PREFILL;
  f.past = capacity < 0 ? 0 : capacity;
  bool known = rows > 0 && total >= rows;
  if (known && capacity > total - rows) f.past = total - rows;  // shared: there is room for more
  f.first = known && total == rows;
  f.total = known ? total : f.past + f.rows;
  f.sound = f.total == f.past + f.rows && lengths_agree(l, io);
  return f;
}

bool facts_free(const layout *l, const facts *f, const graph *g, const run_io *io, size_t i, int axis) {
  if (!l->n_caches || f->past < 1 || l->by_value[i]) return false;
  const tensor *t = &io->in[i];
  if (l->past_of[i] >= 0) return axis == CACHE_ROWS;
  const value *v = g->inputs[i];
  bool open = v->rank < 0 || v->dims[axis] < 0;
  return open && t->rank > 1 && axis == t->rank - 1 && t->dims[axis] == f->total && f->total > f->rows;
}

int64_t facts_dim(const layout *l, const facts *f, const run_io *io, size_t i, int axis) {
  bool rows = l->past_of[i] >= 0 && axis == CACHE_ROWS;
  return rows && f->past < io->in[i].dims[axis] ? f->past : io->in[i].dims[axis];
}
