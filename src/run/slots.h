// A bounded cache of closures by key. Invariant: the least recently used goes first; a slot's place stays valid until the
// next slots_add.
#pragma once
#include "mx/mx.h"
#include "run/counters.h"

typedef struct run_key {
  int64_t *w;
  size_t n, cap;
  uint64_t hash;
  bool failed;  // out of memory
} run_key;  // starts with {0}

void key_clear(run_key *k);
void key_put(run_key *k, int64_t word);
void key_put_bytes(run_key *k, const void *p, size_t bytes);
void key_free(run_key *k);

typedef struct slot {
  run_key key;
  mx_fn *fn;         // NULL: it is closed
  why_eager closed;  // why
  uint64_t used;     // when last
} slot;

typedef struct slots {
  slot *list;
  size_t n, cap;
  uint64_t now;
  uint64_t seen[64];  // hashes of keys that were not worth a closure when they came
  size_t n_seen;
} slots;

bool slots_init(slots *s, size_t cap, err *e);
void slots_free(slots *s);
slot *slots_find(slots *s, const run_key *k);  // NULL if there is none
// Has this key been noted before? Notes it.
bool slots_seen(slots *s, const run_key *k);
// An empty slot for the key, whose words it takes; *evicted: another had to go.
slot *slots_add(slots *s, run_key *k, bool *evicted);
