// Bodies of control-flow nodes: programs inside a program, run in the scope of the node that holds them. What a body takes
// from around it is read from the values of that run.
#pragma once
#include "plan/program.h"

typedef struct body_frame {
  const step *st;     // the control-flow node
  const mx *values;   // of the program that holds it, by value id
  const op_env *env;  // what its route offers; may be NULL
} body_frame;

// What the node's translator gets: env with run_body. frame must outlive it.
op_env body_env(const body_frame *frame);
