#include "ort/kernel.h"

#include <string.h>

#include "cpu/pool.h"

typedef struct kernel_info {
  OrtNodeComputeInfo base;  // first: ORT hands back a pointer to it
  const kernel_host *h;
  kernel *k;
  arena *mem;  // holds this struct
  size_t n_in, n_out;
  const size_t *in_at, *out_at;  // places in the OrtKernelContext
} kernel_info;
_Static_assert(offsetof(kernel_info, base) == 0, "a kernel_info is an OrtNodeComputeInfo");

// ---- inputs ---------------------------------------------------------------------------------------------------------
typedef int64_t shape_room[GRAPH_MAX_RANK];  // for a runtime that does not lend its shapes
enum { FEW_INPUTS = 128 };                    // bound on the stack (16 KiB); more are bound in allocated memory

// Stands for the memory of tensors without elements, whose pointer may be NULL.
static _Alignas(16) char no_elements[16];

static bool lent_shape(const ort *o, const OrtValue *v, tensor *t, err *e) {
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  size_t rank = 0;
  if (!ORT_CALL(o, e, GetTensorElementTypeAndShapeDataReference, v, &type, &t->dims, &rank)) return false;
  if (rank > GRAPH_MAX_RANK) return FAIL(e, ERR_UNSUPPORTED, "rank %zu is more than %d", rank, GRAPH_MAX_RANK);
  t->type = (dtype)type;
  t->rank = (int)rank;
  return true;
}

static bool copied_shape(const ort *o, const OrtValue *v, tensor *t, int64_t *dims, err *e) {
  OrtTensorTypeAndShapeInfo *info = NULL;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  size_t rank = 0;
  if (!ORT_CALL(o, e, GetTensorTypeAndShape, v, &info)) return false;
  ORT_CALL(o, e, GetTensorElementType, info, &type);
  ORT_CALL(o, e, GetDimensionsCount, info, &rank);
  if (rank > GRAPH_MAX_RANK) FAIL(e, ERR_UNSUPPORTED, "rank %zu is more than %d", rank, GRAPH_MAX_RANK);
  else if (rank) ORT_CALL(o, e, GetDimensions, info, dims, rank);
  o->api->ReleaseTensorTypeAndShapeInfo(info);
  t->type = (dtype)type;
  t->rank = (int)rank;
  t->dims = dims;
  return err_ok(e);
}

static bool size_of(const ort *o, const OrtValue *v, tensor *t, err *e) {
  size_t count = 0, size = dtype_size(t->type);
  if (!size) return ORT_CALL(o, e, GetTensorSizeInBytes, v, &t->bytes);
  if (!dims_count(t->dims, t->rank, &count) || !size_mul(count, size, &t->bytes))
    return FAIL(e, ERR_INVALID, "its shape has no size");
  return true;
}

static bool bind_input(const ort *o, const OrtKernelContext *ctx, size_t at, tensor *t, int64_t *dims, err *e) {
  const OrtValue *v = NULL;
  if (!ORT_CALL(o, e, KernelContext_GetInput, ctx, at, &v)) return false;
  if (!v) return FAIL(e, ERR_INVALID, "it is absent");
  bool ok = o->version >= ORT_API_SHAPE_REFERENCE ? lent_shape(o, v, t, e) : copied_shape(o, v, t, dims, e);
  if (!ok || !size_of(o, v, t, e) || !ORT_CALL(o, e, GetTensorData, v, &t->data)) return false;
  if (!t->bytes && !t->data) t->data = no_elements;
  return t->data ? true : FAIL(e, ERR_HOST, "it has no data");
}

// ---- outputs and threads, called from the worker while Compute waits -----------------------------------------------
typedef struct run_host {
  const kernel_info *info;
  OrtKernelContext *ctx;
} run_host;

static void *output(void *host, size_t i, const int64_t *dims, int rank, err *e) {
  const run_host *r = host;
  const ort *o = r->info->h->o;
  OrtValue *v = NULL;
  void *data = NULL;
  size_t at = r->info->out_at[i];
  if (!ORT_CALL(o, e, KernelContext_GetOutput, r->ctx, at, dims, (size_t)rank, &v)) return NULL;
  if (!v) FAIL(e, ERR_HOST, "ONNX Runtime gives no memory for output %zu", i);
  if (!ORT_CALL(o, e, GetTensorMutableData, v, &data)) return NULL;
  return data ? data : no_elements;
}

typedef struct fork_call {
  cpu_part_fn fn;
  void *ctx;
  int parts;
} fork_call;

