#include "mx/mx.h"

#include <stdlib.h>

#include "unit.h"

static mx_scope *scope(void) { return mx_scope_new(MX_CPU); }

static void chains_compute(void) {
  mx_scope *s = scope();
  float v[6] = {1, 2, 3, 4, 5, 6};
  mx x = mx_wrap(s, v, DT_F32, MXI(2, 3));
  mx y = mx_sum(mx_mul(x, mx_scalar(x, 2)), MXI(1), false);
  const float *p = mx_read(y);
  CHECK(p && p[0] == 12 && p[1] == 30);
  CHECK(mx_ok(s) && v[0] == 1 && v[5] == 6);
  mx_scope_free(s);
}

static void the_first_error_stays(void) {
  mx_scope *s = scope();
  mx_at_node(s, "Reshape", "r1");
  mx x = mx_full(s, MXI(2, 3), 1, DT_F32);
  mx bad = mx_exp(mx_add(mx_reshape(x, MXI(4, 4)), x));
  CHECK(!mx_ok(s) && mx_read(bad) == NULL && mx_ndim(bad) == 0);
  CHECK_HAS(mx_error(s)->msg, "node 'r1' (Reshape)");
  mx_fail(s, ERR_INVALID, "later");
  CHECK(mx_error(s)->code == ERR_MLX);
  mx_scope_free(s);
}

static void integers_are_exact(void) {
  mx_scope *s = scope();
  int64_t big = (INT64_C(1) << 62) + 1, got = 0;
  size_t n = 0;
  CHECK(mx_read_i64(mx_scalar_i64(s, big, DT_I64), &got, 1, &n) && got == big && n == 1);
  CHECK(!mx_read_i64(mx_i64s(s, (int64_t[]){1, 2}, 2), &got, 1, &n));
  mx_scope_free(s);
}

static void host_memory_is_not_copied_when_it_may_be_wrapped(void) {
  float *block = aligned_alloc(64, 256);
  for (int i = 0; i < 64; i++) block[i] = (float)i;
  mx_scope *s = scope();
  const float *p = mx_read(mx_wrap(s, block + 16, DT_F32, MXI(16)));
  CHECK(p && p[15] == 31 && (p == block + 16 || mx_gpu_available()));  // MLX's builds for GPUs have buffers of their own
  CHECK(mx_read(mx_from(s, block + 16, DT_F32, MXI(16))) != block + 16);
  mx_scope_free(s);
  free(block);
}

static void page_starts_are_copied(void) {
  float *page = aligned_alloc(4096, 4096);
  page[0] = 7;
  mx_scope *s = scope();
  const float *p = mx_read(mx_wrap(s, page, DT_F32, MXI(4)));
  CHECK(p && p != page && p[0] == 7);
  mx_scope_free(s);
  free(page);
}

static void held_arrays_outlive_scopes(void) {
  mx_scope *s = scope();
  mx_held *h = mx_hold(mx_full(s, MXI(3), 2, DT_F32));
  mx_scope_free(s);
  s = scope();
  const float *p = mx_read(mx_use(s, h));
  CHECK(p && p[2] == 2);
  mx_scope_free(s);
  mx_held_free(h);
}

static void let_go_arrays_fail_cleanly(void) {
  mx_scope *s = scope();
  mx a = mx_full(s, MXI(2), 1, DT_F32), b = mx_exp(a);
  mx_scope_keep(s, &b, 1);
  CHECK(mx_eval(s, &b, 1) && mx_ok(s));
  mx_exp(a);
  CHECK(!mx_ok(s));
  mx_scope_free(s);
}

static void body(void *user, mx_scope *s, const mx *in, size_t n_in, mx *out, size_t n_out) {
  ++*(int *)user;
  (void)n_in, (void)n_out;
  out[0] = mx_dim(in[0], 0) == 13 ? mx_fail(s, ERR_INVALID, "thirteen") : mx_add(in[0], in[0]);
}

static mx_fn *trace(mx_body f, void *user, int n, err *e) {
  mx_spec spec = {DT_F32, MXI(n)};
  return mx_trace(f, user, &spec, 1, 1, MX_CPU, e);
}

