// Weights of few bits, for the operators that have them.
#pragma once
#include "ops/op.h"

// A constant's numbers (float32, float16 or bfloat16) as float32: its own data, or a copy in *owned that the caller frees.
// NULL with an error when there is no memory.
const float *nbits_floats(const tensor *t, float **owned, err *e);
