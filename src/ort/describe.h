// What the provider tells about itself, as JSON. Invariant: a session's record outlives the session (the last 64 ended
// ones are kept); every function may be called from any thread.
#pragma once
#include "plan/plan.h"
#include "run/engine.h"

typedef struct session_record session_record;

// A record of a new session; en is asked for its counts until session_end. NULL when out of memory: then nothing is
// recorded, and the functions below do nothing.
session_record *session_begin(const engine *en);
void session_end(session_record *s);
// What became of a graph's nodes, and of those in its bodies. p NULL: none is claimed, for the reason given. A graph that
// comes again (after its functions are inlined) replaces what was said of its unclaimed nodes.
void session_plan(session_record *s, const graph *g, const plan *p, const char *reason);

void describe_api(uint32_t version);  // the negotiated API version, for "info"

// Topics "info", "ops", "absent", "sessions" and "counters" (of the process). Writes at most cap bytes, NUL included; gives
// the whole text's length, 0 for an unknown topic or when out of memory. out may be NULL with cap 0.
size_t describe(const char *topic, char *out, size_t cap);
