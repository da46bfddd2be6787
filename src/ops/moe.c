#include "ops/op.h"

const op_row ops_moe[] = {{0}};
