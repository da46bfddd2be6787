#include "ops/op.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/memo.h"

void claim_decline(claim *c, const char *fmt, ...) {
  if (c->declined) return;
  c->declined = true;
  va_list args;
  va_start(args, fmt);
  vsnprintf(c->reason, sizeof c->reason, fmt, args);
  va_end(args);
}

// What holds for every operator: types that the device has.
static void claim_value(claim *c, const op_row *row, const value *v, const char *what, size_t i) {
  if (c->declined || !v) return;
  if ((row->traits & OP_NARROW) && dtype_in(v->type, DTS_NARROW)) return;
  if (!mx_has_dtype(c->device, v->type))
    claim_decline(c, "%s %zu has type %s, which MLX does not have on this device", what, i, dtype_name(v->type));
}

static bool is_typed(const op_row *row, size_t i) {
  if (row->typed_in == ALL_IN) return true;
  return i < 32 && ((row->typed_in ? row->typed_in : IN(0)) & IN(i));
}

void claim_row(claim *c, const op_row *row) {
  const node *n = c->n;
  if (!(row->traits & OP_ANY_TYPE)) {
    for (size_t i = 0; i < n->n_in; i++) claim_value(c, row, n->in[i], "input", i);
    for (size_t i = 0; i < n->n_out; i++) claim_value(c, row, n->out[i], "output", i);
  }
  for (size_t i = 0; row->types && i < n->n_in; i++)
    if (is_typed(row, i)) require_types(c, i, row->types);
  if (!c->declined && row->claim) row->claim(c);
}

bool has_in(const claim *c, size_t i) { return i < c->n->n_in && c->n->in[i]; }
bool has_out(const claim *c, size_t i) { return i < c->n->n_out && c->n->out[i]; }
dtype in_type(const claim *c, size_t i) { return has_in(c, i) ? c->n->in[i]->type : DT_NONE; }
dtype out_type(const claim *c, size_t i) { return has_out(c, i) ? c->n->out[i]->type : DT_NONE; }
int in_rank(const claim *c, size_t i) { return has_in(c, i) ? c->n->in[i]->rank : -1; }

int64_t in_dim(const claim *c, size_t i, int axis) {
  int rank = in_rank(c, i);
  if (axis < 0) axis += rank;
  return rank < 0 || axis < 0 || axis >= rank ? -1 : c->n->in[i]->dims[axis];
}

const tensor *in_const(const claim *c, size_t i) { return has_in(c, i) ? c->n->in[i]->constant : NULL; }

void require_types(claim *c, size_t i, dtypes set) {
  if (has_in(c, i) && !dtype_in(in_type(c, i), set))
    claim_decline(c, "input %zu has type %s", i, dtype_name(in_type(c, i)));
}

void require_in_types(claim *c, dtypes set) {
  for (size_t i = 0; i < c->n->n_in; i++) require_types(c, i, set);
}

void require_known(claim *c, const char *const *attrs) {
  const char *unknown = attr_unknown(c->n, attrs);
  if (unknown) claim_decline(c, "attribute '%s' is not known", unknown);
}

mx in(const op *o, size_t i) { return i < o->n->n_in ? o->in[i] : NULL; }
bool wants(const op *o, size_t i) { return i < o->n->n_out && o->n->out[i]; }
dtype want_type(const op *o, size_t i) { return wants(o, i) ? o->n->out[i]->type : DT_NONE; }

void out(op *o, size_t i, mx x) {
  if (!wants(o, i)) return;
  dtype t = want_type(o, i);
  if (dtype_in(t, DTS_NARROW) && mx_dtype(x) != dtype_code(t)) x = op_fail(o, "output %zu is not in codes of %s", i, dtype_name(t));
  o->out[i] = t == DT_NONE ? x : mx_astype(x, dtype_code(t));
}

mx op_fail(op *o, const char *fmt, ...) {
  char msg[400];
  va_list args;
  va_start(args, fmt);
  vsnprintf(msg, sizeof msg, fmt, args);
  va_end(args);
  return mx_fail(o->s, ERR_INVALID, "%s", msg);
}

bool is_const(const op *o, size_t i) { return i < o->n->n_in && o->n->in[i] && o->n->in[i]->constant; }

mx memo(op *o, int slot, mx (*make)(op *o)) {
  if (o->memo && o->memo->held[slot]) return mx_use(o->s, o->memo->held[slot]);
  mx x = make(o);
  if (o->memo && mx_ok(o->s) && mx_eval(o->s, &x, 1)) o->memo->held[slot] = mx_hold(x);
  return x;
}

