// Errors as values. Invariant: an err holds the first failure; later ones may only add context in front of its message.
#pragma once
#include <stdbool.h>

typedef enum {
  ERR_OK = 0,
  ERR_INVALID,      // the model or the input is wrong
  ERR_UNSUPPORTED,  // right, but this provider cannot do it
  ERR_NO_MEMORY,
  ERR_MLX,   // MLX reported a failure
  ERR_HOST,  // the host (ONNX Runtime) reported a failure
  ERR_INTERNAL
} err_code;

typedef struct err {
  err_code code;
  const char *file;  // where it was set; static storage
  int line;
  char msg[480];  // NUL-terminated; says what, where and what to do
} err;

// Starts empty with `err e = {0}`.
static inline bool err_ok(const err *e) { return e->code == ERR_OK; }

// Records a failure unless one is recorded already. Always returns false, so `return FAIL(e, ...)` reads well.
bool err_set_at(err *e, err_code code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
#define FAIL(e, code, ...) err_set_at((e), (code), __FILE__, __LINE__, __VA_ARGS__)

// Puts context in front of a recorded message ("node 'x' (Conv): ..."); does nothing while e is empty. Returns false.
bool err_add(err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
