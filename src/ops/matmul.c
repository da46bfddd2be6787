#include "ops/op.h"

const op_row ops_matmul[] = {{0}};
