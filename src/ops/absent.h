// Operators that have a schema but no row, and why. Invariant: an operator is in the registry or here, never in both.
#pragma once
#include <stddef.h>

// A sentence, or NULL: nothing is known of it, or the registry has it. domain "" is ai.onnx.
const char *absent_reason(const char *domain, const char *type);

typedef struct absent {
  const char *domain, *type, *reason;
} absent;
const absent *absent_row(size_t i);  // NULL past the last
