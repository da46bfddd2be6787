#include "ops/op.h"

const op_row ops_qmodel[] = {{0}};
