#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool err_set_at(err *e, err_code code, const char *file, int line, const char *fmt, ...) {
  if (e->code != ERR_OK) return false;
  e->code = code;
  e->file = file;
  e->line = line;
  va_list args;
  va_start(args, fmt);
  vsnprintf(e->msg, sizeof e->msg, fmt, args);
  va_end(args);
  return false;
}

bool err_add(err *e, const char *fmt, ...) {
  if (e->code == ERR_OK) return false;
  char joined[sizeof e->msg];
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(joined, sizeof joined, fmt, args);
  va_end(args);
  size_t used = n < 0 ? 0 : (size_t)n;
  if (used >= sizeof joined) used = sizeof joined - 1;
  size_t room = sizeof joined - used - 1, take = strlen(e->msg);
  if (take > room) take = room;
  memcpy(joined + used, e->msg, take);
  joined[used + take] = '\0';
  memcpy(e->msg, joined, used + take + 1);
  return false;
}
