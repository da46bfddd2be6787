#include "graph/attr.h"

#include <string.h>

const attr *attr_get(const node *n, const char *name) {
  for (size_t i = 0; i < n->n_attrs; i++)
    if (!strcmp(n->attrs[i].name, name)) return &n->attrs[i];
  return NULL;
}

static const attr *of_kind(const node *n, const char *name, attr_kind kind) {
  const attr *a = attr_get(n, name);
  return a && a->kind == kind ? a : NULL;
}

bool attr_has(const node *n, const char *name) { return attr_get(n, name) != NULL; }

int64_t attr_i(const node *n, const char *name, int64_t dflt) {
  const attr *a = of_kind(n, name, ATTR_INT);
  return a ? a->i : dflt;
}

float attr_f(const node *n, const char *name, float dflt) {
  const attr *a = of_kind(n, name, ATTR_FLOAT);
  return a ? a->f : dflt;
}

const char *attr_s(const node *n, const char *name, const char *dflt) {
  const attr *a = of_kind(n, name, ATTR_STRING);
  return a ? a->s : dflt;
}

const int64_t *attr_ints(const node *n, const char *name, size_t *count) {
  const attr *a = of_kind(n, name, ATTR_INTS);
  *count = a ? a->n : 0;
  return a ? a->ints : NULL;
}

const float *attr_floats(const node *n, const char *name, size_t *count) {
  const attr *a = of_kind(n, name, ATTR_FLOATS);
  *count = a ? a->n : 0;
  return a ? a->floats : NULL;
}

const tensor *attr_t(const node *n, const char *name) {
  const attr *a = of_kind(n, name, ATTR_TENSOR);
  return a ? a->t : NULL;
}

graph *attr_g(const node *n, const char *name) {
  const attr *a = of_kind(n, name, ATTR_GRAPH);
  return a ? a->g : NULL;
}

const char *attr_unknown(const node *n, const char *const *known) {
  for (size_t i = 0; i < n->n_attrs; i++) {
    const char *const *k = known;
    while (*k && strcmp(*k, n->attrs[i].name)) k++;
    if (!*k) return n->attrs[i].name;
  }
  return NULL;
}
