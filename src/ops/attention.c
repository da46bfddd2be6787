#include "ops/op.h"

const op_row ops_attention[] = {{0}};
