// Checks for C unit tests: a failed one prints where and counts; the test goes on.
#pragma once
#include <math.h>
#include <stdio.h>
#include <string.h>

extern int unit_checks, unit_failures;

static inline void unit_check(int ok, const char *file, int line, const char *what) {
  unit_checks++;
  if (ok) return;
  unit_failures++;
  fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
}
#define CHECK(cond) unit_check(!!(cond), __FILE__, __LINE__, #cond)
#define CHECK_STR(a, b) unit_check(!strcmp((a), (b)), __FILE__, __LINE__, #a " is " #b)
#define CHECK_HAS(text, part) unit_check(strstr((text), (part)) != NULL, __FILE__, __LINE__, #text " says " #part)
#define CHECK_NEAR(a, b, tol) unit_check(fabs((double)(a) - (double)(b)) <= (tol), __FILE__, __LINE__, #a " near " #b)
