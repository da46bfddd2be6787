// The library's exports, and all of them.
#include "ort/describe.h"
#include "ort/factory.h"
#include "ort/ort.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT OrtStatus *CreateEpFactories(const char *registered_name, const OrtApiBase *base, const OrtLogger *logger,
                                    OrtEpFactory **factories, size_t cap, size_t *n);
EXPORT OrtStatus *ReleaseEpFactory(OrtEpFactory *f);
EXPORT size_t MlxEpDescribe(const char *topic, char *out, size_t cap);

OrtStatus *CreateEpFactories(const char *registered_name, const OrtApiBase *base, const OrtLogger *logger,
                             OrtEpFactory **factories, size_t cap, size_t *n) {
  ort o;
  OrtStatus *status;
  err e = {0};
  (void)registered_name;
  (void)logger;
  *n = 0;
  if (!ort_open(base, &o, &status)) return status;
  if (cap < 1) FAIL(&e, ERR_INVALID, "ONNX Runtime has no room for the MLX provider's factory");
  else if ((factories[0] = factory_new(&o, &e))) *n = 1;
  describe_api(o.version);
  return ort_status(&o, &e);
}

OrtStatus *ReleaseEpFactory(OrtEpFactory *f) {
  factory_free(f);
  return NULL;
}

// What the library knows of itself, as JSON; see describe.h.
size_t MlxEpDescribe(const char *topic, char *out, size_t cap) { return describe(topic, out, cap); }
