#ifndef _GNU_SOURCE
#define _GNU_SOURCE  // dladdr
#endif
#include "ort/describe.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/text.h"
#include "ops/absent.h"
#include "ops/registry.h"
#include "ort/import.h"
#include "ort/version.h"

enum { KEEP_ENDED = 64 };

typedef struct placed_node {
  struct placed_node *next;
  const char *scope;   // the graph's name
  const char *output;  // its first one: with the scope, what tells one node from another
  const char *name, *domain, *op_type;
  const char *reason;  // NULL when it is on MLX
  size_t group;
  bool dropped;  // superseded by a later plan of the same graph
} placed_node;

struct session_record {
  session_record *next;  // newer
  arena *mem;
  uint64_t id;
  const engine *en;  // NULL once ended
  mx_device device;
  placed_node *first, *last;
  size_t groups;
  counters count;           // final ones
  rewrite_counts rewrites;  // final ones
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static session_record *oldest, *newest;
static uint64_t next_id;
static atomic_uint api_version;

void describe_api(uint32_t version) { atomic_store(&api_version, version); }

static void record_free(session_record *s) {
  arena_free(s->mem);  // the record lives in it
}

session_record *session_begin(const engine *en) {
  arena *mem = arena_new();
  session_record *s = mem ? ARENA_NEW(mem, session_record) : NULL;
  if (!s) {
    arena_free(mem);
    return NULL;
  }
  s->mem = mem;
  s->en = en;
  s->device = engine_device(en);
  pthread_mutex_lock(&lock);
  s->id = next_id++;
  if (newest) newest->next = s;
  else oldest = s;
  newest = s;
  pthread_mutex_unlock(&lock);
  return s;
}

// Under the lock: drops the oldest ended records beyond those that are kept.
static void trim(void) {
  size_t ended = 0;
  for (session_record *s = oldest; s; s = s->next) ended += s->en == NULL;
  session_record **link = &oldest, *before = NULL;
  while (*link) {
    session_record *s = *link;
    if (ended > KEEP_ENDED && !s->en) {
      *link = s->next;
      if (newest == s) newest = before;
      record_free(s);
      ended--;
    } else {
      before = s;
      link = &s->next;
    }
  }
}

void session_end(session_record *s) {
  if (!s) return;
  pthread_mutex_lock(&lock);
  counters_copy(&s->count, engine_counters(s->en));
  rewrite_copy(&s->rewrites, engine_rewrites(s->en));
  s->en = NULL;
  trim();
  pthread_mutex_unlock(&lock);
}

// When the library goes, so do the records of ended sessions (there are no others then).
__attribute__((destructor)) static void forget_all(void) {
  while (oldest) {
    session_record *s = oldest;
    oldest = s->next;
    record_free(s);
  }
  newest = NULL;
}

// The runtime plans a graph again after it has inlined functions: what is said last counts.
static void forget_node(session_record *s, const placed_node *last, const char *scope, const char *output) {
  for (placed_node *p = last ? s->first : NULL; p; p = p == last ? NULL : p->next)
    if (p->scope && p->output && !strcmp(p->scope, scope) && !strcmp(p->output, output)) p->dropped = true;
}

static const char *first_output(const node *n) {
  for (size_t i = 0; i < n->n_out; i++)
    if (n->out[i]) return n->out[i]->name;
  return "";
}

static void add_node(session_record *s, const char *scope, const node *n, const char *reason, size_t group) {
  placed_node *p = ARENA_NEW(s->mem, placed_node);
  if (!p) return;
  *p = (placed_node){.scope = scope,
                     .output = arena_str(s->mem, first_output(n)),
                     .name = arena_str(s->mem, n->name),
                     .domain = arena_str(s->mem, n->domain),
                     .op_type = arena_str(s->mem, n->op_type),
                     .reason = reason ? arena_str(s->mem, reason) : NULL,
                     .group = group};
  if (reason && !p->reason) p->reason = "";
  if (s->last) s->last->next = p;
  else s->first = p;
  s->last = p;
}

static const graph *body_at(const node *n, size_t attribute) {
  return n->attrs[attribute].kind == ATTR_GRAPH ? n->attrs[attribute].g : NULL;
}

// What was said of a graph's unclaimed nodes, and of those in its bodies.
static void forget_graph(session_record *s, const graph *g) {
  for (placed_node *n = s->first; n; n = n->next)
    if (n->reason && n->scope && !strcmp(n->scope, g->name)) n->dropped = true;
  for (size_t i = 0; i < g->n_nodes; i++)
    for (size_t k = 0; k < g->nodes[i].n_attrs; k++)
      if (body_at(&g->nodes[i], k)) forget_graph(s, body_at(&g->nodes[i], k));
}

typedef struct place {
  const char *reason;  // NULL for MLX
  size_t group;
  const placed_node *said;  // the last entry of earlier plans
} place;

static void add_bodies(session_record *s, const node *n, const place *at);

static void add_placed(session_record *s, const char *scope, const node *n, const place *at) {
  if (import_is_ours(n)) return;
  if (scope) forget_node(s, at->said, scope, first_output(n));
  add_node(s, scope, n, at->reason, at->group);
  add_bodies(s, n, at);
}

// Nodes of bodies are where their control-flow node is.
static void add_bodies(session_record *s, const node *n, const place *at) {
  place inside = *at;
  if (at->reason) inside.reason = "the node is in the body of a control-flow node that is not on MLX";
  for (size_t k = 0; k < n->n_attrs; k++) {
    const graph *body = body_at(n, k);
    const char *scope = body ? arena_str(s->mem, body->name) : NULL;
    for (size_t i = 0; body && i < body->n_nodes; i++) add_placed(s, scope, &body->nodes[i], &inside);
  }
}

void session_plan(session_record *s, const graph *g, const plan *p, const char *reason) {
  if (!s) return;
  pthread_mutex_lock(&lock);
  const char *scope = arena_str(s->mem, g->name);
  forget_graph(s, g);
  place at = {.said = s->last};
  for (size_t i = 0; i < g->n_nodes; i++) {
    bool claimed = p && p->nodes[i].group >= 0;
    at.reason = claimed ? NULL : p && p->nodes[i].reason ? p->nodes[i].reason : reason;
    at.group = claimed ? s->groups + (size_t)p->nodes[i].group : 0;
    add_placed(s, scope, &g->nodes[i], &at);
  }
  if (p) s->groups += p->n_groups;
  pthread_mutex_unlock(&lock);
}

static void put_node(text *t, const placed_node *n, bool *some) {
  text_put(t, *some ? ",{\"name\":" : "{\"name\":");
  *some = true;
  text_json(t, n->name);
  text_put(t, ",\"domain\":");
  text_json(t, n->domain);
  text_put(t, ",\"op_type\":");
  text_json(t, n->op_type);
}

static void put_declined(text *t, const session_record *s) {
  bool some = false;
  text_put(t, ",\"declined\":[");
  for (const placed_node *n = s->first; n; n = n->next) {
    if (n->dropped || !n->reason) continue;
    put_node(t, n, &some);
    text_put(t, ",\"reason\":");
    text_json(t, n->reason);
    text_put(t, "}");
  }
  text_put(t, "]");
}

static void put_placed(text *t, const session_record *s) {
  bool some = false;
  text_put(t, ",\"placed\":[");
  for (const placed_node *n = s->first; n; n = n->next) {
    if (n->dropped) continue;
    put_node(t, n, &some);
    if (n->reason) text_put(t, ",\"place\":\"CPU\",\"group\":null}");
    else text_put(t, ",\"place\":\"MLX\",\"group\":%zu}", n->group);
  }
  text_put(t, "]");
}

static const char *device_name(mx_device d) { return d == MX_GPU ? "gpu" : "cpu"; }

static bool group_lives(const session_record *s, size_t group) {
  for (const placed_node *n = s->first; n; n = n->next)
    if (!n->dropped && !n->reason && n->group == group) return true;
  return false;
}

static void put_session(text *t, const session_record *s) {
  size_t nodes = 0, claimed = 0, groups = 0;
  for (size_t group = 0; group < s->groups; group++) groups += group_lives(s, group);
  for (const placed_node *n = s->first; n; n = n->next) {
    nodes += !n->dropped;
    claimed += !n->dropped && !n->reason;
  }
  const counters *count = s->en ? engine_counters(s->en) : &s->count;
  unsigned long long total = 0;
  for (int r = 0; r < ROUTE_COUNT; r++) total += atomic_load(&count->runs[r]);
  text_put(t, "{\"id\":%" PRIu64 ",\"live\":%s,\"device\":\"%s\",\"nodes\":%zu,\"claimed\":%zu,\"groups\":%zu", s->id,
           s->en ? "true" : "false", device_name(s->device), nodes, claimed, groups);
  put_declined(t, s);
  put_placed(t, s);
  text_put(t, ",\"runs\":%llu,\"routes\":", total);
  counters_runs_json(count, t);
  text_put(t, ",\"counters\":");
  counters_json(count, t);
  text_put(t, ",\"rewrites\":");
  rewrite_json(s->en ? engine_rewrites(s->en) : &s->rewrites, t);
  text_put(t, "}");
}

static void put_sessions(text *t) {
  text_put(t, "[");
  pthread_mutex_lock(&lock);
  for (const session_record *s = oldest; s; s = s->next) {
    if (s != oldest) text_put(t, ",");
    put_session(t, s);
  }
  pthread_mutex_unlock(&lock);
  text_put(t, "]");
}

static void put_traits(text *t, uint32_t traits) {
  static const struct {
    uint32_t bit;
    const char *name;
  } NAMES[] = {{OP_NO_TRACE, "no_trace"},
               {OP_CHEAP, "cheap"},
               {OP_RANDOM, "random"},
               {OP_KV, "kv"},
               {OP_ANY_TYPE, "any_type"},
               {OP_NARROW, "narrow_types"}};
  bool some = false;
  text_put(t, ",\"traits\":[");
  for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
    if (!(traits & NAMES[i].bit)) continue;
    text_put(t, "%s\"%s\"", some ? "," : "", NAMES[i].name);
    some = true;
  }
  text_put(t, "]");
}

