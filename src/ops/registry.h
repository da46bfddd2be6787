// The list of all operators. Invariant: a row is found by domain, type and schema version, and by nothing else.
#pragma once
#include "ops/op.h"

// The row for a node's schema version; NULL if there is none.
const op_row *registry_find(const char *domain, const char *type, int since);
// Does any row have this type, whatever its version? For the reason of a decline.
bool registry_knows(const char *domain, const char *type);
// The i-th row over all families, NULL past the last.
const op_row *registry_row(size_t i);
