#include "ops/op.h"

const op_row ops_fill[] = {{0}};