// The types of the main input. Without a set of its own a row takes all that MLX has, but for complex64, which no model that
// ONNX Runtime loads has.
static void put_types(text *t, const op_row *row) {
  dtypes set = row->types ? row->types : row->traits & OP_NARROW ? DTS_TENSOR | DTS_NARROW : DTS_TENSOR;
  bool some = false;
  text_put(t, ",\"types\":[");
  for (int i = DT_NONE + 1; i < DT_COUNT; i++) {
    if (!dtype_in((dtype)i, set)) continue;
    text_put(t, "%s\"%s\"", some ? "," : "", dtype_name((dtype)i));
    some = true;
  }
  text_put(t, "]");
}

static void put_inputs(text *t, const char *name, uint32_t inputs) {
  bool some = false;
  text_put(t, ",\"%s\":[", name);
  for (int i = 0; i < 32; i++) {
    if (!(inputs & IN(i))) continue;
    text_put(t, "%s%d", some ? "," : "", i);
    some = true;
  }
  text_put(t, "]");
}

// The routes that a group with this node can take.
static const char *compiles(const op_row *row) {
  if (row->traits & OP_RANDOM) return "eager only: random";
  if (row->traits & OP_NO_TRACE) return "eager only";
  return row->past_in ? "decode/prefill" : "general";
}

