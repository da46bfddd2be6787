// The part of ONNX Runtime's C ABI that is used here. Invariant: layouts and values equal those of API 29, which later
// runtimes only append to; abi_slots.h proves the slots. With MLXEP_OFFICIAL_ORT_HEADERS the official headers are used
// instead, and the same proof runs on them.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef MLXEP_OFFICIAL_ORT_HEADERS
#include <onnxruntime_c_api.h>
#else

#define ABI_OPAQUE(name) typedef struct name name
ABI_OPAQUE(OrtAllocator);
ABI_OPAQUE(OrtDataTransferImpl);
ABI_OPAQUE(OrtEnv);
ABI_OPAQUE(OrtEpDevice);
ABI_OPAQUE(OrtEpGraphSupportInfo);
ABI_OPAQUE(OrtGraph);
ABI_OPAQUE(OrtHardwareDevice);
ABI_OPAQUE(OrtKernelContext);
ABI_OPAQUE(OrtKeyValuePairs);
ABI_OPAQUE(OrtLogger);
ABI_OPAQUE(OrtMemoryDevice);
ABI_OPAQUE(OrtMemoryInfo);
ABI_OPAQUE(OrtNode);
ABI_OPAQUE(OrtNodeComputeContext);
ABI_OPAQUE(OrtOpAttr);
ABI_OPAQUE(OrtRunOptions);
ABI_OPAQUE(OrtSession);
ABI_OPAQUE(OrtSessionOptions);
ABI_OPAQUE(OrtStatus);
ABI_OPAQUE(OrtSyncStreamImpl);
ABI_OPAQUE(OrtTensorTypeAndShapeInfo);
ABI_OPAQUE(OrtTypeInfo);
ABI_OPAQUE(OrtValue);
ABI_OPAQUE(OrtValueInfo);
ABI_OPAQUE(OrtApi);
ABI_OPAQUE(OrtEpApi);
ABI_OPAQUE(OrtEp);
ABI_OPAQUE(OrtEpFactory);
ABI_OPAQUE(OrtNodeComputeInfo);
#undef ABI_OPAQUE

typedef enum {
  ORT_OK = 0,
  ORT_FAIL = 1,
  ORT_INVALID_ARGUMENT = 2,
  ORT_RUNTIME_EXCEPTION = 6,
  ORT_NOT_IMPLEMENTED = 9,
  ORT_EP_FAIL = 11
} OrtErrorCode;

typedef enum {
  ORT_LOGGING_LEVEL_VERBOSE = 0,
  ORT_LOGGING_LEVEL_INFO = 1,
  ORT_LOGGING_LEVEL_WARNING = 2,
  ORT_LOGGING_LEVEL_ERROR = 3,
  ORT_LOGGING_LEVEL_FATAL = 4
} OrtLoggingLevel;

// The values are those of dtype (base/dtype.h); only what is named in the code is named here.
typedef enum {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED = 0,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1
} ONNXTensorElementDataType;

typedef enum { ONNX_TYPE_UNKNOWN = 0, ONNX_TYPE_TENSOR = 1 } ONNXType;

typedef enum {
  ORT_OP_ATTR_UNDEFINED = 0,
  ORT_OP_ATTR_INT = 1,
  ORT_OP_ATTR_INTS = 2,
  ORT_OP_ATTR_FLOAT = 3,
  ORT_OP_ATTR_FLOATS = 4,
  ORT_OP_ATTR_STRING = 5,
  ORT_OP_ATTR_STRINGS = 6,
  ORT_OP_ATTR_GRAPH = 7,
  ORT_OP_ATTR_TENSOR = 8
} OrtOpAttrType;

typedef enum {
  OrtHardwareDeviceType_CPU = 0,
  OrtHardwareDeviceType_GPU = 1,
  OrtHardwareDeviceType_NPU = 2
} OrtHardwareDeviceType;

