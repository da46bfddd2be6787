// What has been counted, for a session and for the process. Invariant: a count is added to both; reading needs no lock.
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "run/kinds.h"

// Why a run was eager.
typedef enum {
  WHY_NONE = 0,     // it was not
  WHY_SWITCH,       // compiling is switched off, all of it or this route's
  WHY_DATA,         // a node reads data or draws numbers
  WHY_BORDER,       // nothing comes in or goes out
  WHY_CACHE,        // a cache of keys and values does not cross the group's border
  WHY_EMPTY,        // an input has no elements
  WHY_LARGE_VALUE,  // an input that is read on the host is too large for a key
  WHY_NEW_SHAPES,   // shapes that come once only are not worth a trace
  WHY_TRACE,        // the trace failed
  WHY_SIZE,         // a step depends on a size that grows
  WHY_APPLY,        // the replay failed
  WHY_EVALUATION,   // the evaluation failed
  WHY_REQUIRED,     // a value was out of its range
  WHY_MEMORY,
  WHY_COUNT
} why_eager;
const char *why_text(why_eager w);  // a sentence's rest; NULL for WHY_NONE

typedef struct counters {
  atomic_ullong runs[ROUTE_COUNT], fallbacks[WHY_COUNT];
  atomic_ullong traces, compiles, hits, evictions;  // traced, of those usable, runs without a trace, closures let go
  atomic_ullong bytes_copied;                       // from and to the host's tensors
} counters;

counters *counters_of_process(void);
#define COUNT(c, what, n)                                     \
  do {                                                        \
    atomic_fetch_add(&(c)->what, (unsigned long long)(n));    \
    atomic_fetch_add(&counters_of_process()->what, (unsigned long long)(n)); \
  } while (0)

void counters_copy(counters *to, const counters *from);
void counters_runs_json(const counters *c, text *out);  // {route: n, ..}
// As a JSON object {"runs": {..}, "traces": .., "fallbacks": {reason: n, ..}, ..}; fallbacks that never were are left out.
void counters_json(const counters *c, text *out);
