// A thread that does one caller's job at a time. Invariant: worker_call returns after its job has run on the worker; calls
// from many threads are taken in turn.
#pragma once
#include <stdbool.h>

#include "base/err.h"

typedef struct worker worker;
typedef void (*worker_fn)(void *arg);

// begin runs first on the thread (false with an error: the worker is not made), end runs last.
worker *worker_new(bool (*begin)(void *arg, err *e), void (*end)(void *arg), void *arg, err *e);
void worker_free(worker *w);  // after all calls have returned; NULL is fine
void worker_call(worker *w, worker_fn fn, void *arg);
