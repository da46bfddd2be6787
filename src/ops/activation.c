#include "ops/op.h"

const op_row ops_activation[] = {{0}};
