#include "ort/ep.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "ort/body.h"
#include "ort/describe.h"
#include "ort/import.h"
#include "ort/kernel.h"
#include "ort/version.h"

typedef struct ep {
  OrtEp base;  // first: ORT hands back a pointer to it
  const ort *o;
  opts options;
  ort_log log_host;
  log_sink log;
  engine *en;
  kernel_host host;
  session_record *record;
  arena *mem;
  const char *named;  // the first graph that has fused nodes
} ep;
_Static_assert(offsetof(ep, base) == 0, "an ep is an OrtEp");

static const char *get_name(const OrtEp *self) {
  (void)self;
  return MLXEP_NAME;
}

// ---- GetCapability --------------------------------------------------------------------------------------------------
static bool add_group(const ep *p, const graph *g, const plan *pl, int group, const OrtNode **nodes,
                      OrtEpGraphSupportInfo *info, err *e) {
  size_t n = 0;
  for (size_t i = 0; i < g->n_nodes; i++)
    if (pl->nodes[i].group == group) nodes[n++] = g->nodes[i].host;
  // Constants are copied when the group is built: the runtime need not keep them for us.
  OrtNodeFusionOptions options = {.ort_version_supported = p->o->version, .drop_constant_initializers = true};
  return !n || ORT_EP_CALL(p->o, e, EpGraphSupportInfo_AddNodesToFuse, info, nodes, n, &options);
}

static void log_plan(const ep *p, const graph *g, const plan *pl) {
  log_put(&p->log, LOG_INFO, "MLX takes %zu of %zu nodes in %zu groups of graph '%s'", pl->n_claimed, g->n_nodes,
          pl->n_groups, g->name);
  for (size_t i = 0; i < g->n_nodes; i++)
    if (pl->nodes[i].reason)
      log_put(&p->log, LOG_VERBOSE, "not on MLX: node '%s' (%s): %s", g->nodes[i].name, g->nodes[i].op_type,
              pl->nodes[i].reason);
}

static void claim_graph(ep *p, const graph *g, OrtEpGraphSupportInfo *info, err *e) {
  plan *pl = plan_new(g, engine_device(p->en), &p->options, e);
  const OrtNode **nodes = pl ? ARENA_ARRAY(pl->mem, const OrtNode *, g->n_nodes) : NULL;
  if (pl && !nodes) FAIL(e, ERR_NO_MEMORY, "out of memory for %zu nodes", g->n_nodes);
  for (size_t i = 0; nodes && i < pl->n_groups && err_ok(e); i++) add_group(p, g, pl, (int)i, nodes, info, e);
  if (nodes && err_ok(e)) {
    if (pl->n_groups && !p->named) p->named = arena_str(p->mem, g->name);
    session_plan(p->record, g, pl, NULL);
    log_plan(p, g, pl);
  }
  plan_free(pl);
}

// API 23 names fused nodes by a number that starts again in each body, and refuses two of one name: there only the
// first graph that has groups gets them.
static bool names_are_free(const ep *p, const graph *g) {
  return p->o->version >= ORT_API_PARENT_NODE || !p->named || !strcmp(p->named, g->name);
}

static OrtStatus *get_capability(OrtEp *self, const OrtGraph *src, OrtEpGraphSupportInfo *info) {
  ep *p = (ep *)self;
  err e = {0};
  graph *g = import_graph(p->o, src, &e);
  bool body = g && graph_is_body(p->o, src, g, &e);  // those are planned with the node that holds them
  if (g && !body && err_ok(&e) && names_are_free(p, g)) claim_graph(p, g, info, &e);
  else if (g && !body) session_plan(p->record, g, NULL, "ONNX Runtime 1.23 takes fused nodes in one graph of a model only");
  graph_free(g);
  if (!err_ok(&e)) err_add(&e, "MLX cannot plan the model: ");
  return ort_status(p->o, &e);
}

// ---- Compile --------------------------------------------------------------------------------------------------------
static OrtNodeComputeInfo *compile_one(const ep *p, const OrtGraph *src, const OrtNode *fused, err *e) {
  fused_graph f;
  return import_fused(p->o, src, fused, &f, e) ? kernel_info_new(&p->host, &f, e) : NULL;
}

static void release_compute_infos(OrtEp *self, OrtNodeComputeInfo **infos, size_t n) {
  (void)self;
  for (size_t i = 0; i < n; i++) {
    kernel_info_free(infos[i]);
    infos[i] = NULL;
  }
}

static OrtStatus *compile(OrtEp *self, const OrtGraph **graphs, const OrtNode **fused, size_t n,
                          OrtNodeComputeInfo **infos, OrtNode **context_nodes) {
  const ep *p = (const ep *)self;
  err e = {0};
  (void)context_nodes;  // there is no saved form of a program
  for (size_t i = 0; i < n; i++) infos[i] = NULL;
  for (size_t i = 0; i < n && err_ok(&e); i++) infos[i] = compile_one(p, graphs[i], fused[i], &e);
  if (err_ok(&e)) return NULL;
  release_compute_infos(self, infos, n);
  err_add(&e, "MLX cannot compile its part of the model: ");
  return ort_status(p->o, &e);
}

static OrtStatus *concurrent_runs(OrtEp *self, bool *yes) {
  (void)self;
  *yes = true;
  return NULL;
}

// ---- life -----------------------------------------------------------------------------------------------------------
static const OrtEp TABLE = {.GetName = get_name,
                            .GetCapability = get_capability,
                            .Compile = compile,
                            .ReleaseNodeComputeInfos = release_compute_infos,
                            .GetPreferredDataLayout = NULL,  // the runtime's own, NCHW
                            .SetDynamicOptions = NULL,       // there are none
                            .IsConcurrentRunSupported = concurrent_runs};

// The size of the intra-op pool cannot be asked for; the pool runs more parts than it has threads one after another.
static int pool_threads(void) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > 1024 ? 1024 : (int)n;
}

static bool ep_start(ep *p, err *e) {
  p->mem = arena_new();
  if (!p->mem) return FAIL(e, ERR_NO_MEMORY, "out of memory for a session");
  p->en = engine_new(&p->options, p->log, e);
  if (!p->en) return false;
  p->host = (kernel_host){.o = p->o, .en = p->en, .threads = pool_threads()};
  p->record = session_begin(p->en);
  return true;
}

OrtEp *ep_new(const ort *o, const OrtLogger *logger, const opts *options, err *e) {
  ep *p = mem_alloc(sizeof *p);
  if (!p) {
    FAIL(e, ERR_NO_MEMORY, "out of memory for a session");
    return NULL;
  }
  *p = (ep){.base = TABLE, .o = o, .options = *options};
  p->base.ort_version_supported = o->version;
  p->log_host = (ort_log){.host = o, .logger = logger, .lifted = options->verbose};
  p->log = ort_log_sink(&p->log_host);
  if (ep_start(p, e)) return &p->base;
  ep_free(&p->base);
  return NULL;
}

void ep_free(OrtEp *self) {
  if (!self) return;
  ep *p = (ep *)self;
  session_end(p->record);
  engine_free(p->en);
  arena_free(p->mem);
  mem_free(p);
}
