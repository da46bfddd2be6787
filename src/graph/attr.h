// Attributes of a node, with the schema's default given at the call. A wrong kind counts as absent.

#pragma once
#include "graph/graph.h"

const attr *attr_get(const node *n, const char *name);  // NULL if absent
bool attr_has(const node *n, const char *name);
int64_t attr_i(const node *n, const char *name, int64_t dflt);
float attr_f(const node *n, const char *name, float dflt);
const char *attr_s(const node *n, const char *name, const char *dflt);
// The list, or NULL and *count = 0 if absent.
const int64_t *attr_ints(const node *n, const char *name, size_t *count);
const float *attr_floats(const node *n, const char *name, size_t *count);
const tensor *attr_t(const node *n, const char *name);
graph *attr_g(const node *n, const char *name);
// Every attribute's name is one of these (NULL-ended)? Else the first that is not, for a claim's reason.
const char *attr_unknown(const node *n, const char *const *known);
