// One session's MLX side. Invariants: all MLX work of a session runs on the engine's one worker thread; engine_run may be
// called from any thread, also concurrently, and returns when the outputs are written.
#pragma once
#include "base/log.h"
#include "base/opts.h"
#include "plan/program.h"
#include "rewrite/rewrite.h"
#include "run/counters.h"
#include "run/io.h"

typedef struct engine engine;
typedef struct kernel kernel;  // a program and its cached closures

// device: DEVICE_AUTO takes the GPU when MLX has one. log must outlive the engine. NULL with an error.
engine *engine_new(const opts *o, log_sink log, err *e);
void engine_free(engine *en);  // after all its kernels; NULL is fine
mx_device engine_device(const engine *en);
const counters *engine_counters(const engine *en);
const rewrite_counts *engine_rewrites(const engine *en);

kernel *engine_build(engine *en, graph *g, err *e);  // takes g, also on failure
bool engine_run(engine *en, kernel *k, const run_io *io, err *e);
void engine_release(engine *en, kernel *k);  // NULL is fine

// The device that DEVICE_AUTO means here.
mx_device engine_default_device(const opts *o, err *e);
