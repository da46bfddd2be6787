#include "ops/op.h"

const op_row ops_softmax[] = {{0}};
