#include "ops/op.h"

const op_row ops_conv[] = {{0}};
