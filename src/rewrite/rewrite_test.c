#include "rewrite/rewrite.h"

#include <stdio.h>

#include "rewrite/match.h"
#include "unit.h"
#include "unit_graph.h"

static const int64_t DIMS[] = {2, 4};

static value *constant(graph *g, const char *name, int rank, const int64_t *dims, const float *data, size_t n) {
  err e = {0};
  value *v = graph_value(g, name, DT_F32, rank, dims, &e);
  tensor *t = ARENA_NEW(g->mem, tensor);
  *t = (tensor){.type = DT_F32, .rank = rank, .dims = arena_copy(g->mem, dims, (size_t)rank * sizeof *dims),
                .data = arena_copy(g->mem, data, n * sizeof *data), .bytes = n * sizeof *data};
  v->constant = t;
  return v;
}

static value *number(graph *g, const char *name, float x) { return constant(g, name, 0, DIMS, &x, 1); }

// x in, z out, room for n nodes.
static graph *start(size_t n, err *e) {
  graph *g = graph_new(e);
  ug_ends(g, (const char *[]){"x"}, 1, (const char *[]){"z"}, 1, 2, DIMS, e);
  graph_set_nodes(g, n, e);
  return g;
}

static unsigned long long made(const rewrite_counts *c, const char *name) {
  for (size_t i = 0; rewrite_name(i); i++)
    if (!strcmp(rewrite_name(i), name)) return atomic_load(&c->made[i]);
  return 999;
}

static void rewrite(graph *g, const char *off, rewrite_counts *c, err *e) {
  opts o = {0};
  snprintf(o.no_rewrites, sizeof o.no_rewrites, "%s", off);
  memset(c, 0, sizeof *c);
  CHECK(graph_link(g, e) && rewrite_all(g, MX_CPU, &o, c, e) && err_ok(e));
}

// ---- the edit functions -----------------------------------------------------------------------------------------------------
static void a_node_takes_the_place_of_another(void) {
  err e = {0};
  edit ed;
  graph *g = start(3, &e);
  ug_node(g, 0, "Exp", "x", NULL, "a", 2, DIMS, &e);
  ug_node(g, 1, "Neg", "a", NULL, "b", 2, DIMS, &e);
  ug_node(g, 2, "Add", "b", "x", "z", 2, DIMS, &e);
  CHECK(graph_link(g, &e) && edit_open(&ed, g, MX_CPU, &e));
  node_spec no = {.domain = "", .op_type = "NoSuch", .since = 1, .in = {graph_find(g, "x")}, .n_in = 1};
  CHECK(!edit_replace(&ed, &g->nodes[1], &no) && !ed.changed);
  node_spec yes = {.domain = "", .op_type = "Abs", .since = 13, .in = {graph_find(g, "x")}, .n_in = 1};
  CHECK(edit_replace(&ed, &g->nodes[1], &yes));  // Exp served Neg alone
  CHECK(edit_close(&ed) && g->n_nodes == 2);
  CHECK_STR(g->nodes[0].op_type, "Abs");
  CHECK(graph_find(g, "b")->producer == &g->nodes[0] && graph_find(g, "x")->consumers == 2 && !graph_find(g, "a")->producer);
  graph_free(g);
}

static void outputs_and_captured_values_stay(void) {
  err e = {0};
  edit ed;
  graph *g = start(2, &e);
  ug_node(g, 0, "Exp", "x", NULL, "z", 2, DIMS, &e);
  ug_node(g, 1, "Neg", "z", NULL, "a", 2, DIMS, &e);
  CHECK(graph_link(g, &e) && edit_open(&ed, g, MX_CPU, &e));
  edit_remove(&ed, &g->nodes[1]);
  CHECK(edit_close(&ed) && g->n_nodes == 1);  // z is an output
  graph_free(g);

  g = ug_if("Abs", 2, DIMS, &e);
  CHECK(graph_link(g, &e) && edit_open(&ed, g, MX_CPU, &e));
  value *x = graph_find(g, "x"), *y = graph_value(g, "y", DT_F32, 2, DIMS, &e);
  CHECK(edit_only_user(&ed, x) == NULL && x->consumers == 1);
  edit_redirect(&ed, x, y);
  CHECK(x->consumers == 0 && y->consumers == 1 && g->nodes[0].captures[0] == y);
  CHECK(graph_find(g->nodes[0].attrs[1].g, "x")->outer == y);
  CHECK(edit_close(&ed));
  graph_free(g);
}

