#include "ort/import.h"

#include <stdio.h>
#include <string.h>

#include "ort/version.h"

typedef struct importer {
  struct importer *parent;  // of a body
  const ort *o;
  graph *g;
  err *e;
  arena *scratch;  // dies with the import
  value **table;   // the graph's values by name: open addressing
  size_t cap;      // a power of two, more than n_values
} importer;

static size_t hash(const char *s) {
  size_t h = 1469598103u;
  for (; *s; s++) h = (h ^ (unsigned char)*s) * 1099511u;
  return h ^ (h >> 15);
}

static value **slot_of(const importer *im, const char *name) {
  size_t i = hash(name) & (im->cap - 1);
  while (im->table[i] && strcmp(im->table[i]->name, name)) i = (i + 1) & (im->cap - 1);
  return &im->table[i];
}

static bool grow_table(importer *im) {
  if (im->cap && im->g->n_values < im->cap / 2) return true;
  size_t cap = im->cap ? im->cap * 2 : 256;
  value **table = ARENA_ARRAY(im->scratch, value *, cap);
  if (!table) return FAIL(im->e, ERR_NO_MEMORY, "out of memory for %zu values", cap);
  im->table = table;
  im->cap = cap;
  for (size_t i = 0; i < im->g->n_values; i++) *slot_of(im, im->g->values[i]->name) = im->g->values[i];
  return true;
}

// A rank that cannot be told from a scalar's stays unknown; one that is too large makes the type unknown, so that the
// nodes around it are declined.
static bool shape_of(const importer *im, const OrtTensorTypeAndShapeInfo *info, value *v) {
  const ort *o = im->o;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  size_t rank = 0;
  if (!ORT_CALL(o, im->e, GetTensorElementType, info, &type) || !ORT_CALL(o, im->e, GetDimensionsCount, info, &rank))
    return false;
  v->type = (int)type < DT_COUNT && rank <= GRAPH_MAX_RANK ? (dtype)type : DT_NONE;
  if (rank > GRAPH_MAX_RANK) return true;
  bool known = rank || (o->version >= ORT_API_HAS_SHAPE && o->api->TensorTypeAndShape_HasShape(info));
  v->rank = known ? (int)rank : -1;
  if (rank && !ORT_CALL(o, im->e, GetDimensions, info, v->dims, rank)) return false;
  for (size_t i = 0; i < rank; i++)
    if (v->dims[i] < 0) v->dims[i] = -1;
  return true;
}

static bool type_of(const importer *im, const OrtValueInfo *info, value *v) {
  const ort *o = im->o;
  const OrtTypeInfo *type = NULL;
  const OrtTensorTypeAndShapeInfo *shape = NULL;
  ONNXType kind = ONNX_TYPE_UNKNOWN;
  err untyped = {0};  // some values have no type
  if (!ORT_CALL(o, &untyped, GetValueInfoTypeInfo, info, &type) || !type) return true;
  if (!ORT_CALL(o, im->e, GetOnnxTypeFromTypeInfo, type, &kind)) return false;
  if (kind != ONNX_TYPE_TENSOR) return true;
  if (!ORT_CALL(o, im->e, CastTypeInfoToTensorInfo, type, &shape)) return false;
  return !shape || shape_of(im, shape, v);
}

static bool constant_of(const importer *im, const OrtValueInfo *info, value *v) {
  const ort *o = im->o;
  bool constant = false;
  const OrtValue *data = NULL;
  if (!ORT_CALL(o, im->e, ValueInfo_IsConstantInitializer, info, &constant)) return false;
  if (!constant || v->type == DT_STRING) return true;
  if (!ORT_CALL(o, im->e, ValueInfo_GetInitializerValue, info, &data)) return false;
  tensor *t = data ? ARENA_NEW(im->g->mem, tensor) : NULL;
  if (!data) return true;
  if (!t) return FAIL(im->e, ERR_NO_MEMORY, "out of memory for constant '%s'", v->name);
  if (!import_tensor(o, im->g->mem, data, t, im->e)) return err_add(im->e, "constant '%s': ", v->name);
  if (t->rank > GRAPH_MAX_RANK || t->type == DT_STRING) return true;
  v->type = t->type;
  v->rank = t->rank;
  memcpy(v->dims, t->dims, (size_t)t->rank * sizeof *t->dims);
  v->constant = t;
  return true;
}

// The value that info names, made at its first use; NULL for an absent one and after an error.
static value *value_of(importer *im, const OrtValueInfo *info) {
  const char *name = NULL;
  if (!info || !ORT_CALL(im->o, im->e, GetValueInfoName, info, &name) || !name || !name[0]) return NULL;
  if (!grow_table(im)) return NULL;
  value **slot = slot_of(im, name);
  if (*slot) return *slot;
  value *v = graph_value(im->g, name, DT_NONE, -1, NULL, im->e);
  if (!v) return NULL;
  *slot = v;
  if (!type_of(im, info, v) || !constant_of(im, info, v)) err_add(im->e, "value '%s': ", name);
  return v;
}

