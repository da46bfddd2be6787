#include "ops/op.h"

const op_row ops_unary[] = {{0}};
