// What a node keeps between runs; owned by the program's step.
#pragma once
#include "ops/op.h"

struct op_memo {
  mx_held *held[OP_MEMO_SLOTS];
};
void op_memo_clear(op_memo *m);
