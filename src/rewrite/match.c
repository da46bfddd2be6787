#include "rewrite/match.h"

#include <math.h>
#include <string.h>

bool is_op(const node *n, const char *op_type) { return n && !n->domain[0] && !strcmp(n->op_type, op_type); }

node *made_by(const value *v, const char *op_type) { return v && is_op(v->producer, op_type) ? v->producer : NULL; }

bool only_use(const value *v) { return v && v->consumers == 1 && !v->is_output; }

// ---- constants ------------------------------------------------------------------------------------------------------------
static bool first_number(const tensor *t, double *x) {
  switch (t->type) {
    case DT_F32: *x = (double)*(const float *)t->data; return true;
    case DT_F64: *x = *(const double *)t->data; return true;
    case DT_F16: *x = dtype_f16_value(*(const uint16_t *)t->data); return true;
    case DT_BF16: *x = dtype_bf16_value(*(const uint16_t *)t->data); return true;
    case DT_I64: *x = (double)*(const int64_t *)t->data; return true;
    case DT_I32: *x = *(const int32_t *)t->data; return true;
    default: return false;
  }
}

bool const_number(const value *v, const value *with, double *x) {
  const tensor *t = v ? v->constant : NULL;
  size_t n = 0;
  if (!t || !t->data || !dims_count(t->dims, t->rank, &n) || n != 1) return false;
  if (with ? t->rank > 0 && t->rank > with->rank : t->rank > 1) return false;
  return first_number(t, x);
}

bool const_ints(const value *v, int64_t *x, size_t cap, size_t *n) {
  const tensor *t = v ? v->constant : NULL;
  if (!t || !t->data || !dims_count(t->dims, t->rank, n) || *n > cap) return false;
  for (size_t i = 0; i < *n; i++)
    if (t->type == DT_I64) x[i] = ((const int64_t *)t->data)[i];
    else if (t->type == DT_I32) x[i] = ((const int32_t *)t->data)[i];
    else return false;
  return true;
}

bool with_number(const node *n, value **other, double *x) {
  if (!n || n->n_in != 2) return false;
  for (size_t i = 0; i < 2; i++) {
    if (!n->in[i] || !n->in[1 - i] || !const_number(n->in[i], n->in[1 - i], x)) continue;
    *other = n->in[1 - i];
    return true;
  }
  return false;
}

// Exporters write constants with six digits or more.
bool about(double x, double want, dtype t) {
  double part = t == DT_F16 ? 5e-4 : t == DT_BF16 ? 4e-3 : 4e-6;
  return fabs(x - want) <= fabs(want) * part;
}

bool is_number(const value *v, const value *with, double want) {
  double x;
  return const_number(v, with, &x) && about(x, want, v->constant->type);
}

// ---- reductions -----------------------------------------------------------------------------------------------------------
bool over_last_axis(const node *n) {
  int64_t axes[1] = {0};
  size_t count = 0;
  const int64_t *a = attr_ints(n, "axes", &count);
  int rank = n->in[0] ? n->in[0]->rank : -1;
  if (a && count == 1) axes[0] = a[0];
  else if (a || n->n_in < 2 || !const_ints(n->in[1], axes, 1, &count) || count != 1) return false;
  return attr_i(n, "keepdims", 1) == 1 && (axes[0] == -1 || (rank > 0 && axes[0] == rank - 1));
}

// ---- products -------------------------------------------------------------------------------------------------------------
static bool add_factor(factors *f, value *v, size_t times);

static bool split(factors *f, const node *n) {
  double x;
  if (is_op(n, "Mul")) {
    for (size_t i = 0; i < 2; i++)
      if (const_number(n->in[i], n->in[1 - i], &x)) f->c *= x;
      else if (!add_factor(f, n->in[i], 1)) return false;
    return true;
  }
  if (is_op(n, "Div") && const_number(n->in[1], n->in[0], &x) && x != 0) {
    f->c /= x;
    return add_factor(f, n->in[0], 1);
  }
  return is_op(n, "Pow") && const_number(n->in[1], n->in[0], &x) && (x == 2 || x == 3) && add_factor(f, n->in[0], (size_t)x);
}

// A node that serves this product alone is part of it.
static bool inner(const value *v) {
  const node *n = v->producer;
  double x;
  if (!only_use(v) || !n) return false;
  if (is_op(n, "Mul")) return true;
  if (!is_op(n, "Div") && !is_op(n, "Pow")) return false;
  return const_number(n->in[1], n->in[0], &x) && (is_op(n, "Div") ? x != 0 : x == 2 || x == 3);
}

static bool add_factor(factors *f, value *v, size_t times) {
  if (times == 1 && inner(v)) return split(f, v->producer);
  for (size_t i = 0; i < times; i++) {
    if (f->n == MATCH_FACTORS) return false;
    f->v[f->n++] = v;
  }
  return true;
}

void factors_of(value *v, factors *f) {
  *f = (factors){.c = 1};
  if (!v->producer || !split(f, v->producer)) *f = (factors){.c = 1, .v = {v}, .n = 1};
}
