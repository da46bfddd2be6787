#include "ops/cached.h"

#include "ops/attn.h"

// Every valid row has a column.
static void require_columns(op *o, const mx_attend_desc *d) {
  mx end = mx_add(d->past_len, mx_scalar(d->past_len, mx_dim(d->q, 2)));
  if (mx_dim(d->mask, -1) != 1) trace_require(o, mx_less_equal(end, mx_length(d->mask, -1)));
}

mx cached_attention(op *o, op_cache *c, mx_attend_desc *d, size_t past_in, size_t present_out) {
  mx past_k = in(o, past_in), past_v = in(o, past_in + 1);
  if (!attn_past_fits(o, past_in, past_in, d->k) || !attn_past_fits(o, past_in + 1, past_in, d->v)) return d->q;
  bool some = !c->first && mx_dim(past_k, CACHE_ROWS) > 0;
  d->past_k = some ? past_k : NULL;
  d->past_v = some ? past_v : NULL;
  c->pos = d->past_len;
  if (d->mask && d->past_len) require_columns(o, d);
  if (!some) d->past_len = NULL;
  mx y = mx_attend(d);
  out(o, present_out, d->k);
  out(o, present_out + 1, d->v);
  return y;
}

mx untraced(op *o, const char *what) { return mx_fail(o->s, ERR_UNSUPPORTED, "%s has no trace", what); }