static void order_is_kept_when_nodes_come_in_front(void) {
  err e = {0};
  edit ed;
  graph *g = start(2, &e);
  ug_node(g, 0, "Exp", "x", NULL, "a", 2, DIMS, &e);
  ug_node(g, 1, "Neg", "a", NULL, "z", 2, DIMS, &e);
  CHECK(graph_link(g, &e) && edit_open(&ed, g, MX_CPU, &e));
  value *b = edit_value(&ed, "a", DT_F32, 2, DIMS);
  node_spec s = {.domain = "", .op_type = "Abs", .since = 13, .in = {graph_find(g, "a")}, .n_in = 1};
  CHECK(edit_insert(&ed, &g->nodes[1], &s, &b, 1) != NULL);
  edit_set_in(&ed, &g->nodes[1], 0, b);
  CHECK(edit_close(&ed) && g->n_nodes == 3 && err_ok(&e));
  CHECK_STR(g->nodes[1].op_type, "Abs");
  CHECK(g->nodes[2].in[0] == b && b->consumers == 1);
  graph_free(g);
}

static void loose_memory_is_bounded(void) {
  err e = {0};
  edit ed;
  graph *g = start(0, &e);
  CHECK(edit_open(&ed, g, MX_CPU, &e));
  CHECK(edit_room(&ed, EDIT_MAX_LOOSE + 1) == NULL && err_ok(&e));
  CHECK(edit_room(&ed, 16) && g->loose);
  CHECK(edit_room(&ed, EDIT_MAX_LOOSE) == NULL && err_ok(&e));
  CHECK(edit_close(&ed));
  graph_let_go(g);
  CHECK(!g->loose);
  graph_free(g);
}

// ---- questions ----------------------------------------------------------------------------------------------------------------
static void numbers_must_not_raise_the_rank(void) {
  err e = {0};
  double x;
  const float two[] = {2, 2};
  graph *g = start(0, &e);
  value *v = graph_find(g, "x");
  CHECK(const_number(number(g, "n", 2), v, &x) && x == 2);
  CHECK(const_number(constant(g, "a", 2, (int64_t[]){1, 1}, two, 1), v, &x));
  CHECK(!const_number(constant(g, "b", 3, (int64_t[]){1, 1, 1}, two, 1), v, &x));
  CHECK(!const_number(constant(g, "c", 1, (int64_t[]){2}, two, 2), v, &x));
  v->rank = -1;
  CHECK(!const_number(constant(g, "d", 1, (int64_t[]){1}, two, 1), v, &x) && !const_number(v, v, &x));
  CHECK(about(1.41421356, 1.41421354, DT_F32) && !about(1.4142, 1.41421354, DT_F32) && about(1.414, 1.41421354, DT_F16));
  graph_free(g);
}

static void products_are_taken_apart(void) {
  err e = {0};
  graph *g = start(3, &e);
  number(g, "c", 4);
  number(g, "p", 3);
  ug_node(g, 0, "Pow", "x", "p", "a", 2, DIMS, &e);
  ug_node(g, 1, "Div", "a", "c", "b", 2, DIMS, &e);
  ug_node(g, 2, "Mul", "c", "b", "z", 2, DIMS, &e);
  factors f;
  CHECK(graph_link(g, &e));
  factors_of(graph_find(g, "z"), &f);
  CHECK(f.n == 3 && f.c == 1 && f.v[0] == graph_find(g, "x") && f.v[2] == graph_find(g, "x"));
  graph_find(g, "b")->is_output = true;
  factors_of(graph_find(g, "z"), &f);
  CHECK(f.n == 1 && f.c == 4 && f.v[0] == graph_find(g, "b"));
  graph_free(g);
}

// ---- rewrites -----------------------------------------------------------------------------------------------------------------
static graph *silu(const char *other, err *e) {
  graph *g = start(2, e);
  ug_node(g, 0, "Sigmoid", other, NULL, "s", 2, DIMS, e);
  ug_node(g, 1, "Mul", "x", "s", "z", 2, DIMS, e);
  return g;
}

static void silu_and_its_switch(void) {
  static const struct {
    const char *off;
    unsigned long long want;
  } CASES[] = {{"", 1}, {"gelu", 1}, {"gelu, silu", 0}, {"all", 0}, {"fold,", 1}};
  rewrite_counts c;
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
    err e = {0};
    graph *g = silu("x", &e);
    rewrite(g, CASES[i].off, &c, &e);
    CHECK(made(&c, "silu") == CASES[i].want && g->n_nodes == 2 - CASES[i].want);
    graph_free(g);
  }
  err e = {0};
  graph *g = silu("x", &e);
  opts o = {.no_rewrites = "silu,sulu"};
  CHECK(graph_link(g, &e) && !rewrite_all(g, MX_CPU, &o, &c, &e));
  CHECK_HAS(e.msg, "names 'sulu'");
  graph_free(g);
}

static void silu_near_misses(void) {
  rewrite_counts c;
  for (int i = 0; i < 3; i++) {
    err e = {0};
    graph *g = silu(i == 0 ? "y" : "x", &e);
    if (i == 0) graph_find(g, "y")->is_input = true;
    if (i == 1) graph_find(g, "s")->is_output = true;      // wanted beside the product
    if (i == 2) graph_find(g, "z")->type = DT_F16;         // of another type
    rewrite(g, "", &c, &e);
    CHECK(made(&c, "silu") == 0 && g->n_nodes == 2);
    graph_free(g);
  }
}

