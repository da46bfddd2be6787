// ONNX Runtime's function tables. Invariant: a member stands at its slot of API 29; unused slots are gaps. The tables
// only grow at the end, so they are right for every newer runtime; on an older one the members past its end do not
// exist. Included by abi.h only.
#pragma once

struct OrtApi {  // everything here is in API 23, but for what is marked
  OrtStatus *(*CreateStatus)(OrtErrorCode, const char *);
  OrtErrorCode (*GetErrorCode)(const OrtStatus *);
  const char *(*GetErrorMessage)(const OrtStatus *);
  OrtStatus *(*CreateEnv)(OrtLoggingLevel, const char *, OrtEnv **);
  void (*gap4[3])(void);
  OrtStatus *(*CreateSession)(const OrtEnv *, const char *, const OrtSessionOptions *, OrtSession **);
  void (*gap8[1])(void);
  OrtStatus *(*Run)(OrtSession *, const OrtRunOptions *, const char *const *, const OrtValue *const *, size_t,
      const char *const *, size_t, OrtValue **);
  OrtStatus *(*CreateSessionOptions)(OrtSessionOptions **);
  void (*gap11[19])(void);
  OrtStatus *(*SessionGetInputCount)(const OrtSession *, size_t *);
  OrtStatus *(*SessionGetOutputCount)(const OrtSession *, size_t *);
  void (*gap32[1])(void);
  OrtStatus *(*SessionGetInputTypeInfo)(const OrtSession *, size_t, OrtTypeInfo **);
  void (*gap34[2])(void);
  OrtStatus *(*SessionGetInputName)(const OrtSession *, size_t, OrtAllocator *, char **);
  OrtStatus *(*SessionGetOutputName)(const OrtSession *, size_t, OrtAllocator *, char **);
  void (*gap38[11])(void);
  OrtStatus *(*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t,
      ONNXTensorElementDataType, OrtValue **);
  void (*gap50[1])(void);
  OrtStatus *(*GetTensorMutableData)(OrtValue *, void **);
  void (*gap52[3])(void);
  OrtStatus *(*CastTypeInfoToTensorInfo)(const OrtTypeInfo *, const OrtTensorTypeAndShapeInfo **);
  OrtStatus *(*GetOnnxTypeFromTypeInfo)(const OrtTypeInfo *, ONNXType *);
  void (*gap57[3])(void);
  OrtStatus *(*GetTensorElementType)(const OrtTensorTypeAndShapeInfo *, ONNXTensorElementDataType *);
  OrtStatus *(*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo *, size_t *);
  OrtStatus *(*GetDimensions)(const OrtTensorTypeAndShapeInfo *, int64_t *, size_t);
  void (*gap63[2])(void);
  OrtStatus *(*GetTensorTypeAndShape)(const OrtValue *, OrtTensorTypeAndShapeInfo **);
  void (*gap66[3])(void);
  OrtStatus *(*CreateCpuMemoryInfo)(OrtAllocatorType, OrtMemType, OrtMemoryInfo **);
  void (*gap70[6])(void);
  OrtStatus *(*AllocatorFree)(OrtAllocator *, void *);
  void (*gap77[1])(void);
  OrtStatus *(*GetAllocatorWithDefaultOptions)(OrtAllocator **);
  void (*gap79[9])(void);
  OrtStatus *(*KernelContext_GetInputCount)(const OrtKernelContext *, size_t *);
  OrtStatus *(*KernelContext_GetOutputCount)(const OrtKernelContext *, size_t *);
  OrtStatus *(*KernelContext_GetInput)(const OrtKernelContext *, size_t, const OrtValue **);
  OrtStatus *(*KernelContext_GetOutput)(OrtKernelContext *, size_t, const int64_t *, size_t, OrtValue **);
  void (*ReleaseEnv)(OrtEnv *);
  void (*ReleaseStatus)(OrtStatus *);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo *);
  void (*ReleaseSession)(OrtSession *);
  void (*ReleaseValue)(OrtValue *);
  void (*gap97[1])(void);
  void (*ReleaseTypeInfo)(OrtTypeInfo *);
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo *);
  void (*ReleaseSessionOptions)(OrtSessionOptions *);
  void (*gap101[146])(void);
  OrtStatus *(*Logger_LogMessage)(const OrtLogger *, OrtLoggingLevel, const char *, const char *, int, const char *);
  OrtStatus *(*Logger_GetLoggingSeverityLevel)(const OrtLogger *, OrtLoggingLevel *);
  void (*gap249[23])(void);
  OrtStatus *(*ReadOpAttr)(const OrtOpAttr *, OrtOpAttrType, void *, size_t, size_t *);
  void (*gap273[1])(void);
  OrtStatus *(*KernelContext_ParallelFor)(const OrtKernelContext *, void (*)(void *, size_t), size_t, size_t, void *);
  void (*gap275[14])(void);
  OrtStatus *(*GetValueInfoName)(const OrtValueInfo *, const char **);
  OrtStatus *(*GetValueInfoTypeInfo)(const OrtValueInfo *, const OrtTypeInfo **);
  void (*gap291[7])(void);
  void (*GetKeyValuePairs)(const OrtKeyValuePairs *, const char *const **, const char *const **, size_t *);
  void (*gap299[1])(void);
  void (*ReleaseKeyValuePairs)(OrtKeyValuePairs *);
  OrtStatus *(*RegisterExecutionProviderLibrary)(OrtEnv *, const char *, const char *);
  OrtStatus *(*UnregisterExecutionProviderLibrary)(OrtEnv *, const char *);
  OrtStatus *(*GetEpDevices)(const OrtEnv *, const OrtEpDevice *const **, size_t *);
  OrtStatus *(*SessionOptionsAppendExecutionProvider_V2)(OrtSessionOptions *, OrtEnv *, const OrtEpDevice *const *,
      size_t, const char *const *, const char *const *, size_t);
  void (*gap305[2])(void);
  OrtHardwareDeviceType (*HardwareDevice_Type)(const OrtHardwareDevice *);
  void (*gap308[4])(void);
  const char *(*EpDevice_EpName)(const OrtEpDevice *);
  void (*gap313[4])(void);
  const OrtEpApi *(*GetEpApi)(void);
  OrtStatus *(*GetTensorSizeInBytes)(const OrtValue *, size_t *);
  void (*gap319[7])(void);
  OrtStatus *(*ValueInfo_GetInitializerValue)(const OrtValueInfo *, const OrtValue **);
  void (*gap327[4])(void);
  OrtStatus *(*ValueInfo_IsConstantInitializer)(const OrtValueInfo *, bool *);
  void (*gap332[1])(void);
  OrtStatus *(*Graph_GetName)(const OrtGraph *, const char **);
  void (*gap334[4])(void);
  OrtStatus *(*Graph_GetNumInputs)(const OrtGraph *, size_t *);
  OrtStatus *(*Graph_GetInputs)(const OrtGraph *, const OrtValueInfo **, size_t);
  OrtStatus *(*Graph_GetNumOutputs)(const OrtGraph *, size_t *);
  OrtStatus *(*Graph_GetOutputs)(const OrtGraph *, const OrtValueInfo **, size_t);
  void (*gap342[2])(void);
  OrtStatus *(*Graph_GetNumNodes)(const OrtGraph *, size_t *);
  OrtStatus *(*Graph_GetNodes)(const OrtGraph *, const OrtNode **, size_t);
  OrtStatus *(*Graph_GetParentNode)(const OrtGraph *, const OrtNode **);
  void (*gap347[2])(void);
  OrtStatus *(*Node_GetName)(const OrtNode *, const char **);
  OrtStatus *(*Node_GetOperatorType)(const OrtNode *, const char **);
  OrtStatus *(*Node_GetDomain)(const OrtNode *, const char **);
  OrtStatus *(*Node_GetSinceVersion)(const OrtNode *, int *);
  OrtStatus *(*Node_GetNumInputs)(const OrtNode *, size_t *);
  OrtStatus *(*Node_GetInputs)(const OrtNode *, const OrtValueInfo **, size_t);
  OrtStatus *(*Node_GetNumOutputs)(const OrtNode *, size_t *);
  OrtStatus *(*Node_GetOutputs)(const OrtNode *, const OrtValueInfo **, size_t);
  OrtStatus *(*Node_GetNumImplicitInputs)(const OrtNode *, size_t *);
  OrtStatus *(*Node_GetImplicitInputs)(const OrtNode *, const OrtValueInfo **, size_t);
  OrtStatus *(*Node_GetNumAttributes)(const OrtNode *, size_t *);
  OrtStatus *(*Node_GetAttributes)(const OrtNode *, const OrtOpAttr **, size_t);
  void (*gap361[1])(void);
  OrtStatus *(*OpAttr_GetTensorAttributeAsOrtValue)(const OrtOpAttr *, OrtValue **);
  OrtStatus *(*OpAttr_GetType)(const OrtOpAttr *, OrtOpAttrType *);
  OrtStatus *(*OpAttr_GetName)(const OrtOpAttr *, const char **);
  OrtStatus *(*Node_GetNumSubgraphs)(const OrtNode *, size_t *);
  OrtStatus *(*Node_GetSubgraphs)(const OrtNode *, const OrtGraph **, size_t, const char **);
  void (*gap367[1])(void);
  OrtStatus *(*Node_GetEpName)(const OrtNode *, const char **);
  void (*gap369[9])(void);
  OrtStatus *(*GetTensorData)(const OrtValue *, const void **);
  OrtStatus *(*GetSessionOptionsConfigEntries)(const OrtSessionOptions *, OrtKeyValuePairs **);
  void (*gap380[10])(void);
  bool (*TensorTypeAndShape_HasShape)(const OrtTensorTypeAndShapeInfo *);  // API 24
  void (*gap391[23])(void);
  OrtStatus *(*GetTensorElementTypeAndShapeDataReference)(const OrtValue *, ONNXTensorElementDataType *,
      const int64_t **, size_t *);  // API 24
};

struct OrtEpApi {
  OrtStatus *(*CreateEpDevice)(OrtEpFactory *, const OrtHardwareDevice *, const OrtKeyValuePairs *,
      const OrtKeyValuePairs *, OrtEpDevice **);
  void (*ReleaseEpDevice)(OrtEpDevice *);
  OrtStatus *(*EpGraphSupportInfo_AddNodesToFuse)(OrtEpGraphSupportInfo *, const OrtNode *const *, size_t,
      const OrtNodeFusionOptions *);
};
