#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void text_free(text *t) {
  mem_free(t->s);
  *t = (text){0};
}

static bool reserve(text *t, size_t more) {
  size_t need;
  if (t->failed || !size_add(t->len, more, &need) || !size_add(need, 1, &need)) return !(t->failed = true);
  if (need <= t->cap) return true;
  size_t cap = t->cap ? t->cap : 256;
  while (cap < need)
    if (!size_mul(cap, 2, &cap)) return !(t->failed = true);
  char *s = mem_alloc(cap);
  if (!s) return !(t->failed = true);
  if (t->s) memcpy(s, t->s, t->len);
  mem_free(t->s);
  t->s = s;
  t->cap = cap;
  return true;
}

void text_put(text *t, const char *fmt, ...) {
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, fmt, args);
  va_end(args);
  if (n >= 0 && reserve(t, (size_t)n)) {
    vsnprintf(t->s + t->len, (size_t)n + 1, fmt, again);
    t->len += (size_t)n;
  }
  va_end(again);
}

void text_json(text *t, const char *s) {
  if (!s) {
    text_put(t, "null");
    return;
  }
  text_put(t, "\"");
  for (const unsigned char *p = (const unsigned char *)s; *p; p++) {
    if (*p == '"' || *p == '\\') text_put(t, "\\%c", *p);
    else if (*p < 0x20) text_put(t, "\\u%04x", *p);
    else text_put(t, "%c", *p);
  }
  text_put(t, "\"");
}
