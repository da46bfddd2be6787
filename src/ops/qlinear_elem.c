#include "ops/op.h"

const op_row ops_qlinear_elem[] = {{0}};
