#include "ops/registry.h"

#include <string.h>

// A family's table ends with an empty row.
#define FAMILIES(X) \
  X(unary) X(activation) X(binary) X(cast) X(reduce) X(sort) X(softmax) \
  X(norm) X(shape) X(slice) X(gather) X(scatter) X(fill) X(matmul) \
  X(conv) X(pool) X(gqa) X(attention) X(nbits) X(quant) X(recurrent) \
  X(control) X(qlinear) X(qlinear_elem) X(qmodel) X(moe) X(lowbit) X(resize) \
  X(sample) X(roi) X(detect) X(linalg) X(conv_more) X(deform) X(mha) \
  X(rotary) X(linear_attn) X(packed) X(sparse) X(paged) X(signal) X(ml_linear) \
  X(ml_prep) X(ml_tree) X(random) X(contrib_norm) X(contrib_math) X(contrib_bert) X(tfidf) \
  X(einsum) X(lowfloat) X(nbits_fused) X(hyper) X(legacy) X(ngram) \
  X(ngram_hash) X(decoder) X(delta) X(selected) X(sdpa)

#define DECLARE(family) extern const op_row ops_##family[];
FAMILIES(DECLARE)
#undef DECLARE

static const op_row *const families[] = {
#define LIST(family) ops_##family,
    FAMILIES(LIST)
#undef LIST
};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

const op_row *registry_row(size_t i) {
  for (size_t f = 0; f < N_FAMILIES; f++)
    for (const op_row *r = families[f]; r->type; r++)
      if (i-- == 0) return r;
  return NULL;
}

static bool named(const op_row *r, const char *domain, const char *type) {
  return !strcmp(r->type, type) && !strcmp(r->domain, domain);
}

// 200 rows, asked once a node when a session is made: a walk is fast enough.
const op_row *registry_find(const char *domain, const char *type, int since) {
  for (size_t f = 0; f < N_FAMILIES; f++)
    for (const op_row *r = families[f]; r->type; r++)
      if (named(r, domain, type) && since >= r->since && since <= r->until) return r;
  return NULL;
}

bool registry_knows(const char *domain, const char *type) {
  for (size_t f = 0; f < N_FAMILIES; f++)
    for (const op_row *r = families[f]; r->type; r++)
      if (named(r, domain, type)) return true;
  return false;
}