void op_memo_clear(op_memo *m) {
  for (int i = 0; i < OP_MEMO_SLOTS; i++) mx_held_free(m->held[i]);
  *m = (op_memo){0};
}

static bool tensor_ints(const tensor *t, int64_t *v, size_t cap, size_t *n) {
  if (!dims_count(t->dims, t->rank, n) || *n > cap) return false;
  for (size_t i = 0; i < *n; i++) switch (t->type) {
      case DT_I64: v[i] = ((const int64_t *)t->data)[i]; break;
      case DT_I32: v[i] = ((const int32_t *)t->data)[i]; break;
      case DT_U8: v[i] = ((const uint8_t *)t->data)[i]; break;
      case DT_I8: v[i] = ((const int8_t *)t->data)[i]; break;
      case DT_BOOL: v[i] = ((const uint8_t *)t->data)[i] != 0; break;
      default: return false;
    }
  return true;
}

bool in_trace(const op *o) { return o->env && o->env->require; }

void trace_require(op *o, mx ok) { o->env->require(o->env, ok); }

op_cache *trace_cache(const op *o) { return o->env && o->env->cache ? o->env->cache(o->env, o->n) : NULL; }

bool host_tensor(const op *o, size_t i, tensor *t) {
  const value *v = i < o->n->n_in ? o->n->in[i] : NULL;
  if (v && v->constant && v->constant->data) {
    *t = *v->constant;
    return true;
  }
  return v && o->env && o->env->host_value && o->env->host_value(o->env, v, t);
}

bool host_ints(op *o, size_t i, int64_t *v, size_t cap, size_t *n) {
  tensor t;
  if (host_tensor(o, i, &t) && tensor_ints(&t, v, cap, n)) return true;
  mx x = in(o, i);
  if (x) return mx_read_i64(x, v, cap, n);
  op_fail(o, "input %zu is missing", i);
  return false;
}

bool host_int(op *o, size_t i, int64_t *v) {
  size_t n = 0;
  if (!host_ints(o, i, v, 1, &n)) return false;
  if (n != 1) op_fail(o, "input %zu must hold one integer", i);
  return n == 1;
}

bool host_float(op *o, size_t i, double *v) {
  mx x = in(o, i);
  if (!x || mx_size(x) != 1) {
    op_fail(o, "input %zu must hold one number", i);
    return false;
  }
  const float *p = mx_read(mx_astype(x, DT_F32));
  if (p) *v = (double)*p;
  return p != NULL;
}

int norm_axis(op *o, int64_t axis, int rank) {
  int64_t a = axis < 0 ? axis + rank : axis;
  if (a >= 0 && a < rank) return (int)a;
  op_fail(o, "axis %lld is out of range for rank %d", (long long)axis, rank);
  return 0;
}

mx_ints op_axes(op *o, const char *attribute, size_t input, int rank) {
  int64_t v[MX_MAX_RANK];
  size_t n = 0;
  if (in(o, input)) {
    if (!host_ints(o, input, v, MX_MAX_RANK, &n)) return (mx_ints){0};
  } else if (attribute) {
    const int64_t *a = attr_ints(o->n, attribute, &n);
    if (n > MX_MAX_RANK) op_fail(o, "attribute %s has %zu entries for rank %d", attribute, n, rank);
    if (n > MX_MAX_RANK) return (mx_ints){0};
    if (n) memcpy(v, a, n * sizeof *v);
  }
  bool named[MX_MAX_RANK] = {false};
  for (size_t i = 0; i < n; i++) {
    int a = norm_axis(o, v[i], rank);
    if (named[a]) op_fail(o, "axis %d is named twice", a);
    named[a] = true;
  }
  mx_ints axes = {0};
  for (int a = 0; a < rank && a < MX_MAX_RANK; a++)
    if (named[a]) axes.v[axes.n++] = a;
  return axes;
}

bool fits_int(op *o, int64_t v, int *out) {
  *out = v >= INT_MIN && v <= INT_MAX ? (int)v : 0;
  if (*out == v) return true;
  op_fail(o, "%lld is too large for MLX, whose sizes are 32 bits wide", (long long)v);
  return false;
}

mx f32_up(mx x) { return is_half(x) ? mx_astype(x, DT_F32) : x; }

mx_ints perm_identity(int rank) {
  mx_ints p = {.n = rank};
  for (int i = 0; i < rank; i++) p.v[i] = i;
  return p;
}

mx_ints all_axes(int rank) { return perm_identity(rank); }
