// What the runtime asks before there is a session. Invariant: it holds no thread and no device.
#pragma once
#include "ort/ort.h"

OrtEpFactory *factory_new(const ort *o, err *e);  // NULL with an error
void factory_free(OrtEpFactory *self);            // after all its providers; NULL is fine
