// Operators that have a schema but no row, and why. Invariant: an operator is in the registry or here, never in both.
#pragma once

// A sentence, or NULL: nothing is known of it, or the registry has it. domain "" is ai.onnx.
const char *absent_reason(const char *domain, const char *type);
