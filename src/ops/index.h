// What the operators that move data know and read on the host. Invariants:
// - An index that is data is checked before MLX follows it: MLX reads, and on the CPU device writes, wherever an index out
//   of range points. Where the host has the values (or can wait for them) it checks them; in a trace they are brought into
//   range and the trace's result says whether they had to be (op_env.require).
// - Small integer tensors are mostly shapes in the making. Where the host has the input already, the output is made on
//   the host too, so that a later read waits for nothing.
#pragma once
#include "ops/op.h"

enum { KNOWN_MAX = 64 };  // elements of a tensor that is still worth computing on the host

// Product of shape[from, to); INT64_MAX when it does not fit.
int64_t dims_span(mx_ints shape, int from, int to);
// Checked conversion of n sizes; false (and the scope fails) for a negative one, a rank over 10 or one beyond 32 bits.
bool dims_ints(op *o, const int64_t *v, size_t n, mx_ints *shape);

// int32 or int64 input i, if it has at most KNOWN_MAX elements and the host has them without computing anything. Never
// fails the scope. v has room for KNOWN_MAX.
bool known_ints(const op *o, size_t i, int64_t *v, size_t *n);
// Output i (int32 or int64) from at most KNOWN_MAX host values.
void out_ints(op *o, size_t i, const int64_t *v, mx_ints shape);
// Output 0: input 0 in another shape of the same size; one -1 is inferred by MLX, so full tells the shape without it.
void out_reshaped(op *o, mx_ints shape, mx_ints full);

// Input i, int32 or int64, once all its values have been found in [-e, e), e = extents[position % n]. Else fails.
mx index_checked(op *o, size_t i, const int *extents, int n);
// An integer array, once all its values have been found in [0, rows); else fails and calls the value `what`.
mx index_below(op *o, mx index, int rows, const char *what);
// Input i's values on the host, brought into [0, e). To be freed with mem_free; NULL on failure. count may be NULL.
int64_t *index_read(op *o, size_t i, const int *extents, int n, size_t *count);
// Where each entry of input i, an index along `axis` of shape, points in the flattened shape: int32 [entries], the entry's own
// place giving the other axes. NULL unless it is data of a trace; shape holds fewer than 2^31 elements.
mx index_flat(op *o, size_t i, mx_ints shape, int axis);
// Input i of shape [.., k] as row numbers, int32 [tuples]: a tuple addresses axes batch..batch+k of shape, of which the
// rows are all axes before batch+k; the tuples are grouped by the first `batch` axes.
mx index_rows(op *o, size_t i, mx_ints shape, int batch, int k);