static void traces_replay_and_fail_cleanly(void) {
  err e = {0};
  int traces = 0;
  mx_fn *f = trace(body, &traces, 2, &e);
  CHECK(f && err_ok(&e) && mx_fn_steps(f) == 1);
  for (int again = 0; again < 3; again++) {
    mx_scope *s = scope();
    mx x = mx_full(s, MXI(2), 3 + again, DT_F32), y;
    CHECK(mx_apply(f, s, &x, 1, &y));
    const float *p = mx_read(y);
    CHECK(p && p[1] == 2 * (float)(3 + again));
    mx_scope_free(s);
  }
  CHECK(traces == 1);
  mx_scope *s = scope();
  mx wrong = mx_full(s, MXI(2, 2), 3, DT_F32), y;
  CHECK(!mx_apply(f, s, &wrong, 1, &y) && mx_read(y) == NULL);
  mx_scope_free(s);
  mx_fn_free(f);
  CHECK(!trace(body, &traces, 13, &e));
  CHECK_HAS(e.msg, "thirteen");
}

// exp of a constant is computed in the trace; what is asked twice is computed once; data cannot be read.
static void simple_body(void *user, mx_scope *s, const mx *in, size_t n_in, mx *out, size_t n_out) {
  (void)user, (void)n_in, (void)n_out;
  mx one = mx_exp(mx_full(s, MXI(1), 0, DT_F32));
  CHECK(!mx_ready(in[0]));
  out[0] = mx_add(mx_mul(mx_sqrt(in[0]), one), mx_mul(mx_sqrt(in[0]), one));
}

static void read_body(void *user, mx_scope *s, const mx *in, size_t n_in, mx *out, size_t n_out) {
  (void)user, (void)s, (void)n_in, (void)n_out;
  CHECK(mx_read(mx_exp(in[0])) == NULL);
  out[0] = in[0];
}

static void traces_are_simplified(void) {
  err e = {0};
  mx_fn *f = trace(simple_body, NULL, 3, &e);
  CHECK(f && mx_fn_steps(f) == 4);  // sqrt, a broadcast of the constant, product, sum
  mx_scope *s = scope();
  mx x = mx_full(s, MXI(3), 4, DT_F32), y;
  const float *p = mx_apply(f, s, &x, 1, &y) ? mx_read(y) : NULL;
  CHECK(p && p[0] == 4 && p[2] == 4);
  mx_scope_free(s);
  mx_fn_free(f);
  CHECK(!trace(read_body, NULL, 3, &e) && !err_ok(&e));
}

// Between two layouts: everything happens in the first one.
static void layout_body(void *user, mx_scope *s, const mx *in, size_t n_in, mx *out, size_t n_out) {
  (void)user, (void)n_in, (void)n_out;
  mx x = mx_transpose(in[0], MXI(0, 3, 1, 2)), y = mx_add(x, mx_full(s, MXI(5, 1, 1), 1, DT_F32));
  mx both[2] = {mx_max(y, MXI(2, 3), true), mx_max(x, MXI(2, -1), true)};
  mx z = mx_mul(y, mx_sub(both[0], both[1]));  // times one
  out[0] = mx_transpose(mx_concatenate(s, (mx[]){z, mx_neg(mx_neg(x))}, 2, 1), MXI(0, 2, 3, 1));
}

static void steps_follow_the_layout_of_their_data(void) {
  err e = {0};
  mx_spec spec = {DT_F32, MXI(1, 2, 3, 5)};
  mx_fn *f = mx_trace(layout_body, NULL, &spec, 1, 1, MX_CPU, &e);
  CHECK(f && mx_fn_steps(f) == 10);  // add, two maxima, sub, mul, two negs, concatenate, and two broadcasts: no transpose
  if (!f) return;
  mx_scope *s = scope();
  float v[30];
  for (int i = 0; i < 30; i++) v[i] = (float)i;
  mx x = mx_from(s, v, DT_F32, spec.shape), y;
  const float *p = mx_apply(f, s, &x, 1, &y) ? mx_read(y) : NULL;
  CHECK(p && mx_dim(y, 3) == 10);
  for (int i = 0; p && i < 30; i++) CHECK(p[i / 5 * 10 + i % 5] == v[i] + 1 && p[i / 5 * 10 + 5 + i % 5] == v[i]);
  mx_scope_free(s);
  mx_fn_free(f);
}

static void baked_body(void *user, mx_scope *s, const mx *in, size_t n_in, mx *out, size_t n_out) {
  (void)n_in, (void)n_out;
  int n = mx_dim(in[0], 0);
  if (*(int *)user == 1) out[0] = mx_mul(in[0], mx_full(s, MXI(1), n, DT_F32));          // a value
  else if (*(int *)user == 2) out[0] = mx_broadcast_to(mx_sum(in[0], MXI(0), true), MXI(n));  // a shape
  else if (*(int *)user == 3) out[0] = mx_slice_axis(in[0], 0, 1, n);                     // a bound
  else out[0] = mx_sub(in[0], mx_sum(in[0], MXI(0), true));                              // nothing
}

