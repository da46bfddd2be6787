// A fused node at run time. Invariants: what a run needs is looked up when the node is compiled; Compute may run on
// several threads at once and shares nothing between runs but the engine.
#pragma once
#include "ort/import.h"
#include "run/engine.h"

typedef struct kernel_host {  // of one session; outlives its kernels
  const ort *o;
  engine *en;
  int threads;  // of the runtime's intra-op pool, or more
} kernel_host;

// Takes f->g, also on failure. NULL with an error.
OrtNodeComputeInfo *kernel_info_new(const kernel_host *h, fused_graph *f, err *e);
void kernel_info_free(OrtNodeComputeInfo *info);  // NULL is fine
