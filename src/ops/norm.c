#include "ops/op.h"

const op_row ops_norm[] = {{0}};
