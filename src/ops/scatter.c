#include "ops/op.h"

const op_row ops_scatter[] = {{0}};
