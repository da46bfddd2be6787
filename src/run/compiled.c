#include "run/compiled.h"

#include "run/cache.h"
#include "run/slots.h"
#include "run/trace.h"

enum {
  KEYED_BYTES = 1024,    // of an input that is read on the host
  TRACED_AT_SIGHT = 8    // closures; later ones wait until their key comes a second time
};

struct compiled {
  program *p;
  const opts *o;
  counters *count;
  const log_sink *log;
  const struct cpu_pool *pool;
  layout l;
  slots slots;
  run_key key;  // of the run in hand
  run_config keyed;  // of a route whose traces depend on the cache's length; its kind is ROUTE_EAGER while there is none
  mx *in, *out;
};

compiled *compiled_new(program *p, const opts *o, counters *count, const log_sink *log, const struct cpu_pool *pool, err *e) {
  compiled *c = mem_alloc(sizeof *c);
  if (!c) {
    FAIL(e, ERR_NO_MEMORY, "out of memory for a kernel");
    return NULL;
  }
  *c = (compiled){.p = p, .o = o, .count = count, .log = log, .pool = pool};
  if (layout_of(p, &c->l, e) && slots_init(&c->slots, o->closures, e)) {
    c->in = mem_alloc((c->l.n_traced + 1) * sizeof *c->in);
    c->out = mem_alloc(trace_outputs(p, &c->l) * sizeof *c->out);
    if (c->in && c->out) return c;
    FAIL(e, ERR_NO_MEMORY, "out of memory for a kernel");
  }
  compiled_free(c);
  return NULL;
}

void compiled_free(compiled *c) {
  if (!c) return;
  slots_free(&c->slots);
  key_free(&c->key);
  mem_free(c->in);
  mem_free(c->out);
  mem_free(c);
}

// ---- which closure ------------------------------------------------------------------------------------------------------
static bool switched_off(const opts *o, route_kind kind) {
  return o->no_compile || (kind == ROUTE_GENERAL && o->no_general_compile) || (kind == ROUTE_PREFILL && o->no_prefill_compile);
}

static why_eager refuse(const compiled *c, const facts *f, const run_io *io) {
  if (switched_off(c->o, f->kind)) return WHY_SWITCH;
  if (c->l.never != WHY_NONE) return c->l.never;
  if (!f->sound) return WHY_REQUIRED;
  for (size_t i = 0; i < io->n_in; i++) {
    const tensor *t = &io->in[i];
    if (c->l.by_value[i] && t->bytes > KEYED_BYTES) return WHY_LARGE_VALUE;
    for (int a = 0; a < t->rank; a++)
      if (!t->dims[a] && !(c->l.past_of[i] >= 0 && a == CACHE_ROWS)) return WHY_EMPTY;
  }
  return WHY_NONE;
}

// Everything that a trace may keep: sizes that are not free, values that the host reads, the first prompt.
static void make_key(compiled *c, const facts *f, const run_config *config, const run_io *io) {
  run_key *k = &c->key;
  key_clear(k);
  key_put(k, (int64_t)f->kind * 4 + (f->first ? 2 : 0) + (f->past > 0));
  for (size_t i = 0; i < io->n_in; i++) {
    const tensor *t = &io->in[i];
    key_put(k, t->rank);
    for (int a = 0; a < t->rank; a++) {
      bool open = config->open && facts_free(&c->l, f, c->p->g, io, i, a);
      key_put(k, open ? -1 : facts_dim(&c->l, f, io, i, a));
    }
    if (c->l.by_value[i]) key_put_bytes(k, t->data, t->bytes);
  }
}

static void trace_into(compiled *c, slot *s, const facts *f, const run_config *config, const run_io *io) {
  err e = {0};
  COUNT(c->count, traces, 1);
  s->fn = trace_program(c->p, &c->l, f, config, io, c->pool, &s->closed, &e);
  if (s->fn) COUNT(c->count, compiles, 1);
  else log_put(c->log, LOG_VERBOSE, "no %s closure, %s: %s", route_name(f->kind), why_text(s->closed), e.msg);
}

static slot *slot_for(compiled *c, const facts *f, const run_config *config, const run_io *io, why_eager *why) {
  make_key(c, f, config, io);
  *why = c->key.failed ? WHY_MEMORY : WHY_NONE;
  c->key.failed = false;
  if (*why) return NULL;
  slot *s = slots_find(&c->slots, &c->key);
  if (s) {
    if (s->fn) COUNT(c->count, hits, 1);
  } else {
    bool evicted;
    if (c->slots.n >= TRACED_AT_SIGHT && !slots_seen(&c->slots, &c->key)) {
      *why = WHY_NEW_SHAPES;
      return NULL;
    }
    s = slots_add(&c->slots, &c->key, &evicted);
    if (evicted) COUNT(c->count, evictions, 1);
    trace_into(c, s, f, config, io);
  }
  if (!s->fn) *why = s->closed;
  return s->fn ? s : NULL;
}

