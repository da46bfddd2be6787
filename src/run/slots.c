#include "run/slots.h"

#include <string.h>

#include "base/mem.h"

static const uint64_t FNV_BASIS = UINT64_C(14695981039346656037), FNV_PRIME = UINT64_C(1099511628211);

void key_clear(run_key *k) {
  k->n = 0;
  k->hash = FNV_BASIS;
}

void key_put(run_key *k, int64_t word) {
  if (k->n == k->cap) {
    size_t cap = k->cap ? 2 * k->cap : 64, bytes = 0;
    int64_t *w = size_mul(cap, sizeof *w, &bytes) ? mem_alloc(bytes) : NULL;
    if (!w) {
      k->failed = true;
      return;
    }
    if (k->n) memcpy(w, k->w, k->n * sizeof *w);
    mem_free(k->w);
    k->w = w;
    k->cap = cap;
  }
  k->w[k->n++] = word;
  k->hash = (k->hash ^ (uint64_t)word) * FNV_PRIME;
}

void key_put_bytes(run_key *k, const void *p, size_t bytes) {
  for (size_t i = 0; i < bytes; i += sizeof(int64_t)) {
    int64_t word = 0;
    memcpy(&word, (const char *)p + i, bytes - i < sizeof word ? bytes - i : sizeof word);
    key_put(k, word);
  }
}

void key_free(run_key *k) {
  mem_free(k->w);
  *k = (run_key){0};
}

bool slots_init(slots *s, size_t cap, err *e) {
  *s = (slots){.cap = cap ? cap : 1};
  size_t bytes = 0;
  if (size_mul(s->cap, sizeof *s->list, &bytes)) s->list = mem_alloc(bytes);
  return s->list ? true : FAIL(e, ERR_NO_MEMORY, "out of memory for %zu closures", s->cap);
}

static void close_slot(slot *s) {
  mx_fn_free(s->fn);
  key_free(&s->key);
  *s = (slot){0};
}

void slots_free(slots *s) {
  for (size_t i = 0; i < s->n; i++) close_slot(&s->list[i]);
  mem_free(s->list);
  *s = (slots){0};
}

slot *slots_find(slots *s, const run_key *k) {
  for (size_t i = 0; i < s->n; i++) {
    slot *x = &s->list[i];
    if (x->key.hash != k->hash || x->key.n != k->n || memcmp(x->key.w, k->w, k->n * sizeof *k->w) != 0) continue;
    x->used = ++s->now;
    return x;
  }
  return NULL;
}

bool slots_seen(slots *s, const run_key *k) {
  enum { ROOM = sizeof s->seen / sizeof *s->seen };
  for (size_t i = 0; i < s->n_seen && i < ROOM; i++)
    if (s->seen[i] == k->hash) return true;
  s->seen[s->n_seen++ % ROOM] = k->hash;
  return false;
}

slot *slots_add(slots *s, run_key *k, bool *evicted) {
  slot *x = s->list;
  *evicted = s->n == s->cap;
  if (!*evicted) x = &s->list[s->n++];
  for (size_t i = 0; *evicted && i < s->n; i++)
    if (s->list[i].used < x->used) x = &s->list[i];
  close_slot(x);
  *x = (slot){.key = *k, .used = ++s->now};
  *k = (run_key){0};
  return x;
}
