// Questions about a graph that patterns are made of. Invariant: the answer is yes only where it is certain; what is not
// known (a rank, a dim, a constant) never matches.
#pragma once
#include "rewrite/edit.h"

node *made_by(const value *v, const char *op_type);  // v's node if it is this one of ai.onnx, else NULL
bool is_op(const node *n, const char *op_type);      // of ai.onnx
bool only_use(const value *v);                       // read once and no output: it goes with its reader

// One number; it must not raise the rank of `with`, which it meets in a broadcast (NULL: it must be of rank 0 or [1]).
bool const_number(const value *v, const value *with, double *x);
bool const_ints(const value *v, int64_t *x, size_t cap, size_t *n);  // constant int64 or int32
// A node of two inputs one of which is a constant number: that, and the other. Commutative operators only.
bool with_number(const node *n, value **other, double *x);
bool about(double x, double want, dtype t);  // equal as far as constants of type t can be
bool is_number(const value *v, const value *with, double want);

// Axes of a reduction: its last axis alone, kept as 1?
bool over_last_axis(const node *n);

// v as coefficient * factors, through Mul, Div by a number and Pow(x, 2 or 3) that serve v alone.
enum { MATCH_FACTORS = 6 };
typedef struct factors {
  double c;
  value *v[MATCH_FACTORS];
  size_t n;
} factors;
void factors_of(value *v, factors *f);  // v's own uses are not asked; v alone if it is no product
