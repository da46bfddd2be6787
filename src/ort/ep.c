#include "ort/ep.h"

#include <stddef.h>
#include <unistd.h>

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

static void claim_graph(const ep *p, const graph *g, OrtEpGraphSupportInfo *info, err *e) {
  plan *pl = plan_new(g, engine_device(p->en), &p->options, e);
  const OrtNode **nodes = pl ? ARENA_ARRAY(pl->mem, const OrtNode *, g->n_nodes) : NULL;
  if (pl && !nodes) FAIL(e, ERR_NO_MEMORY, "out of memory for %zu nodes", g->n_nodes);
  for (size_t i = 0; nodes && i < pl->n_groups && err_ok(e); i++) add_group(p, g, pl, (int)i, nodes, info, e);
  if (nodes && err_ok(e)) {
    session_plan(p->record, g, pl, NULL);
    log_plan(p, g, pl);
  }
  plan_free(pl);
}

static OrtStatus *get_capability(OrtEp *self, const OrtGraph *src, OrtEpGraphSupportInfo *info) {
  const ep *p = (const ep *)self;
  err e = {0};
  const OrtNode *parent = NULL;
  graph *g = ORT_CALL(p->o, &e, Graph_GetParentNode, src, &parent) ? import_graph(p->o, src, &e) : NULL;
  if (g && parent) session_plan(p->record, g, NULL, "the node is in the body of a control-flow node");
  else if (g) claim_graph(p, g, info, &e);
  graph_free(g);
  if (!err_ok(&e)) err_add(&e, "MLX cannot plan the model: ");
  return ort_status(p->o, &e);
}

// ---- Compile --------------------------------------------------------------------------------------------------------
static OrtNodeComputeInfo *compile_one(const ep *p, const OrtGraph *src, const OrtNode *fused, err *e) {
  const char *name = NULL;
  fused_graph f;
  if (!ORT_CALL(p->o, e, Node_GetName, fused, &name) || !import_fused(p->o, src, fused, &f, e)) return NULL;
  return kernel_info_new(&p->host, &f, name ? name : "", e);
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
  p->en = engine_new(options, p->log, e);
  if (!p->en) {
    mem_free(p);
    return NULL;
  }
  p->host = (kernel_host){.o = o, .en = p->en, .threads = pool_threads()};
  p->record = session_begin(p->en);
  return &p->base;
}

void ep_free(OrtEp *self) {
  if (!self) return;
  ep *p = (ep *)self;
  session_end(p->record);
  engine_free(p->en);
  mem_free(p);
}
