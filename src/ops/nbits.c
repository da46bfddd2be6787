#include "ops/op.h"

const op_row ops_nbits[] = {{0}};
