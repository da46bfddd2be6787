// The runtime that loaded us. Invariants: every OrtStatus that comes in is released here; a failure is kept in an err
// and stops the later calls on it; no member newer than the runtime's API version is touched.
#pragma once
#include "base/err.h"
#include "base/log.h"
#include "ort/abi.h"

enum { ORT_API_NEWEST = 29, ORT_API_FLOOR = 23 };  // what abi.h describes; what plug-in providers need
enum {  // first versions with the members of those names
  ORT_API_HAS_SHAPE = 24,
  ORT_API_SHAPE_REFERENCE = 24,
  ORT_API_FUSED_CAPTURES = 27,  // earlier, a fused node has no inputs for what its bodies alone read
  ORT_API_PARENT_NODE = 24  // API 23 has the member, but it knows no parent while a body is planned
};

typedef struct ort {
  const OrtApi *api;
  const OrtEpApi *ep;
  uint32_t version;  // the newest that both sides know
} ort;

// Negotiates. False when the runtime is older than ORT_API_FLOOR; *status is then a message for it where it can make
// one, else NULL. The caller hands *status on.
bool ort_open(const OrtApiBase *base, ort *o, OrtStatus **status);

// Records st (if any) under the name of the call, and releases it. True if it was NULL.
bool ort_ok(const ort *o, OrtStatus *st, const char *call, err *e);
// Calls a member of OrtApi that gives a status, unless a failure is recorded already. True on success.
#define ORT_CALL(o, e, member, ...) (err_ok(e) ? ort_ok((o), (o)->api->member(__VA_ARGS__), #member, (e)) : false)
#define ORT_EP_CALL(o, e, member, ...) (err_ok(e) ? ort_ok((o), (o)->ep->member(__VA_ARGS__), #member, (e)) : false)

// NULL while e is empty; else a status of e's code and message, which the runtime will own.
OrtStatus *ort_status(const ort *o, const err *e);

// A sink that writes to a logger; to be used while the logger lives, from any thread.
typedef struct ort_log {
  const ort *host;
  const OrtLogger *logger;
  bool lifted;  // messages of every level are shown, at the logger's own threshold
} ort_log;
log_sink ort_log_sink(ort_log *l);  // l must outlive the sink
