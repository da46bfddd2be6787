// One session's provider. Invariant: it lives from CreateEp to ReleaseEp and keeps nothing of the session but its
// logger.
#pragma once
#include "base/opts.h"
#include "ort/ort.h"

// o must outlive the provider. NULL with an error.
OrtEp *ep_new(const ort *o, const OrtLogger *logger, const opts *options, err *e);
void ep_free(OrtEp *self);  // NULL is fine