static void only_traces_that_hold_no_size_are_the_same(void) {
  for (int kind = 0; kind < 4; kind++) {
    err e = {0};
    mx_fn *f = trace(baked_body, &kind, 4, &e), *g = trace(baked_body, &kind, 6, &e);
    CHECK(f && g);
    CHECK(mx_fn_same(f, g, &e) == (kind == 0));
    CHECK(kind == 0 || e.code == ERR_UNSUPPORTED);
    mx_scope *s = scope();
    mx x = mx_full(s, MXI(9), 1, DT_F32), y;
    const float *p = kind == 0 && mx_apply(f, s, &x, 1, &y) ? mx_read(y) : NULL;
    CHECK(kind != 0 || (p && mx_dim(y, 0) == 9 && p[8] == -8));
    mx_scope_free(s);
    mx_fn_free(f);
    mx_fn_free(g);
  }
}

static void quantised_products_match_their_definition(void) {
  enum { K = 40, N = 3, BLOCK = 16, BLOCKS = 3 };
  uint8_t q[N * BLOCKS * BLOCK / 2];
  float scales[N * BLOCKS], xs[2 * K];
  for (size_t i = 0; i < sizeof q; i++) q[i] = (uint8_t)(i * 37);
  for (int i = 0; i < N * BLOCKS; i++) scales[i] = 0.01f * (float)(i + 1);
  for (int i = 0; i < 2 * K; i++) xs[i] = (float)(i % 7) - 3;
  err e = {0};
  mx_nbits_desc d = {.k = K, .n = N, .bits = 4, .block_size = BLOCK, .q = q, .scales = scales};
  mx_nbits *w = mx_nbits_pack(MX_CPU, &d, &e);
  CHECK(w && err_ok(&e));
  mx_scope *s = scope();
  const float *y = mx_read(mx_nbits_matmul(mx_from(s, xs, DT_F32, MXI(2, K)), w));
  for (int m = 0; m < 2 && y; m++)
    for (int n = 0; n < N; n++) {
      double sum = 0;
      for (int k = 0; k < K; k++) {
        int b = k / BLOCK, v = (q[(n * BLOCKS + b) * BLOCK / 2 + k % BLOCK / 2] >> (k % 2 * 4)) & 15;
        sum += (double)xs[m * K + k] * (double)scales[n * BLOCKS + b] * (v - 8);
      }
      CHECK_NEAR(y[m * N + n], sum, 1e-4);
    }
  CHECK(y != NULL);
  mx_nbits_matmul(mx_from(s, xs, DT_F32, MXI(2, K - 1)), w);
  CHECK_HAS(mx_error(s)->msg, "the weights need 40");
  mx_scope_free(s);
  mx_nbits_free(w);
}

static void rounds_do_not_pile_up(void) {
  mx_scope *s = scope();
  float one = 1;
  mx step = mx_from(s, &one, DT_F32, MXI(1));
  size_t mark = mx_scope_mark(s);
  mx keep[] = {step, NULL, step};
  for (int i = 0; i < 50; i++) {
    keep[0] = mx_add(keep[0], step);
    mx_scope_rewind(s, mark, keep, 3);
    CHECK(mx_scope_mark(s) == mark + 2 && keep[1] == NULL);
  }
  const float *sum = mx_read(keep[0]), *kept = mx_read(keep[2]);
  CHECK(sum && kept && *sum == 51 && *kept == 1);
  mx_scope_free(s);
}

void mx_tests(void) {
  err e = {0};
  CHECK(mx_thread_begin(MX_CPU, &e));
  CHECK(!mx_thread_begin(MX_CPU, &e) && e.code == ERR_INTERNAL);
  chains_compute();
  the_first_error_stays();
  integers_are_exact();
  host_memory_is_not_copied_when_it_may_be_wrapped();
  page_starts_are_copied();
  held_arrays_outlive_scopes();
  let_go_arrays_fail_cleanly();
  rounds_do_not_pile_up();
  traces_replay_and_fail_cleanly();
  traces_are_simplified();
  steps_follow_the_layout_of_their_data();
  only_traces_that_hold_no_size_are_the_same();
  quantised_products_match_their_definition();
  mx_thread_end();
  CHECK(mx_scope_new(MX_CPU) == NULL);
}