static bool values_of(importer *im, const OrtValueInfo **infos, size_t n, value ***out) {
  value **values = ARENA_ARRAY(im->g->mem, value *, n);
  if (!values) return FAIL(im->e, ERR_NO_MEMORY, "out of memory for %zu values", n);
  for (size_t i = 0; i < n; i++) values[i] = value_of(im, infos[i]);
  *out = values;
  return err_ok(im->e);
}

static const OrtValueInfo **info_list(importer *im, size_t n) {
  const OrtValueInfo **list = ARENA_ARRAY(im->scratch, const OrtValueInfo *, n);
  if (!list) FAIL(im->e, ERR_NO_MEMORY, "out of memory for %zu values", n);
  return list;
}

static bool node_inputs(importer *im, const OrtNode *src, value ***out, size_t *n) {
  if (!ORT_CALL(im->o, im->e, Node_GetNumInputs, src, n)) return false;
  const OrtValueInfo **list = info_list(im, *n);
  return list && (!*n || ORT_CALL(im->o, im->e, Node_GetInputs, src, list, *n)) && values_of(im, list, *n, out);
}

static bool node_outputs(importer *im, const OrtNode *src, value ***out, size_t *n) {
  if (!ORT_CALL(im->o, im->e, Node_GetNumOutputs, src, n)) return false;
  const OrtValueInfo **list = info_list(im, *n);
  return list && (!*n || ORT_CALL(im->o, im->e, Node_GetOutputs, src, list, *n)) && values_of(im, list, *n, out);
}

static bool node_captures(importer *im, const OrtNode *src, value ***out, size_t *n) {
  if (!ORT_CALL(im->o, im->e, Node_GetNumImplicitInputs, src, n)) return false;
  const OrtValueInfo **list = info_list(im, *n);
  return list && (!*n || ORT_CALL(im->o, im->e, Node_GetImplicitInputs, src, list, *n)) && values_of(im, list, *n, out);
}

static const char *copy_name(const importer *im, const char *s) {
  const char *copy = arena_str(im->g->mem, s ? s : "");
  if (!copy) FAIL(im->e, ERR_NO_MEMORY, "out of memory for a name");
  return copy ? copy : "";
}

static bool node_names(importer *im, const OrtNode *src, node *n) {
  const char *name = NULL, *type = NULL, *domain = NULL;
  const ort *o = im->o;
  ORT_CALL(o, im->e, Node_GetName, src, &name);
  ORT_CALL(o, im->e, Node_GetOperatorType, src, &type);
  ORT_CALL(o, im->e, Node_GetDomain, src, &domain);
  ORT_CALL(o, im->e, Node_GetSinceVersion, src, &n->since);
  if (domain && !strcmp(domain, "ai.onnx")) domain = "";
  n->name = copy_name(im, name);
  n->op_type = copy_name(im, type);
  n->domain = copy_name(im, domain);
  n->host = src;
  return err_ok(im->e);
}

static bool import_bodies(importer *im, const OrtNode *src, node_bodies *b);
static bool add_captures(importer *im, const node_bodies *b, node *n);

static bool import_node(importer *im, const OrtNode *src, node *n) {
  node_bodies bodies = {0};
  bool ok = node_names(im, src, n) && node_inputs(im, src, &n->in, &n->n_in) &&
            node_outputs(im, src, &n->out, &n->n_out) && node_captures(im, src, &n->captures, &n->n_captures) &&
            import_bodies(im, src, &bodies) && add_captures(im, &bodies, n) &&
            import_attrs(im->o, im->g->mem, src, &bodies, n, im->e);
  return ok || err_add(im->e, "node '%s' (%s): ", n->name ? n->name : "", n->op_type ? n->op_type : "");
}

static bool import_nodes(importer *im, const OrtGraph *src) {
  size_t n = 0;
  if (!ORT_CALL(im->o, im->e, Graph_GetNumNodes, src, &n)) return false;
  const OrtNode **list = ARENA_ARRAY(im->scratch, const OrtNode *, n);
  if (!list) return FAIL(im->e, ERR_NO_MEMORY, "out of memory for %zu nodes", n);
  if (n && !ORT_CALL(im->o, im->e, Graph_GetNodes, src, list, n)) return false;
  if (!graph_set_nodes(im->g, n, im->e)) return false;
  for (size_t i = 0; i < n; i++)
    if (!import_node(im, list[i], &im->g->nodes[i])) return false;
  return true;
}

