#include "ops/op.h"

const op_row ops_reduce[] = {{0}};
