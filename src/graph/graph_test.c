#include "graph/attr.h"
#include "unit.h"
#include "unit_graph.h"

static const int64_t DIMS[] = {2, 3};

static void links_are_found(void) {
  err e = {0};
  graph *g = graph_new(&e);
  ug_ends(g, (const char *[]){"x"}, 1, (const char *[]){"z"}, 1, 2, DIMS, &e);
  graph_set_nodes(g, 2, &e);
  ug_node(g, 0, "Exp", "x", NULL, "y", 2, DIMS, &e);
  ug_node(g, 1, "Add", "y", "x", "z", 2, DIMS, &e);
  CHECK(graph_link(g, &e) && err_ok(&e));
  CHECK(graph_find(g, "x")->consumers == 2 && graph_find(g, "y")->producer == &g->nodes[0]);
  CHECK(graph_find(g, "nothing") == NULL);
  graph_free(g);
}

static void wrong_order_is_an_error(void) {
  err e = {0};
  graph *g = graph_new(&e);
  graph_set_nodes(g, 2, &e);
  ug_node(g, 0, "Add", "y", "x", "z", 2, DIMS, &e);
  ug_node(g, 1, "Exp", "x", NULL, "y", 2, DIMS, &e);
  CHECK(!graph_link(g, &e));
  CHECK_HAS(e.msg, "not in order");
  graph_free(g);
}

static void a_value_has_one_producer(void) {
  err e = {0};
  graph *g = graph_new(&e);
  graph_set_nodes(g, 2, &e);
  ug_node(g, 0, "Exp", "x", NULL, "y", 2, DIMS, &e);
  ug_node(g, 1, "Exp", "x", NULL, "y", 2, DIMS, &e);
  CHECK(!graph_link(g, &e));
  CHECK_HAS(e.msg, "computed twice");
  graph_free(g);
}

static void ranks_beyond_ours_are_unknown(void) {
  err e = {0};
  graph *g = graph_new(&e);
  int64_t dims[GRAPH_MAX_RANK + 1] = {1, 1};
  CHECK(graph_value(g, "big", DT_F32, GRAPH_MAX_RANK + 1, dims, &e)->rank == -1);
  CHECK(graph_value(g, "neg", DT_F32, 1, (int64_t[]){-7}, &e)->dims[0] == -1);
  graph_free(g);
}

static void attributes_have_defaults(void) {
  int64_t pads[] = {1, 2};
  attr list[] = {{.name = "axis", .kind = ATTR_INT, .i = -1}, {.name = "pads", .kind = ATTR_INTS, .n = 2, .ints = pads}};
  node n = {.attrs = list, .n_attrs = 2};
  size_t count = 9;
  CHECK(attr_i(&n, "axis", 5) == -1 && attr_i(&n, "none", 5) == 5);
  CHECK(attr_ints(&n, "pads", &count) == pads && count == 2);
  CHECK(attr_ints(&n, "axis", &count) == NULL && count == 0);
  CHECK(attr_f(&n, "axis", 2.0f) == 2.0f);
  CHECK_STR(attr_unknown(&n, (const char *const[]){"axis", NULL}), "pads");
  CHECK(attr_unknown(&n, (const char *const[]){"axis", "pads", NULL}) == NULL);
}

static void memory_failures_are_errors(void) {
  for (long nth = 1; nth < 4; nth++) {
    err e = {0};
    mem_fail_after(nth);
    graph *g = graph_new(&e);
    if (g) graph_set_nodes(g, 100000, &e);
    mem_fail_after(0);
    CHECK(e.code == (nth < 4 && (!g || e.code) ? ERR_NO_MEMORY : ERR_OK));
    graph_free(g);
  }
}

static void bodies_go_with_their_graph(void) {
  err e = {0};
  graph *g = graph_new(&e);
  graph *body = graph_body(g, &e), *deeper = graph_body(body, &e);
  CHECK(body && body->parent == g && body->mem == g->mem && deeper->parent == body);
  value *x = graph_value(g, "x", DT_F32, 2, DIMS, &e), *inside = graph_value(body, "x", DT_F32, 2, DIMS, &e);
  inside->outer = x;
  CHECK(graph_find(g, "x") == x && graph_find(body, "x") == inside);
  graph_free(deeper);
  graph_free(body);
  CHECK(graph_find(body, "x") == inside);
  graph_free(g);
}

void graph_tests(void) {
  bodies_go_with_their_graph();
  links_are_found();
  wrong_order_is_an_error();
  a_value_has_one_producer();
  ranks_beyond_ours_are_unknown();
  attributes_have_defaults();
  memory_failures_are_errors();
}
