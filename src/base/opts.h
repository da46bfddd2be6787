// Options of a session. Invariant: the environment and the session's options are read once, here, into a const struct;
// nothing below asks the environment again.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef enum { DEVICE_AUTO = 0, DEVICE_CPU, DEVICE_GPU } device_choice;

enum { OPTS_TEXT = 200 };  // bytes of an option that is a text, its NUL included

typedef struct opts {
  device_choice device;     // option "device": auto, cpu or gpu
  bool no_compile;          // "disable_compile"; ONNX_GENAI_MLX_NO_COMPILE, ONNXRUNTIME_EP_MLX_NO_COMPILE
  bool no_general_compile;  // "disable_general_compile"; MLX_EP_NO_GENERAL_COMPILE, ONNXRUNTIME_EP_MLX_NO_GENERAL_COMPILE
  bool no_prefill_compile;  // "disable_prefill_compile"; MLX_EP_NO_PREFILL_COMPILE, ONNXRUNTIME_EP_MLX_NO_PREFILL_COMPILE
  bool claim_all;           // "claim_all": groups not worth their copies are kept too (for tests)
  size_t closures;          // "closures": at most so many compiled closures for each claimed group are kept
  char no_rewrites[OPTS_TEXT];  // "disable_rewrites": names of rewrites, by commas, or "all"; ONNXRUNTIME_EP_MLX_NO_REWRITES
  bool verbose;             // "verbose"; ONNXRUNTIME_EP_MLX_VERBOSE
} opts;

// Defaults with the environment over them; a variable that is empty or "0" counts as not set.
void opts_init(opts *o);
// One option by its short name ("device"). False with a message for an unknown name or a bad value.
bool opts_set(opts *o, const char *key, const char *value, err *e);
// The i-th option's name, NULL past the last.
const char *opts_name(size_t i);
