// What ONNX Runtime does not let a model test: operators that it folds or does not know yet, and what stays on the host.
#include "ops/index.h"

#include <string.h>

#include "ops/memo.h"
#include "ops/registry.h"
#include "unit.h"

typedef struct bench {
  value in_values[4], out_value;
  value *ins[4], *outs[1];
  node n;
  mx in[4], out[1];
  op_memo memo;
  const op_env *env;  // of a trace; NULL outside
} bench;

// Translates one node; its output has type `to`.
static mx translate(bench *b, mx_scope *s, const char *type, int since, const mx *in, size_t n_in, const attr *attrs,
                    size_t n_attrs, dtype to) {
  const op_env *env = b->env;
  memset(b, 0, sizeof *b);
  for (size_t i = 0; i < n_in; i++) {
    b->ins[i] = &b->in_values[i];
    b->in[i] = in[i];
  }
  b->outs[0] = &b->out_value;
  b->out_value.type = to;
  b->n = (node){.name = "n", .domain = "", .op_type = type, .since = since, .in = b->ins, .n_in = n_in, .out = b->outs,
                .n_out = 1, .attrs = attrs, .n_attrs = n_attrs};
  op o = {.n = &b->n, .s = s, .in = b->in, .out = b->out, .memo = &b->memo, .env = env};
  registry_find("", type, since)->translate(&o);
  mx y = b->out[0];
  op_memo_clear(&b->memo);
  return y;
}

static void constants_of_each_kind(void) {
  mx_scope *s = mx_scope_new(MX_CPU);
  bench b = {0};
  int64_t ints[] = {INT64_C(1) << 62, -3}, got[4];
  float floats[] = {0.5f, -2};
  int16_t shorts[] = {7, 8};
  tensor t = {.type = DT_I16, .rank = 2, .dims = (int64_t[]){1, 2}, .data = shorts, .bytes = sizeof shorts};
  size_t n = 0;
  mx y = translate(&b, s, "Constant", 13, NULL, 0, &(attr){.name = "value_ints", .kind = ATTR_INTS, .n = 2, .ints = ints}, 1, DT_I64);
  CHECK(mx_ndim(y) == 1 && mx_read_i64(y, got, 4, &n) && n == 2 && got[0] == ints[0] && got[1] == -3);
  y = translate(&b, s, "Constant", 13, NULL, 0, &(attr){.name = "value_int", .kind = ATTR_INT, .i = ints[0] + 1}, 1, DT_I64);
  CHECK(mx_ndim(y) == 0 && mx_read_i64(y, got, 4, &n) && got[0] == ints[0] + 1);
  y = translate(&b, s, "Constant", 13, NULL, 0, &(attr){.name = "value_floats", .kind = ATTR_FLOATS, .n = 2, .floats = floats}, 1, DT_F32);
  const float *f = mx_read(y);
  CHECK(f && mx_ndim(y) == 1 && mx_size(y) == 2 && f[0] == 0.5f && f[1] == -2);
  y = translate(&b, s, "Constant", 13, NULL, 0, &(attr){.name = "value_float", .kind = ATTR_FLOAT, .f = 2.5f}, 1, DT_F32);
  f = mx_read(y);
  CHECK(f && mx_ndim(y) == 0 && f[0] == 2.5f);
  y = translate(&b, s, "Constant", 13, NULL, 0, &(attr){.name = "value", .kind = ATTR_TENSOR, .t = &t}, 1, DT_I16);
  CHECK(mx_dtype(y) == DT_I16 && mx_ndim(y) == 2 && mx_read_i64(y, got, 4, &n) && n == 2 && got[1] == 8);
  CHECK(mx_ok(s));
  mx_scope_free(s);
}

// y = x * sigmoid(alpha * x) * z; NaN passes.
static void swiglu_gates(void) {
  mx_scope *s = mx_scope_new(MX_CPU);
  bench b = {0};
  float x[] = {-1.5f, 0, 2, NAN}, z[] = {2, 3, -0.5f, 1};
  mx in[] = {mx_from(s, x, DT_F32, MXI(4)), mx_from(s, z, DT_F32, MXI(4))};
  for (int twice = 0; twice < 2; twice++) {
    float alpha = twice ? 1.702f : 1;
    attr a = {.name = "alpha", .kind = ATTR_FLOAT, .f = alpha};
    const float *y = mx_read(translate(&b, s, "SwiGLU", 28, in, 2, &a, (size_t)twice, DT_F32));
    for (int i = 0; i < 3 && y; i++) {
      double wide = (double)x[i];
      CHECK_NEAR(y[i], wide / (1 + exp(-(double)alpha * wide)) * (double)z[i], 1e-6);
    }
    CHECK(y && isnan(y[3]));
  }
  mx_scope_free(s);
}

