// The caches of keys and values at the border of a run. Invariant: nothing is written before every row is known to fit.
#pragma once
#include "run/layout.h"

enum { CACHE_BEHIND = INT32_MIN };  // as the only place: behind all rows of the past

// Do the new rows of cache c begin where this run handed the past on? places: int32 [n], as the closure gave them (see
// trace.h).
bool cache_places_fit(const layout *l, const facts *f, const run_io *io, size_t c, const int32_t *places, size_t n);
// Output i, a present: past rows and behind them `rows` [batch, heads, new, size], row-major. Where the host gave the
// past's own memory only the new rows are written. False with an error when the host refuses.
bool cache_write(const layout *l, const run_io *io, size_t i, const void *rows, const int64_t dims[4], size_t element,
                 const int32_t *places, size_t n, err *e);
