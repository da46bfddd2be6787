// The ways a run can go.
#pragma once

typedef enum { ROUTE_EAGER = 0, ROUTE_GENERAL, ROUTE_DECODE, ROUTE_PREFILL, ROUTE_COUNT } route_kind;
const char *route_name(route_kind r);  // "eager", "general", "decode", "prefill"
