// Attention in traces, over a cache that the route takes care of. Invariant: nothing here depends on how many rows are past:
// the same trace serves a cache of any length.
#pragma once
#include "ops/op.h"

// y [B, H, S, Dv] of the new rows d->q over the cache and d->k, d->v. Fills in d's past from inputs past_in and past_in + 1
// unless nothing is past, hands the new rows to outputs present_out and present_out + 1, and their place (d->past_len) to c.
mx cached_attention(op *o, op_cache *c, mx_attend_desc *d, size_t past_in, size_t present_out);
// For a form that has no trace: fails it, so that the run is eager.
mx untraced(op *o, const char *what);
