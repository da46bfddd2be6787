#include "ort/ort.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The API version is the release's minor number. Asking for a version that is not there makes the runtime print a
// complaint, so its release is read first.
static uint32_t newest_of(const OrtApiBase *base) {
  const char *release = base->GetVersionString();
  const char *dot = release ? strchr(release, '.') : NULL;
  long minor = dot ? strtol(dot + 1, NULL, 10) : 0;
  return minor <= 0 || minor > ORT_API_NEWEST ? ORT_API_NEWEST : (uint32_t)minor;
}

static OrtStatus *too_old(const OrtApiBase *base) {
  const OrtApi *first = base->GetApi(1);
  const char *release = base->GetVersionString();
  char msg[160];
  snprintf(msg, sizeof msg, "the MLX execution provider needs ONNX Runtime 1.23 (API 23) or newer, and this is %s: update it",
           release ? release : "of unknown version");
  return first ? first->CreateStatus(ORT_NOT_IMPLEMENTED, msg) : NULL;
}

bool ort_open(const OrtApiBase *base, ort *o, OrtStatus **status) {
  *o = (ort){0};
  *status = NULL;
  for (uint32_t v = newest_of(base); v >= ORT_API_FLOOR && !o->api; v--) {
    o->api = base->GetApi(v);
    o->version = v;
  }
  o->ep = o->api ? o->api->GetEpApi() : NULL;
  if (!o->ep) *status = too_old(base);
  return o->ep != NULL;
}

bool ort_ok(const ort *o, OrtStatus *st, const char *call, err *e) {
  if (!st) return true;
  const char *msg = o->api->GetErrorMessage(st);
  FAIL(e, ERR_HOST, "ONNX Runtime's %s failed: %s", call, msg ? msg : "no message");
  o->api->ReleaseStatus(st);
  return false;
}

static OrtErrorCode code_of(err_code code) {
  switch (code) {
    case ERR_INVALID: return ORT_INVALID_ARGUMENT;
    case ERR_UNSUPPORTED: return ORT_NOT_IMPLEMENTED;
    case ERR_MLX: return ORT_EP_FAIL;
    case ERR_NO_MEMORY:
    case ERR_INTERNAL: return ORT_RUNTIME_EXCEPTION;
    case ERR_OK:
    case ERR_HOST: break;
  }
  return ORT_FAIL;
}

OrtStatus *ort_status(const ort *o, const err *e) {
  return err_ok(e) ? NULL : o->api->CreateStatus(code_of(e->code), e->msg);
}

static OrtLoggingLevel threshold(const ort_log *l) {
  OrtLoggingLevel level = ORT_LOGGING_LEVEL_WARNING;
  err ignored = {0};
  ORT_CALL(l->host, &ignored, Logger_GetLoggingSeverityLevel, l->logger, &level);
  return level;
}

static void write_log(void *host, log_level level, const char *msg) {
  const ort_log *l = host;
  OrtLoggingLevel at = (OrtLoggingLevel)level;
  if (l->lifted && at < threshold(l)) at = threshold(l);
  err ignored = {0};  // a message that cannot be written is lost
  ORT_CALL(l->host, &ignored, Logger_LogMessage, l->logger, at, msg, __FILE__, __LINE__, "MLX");
}

log_sink ort_log_sink(ort_log *l) {
  if (!l->logger) return (log_sink){0};
  log_level least = l->lifted ? LOG_VERBOSE : (log_level)threshold(l);
  return (log_sink){.write = write_log, .host = l, .least = least};
}
