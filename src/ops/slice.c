#include "ops/op.h"

const op_row ops_slice[] = {{0}};
