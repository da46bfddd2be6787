#include "ops/op.h"

const op_row ops_lowbit[] = {{0}};
