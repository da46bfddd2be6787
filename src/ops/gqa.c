#include "ops/op.h"

const op_row ops_gqa[] = {{0}};
