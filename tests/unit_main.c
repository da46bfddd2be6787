// Runs every C unit test; prints a closing line with the counts.
#include "unit.h"

int unit_checks, unit_failures;

#define TESTS(X) X(base_tests) X(graph_tests) X(mx_tests) X(attend_tests) X(plan_tests) X(run_tests) X(compiled_tests) X(ops_tests) X(rewrite_tests)
#define DECLARE(t) void t(void);
TESTS(DECLARE)
int cpu_nbits_tests(void);

int main(void) {
#define RUN(t)                                \
  do {                                        \
    int before = unit_failures;               \
    t();                                      \
    printf("%-14s %s\n", #t, unit_failures == before ? "ok" : "FAILED"); \
  } while (0);
  TESTS(RUN)
  int failed = cpu_nbits_tests();
  printf("%-14s %s\n", "cpu_nbits_tests", failed ? "FAILED" : "ok");
  CHECK(failed == 0);
  printf("%d passed, %d failed\n", unit_checks - unit_failures, unit_failures);
  return unit_failures != 0;
}
