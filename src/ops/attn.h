// Scaled dot-product attention and rotary positions, as their operators share them. Invariants:
// - Heads stand second: queries are [B, H, S, D], keys [B, Hkv, T, D], values [B, Hkv, T, Dv]; H is a multiple of Hkv.
//   Callers have checked that; any of B, S and T may be zero.
// - The softmax is taken in float32 at least.
// - A function that fails has failed the scope; none gives a wrong number.
#pragma once
#include "ops/op.h"

typedef struct attn {
  mx q, k, v;
  double scale;      // of the products
  double cap;        // the products pass through cap * tanh(x / cap); 0: they do not
  mx seen;           // bool, true: the query sees the key; broadcasts to [B, H, S, T]; NULL: all are seen
  mx bias;           // floats, added to the capped products; broadcasts to [B, H, S, T]; NULL: none
  mx sink;           // [1, H, 1, 1], a logit that takes part in the softmax's sum only; NULL: none
  bool guarded;      // a query may see no key at all: its row is zeros then
  dtype softmax;     // a wider type for the softmax, or DT_NONE
} attn;

typedef struct attn_stages {  // each [B, H, S, T], in float32 or float64
  mx products, capped, biased, weights;
} attn_stages;

// [B, H, S, Dv] of q's type, in the device's best form.
mx attn_apply(const attn *a);
// The same step by step, in float32 or float64; stages may be NULL.
mx attn_stepwise(const attn *a, attn_stages *stages);

mx attn_split(mx x, int heads);      // [B, S, H * D] as [B, H, S, D]
mx attn_join(mx x);                  // and back
// Takes a packed *q [.., (heads + 2 * kv_heads) * size] apart along its last axis, whose width the caller has checked.
void attn_unpack(mx *q, mx *k, mx *v, int heads, int kv_heads, int size);
// Is past input i absent, or [B, heads, rows, size] like the fresh rows, with as many rows as past input `key`? Else fails.
bool attn_past_fits(op *o, size_t i, size_t key, mx fresh);
mx attn_append(mx past, mx fresh);   // along the rows; past may be NULL
// Bool, broadcasts to [B, H, rows, keys]: key <= query + offset. NULL where that is always so. offset is not negative.
mx attn_causal(mx_scope *s, int rows, int keys, int offset);
double attn_scale(const op *o, int size);  // attribute scale; absent or zero: 1 / sqrt(size)
bool attn_broadcasts(mx x, int batch, int heads, int rows, int keys);

// Turns the first 2 * half channels of x [B, H, S, D] by angles whose cosines and sines broadcast to [B, H, S, half];
// pairs stand side by side (interleaved) or half apart. In float32, given back in x's type.
mx attn_rotate(mx x, mx cos, mx sin, bool interleaved);