static void run_part(void *arg, size_t i) {
  const fork_call *c = arg;
  c->fn(c->ctx, (int)i, c->parts);
}

static void fork_parts(void *host, int parts, cpu_part_fn fn, void *ctx) {
  const run_host *r = host;
  const ort *o = r->info->h->o;
  fork_call call = {fn, ctx, parts};
  err e = {0};
  if (ORT_CALL(o, &e, KernelContext_ParallelFor, r->ctx, run_part, (size_t)parts, 0, &call)) return;
  for (int i = 0; i < parts; i++) fn(ctx, i, parts);  // it fails only before it has started
}

// ---- the table ------------------------------------------------------------------------------------------------------
static bool bind_and_run(const kernel_info *k, OrtKernelContext *ctx, tensor *in, shape_room *shapes, err *e) {
  for (size_t i = 0; i < k->n_in; i++) {
    in[i] = (tensor){0};
    if (!bind_input(k->h->o, ctx, k->in_at[i], &in[i], shapes[i], e)) return err_add(e, "input %zu: ", i);
  }
  run_host host = {k, ctx};
  cpu_pool pool = {.threads = k->h->threads, .fork = fork_parts, .host = &host};
  run_io io = {.in = in, .n_in = k->n_in, .n_out = k->n_out, .output = output, .host = &host, .pool = &pool};
  return engine_run(k->h->en, k->k, &io, e);
}

static void run_with_many(const kernel_info *k, OrtKernelContext *ctx, err *e) {
  size_t bytes = 0;
  tensor *in = size_mul(k->n_in, sizeof(tensor) + sizeof(shape_room), &bytes) ? mem_alloc(bytes) : NULL;
  if (in) bind_and_run(k, ctx, in, (shape_room *)(in + k->n_in), e);
  else FAIL(e, ERR_NO_MEMORY, "out of memory for %zu inputs", k->n_in);
  mem_free(in);
}

static void run_with_few(const kernel_info *k, OrtKernelContext *ctx, err *e) {
  tensor in[FEW_INPUTS];
  shape_room shapes[FEW_INPUTS];
  bind_and_run(k, ctx, in, shapes, e);
}

static OrtStatus *compute(OrtNodeComputeInfo *self, void *state, OrtKernelContext *ctx) {
  const kernel_info *k = (const kernel_info *)self;
  err e = {0};
  (void)state;
  if (k->n_in <= FEW_INPUTS) run_with_few(k, ctx, &e);
  else run_with_many(k, ctx, &e);
  if (err_ok(&e)) return NULL;
  err_add(&e, "MLX: ");
  return ort_status(k->h->o, &e);
}

// Runs keep no state of their own.
static OrtStatus *create_state(OrtNodeComputeInfo *self, OrtNodeComputeContext *ctx, void **state) {
  (void)ctx;
  *state = self;
  return NULL;
}

static void release_state(OrtNodeComputeInfo *self, void *state) {
  (void)self;
  (void)state;
}

static const OrtNodeComputeInfo TABLE = {
    .CreateState = create_state, .Compute = compute, .ReleaseState = release_state};

static kernel_info *new_info(const kernel_host *h, const fused_graph *f, err *e) {
  arena *mem = arena_new();
  kernel_info *k = mem ? ARENA_NEW(mem, kernel_info) : NULL;
  if (k) {
    *k = (kernel_info){.base = TABLE, .h = h, .mem = mem, .n_in = f->g->n_inputs, .n_out = f->g->n_outputs};
    k->base.ort_version_supported = h->o->version;
    k->in_at = arena_copy(mem, f->in_at, k->n_in * sizeof *f->in_at);
    k->out_at = arena_copy(mem, f->out_at, k->n_out * sizeof *f->out_at);
  }
  if (k && k->in_at && k->out_at) return k;
  arena_free(mem);
  FAIL(e, ERR_NO_MEMORY, "out of memory for a fused node");
  return NULL;
}

OrtNodeComputeInfo *kernel_info_new(const kernel_host *h, fused_graph *f, err *e) {
  kernel_info *k = new_info(h, f, e);
  graph *g = f->g;
  f->g = NULL;
  if (!k) {
    graph_free(g);
    return NULL;
  }
  k->k = engine_build(h->en, g, e);
  if (k->k) return &k->base;
  arena_free(k->mem);
  return NULL;
}

void kernel_info_free(OrtNodeComputeInfo *info) {
  if (!info) return;
  kernel_info *k = (kernel_info *)info;
  engine_release(k->h->en, k->k);
  arena_free(k->mem);
}
