#include "ops/op.h"

const op_row ops_gather[] = {{0}};
