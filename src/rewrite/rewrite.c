#include "rewrite/rewrite.h"

#include <stdio.h>
#include <string.h>

#include "rewrite/passes.h"

typedef struct pass {
  const char *name;
  rewrite_fn fn;
} pass;

// In the order that they are made. Constants and no-ops first, since they hide patterns; no-ops again at the end, since
// rewrites leave some.
static const pass PASSES[] = {
    {"noop", rewrite_noop},           {"fold", rewrite_fold},           {"gelu", rewrite_gelu},
    {"silu", rewrite_silu},           {"layer_norm", rewrite_layer_norm}, {"rms_norm", rewrite_rms_norm},
    {"attention", rewrite_attention}, {"merge_matmul", rewrite_merge},
};
enum { N_PASSES = sizeof PASSES / sizeof PASSES[0], NOOP = 0 };
_Static_assert((int)N_PASSES <= (int)REWRITE_MAX, "a count for each");

const char *rewrite_name(size_t i) { return i < N_PASSES ? PASSES[i].name : NULL; }

void rewrite_json(const rewrite_counts *c, text *out) {
  bool some = false;
  text_put(out, "{");
  for (size_t i = 0; i < N_PASSES; i++) {
    unsigned long long n = atomic_load(&c->made[i]);
    if (n) text_put(out, "%s\"%s\":%llu", some ? "," : "", PASSES[i].name, n);
    some = some || n;
  }
  text_put(out, "}");
}

void rewrite_copy(rewrite_counts *to, const rewrite_counts *from) {
  for (size_t i = 0; i < N_PASSES; i++) to->made[i] = atomic_load(&from->made[i]);
}

// ---- the switch -----------------------------------------------------------------------------------------------------------
static bool switch_off(bool off[N_PASSES], const char *name, size_t len, err *e) {
  bool all = len == 3 && !strncmp(name, "all", 3), found = all || !len;
  for (size_t i = 0; i < N_PASSES; i++) {
    bool this = strlen(PASSES[i].name) == len && !strncmp(PASSES[i].name, name, len);
    found = found || this;
    off[i] = off[i] || all || this;
  }
  if (found) return true;
  char known[OPTS_TEXT] = "all";
  for (size_t i = 0, at = 3; i < N_PASSES && at < sizeof known; i++)
    at += (size_t)snprintf(known + at, sizeof known - at, ", %s", PASSES[i].name);
  return FAIL(e, ERR_INVALID, "option disable_rewrites names '%.*s'; known: %s", (int)len, name, known);
}

static bool read_switches(bool off[N_PASSES], const char *list, err *e) {
  for (const char *s = list; *s;) {
    while (*s == ' ') s++;
    size_t len = strcspn(s, ", ");
    if (!switch_off(off, s, len, e)) return false;
    s += len;
    while (*s == ' ' || *s == ',') s++;
  }
  return true;
}

// ---- passes ---------------------------------------------------------------------------------------------------------------
typedef struct rewriting {
  mx_device device;
  bool off[N_PASSES];
  size_t loose;
  rewrite_counts *counts;
} rewriting;

static bool run_pass(rewriting *r, graph *g, size_t which, err *e) {
  if (r->off[which]) return true;
  edit ed;
  bool ok = edit_open(&ed, g, r->device, e);
  ed.loose = r->loose;
  for (size_t i = 0; ok && i < ed.n; i++) {
    if (ed.order[i]) PASSES[which].fn(&ed, ed.order[i]);
    ok = err_ok(e);
  }
  r->loose = ed.loose;
  if (ed.made) atomic_fetch_add(&r->counts->made[which], ed.made);
  return edit_close(&ed) && ok;
}

static bool rewrite_graph(rewriting *r, graph *g, err *e);

// A body may read what has become a constant.
static void pass_constants_on(graph *body) {
  for (size_t i = 0; i < body->n_values; i++) {
    value *v = body->values[i];
    if (v->outer && v->outer->constant && !v->constant) v->constant = v->outer->constant;
  }
}

static bool rewrite_bodies(rewriting *r, const graph *g, err *e) {
  for (size_t i = 0; i < g->n_nodes; i++)
    for (size_t k = 0; k < g->nodes[i].n_attrs; k++) {
      graph *body = g->nodes[i].attrs[k].kind == ATTR_GRAPH ? g->nodes[i].attrs[k].g : NULL;
      if (!body) continue;
      pass_constants_on(body);
      if (!rewrite_graph(r, body, e)) return err_add(e, "node '%s' (%s): ", g->nodes[i].name, g->nodes[i].op_type);
    }
  return true;
}

static bool rewrite_graph(rewriting *r, graph *g, err *e) {
  for (size_t i = 0; i < N_PASSES; i++)
    if (!run_pass(r, g, i, e)) return false;
  return run_pass(r, g, NOOP, e) && rewrite_bodies(r, g, e);
}

bool rewrite_all(graph *g, mx_device d, const opts *o, rewrite_counts *counts, err *e) {
  rewriting r = {.device = d, .counts = counts};
  return read_switches(r.off, o->no_rewrites, e) && rewrite_graph(&r, g, e);
}
