#include "ops/op.h"

const op_row ops_recurrent[] = {{0}};