typedef enum { OrtInvalidAllocator = -1, OrtDeviceAllocator = 0, OrtArenaAllocator = 1 } OrtAllocatorType;
typedef enum { OrtMemTypeCPUInput = -2, OrtMemTypeCPUOutput = -1, OrtMemTypeDefault = 0 } OrtMemType;
typedef enum { OrtEpDataLayout_NCHW = 0, OrtEpDataLayout_NHWC = 1, OrtEpDataLayout_Default = 0 } OrtEpDataLayout;
typedef enum { OrtCompiledModelCompatibility_EP_NOT_APPLICABLE = 0 } OrtCompiledModelCompatibility;

typedef struct OrtApiBase {
  const OrtApi *(*GetApi)(uint32_t version);  // NULL for a version that the runtime has not
  const char *(*GetVersionString)(void);
} OrtApiBase;

typedef struct OrtNodeFusionOptions {
  uint32_t ort_version_supported;
  bool drop_constant_initializers;
} OrtNodeFusionOptions;

// ---- tables that the runtime calls; ours to fill --------------------------------------------------------------------
struct OrtEpFactory {
  uint32_t ort_version_supported;
  const char *(*GetName)(const OrtEpFactory *);
  const char *(*GetVendor)(const OrtEpFactory *);
  OrtStatus *(*GetSupportedDevices)(OrtEpFactory *, const OrtHardwareDevice *const *devices, size_t n_devices,
                                    OrtEpDevice **out, size_t cap, size_t *n_out);
  OrtStatus *(*CreateEp)(OrtEpFactory *, const OrtHardwareDevice *const *devices,
                         const OrtKeyValuePairs *const *metadata, size_t n_devices, const OrtSessionOptions *,
                         const OrtLogger *, OrtEp **out);
  void (*ReleaseEp)(OrtEpFactory *, OrtEp *);
  uint32_t (*GetVendorId)(const OrtEpFactory *);
  const char *(*GetVersion)(const OrtEpFactory *);
  OrtStatus *(*ValidateCompiledModelCompatibilityInfo)(OrtEpFactory *, const OrtHardwareDevice *const *, size_t,
                                                       const char *, OrtCompiledModelCompatibility *);
  OrtStatus *(*CreateAllocator)(OrtEpFactory *, const OrtMemoryInfo *, const OrtKeyValuePairs *, OrtAllocator **);
  void (*ReleaseAllocator)(OrtEpFactory *, OrtAllocator *);
  OrtStatus *(*CreateDataTransfer)(OrtEpFactory *, OrtDataTransferImpl **);
  bool (*IsStreamAware)(const OrtEpFactory *);
  OrtStatus *(*CreateSyncStreamForDevice)(OrtEpFactory *, const OrtMemoryDevice *, const OrtKeyValuePairs *,
                                          OrtSyncStreamImpl **);
  void (*gap14[7])(void);  // optional
};

struct OrtEp {
  uint32_t ort_version_supported;
  const char *(*GetName)(const OrtEp *);
  OrtStatus *(*GetCapability)(OrtEp *, const OrtGraph *, OrtEpGraphSupportInfo *);
  OrtStatus *(*Compile)(OrtEp *, const OrtGraph **graphs, const OrtNode **fused, size_t n, OrtNodeComputeInfo **out,
                        OrtNode **context_nodes);
  void (*ReleaseNodeComputeInfos)(OrtEp *, OrtNodeComputeInfo **, size_t n);
  OrtStatus *(*GetPreferredDataLayout)(OrtEp *, OrtEpDataLayout *);
  void (*gap6[1])(void);  // optional, as are all gaps here
  OrtStatus *(*SetDynamicOptions)(OrtEp *, const char *const *keys, const char *const *values, size_t n);
  void (*gap8[6])(void);
  OrtStatus *(*IsConcurrentRunSupported)(OrtEp *, bool *);  // API 24
  void (*gap15[11])(void);
};

struct OrtNodeComputeInfo {
  uint32_t ort_version_supported;
  OrtStatus *(*CreateState)(OrtNodeComputeInfo *, OrtNodeComputeContext *, void **state);
  OrtStatus *(*Compute)(OrtNodeComputeInfo *, void *state, OrtKernelContext *);
  void (*ReleaseState)(OrtNodeComputeInfo *, void *state);
};

#include "abi_api.h"
#endif

#include "abi_slots.h"
