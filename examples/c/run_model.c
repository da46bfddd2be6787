// Runs a model on the MLX provider from C: each float input is filled with ones.
//
//   run_model LIBONNXRUNTIME LIBONNXRUNTIME_MLX_EP MODEL [INPUT=2x3x4 ...]
//
// A dimension that the model leaves open is 1 unless the command line gives the input's shape. Build by hand with
//   cc -std=c17 -D_GNU_SOURCE -I src/ort examples/c/run_model.c -o run_model -ldl
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"

enum { API = 23, MAX_VALUES = 64, MAX_RANK = 10, SHOWN = 8 };

typedef struct app {
  const OrtApi *ort;
  OrtEnv *env;
  OrtSessionOptions *options;
  OrtSession *session;
  OrtMemoryInfo *memory;
  OrtAllocator *allocator;  // the runtime's; not released
  void *ep_library;
  size_t n_in, n_out;
  char *in_names[MAX_VALUES], *out_names[MAX_VALUES];
  float *data[MAX_VALUES];
  OrtValue *in[MAX_VALUES], *out[MAX_VALUES];
} app;

static bool ok(const app *a, OrtStatus *status) {
  if (!status) return true;
  fprintf(stderr, "run_model: %s\n", a->ort->GetErrorMessage(status));
  a->ort->ReleaseStatus(status);
  return false;
}

static bool fail(const char *what, const char *detail) {
  fprintf(stderr, "run_model: %s%s\n", what, detail ? detail : "");
  return false;
}

static bool open_runtime(app *a, const char *path) {
  const OrtApiBase *(*get_base)(void) = NULL;
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library) return fail("", dlerror());
  *(void **)&get_base = dlsym(library, "OrtGetApiBase");
  if (!get_base) return fail("this is not ONNX Runtime: ", path);
  printf("ONNX Runtime %s\n", get_base()->GetVersionString());
  // 22 has all that this program calls; the provider itself says what it needs.
  a->ort = get_base()->GetApi(API);
  if (!a->ort) a->ort = get_base()->GetApi(API - 1);
  return a->ort ? true : fail("ONNX Runtime 1.23 or newer is needed", NULL);
}

// Gives the session the first device that the provider offers.
static bool use_provider(app *a, const char *path) {
  const OrtEpDevice *const *devices = NULL;
  size_t n = 0;
  char *full = realpath(path, NULL);  // the runtime looks for a relative path beside itself
  if (!full) return fail("there is no library ", path);
  bool registered = ok(a, a->ort->RegisterExecutionProviderLibrary(a->env, "mlx", full));
  free(full);
  if (!registered) return false;
  if (!ok(a, a->ort->GetEpDevices(a->env, &devices, &n))) return false;
  for (size_t i = 0; i < n; i++)
    if (!strcmp(a->ort->EpDevice_EpName(devices[i]), "MLXExecutionProvider"))
      return ok(a, a->ort->SessionOptionsAppendExecutionProvider_V2(a->options, a->env, &devices[i], 1, NULL, NULL, 0));
  return fail("the library offers no device for MLXExecutionProvider: ", path);
}

static bool open_model(app *a, const char *path) {
  if (!ok(a, a->ort->CreateSession(a->env, path, a->options, &a->session))) return false;
  if (!ok(a, a->ort->GetAllocatorWithDefaultOptions(&a->allocator))) return false;
  if (!ok(a, a->ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &a->memory))) return false;
  if (!ok(a, a->ort->SessionGetInputCount(a->session, &a->n_in))) return false;
  if (!ok(a, a->ort->SessionGetOutputCount(a->session, &a->n_out))) return false;
  if (a->n_in > MAX_VALUES || a->n_out > MAX_VALUES) return fail("the model has more than 64 inputs or outputs", NULL);
  for (size_t i = 0; i < a->n_in; i++)
    if (!ok(a, a->ort->SessionGetInputName(a->session, i, a->allocator, &a->in_names[i]))) return false;
  for (size_t i = 0; i < a->n_out; i++)
    if (!ok(a, a->ort->SessionGetOutputName(a->session, i, a->allocator, &a->out_names[i]))) return false;
  return true;
}

// The declared shape of input i, open dimensions as 1.
static bool declared_shape(app *a, size_t i, int64_t *dims, size_t *rank) {
  OrtTypeInfo *type = NULL;
  const OrtTensorTypeAndShapeInfo *info = NULL;
  ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  bool good = ok(a, a->ort->SessionGetInputTypeInfo(a->session, i, &type)) &&
              ok(a, a->ort->CastTypeInfoToTensorInfo(type, &info));
  if (good && info) good = ok(a, a->ort->GetTensorElementType(info, &element));
  if (good && element != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) good = fail("not a float input: ", a->in_names[i]);
  good = good && ok(a, a->ort->GetDimensionsCount(info, rank));
  if (good && *rank > MAX_RANK) good = fail("too many dimensions: ", a->in_names[i]);
  good = good && (!*rank || ok(a, a->ort->GetDimensions(info, dims, *rank)));
  for (size_t k = 0; good && k < *rank; k++)
    if (dims[k] < 0) dims[k] = 1;
  a->ort->ReleaseTypeInfo(type);
  return good;
}

// "name=2x3": true if this is for the input of that name; then its shape.
static bool given_shape(const char *arg, const char *name, int64_t *dims, size_t *rank) {
  size_t n = strlen(name);
  if (strncmp(arg, name, n) || arg[n] != '=') return false;
  *rank = 0;
  for (const char *p = arg + n; *p && *rank < MAX_RANK;) {
    char *end = NULL;
    dims[(*rank)++] = strtoll(p + 1, &end, 10);
    p = end;
    if (*p != 'x') break;
  }
  return true;
}