static slot *open_or_keyed(compiled *c, const facts *f, const run_io *io, why_eager *why) {
  const run_config *config = c->keyed.kind == f->kind ? &c->keyed : run_config_of(f->kind);
  slot *s = slot_for(c, f, config, io, why);
  if (s || *why != WHY_SIZE || !config->open || !config->keyed_else) return s;
  c->keyed = *config;
  c->keyed.open = false;
  return slot_for(c, f, &c->keyed, io, why);
}

// ---- a run --------------------------------------------------------------------------------------------------------------
static why_eager close_for(slot *s, why_eager why) {
  mx_fn_free(s->fn);
  s->fn = NULL;
  s->closed = why;
  return why;
}

// Lets go of the run's arrays but the outputs, and computes those.
static bool evaluate(compiled *c, mx_scope *s, size_t n_out) {
  mx_scope_keep(s, c->out, n_out);
  return mx_eval(s, c->out, n_out);
}

// Every required value was in range, and every new row stands where the run assumed?
static bool holds(compiled *c, const facts *f, const run_io *io) {
  size_t n = c->p->g->n_outputs;
  for (size_t k = 0; k < c->l.n_caches; k++) {
    const int32_t *at = mx_read(c->out[n + k]);
    if (!at || !cache_places_fit(&c->l, f, io, k, at, mx_size(c->out[n + k]))) return false;
  }
  const bool *ok = mx_read(c->out[n + c->l.n_caches]);
  return ok && *ok;
}

static bool write_present(compiled *c, const run_io *io, size_t i, err *e) {
  mx rows = c->out[i], at = c->out[c->p->g->n_outputs + (size_t)c->l.cache_of[i]];
  int64_t dims[4];
  for (int a = 0; a < 4; a++) dims[a] = mx_dim(rows, a);
  const void *p = mx_size(rows) ? mx_read(rows) : "";
  const int32_t *places = mx_read(at);
  return p && places && cache_write(&c->l, io, i, p, dims, dtype_size(mx_dtype(rows)), places, mx_size(at), e);
}

static bool write_all(compiled *c, const run_io *io, err *e) {
  bool ok = true;
  for (size_t i = 0; ok && i < io->n_out; i++)
    ok = c->l.cache_of[i] >= 0 ? write_present(c, io, i, e) : io_write_one(c->p->g, io, i, c->out[i], e);
  return ok;
}

static compiled_result run_in(compiled *c, slot *at, const facts *f, const run_io *io, mx_scope *s, why_eager *why, err *e) {
  size_t n_out = trace_outputs(c->p, &c->l);
  mx_set_pool(s, c->pool);
  if (!trace_inputs(c->p, &c->l, f, io, s, c->in) || !mx_apply(at->fn, s, c->in, c->l.n_traced, c->out)) {
    *why = close_for(at, WHY_APPLY);
  } else if (!evaluate(c, s, n_out)) {
    *why = close_for(at, WHY_EVALUATION);
  } else if (!holds(c, f, io)) {
    *why = mx_ok(s) ? WHY_REQUIRED : close_for(at, WHY_EVALUATION);
  } else if (write_all(c, io, e)) {
    return COMPILED_DONE;
  } else if (!err_ok(e)) {
    return COMPILED_FAILED;
  } else {  // nothing is lost: the eager run writes the same outputs, and the same rows of a shared cache
    *why = close_for(at, WHY_EVALUATION);
  }
  if (!mx_ok(s)) log_put(c->log, LOG_WARNING, "a %s closure is closed, %s: %s", route_name(f->kind), why_text(*why), mx_error(s)->msg);
  return COMPILED_EAGER;
}

compiled_result compiled_run(compiled *c, const run_io *io, route_kind *kind, why_eager *why, err *e) {
  facts f = facts_of(&c->l, io);
  *kind = f.kind;
  *why = io->n_in == c->p->g->n_inputs && io->n_out == c->p->g->n_outputs ? refuse(c, &f, io) : WHY_BORDER;
  slot *at = *why ? NULL : open_or_keyed(c, &f, io, why);
  if (!at) return COMPILED_EAGER;
  mx_scope *s = mx_scope_new(c->p->device);
  if (!s) {
    *why = WHY_MEMORY;
    return COMPILED_EAGER;
  }
  compiled_result r = run_in(c, at, &f, io, s, why, e);
  mx_scope_free(s);
  return r;
}