// Formal inputs and outputs: those listed that are neither absent nor constant. at, if given, tells their place in the
// list.
static void keep_formals(value **list, size_t n, bool outputs, value **kept, size_t *n_kept, size_t *at) {
  for (size_t i = 0; i < n; i++) {
    value *v = list[i];
    if (!v || (!outputs && v->constant)) continue;
    if (outputs) v->is_output = true;
    else v->is_input = true;
    if (at) at[*n_kept] = i;
    kept[(*n_kept)++] = v;
  }
}

static bool graph_formals(importer *im, const OrtGraph *src) {
  graph *g = im->g;
  size_t n_in = 0, n_out = 0;
  value **in = NULL, **out = NULL;
  if (!ORT_CALL(im->o, im->e, Graph_GetNumInputs, src, &n_in)) return false;
  if (!ORT_CALL(im->o, im->e, Graph_GetNumOutputs, src, &n_out)) return false;
  const OrtValueInfo **infos = info_list(im, n_in > n_out ? n_in : n_out);
  if (!infos || (n_in && !ORT_CALL(im->o, im->e, Graph_GetInputs, src, infos, n_in))) return false;
  if (!values_of(im, infos, n_in, &in)) return false;
  if (n_out && !ORT_CALL(im->o, im->e, Graph_GetOutputs, src, infos, n_out)) return false;
  if (!values_of(im, infos, n_out, &out)) return false;
  keep_formals(in, n_in, false, in, &g->n_inputs, NULL);
  keep_formals(out, n_out, true, out, &g->n_outputs, NULL);
  g->inputs = in;
  g->outputs = out;
  return true;
}

// ---- bodies ---------------------------------------------------------------------------------------------------------
// A name may mean another value inside: a constant is the outer one if it is the same data.
static bool same_value(const value *outer, const value *v) {
  return !v->constant || (outer->constant && outer->constant->data == v->constant->data);
}

static bool known_above(const importer *im, const value *v) {
  for (; im; im = im->parent) {
    const value *outer = *slot_of(im, v->name);
    if (outer) return same_value(outer, v);
  }
  return false;
}

// The value of im's graph that v of a body stands for, made if the graph around has it from further out; NULL if v is a
// constant of the body's own.
static value *outer_of(importer *im, const value *v) {
  bool may_be_own = v->constant || v->type == DT_STRING;
  if (!grow_table(im) || (may_be_own && !known_above(im, v))) return NULL;
  value **slot = slot_of(im, v->name);
  if (*slot) return *slot;
  *slot = graph_value(im->g, v->name, v->type, v->rank, v->dims, im->e);
  if (*slot) (*slot)->constant = v->constant;
  return *slot;
}

static bool link_outer(importer *im) {
  for (size_t i = 0; i < im->g->n_values; i++) {
    value *v = im->g->values[i];
    if (!v->producer && !v->is_input) v->outer = outer_of(im->parent, v);
  }
  return err_ok(im->e);
}

static graph *import_body(importer *parent, const OrtGraph *src) {
  importer im = {.parent = parent, .o = parent->o, .e = parent->e, .scratch = parent->scratch};
  const char *name = NULL;
  im.g = graph_body(parent->g, im.e);
  if (!im.g || !grow_table(&im) || !ORT_CALL(im.o, im.e, Graph_GetName, src, &name)) return NULL;
  im.g->name = copy_name(&im, name);
  bool ok = graph_formals(&im, src) && import_nodes(&im, src) && graph_link(im.g, im.e) && link_outer(&im);
  return ok ? im.g : NULL;
}

static bool import_bodies(importer *im, const OrtNode *src, node_bodies *b) {
  if (!ORT_CALL(im->o, im->e, Node_GetNumSubgraphs, src, &b->n)) return false;
  if (!b->n) return true;
  const OrtGraph **list = ARENA_ARRAY(im->scratch, const OrtGraph *, b->n);
  b->names = ARENA_ARRAY(im->scratch, const char *, b->n);
  b->graphs = ARENA_ARRAY(im->scratch, graph *, b->n);
  if (!list || !b->names || !b->graphs) return FAIL(im->e, ERR_NO_MEMORY, "out of memory for %zu bodies", b->n);
  if (!ORT_CALL(im->o, im->e, Node_GetSubgraphs, src, list, b->n, b->names)) return false;
  for (size_t i = 0; i < b->n; i++) {
    b->graphs[i] = import_body(im, list[i]);
    if (!b->graphs[i]) return err_add(im->e, "body '%s': ", b->names[i] ? b->names[i] : "");
  }
  return true;
}