static void constants_are_folded(void) {
  err e = {0};
  rewrite_counts c;
  graph *g = start(3, &e);
  number(g, "a", 3);
  number(g, "b", 4);
  ug_node(g, 0, "Mul", "a", "b", "ab", 0, DIMS, &e);
  ug_node(g, 1, "Sqrt", "ab", NULL, "r", 0, DIMS, &e);
  ug_node(g, 2, "Add", "x", "r", "z", 2, DIMS, &e);
  rewrite(g, "", &c, &e);
  const value *r = graph_find(g, "r");
  CHECK(made(&c, "fold") == 2 && g->n_nodes == 1 && r->constant && !r->producer);
  CHECK_NEAR(*(const float *)r->constant->data, 3.4641016, 1e-6);
  graph_free(g);
}

static void failing_nodes_are_not_folded(void) {
  err e = {0};
  rewrite_counts c;
  graph *g = start(2, &e);
  constant(g, "a", 2, (int64_t[]){2, 3}, (const float[6]){0}, 6);
  ug_node(g, 0, "MatMul", "a", "a", "m", 2, DIMS, &e);  // shapes that do not fit
  ug_node(g, 1, "Add", "x", "m", "z", 2, DIMS, &e);
  rewrite(g, "", &c, &e);
  CHECK(made(&c, "fold") == 0 && g->n_nodes == 2);
  graph_free(g);
}

static void merged_products_are_split(void) {
  err e = {0};
  rewrite_counts c;
  const float left[] = {1, 2, 3, 4, 5, 6, 7, 8}, right[] = {10, 20, 30, 40};
  graph *g = start(3, &e);
  constant(g, "l", 2, (int64_t[]){4, 2}, left, 8);
  constant(g, "r", 2, (int64_t[]){4, 1}, right, 4);
  ug_node(g, 0, "MatMul", "x", "l", "a", 2, (int64_t[]){2, 2}, &e);
  ug_node(g, 1, "MatMul", "x", "r", "b", 2, (int64_t[]){2, 1}, &e);
  ug_node(g, 2, "Mul", "a", "b", "z", 2, (int64_t[]){2, 2}, &e);
  rewrite(g, "", &c, &e);
  CHECK(made(&c, "merge_matmul") == 1 && g->n_nodes == 3);
  CHECK_STR(g->nodes[1].op_type, "Split");
  const tensor *w = g->nodes[0].in[1]->constant;
  CHECK(w && w->dims[1] == 3 && g->nodes[0].out[0]->dims[1] == 3);
  for (int k = 0; w && k < 4; k++) CHECK(((const float *)w->data)[3 * k] == left[2 * k] && ((const float *)w->data)[3 * k + 2] == right[k]);
  CHECK(graph_find(g, "b")->producer == &g->nodes[1] && g->nodes[1].out[1] == graph_find(g, "b"));
  graph_free(g);
}

// Every allocation in turn fails: an error or fewer rewrites, never a broken graph.
static void memory_may_run_out(void) {
  for (long n = 1; n < 60; n++) {
    err e = {0};
    rewrite_counts c = {0};
    opts o = {0};
    graph *g = start(4, &e);
    number(g, "a", 3);
    number(g, "b", 4);
    ug_node(g, 0, "Mul", "a", "b", "ab", 0, DIMS, &e);
    ug_node(g, 1, "Sigmoid", "x", NULL, "s", 2, DIMS, &e);
    ug_node(g, 2, "Mul", "x", "s", "y", 2, DIMS, &e);
    ug_node(g, 3, "Add", "y", "ab", "z", 2, DIMS, &e);
    CHECK(graph_link(g, &e));
    mem_fail_after(n);
    bool ok = rewrite_all(g, MX_CPU, &o, &c, &e);
    mem_fail_after(0);
    CHECK(ok == err_ok(&e) && (ok || e.code == ERR_NO_MEMORY));
    if (ok) CHECK(graph_find(g, "z")->producer != NULL);
    graph_free(g);
  }
}

void rewrite_tests(void) {
  err e = {0};
  CHECK(mx_thread_begin(MX_CPU, &e));
  a_node_takes_the_place_of_another();
  outputs_and_captured_values_stay();
  order_is_kept_when_nodes_come_in_front();
  loose_memory_is_bounded();
  numbers_must_not_raise_the_rank();
  products_are_taken_apart();
  silu_and_its_switch();
  silu_near_misses();
  constants_are_folded();
  failing_nodes_are_not_folded();
  merged_products_are_split();
  memory_may_run_out();
  mx_thread_end();
}
