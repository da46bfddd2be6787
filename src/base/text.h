// A growing text, mostly for JSON. Invariant: once an append has failed for want of memory, the text stays failed.
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct text {
  char *s;  // NUL-terminated, owned; NULL while empty
  size_t len, cap;
  bool failed;
} text;  // starts empty with {0}

void text_free(text *t);
void text_put(text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_json(text *t, const char *s);  // s as a quoted JSON string; NULL as null
