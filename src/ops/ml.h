// What the operators of ai.onnx.ml share. Invariant: scores are float32 [rows, scores], whatever the input's type, as
// the models were trained against float32 scores.
#pragma once
#include "ops/op.h"

enum { DTS_ML = DTYPE_BIT(DT_F32) | DTYPE_BIT(DT_F64) | DTYPE_BIT(DT_I32) | DTYPE_BIT(DT_I64) };

typedef enum { POST_NONE, POST_SOFTMAX, POST_LOGISTIC, POST_SOFTMAX_ZERO, POST_PROBIT, POST_COUNT } ml_post;

ml_post ml_post_of(const node *n);  // attribute post_transform, a string; POST_COUNT for an unknown one
void ml_post_claim(claim *c);
mx ml_post_apply(mx scores, ml_post post);  // along the last axis; any float type

// Input 0 as float32 [rows, features]; fails unless there are `features` of them (-1: any).
mx ml_rows(op *o, int64_t features);
void ml_rows_claim(claim *c);  // types of DTS_ML, rank 1 or 2

mx ml_floats(const op *o, const char *attribute, mx_ints shape);  // a float attribute of that many entries
// Class labels by number: int64, in the shape of index (int32, each in [0, count)).
mx ml_labels(mx index, const int64_t *labels, size_t count);
