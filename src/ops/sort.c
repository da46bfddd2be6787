#include "ops/op.h"

const op_row ops_sort[] = {{0}};
