// Pools, for the operators that pool what they made of their input.
#pragma once
#include "ops/spatial.h"

// AveragePool of x [N, C, spatial..] as the node's attributes say, float32 for smaller floats. NULL after a failure, and
// when the result has no element: then the node's outputs are set.
mx pool_average(op *o, mx x);
// MaxPool's values of x [N, C, spatial..]; NULL after a failure.
mx pool_max(op *o, mx x);
