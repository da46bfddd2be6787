#include "ops/op.h"

const op_row ops_shape[] = {{0}};