// The runtime lists what it hands to the bodies; what they read of constants is added.
static bool add_captures(importer *im, const node_bodies *b, node *n) {
  size_t most = n->n_captures;
  if (!b->n) return true;
  for (size_t i = 0; i < b->n; i++) most += b->graphs[i]->n_values;
  value **all = ARENA_ARRAY(im->g->mem, value *, most);
  bool *seen = ARENA_ARRAY(im->scratch, bool, im->g->n_values);
  if (!all || !seen) return FAIL(im->e, ERR_NO_MEMORY, "out of memory for captured values");
  size_t count = 0;
  for (size_t i = 0; i < n->n_captures; i++) {
    value *v = n->captures[i];
    if (v && !seen[v->id]) all[count++] = v;
    if (v) seen[v->id] = true;
  }
  for (size_t i = 0; i < b->n; i++)
    for (size_t k = 0; k < b->graphs[i]->n_values; k++) {
      value *v = b->graphs[i]->values[k]->outer;
      if (v && !seen[v->id]) all[count++] = v;
      if (v) seen[v->id] = true;
    }
  n->captures = all;
  n->n_captures = count;
  return true;
}

// ---- whole graphs ---------------------------------------------------------------------------------------------------
static bool fused_formals(importer *im, const OrtNode *fused, fused_graph *f) {
  graph *g = im->g;
  size_t n_in = 0, n_out = 0;
  value **in = NULL, **out = NULL;
  if (!node_inputs(im, fused, &in, &n_in) || !node_outputs(im, fused, &out, &n_out)) return false;
  size_t *in_at = ARENA_ARRAY(g->mem, size_t, n_in), *out_at = ARENA_ARRAY(g->mem, size_t, n_out);
  if (!in_at || !out_at) return FAIL(im->e, ERR_NO_MEMORY, "out of memory for %zu inputs", n_in);
  keep_formals(in, n_in, false, in, &g->n_inputs, in_at);
  keep_formals(out, n_out, true, out, &g->n_outputs, out_at);
  g->inputs = in;
  g->outputs = out;
  f->in_at = in_at;
  f->out_at = out_at;
  return true;
}

// What a fused graph reads must be there in a run.
static bool check_closed(const graph *g, err *e) {
  for (size_t i = 0; i < g->n_nodes; i++)
    for (size_t k = 0; k < g->nodes[i].n_in + g->nodes[i].n_captures; k++) {
      const node *n = &g->nodes[i];
      const value *v = k < n->n_in ? n->in[k] : n->captures[k - n->n_in];
      if (v && !v->producer && !v->is_input && !v->constant)
        return FAIL(e, ERR_INTERNAL, "node '%s' (%s) reads '%s', which is no input of the fused graph", n->name,
                    n->op_type, v->name);
    }
  for (size_t i = 0; i < g->n_outputs; i++)
    if (!g->outputs[i]->producer)
      return FAIL(e, ERR_INTERNAL, "output '%s' of the fused graph is computed by none of its nodes",
                  g->outputs[i]->name);
  return true;
}

// Marks the nodes that other providers, or earlier fusions, took already.
static bool mark_taken(importer *im) {
  for (size_t i = 0; i < im->g->n_nodes; i++) {
    const char *provider = NULL;
    if (!ORT_CALL(im->o, im->e, Node_GetEpName, im->g->nodes[i].host, &provider)) return false;
    if (!provider || !provider[0]) continue;
    char domain[128];
    snprintf(domain, sizeof domain, "ep:%s", provider);
    im->g->nodes[i].domain = copy_name(im, domain);
  }
  return err_ok(im->e);
}

bool import_is_ours(const node *n) { return !strcmp(n->domain, "ep:" MLXEP_NAME); }

static bool open_importer(importer *im, const ort *o, const OrtGraph *src, err *e) {
  *im = (importer){.o = o, .e = e, .scratch = arena_new(), .g = graph_new(e)};
  if (!im->scratch) return FAIL(e, ERR_NO_MEMORY, "out of memory for a graph");
  const char *name = NULL;
  if (!im->g || !ORT_CALL(o, e, Graph_GetName, src, &name)) return false;
  im->g->name = copy_name(im, name);
  im->g->no_captures = o->version < ORT_API_FUSED_CAPTURES;
  return err_ok(e);
}

static graph *close_importer(importer *im, bool ok) {
  arena_free(im->scratch);
  if (ok) return im->g;
  graph_free(im->g);
  return NULL;
}

graph *import_graph(const ort *o, const OrtGraph *src, err *e) {
  importer im;
  bool ok = open_importer(&im, o, src, e) && graph_formals(&im, src) && import_nodes(&im, src) && mark_taken(&im) &&
            graph_link(im.g, e);
  return close_importer(&im, ok);
}

bool import_fused(const ort *o, const OrtGraph *src, const OrtNode *fused, fused_graph *out, err *e) {
  importer im;
  *out = (fused_graph){0};
  bool ok = open_importer(&im, o, src, e) && fused_formals(&im, fused, out) && import_nodes(&im, src) &&
            graph_link(im.g, e) && check_closed(im.g, e);
  out->g = close_importer(&im, ok);
  return ok;
}