// Both modes undo DepthToSpace in the same mode.
static void space_to_depth_has_two_modes(void) {
  mx_scope *s = mx_scope_new(MX_CPU);
  bench b = {0};
  int64_t v[2 * 8 * 2 * 3], got[96];
  for (int i = 0; i < 96; i++) v[i] = i;
  for (int crd = 0; crd < 2; crd++) {
    attr attrs[] = {{.name = "blocksize", .kind = ATTR_INT, .i = 2}, {.name = "mode", .kind = ATTR_STRING, .s = crd ? "CRD" : "DCR"}};
    mx x = mx_from(s, v, DT_I64, MXI(2, 8, 2, 3));
    mx wide = translate(&b, s, "DepthToSpace", 28, &x, 1, attrs, 2, DT_I64);
    mx back = translate(&b, s, "SpaceToDepth", 28, &wide, 1, attrs, 2, DT_I64);
    size_t n = 0;
    CHECK(mx_dim(wide, 1) == 2 && mx_dim(wide, 3) == 6);
    CHECK(mx_read_i64(back, got, 96, &n) && n == 96 && !memcmp(v, got, sizeof v));
    // The second element of a block's row comes from the next channel (CRD) or from channels / blocks further (DCR).
    CHECK(mx_read_i64(wide, got, 96, &n) && got[1] == v[(crd ? 1 : 2) * 6]);
  }
  CHECK(mx_ok(s));
  mx_scope_free(s);
}

// x [2, 3, 4]: Concat(Slice(Shape(x), 0, 1), Unsqueeze(Gather(Shape(x), -1), 0)) without an evaluation.
static void shapes_stay_on_the_host(void) {
  mx_scope *s = mx_scope_new(MX_CPU);
  bench b = {0};
  int64_t got[4];
  size_t n = 0;
  mx x = mx_full(s, MXI(2, 3, 4), 1, DT_F32), zero = mx_i64s(s, (int64_t[]){0}, 1), one = mx_i64s(s, (int64_t[]){1}, 1);
  mx shape = translate(&b, s, "Shape", 21, &x, 1, NULL, 0, DT_I64);
  mx last = translate(&b, s, "Gather", 13, (mx[]){shape, mx_scalar_i64(s, -1, DT_I64)}, 2, NULL, 0, DT_I64);
  mx tail = translate(&b, s, "Unsqueeze", 21, (mx[]){last, zero}, 2, NULL, 0, DT_I64);
  mx head = translate(&b, s, "Slice", 13, (mx[]){shape, zero, one}, 3, NULL, 0, DT_I64);
  mx both = translate(&b, s, "Concat", 13, (mx[]){head, tail}, 2, &(attr){.name = "axis", .kind = ATTR_INT}, 1, DT_I64);
  CHECK(mx_ready(shape) && mx_ready(last) && mx_ready(tail) && mx_ready(head) && mx_ready(both));
  CHECK(mx_read_i64(both, got, 4, &n) && n == 2 && got[0] == 2 && got[1] == 4);
  CHECK(!mx_ready(mx_exp(x)));
  CHECK(mx_ok(s));
  mx_scope_free(s);
}

static void required(const op_env *env, mx ok) { *(mx *)(uintptr_t)env->route = ok; }

static void gather_body(void *user, mx_scope *s, const mx *in, size_t n_in, mx *out, size_t n_out) {
  (void)n_in;
  (void)n_out;
  mx ok = NULL;
  const op_env env = {.require = required, .route = &ok};
  bench b = {.env = &env};
  (void)user;
  out[0] = translate(&b, s, "Gather", 13, in, 2, NULL, 0, DT_F32);
  out[1] = ok;
}

// Indices that are data of a trace are brought into range, and the trace's result tells whether they had to be.
static void traces_guard_their_indices(void) {
  err e = {0};
  mx_spec spec[] = {{DT_F32, MXI(2, 3)}, {DT_I64, MXI(1)}};
  mx_fn *f = mx_trace(gather_body, NULL, spec, 2, 2, MX_CPU, &e);
  CHECK(f && err_ok(&e));
  const int64_t at[] = {0, 1, -2, -1, 2, -3, INT64_MAX, INT64_MIN};
  for (int i = 0; i < 8; i++) {
    mx_scope *s = mx_scope_new(MX_CPU);
    mx y[2], in[] = {mx_full(s, MXI(2, 3), 1, DT_F32), mx_i64s(s, &at[i], 1)};
    CHECK(mx_apply(f, s, in, 2, y) && mx_eval(s, y, 2));
    const bool *ok = mx_read(mx_all(y[1], MXI(0), false));
    CHECK(ok && *ok == (i < 4));
    mx_scope_free(s);
  }
  mx_fn_free(f);
}

// A row without a claim function declines nothing beyond types, so it has no limits to tell; types and typed_in go together.
static void rows_tell_what_they_do(void) {
  const op_row *row;
  for (size_t i = 0; (row = registry_row(i)); i++) {
    CHECK(!row->limits || row->claim);
    CHECK(row->types || !row->typed_in);
    CHECK(!(row->types & DTYPE_BIT(DT_STRING)));
    CHECK((row->traits & (OP_NARROW | OP_ANY_TYPE)) || !(row->types & DTS_NARROW));
  }
}

void ops_tests(void) {
  err e = {0};
  CHECK(mx_thread_begin(MX_CPU, &e));
  constants_of_each_kind();
  swiglu_gates();
  space_to_depth_has_two_modes();
  shapes_stay_on_the_host();
  traces_guard_their_indices();
  rows_tell_what_they_do();
  mx_thread_end();
}
