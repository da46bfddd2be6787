// Messages to the host. Invariant: a message never changes what is computed.
#pragma once

typedef enum { LOG_VERBOSE = 0, LOG_INFO, LOG_WARNING, LOG_ERROR } log_level;

typedef struct log_sink {
  void (*write)(void *host, log_level level, const char *msg);  // NULL: messages are dropped
  void *host;
  log_level least;  // messages below it are not formatted
} log_sink;

void log_put(const log_sink *sink, log_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
