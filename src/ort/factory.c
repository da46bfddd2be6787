#ifndef _GNU_SOURCE
#define _GNU_SOURCE  // dladdr, RTLD_NODELETE
#endif
#include "ort/factory.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "mx/mx.h"
#include "ort/ep.h"
#include "ort/version.h"

typedef struct factory {
  OrtEpFactory base;  // first: ORT hands back a pointer to it
  ort o;
  atomic_bool lists_gpu;  // a GPU was among the devices given to the runtime
} factory;
_Static_assert(offsetof(factory, base) == 0, "a factory is an OrtEpFactory");

// ---- identity -------------------------------------------------------------------------------------------------------
static const char *get_name(const OrtEpFactory *self) {
  (void)self;
  return MLXEP_NAME;
}

static const char *get_vendor(const OrtEpFactory *self) {
  (void)self;
  return MLXEP_VENDOR;
}

static uint32_t get_vendor_id(const OrtEpFactory *self) {  // 0: no PCI vendor
  (void)self;
  return 0;
}

static const char *get_version(const OrtEpFactory *self) {
  (void)self;
  return MLXEP_VERSION;
}

// ---- devices --------------------------------------------------------------------------------------------------------
static OrtStatus *get_supported_devices(OrtEpFactory *self, const OrtHardwareDevice *const *devices, size_t n_devices,
                                        OrtEpDevice **out, size_t cap, size_t *n_out) {
  factory *f = (factory *)self;
  err e = {0};
  *n_out = 0;
  for (size_t i = 0; i < n_devices && *n_out < cap && err_ok(&e); i++) {
    OrtHardwareDeviceType type = f->o.api->HardwareDevice_Type(devices[i]);
    bool gpu = type == OrtHardwareDeviceType_GPU && mx_gpu_available();
    if (!gpu && type != OrtHardwareDeviceType_CPU) continue;
    if (gpu) atomic_store(&f->lists_gpu, true);
    if (ORT_EP_CALL(&f->o, &e, CreateEpDevice, self, devices[i], NULL, NULL, &out[*n_out])) ++*n_out;
  }
  return ort_status(&f->o, &e);
}

// A session that could have chosen a GPU and chose none wants the CPU, unless the option says otherwise.
static void follow_choice(const factory *f, const OrtHardwareDevice *const *devices, size_t n, opts *o) {
  bool gpu = false;
  for (size_t i = 0; i < n; i++) gpu = gpu || f->o.api->HardwareDevice_Type(devices[i]) == OrtHardwareDeviceType_GPU;
  if (o->device == DEVICE_AUTO && atomic_load(&f->lists_gpu) && n && !gpu) o->device = DEVICE_CPU;
}

// ---- sessions -------------------------------------------------------------------------------------------------------
static bool read_options(const ort *o, const OrtSessionOptions *session, opts *out, err *e) {
  OrtKeyValuePairs *pairs = NULL;
  const char *const *keys = NULL, *const *values = NULL;
  size_t n = 0, prefix = strlen(MLXEP_OPTION_PREFIX);
  opts_init(out);
  if (!session || !ORT_CALL(o, e, GetSessionOptionsConfigEntries, session, &pairs)) return err_ok(e);
  o->api->GetKeyValuePairs(pairs, &keys, &values, &n);
  for (size_t i = 0; i < n; i++)
    if (!strncmp(keys[i], MLXEP_OPTION_PREFIX, prefix)) opts_set(out, keys[i] + prefix, values[i], e);
  o->api->ReleaseKeyValuePairs(pairs);
  return err_ok(e);
}

// MLX's threads live as long as the process, so from the first session on our code and MLX's must stay in memory.
static void stay_loaded(void) {
  Dl_info info;
  static const int here = 0;
  if (dladdr(&here, &info) && info.dli_fname) dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static OrtStatus *create_ep(OrtEpFactory *self, const OrtHardwareDevice *const *devices,
                            const OrtKeyValuePairs *const *metadata, size_t n_devices,
                            const OrtSessionOptions *session, const OrtLogger *logger, OrtEp **out) {
  factory *f = (factory *)self;
  err e = {0};
  opts o;
  (void)metadata;
  *out = NULL;
  if (read_options(&f->o, session, &o, &e)) {
    follow_choice(f, devices, n_devices, &o);
    stay_loaded();
    *out = ep_new(&f->o, logger, &o, &e);
  }
  return ort_status(&f->o, &e);
}

static void release_ep(OrtEpFactory *self, OrtEp *p) {
  (void)self;
  ep_free(p);
}

// ---- what a provider on the CPU's memory need not have -------------------------------------------------------------
static OrtStatus *validate_compiled(OrtEpFactory *self, const OrtHardwareDevice *const *devices, size_t n,
                                    const char *info, OrtCompiledModelCompatibility *out) {
  (void)self, (void)devices, (void)n, (void)info;
  *out = OrtCompiledModelCompatibility_EP_NOT_APPLICABLE;
  return NULL;
}

static OrtStatus *no_allocator(OrtEpFactory *self, const OrtMemoryInfo *info, const OrtKeyValuePairs *options,
                               OrtAllocator **out) {
  (void)self, (void)info, (void)options;
  *out = NULL;
  return NULL;
}

static void release_allocator(OrtEpFactory *self, OrtAllocator *a) { (void)self, (void)a; }

static OrtStatus *no_data_transfer(OrtEpFactory *self, OrtDataTransferImpl **out) {
  (void)self;
  *out = NULL;
  return NULL;
}

static bool no_streams(const OrtEpFactory *self) {
  (void)self;
  return false;
}

static OrtStatus *no_stream(OrtEpFactory *self, const OrtMemoryDevice *device, const OrtKeyValuePairs *options,
                            OrtSyncStreamImpl **out) {
  (void)self, (void)device, (void)options;
  *out = NULL;
  return NULL;
}

static const OrtEpFactory TABLE = {.GetName = get_name,
                                   .GetVendor = get_vendor,
                                   .GetSupportedDevices = get_supported_devices,
                                   .CreateEp = create_ep,
                                   .ReleaseEp = release_ep,
                                   .GetVendorId = get_vendor_id,
                                   .GetVersion = get_version,
                                   .ValidateCompiledModelCompatibilityInfo = validate_compiled,
                                   .CreateAllocator = no_allocator,
                                   .ReleaseAllocator = release_allocator,
                                   .CreateDataTransfer = no_data_transfer,
                                   .IsStreamAware = no_streams,
                                   .CreateSyncStreamForDevice = no_stream};

OrtEpFactory *factory_new(const ort *o, err *e) {
  factory *f = mem_alloc(sizeof *f);
  if (!f) {
    FAIL(e, ERR_NO_MEMORY, "out of memory for the MLX provider");
    return NULL;
  }
  f->base = TABLE;
  f->base.ort_version_supported = o->version;
  f->o = *o;
  atomic_init(&f->lists_gpu, false);
  return &f->base;
}

void factory_free(OrtEpFactory *self) { mem_free(self); }
