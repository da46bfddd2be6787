#include "ops/op.h"

const op_row ops_binary[] = {{0}};
