// The provider's version (semver 2.0), name and vendor: the only place.
#pragma once
#define MLXEP_VERSION "0.1.0"
#define MLXEP_NAME "MLXExecutionProvider"
#define MLXEP_VENDOR "onnxruntime-ep-mlx"
#define MLXEP_OPTION_PREFIX "ep.mlxexecutionprovider."  // the runtime puts the name in lower case in front of an option
