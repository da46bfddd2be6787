// The provider's identity: the only place.
#pragma once
#ifndef MLXEP_VERSION
#define MLXEP_VERSION "0.1.0"  // semver 2.0
#endif
#define MLXEP_NAME "MLXExecutionProvider"
#define MLXEP_VENDOR "onnxruntime-ep-mlx"
#define MLXEP_OPTION_PREFIX "ep.mlxexecutionprovider."  // the runtime puts the name in lower case in front of an option
