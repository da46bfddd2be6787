#include "ops/op.h"

const op_row ops_quant[] = {{0}};