static bool make_input(app *a, size_t i, int argc, char **argv) {
  int64_t dims[MAX_RANK];
  size_t rank = 0, count = 1, bytes = 0;
  if (!declared_shape(a, i, dims, &rank)) return false;
  for (int k = 0; k < argc; k++) given_shape(argv[k], a->in_names[i], dims, &rank);
  for (size_t k = 0; k < rank; k++)
    if (dims[k] < 0 || __builtin_mul_overflow(count, (size_t)dims[k], &count))
      return fail("bad shape: ", a->in_names[i]);
  if (__builtin_mul_overflow(count, sizeof(float), &bytes)) return fail("too large: ", a->in_names[i]);
  a->data[i] = malloc(bytes ? bytes : 1);
  if (!a->data[i]) return fail("out of memory for input ", a->in_names[i]);
  for (size_t k = 0; k < count; k++) a->data[i][k] = 1.0f;
  return ok(a, a->ort->CreateTensorWithDataAsOrtValue(a->memory, a->data[i], bytes, dims, rank,
                                                      ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &a->in[i]));
}

static bool print_output(const app *a, size_t i) {
  OrtTensorTypeAndShapeInfo *info = NULL;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  int64_t dims[MAX_RANK] = {0};
  size_t rank = 0, count = 1;
  void *data = NULL;
  if (!ok(a, a->ort->GetTensorTypeAndShape(a->out[i], &info))) return false;
  bool good = ok(a, a->ort->GetTensorElementType(info, &type)) && ok(a, a->ort->GetDimensionsCount(info, &rank)) &&
              rank <= MAX_RANK && (!rank || ok(a, a->ort->GetDimensions(info, dims, rank))) &&
              ok(a, a->ort->GetTensorMutableData(a->out[i], &data));
  a->ort->ReleaseTensorTypeAndShapeInfo(info);
  if (!good) return false;
  printf("%s [", a->out_names[i]);
  for (size_t k = 0; k < rank; k++) {
    printf("%s%lld", k ? ", " : "", (long long)dims[k]);
    count *= (size_t)dims[k];
  }
  printf("]:");
  if (type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) printf(" (element type %d)", (int)type);
  else
    for (size_t k = 0; k < count && k < SHOWN; k++) printf(" %g", (double)((const float *)data)[k]);
  printf("%s\n", type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT && count > SHOWN ? " ..." : "");
  return true;
}

static size_t count_of(const char *text, const char *what) {
  size_t n = 0;
  for (const char *p = text; (p = strstr(p, what)); p += strlen(what)) n++;
  return n;
}

// The provider tells where each node of its sessions went.
static bool print_placement(app *a, const char *path) {
  size_t (*tell)(const char *, char *, size_t) = NULL;
  a->ep_library = dlopen(path, RTLD_NOW);
  if (a->ep_library) *(void **)&tell = dlsym(a->ep_library, "MlxEpDescribe");
  if (!tell) return fail("the library does not tell where nodes ran: ", path);
  size_t n = tell("sessions", NULL, 0);
  char *json = malloc(n + 1);
  if (!json) return fail("out of memory", NULL);
  tell("sessions", json, n + 1);
  printf("nodes on MLX: %zu, on the CPU provider: %zu\n", count_of(json, "\"place\":\"MLX\""),
         count_of(json, "\"place\":\"CPU\""));
  free(json);
  return true;
}

static void close_app(app *a) {
  if (!a->ort) return;
  for (size_t i = 0; i < MAX_VALUES; i++) {
    a->ort->ReleaseValue(a->in[i]);
    a->ort->ReleaseValue(a->out[i]);
    free(a->data[i]);
    if (a->in_names[i]) ok(a, a->ort->AllocatorFree(a->allocator, a->in_names[i]));
    if (a->out_names[i]) ok(a, a->ort->AllocatorFree(a->allocator, a->out_names[i]));
  }
  a->ort->ReleaseMemoryInfo(a->memory);
  a->ort->ReleaseSession(a->session);
  a->ort->ReleaseSessionOptions(a->options);
  a->ort->ReleaseEnv(a->env);
  if (a->ep_library) dlclose(a->ep_library);
}

static bool run(app *a, int argc, char **argv) {
  if (!open_runtime(a, argv[1])) return false;
  if (!ok(a, a->ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "run_model", &a->env))) return false;
  if (!ok(a, a->ort->CreateSessionOptions(&a->options))) return false;
  if (!use_provider(a, argv[2]) || !open_model(a, argv[3])) return false;
  for (size_t i = 0; i < a->n_in; i++)
    if (!make_input(a, i, argc - 4, argv + 4)) return false;
  if (!ok(a, a->ort->Run(a->session, NULL, (const char *const *)a->in_names, (const OrtValue *const *)a->in, a->n_in,
                         (const char *const *)a->out_names, a->n_out, a->out)))
    return false;
  for (size_t i = 0; i < a->n_out; i++)
    if (!print_output(a, i)) return false;
  return print_placement(a, argv[2]);
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: %s LIBONNXRUNTIME LIBONNXRUNTIME_MLX_EP MODEL [INPUT=2x3x4 ...]\n", argv[0]);
    return 2;
  }
  app a = {0};
  bool good = run(&a, argc, argv);
  close_app(&a);
  return good ? 0 : 1;
}
