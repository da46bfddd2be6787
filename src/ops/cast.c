#include "ops/op.h"

const op_row ops_cast[] = {{0}};
