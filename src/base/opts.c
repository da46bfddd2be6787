#include "base/opts.h"

#include <stdlib.h>
#include <string.h>

static const char *const DEVICES[] = {"auto", "cpu", "gpu"};

// One row for each switch: the option's name, the variables that set it, where it goes.
static const struct {
  const char *name;
  const char *env[2];
  size_t offset;
} SWITCHES[] = {
    {"disable_compile", {"ONNX_GENAI_MLX_NO_COMPILE", "ONNXRUNTIME_EP_MLX_NO_COMPILE"}, offsetof(opts, no_compile)},
    {"disable_general_compile",
     {"MLX_EP_NO_GENERAL_COMPILE", "ONNXRUNTIME_EP_MLX_NO_GENERAL_COMPILE"},
     offsetof(opts, no_general_compile)},
    {"disable_prefill_compile",
     {"MLX_EP_NO_PREFILL_COMPILE", "ONNXRUNTIME_EP_MLX_NO_PREFILL_COMPILE"},
     offsetof(opts, no_prefill_compile)},
    {"claim_all", {NULL, NULL}, offsetof(opts, claim_all)},
    {"verbose", {"ONNXRUNTIME_EP_MLX_VERBOSE", NULL}, offsetof(opts, verbose)},
};
enum { N_SWITCHES = sizeof SWITCHES / sizeof SWITCHES[0] };

enum { DEFAULT_CLOSURES = 32, MOST_CLOSURES = 4096 };

static bool *slot(opts *o, size_t i) { return (bool *)((char *)o + SWITCHES[i].offset); }

static bool env_is_set(const char *name) {
  const char *v = name ? getenv(name) : NULL;
  return v && v[0] && strcmp(v, "0") != 0;
}

static bool set_text(char out[OPTS_TEXT], const char *key, const char *value, err *e) {
  if (strlen(value) >= OPTS_TEXT) return FAIL(e, ERR_INVALID, "option %s: at most %d characters", key, OPTS_TEXT - 1);
  memset(out, 0, OPTS_TEXT);
  memcpy(out, value, strlen(value));
  return true;
}

void opts_init(opts *o) {
  *o = (opts){.closures = DEFAULT_CLOSURES};
  for (size_t i = 0; i < N_SWITCHES; i++)
    *slot(o, i) = env_is_set(SWITCHES[i].env[0]) || env_is_set(SWITCHES[i].env[1]);
  err too_long = {0};  // such a variable counts as not set
  const char *rewrites = getenv("ONNXRUNTIME_EP_MLX_NO_REWRITES");
  if (rewrites && strcmp(rewrites, "0") != 0) set_text(o->no_rewrites, "disable_rewrites", strcmp(rewrites, "1") ? rewrites : "all", &too_long);
}

static bool set_device(opts *o, const char *value, err *e) {
  for (int i = 0; i < 3; i++)
    if (!strcmp(value, DEVICES[i])) {
      o->device = (device_choice)i;
      return true;
    }
  return FAIL(e, ERR_INVALID, "option device='%s': expected auto, cpu or gpu", value);
}

static bool set_switch(bool *out, const char *key, const char *value, err *e) {
  bool on = !strcmp(value, "1") || !strcmp(value, "true") || !strcmp(value, "True");
  bool off = !strcmp(value, "0") || !strcmp(value, "false") || !strcmp(value, "False") || !value[0];
  if (!on && !off) return FAIL(e, ERR_INVALID, "option %s='%s': expected 0 or 1", key, value);
  *out = on;
  return true;
}

static bool set_count(size_t *out, const char *key, const char *value, err *e) {
  char *end = NULL;
  unsigned long n = strtoul(value, &end, 10);
  bool digits = value[0] >= '0' && value[0] <= '9' && !*end;
  if (!digits || n < 1 || n > MOST_CLOSURES)
    return FAIL(e, ERR_INVALID, "option %s='%s': expected a number from 1 to %d", key, value, MOST_CLOSURES);
  *out = n;
  return true;
}

bool opts_set(opts *o, const char *key, const char *value, err *e) {
  if (!strcmp(key, "device")) return set_device(o, value, e);
  if (!strcmp(key, "closures")) return set_count(&o->closures, key, value, e);
  if (!strcmp(key, "disable_rewrites")) return set_text(o->no_rewrites, key, value, e);
  for (size_t i = 0; i < N_SWITCHES; i++)
    if (!strcmp(key, SWITCHES[i].name)) return set_switch(slot(o, i), key, value, e);
  return FAIL(e, ERR_INVALID, "unknown option '%s' of the MLX provider; known: device, closures, disable_compile, "
              "disable_general_compile, disable_prefill_compile, disable_rewrites, claim_all, verbose", key);
}

const char *opts_name(size_t i) {
  static const char *const OTHERS[] = {"device", "closures", "disable_rewrites"};
  enum { N = sizeof OTHERS / sizeof OTHERS[0] };
  return i < N ? OTHERS[i] : i < N + N_SWITCHES ? SWITCHES[i - N].name : NULL;
}
