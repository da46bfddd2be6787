#include "ops/op.h"

const op_row ops_pool[] = {{0}};