static void put_row(text *t, const op_row *row) {
  text_put(t, "{\"domain\":");
  text_json(t, row->domain);
  text_put(t, ",\"op_type\":");
  text_json(t, row->type);
  text_put(t, ",\"since\":%d,\"until\":", row->since);
  if (row->until == ANY) text_put(t, "null");
  else text_put(t, "%d", row->until);
  put_types(t, row);
  if (row->typed_in == ALL_IN) text_put(t, ",\"typed_in\":null");
  else put_inputs(t, "typed_in", row->typed_in ? row->typed_in : IN(0));
  text_put(t, ",\"limits\":");
  text_json(t, row->limits);
  text_put(t, ",\"compiles\":\"%s\"", compiles(row));
  put_inputs(t, "by_value", row->traits & OP_NO_TRACE ? 0 : row->host_in);
  put_traits(t, row->traits);
  text_put(t, "}");
}

static void put_ops(text *t) {
  const op_row *row;
  bool some = false;
  text_put(t, "[");
  for (size_t i = 0; (row = registry_row(i)); i++) {
    if (!strcmp(row->domain, "mlx")) continue;  // made by rewrites alone
    if (some) text_put(t, ",");
    put_row(t, row);
    some = true;
  }
  text_put(t, "]");
}

static void put_absent(text *t) {
  const absent *a;
  text_put(t, "[");
  for (size_t i = 0; (a = absent_row(i)); i++) {
    text_put(t, "%s{\"domain\":", i ? "," : "");
    text_json(t, a->domain);
    text_put(t, ",\"op_type\":");
    text_json(t, a->type);
    text_put(t, ",\"reason\":");
    text_json(t, a->reason);
    text_put(t, "}");
  }
  text_put(t, "]");
}

static const int here = 0;  // an address of this library

static void put_info(text *t) {
  opts o;
  opts_init(&o);
  err none = {0};
  Dl_info info;
  bool found = dladdr(&here, &info) != 0;
  text_put(t, "{\"version\":\"" MLXEP_VERSION "\",\"ort_api\":");
  unsigned api = atomic_load(&api_version);
  if (api) text_put(t, "%u", api);
  else text_put(t, "null");
  text_put(t, ",\"mlx\":");
  text_json(t, mx_version());
  text_put(t, ",\"device\":\"%s\",\"library\":", device_name(engine_default_device(&o, &none)));
  text_json(t, found ? info.dli_fname : NULL);
  text_put(t, "}");
}

size_t describe(const char *topic, char *out, size_t cap) {
  text t = {0};
  if (!topic) topic = "";
  if (!strcmp(topic, "info")) put_info(&t);
  else if (!strcmp(topic, "ops")) put_ops(&t);
  else if (!strcmp(topic, "absent")) put_absent(&t);
  else if (!strcmp(topic, "sessions")) put_sessions(&t);
  else if (!strcmp(topic, "counters")) counters_json(counters_of_process(), &t);
  size_t len = t.failed ? 0 : t.len, n = len < cap ? len : cap ? cap - 1 : 0;
  if (out && cap) {
    if (n) memcpy(out, t.s, n);
    out[n] = '\0';
  }
  text_free(&t);
  return len;
}
