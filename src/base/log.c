#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_put(const log_sink *sink, log_level level, const char *fmt, ...) {
  if (!sink || !sink->write || level < sink->least) return;
  char msg[1024];
  va_list args;
  va_start(args, fmt);
  vsnprintf(msg, sizeof msg, fmt, args);
  va_end(args);
  sink->write(sink->host, level, msg);
}
