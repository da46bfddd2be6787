// The steps of a program inside a scope: what the eager route does, and what a closure's body does.
#pragma once
#include "plan/program.h"

// values: one for each value id; inputs are set by the caller, constants and everything else are filled in here.
// False: see mx_error(s).
bool step_run_all(program *p, mx_scope *s, mx *values, const op_env *env);
