#include "run/config.h"

#include <stddef.h>

static const run_config ROWS[] = {
    {.kind = ROUTE_DECODE, .open = true},
    {.kind = ROUTE_GENERAL, .contiguous_outputs = true},
    {.kind = ROUTE_PREFILL, .open = true, .keyed_else = true},
};

const run_config *run_config_of(route_kind kind) {
  for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++)
    if (ROWS[i].kind == kind) return &ROWS[i];
  return NULL;
}

const char *route_name(route_kind r) {
  static const char *const names[ROUTE_COUNT] = {"eager", "general", "decode", "prefill"};
  return r >= 0 && r < ROUTE_COUNT ? names[r] : "?";
}
