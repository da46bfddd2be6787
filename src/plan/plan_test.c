#include "plan/plan.h"
#include "plan/program.h"
#include "unit.h"
#include "unit_graph.h"

static const int64_t DIMS[] = {2, 3};
static const opts DEFAULTS = {0};

static plan *planned(graph *g, const opts *o, err *e) {
  CHECK(graph_link(g, e));
  return plan_new(g, MX_CPU, o, e);
}

// x -> Exp -> NoSuch -> Exp -> z beside x -> Exp -> y: the first and third Exp share a group, the second waits for the CPU.
static void groups_are_convex(void) {
  err e = {0};
  graph *g = graph_new(&e);
  ug_ends(g, (const char *[]){"x"}, 1, (const char *[]){"z", "y"}, 2, 2, DIMS, &e);
  graph_set_nodes(g, 4, &e);
  ug_node(g, 0, "Exp", "x", NULL, "a", 2, DIMS, &e);
  ug_node(g, 1, "NoSuch", "a", NULL, "b", 2, DIMS, &e);
  ug_node(g, 2, "Add", "b", "a", "z", 2, DIMS, &e);
  ug_node(g, 3, "Exp", "x", NULL, "y", 2, DIMS, &e);
  plan *p = planned(g, &DEFAULTS, &e);
  CHECK(p && p->n_groups == 2 && p->n_claimed == 3);
  if (p) {
    CHECK(p->nodes[0].group == 0 && p->nodes[3].group == 0 && p->nodes[2].group == 1 && p->nodes[1].group == -1);
    CHECK_HAS(p->nodes[1].reason, "not supported");
    CHECK(p->nodes[0].reason == NULL);
  }
  plan_free(p);
  graph_free(g);
}

static void waiting_for_the_cpu_alone_makes_no_new_group(void) {
  err e = {0};
  graph *g = graph_new(&e);
  ug_ends(g, (const char *[]){"x"}, 1, (const char *[]){"z"}, 1, 2, DIMS, &e);
  graph_set_nodes(g, 3, &e);
  ug_node(g, 0, "NoSuch", "x", NULL, "a", 2, DIMS, &e);
  ug_node(g, 1, "Exp", "a", NULL, "b", 2, DIMS, &e);
  ug_node(g, 2, "Add", "b", "x", "z", 2, DIMS, &e);
  plan *p = planned(g, &DEFAULTS, &e);
  CHECK(p && p->n_groups == 1 && p->n_claimed == 2);
  plan_free(p);
  graph_free(g);
}

static void groups_that_only_move_are_dropped(void) {
  for (int all = 0; all < 2; all++) {
    err e = {0};
    graph *g = graph_new(&e);
    opts o = {.claim_all = all};
    ug_ends(g, (const char *[]){"x"}, 1, (const char *[]){"z"}, 1, 2, DIMS, &e);
    graph_set_nodes(g, 1, &e);
    ug_node(g, 0, "Identity", "x", NULL, "z", 2, DIMS, &e);
    plan *p = planned(g, &o, &e);
    CHECK(p && p->n_groups == (size_t)all && p->n_claimed == (size_t)all);
    if (p && !all) CHECK_HAS(p->nodes[0].reason, "only moves data");
    plan_free(p);
    graph_free(g);
  }
}

static void types_that_mlx_has_not_are_declined(void) {
  err e = {0};
  graph *g = graph_new(&e);
  ug_ends(g, (const char *[]){"x"}, 1, (const char *[]){"z"}, 1, 2, DIMS, &e);
  graph_set_nodes(g, 1, &e);
  ug_node(g, 0, "Exp", "x", NULL, "z", 2, DIMS, &e);
  graph_find(g, "x")->type = DT_STRING;
  plan *p = planned(g, &DEFAULTS, &e);
  CHECK(p && p->n_claimed == 0);
  if (p) CHECK_HAS(p->nodes[0].reason, "type string");
  plan_free(p);
  graph_free(g);
}

static void control_flow_needs_all_of_its_bodies(void) {
  for (int i = 0; i < 3; i++) {
    err e = {0};
    graph *g = ug_if(i == 1 ? "NoSuch" : "Neg", 2, DIMS, &e);
    g->no_captures = i == 2;
    plan *p = planned(g, &DEFAULTS, &e);
    CHECK(p && p->n_claimed == (i == 0));
    if (p && i == 1) CHECK_STR(p->nodes[0].reason, "in its body, node 'r' (NoSuch): the operator is not supported");
    if (p && i == 2) CHECK_HAS(p->nodes[0].reason, "does not hand over");
    plan_free(p);
    graph_free(g);
  }
}

static void memory_failures_are_errors(void) {
  err e = {0};
  graph *g = graph_new(&e);
  ug_ends(g, (const char *[]){"x"}, 1, (const char *[]){"z"}, 1, 2, DIMS, &e);
  graph_set_nodes(g, 1, &e);
  ug_node(g, 0, "Exp", "x", NULL, "z", 2, DIMS, &e);
  CHECK(graph_link(g, &e));
  int failures = 0;
  for (long nth = 1;; nth++) {
    err f = {0};
    mem_fail_after(nth);
    plan *p = plan_new(g, MX_CPU, &DEFAULTS, &f);
    mem_fail_after(0);
    CHECK((p == NULL) == (f.code == ERR_NO_MEMORY));
    plan_free(p);
    if (p) break;
    failures++;
  }
  CHECK(failures >= 2);
  graph_free(g);
}

void plan_tests(void) {
  groups_are_convex();
  waiting_for_the_cpu_alone_makes_no_new_group();
  groups_that_only_move_are_dropped();
  types_that_mlx_has_not_are_declined();
  control_flow_needs_all_of_its_bodies();
  memory_failures_are_errors();
}
