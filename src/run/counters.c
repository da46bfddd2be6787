#include "run/counters.h"

#include <inttypes.h>

static counters process;

counters *counters_of_process(void) { return &process; }

const char *why_text(why_eager w) {
  static const char *const TEXTS[WHY_COUNT] = {
      [WHY_SWITCH] = "compiling is switched off",
      [WHY_DATA] = "a node reads data or draws numbers",
      [WHY_BORDER] = "nothing comes in or nothing goes out",
      [WHY_CACHE] = "a cache of keys and values does not cross the group's border",
      [WHY_EMPTY] = "an input has no elements",
      [WHY_LARGE_VALUE] = "an input that is read on the host is too large for a key",
      [WHY_NEW_SHAPES] = "the shapes are new once more",
      [WHY_TRACE] = "the trace failed",
      [WHY_SIZE] = "a step depends on a size that grows",
      [WHY_APPLY] = "the replay failed",
      [WHY_EVALUATION] = "the evaluation failed",
      [WHY_REQUIRED] = "a value is out of its range",
      [WHY_MEMORY] = "out of memory",
  };
  return w >= 0 && w < WHY_COUNT ? TEXTS[w] : NULL;
}

void counters_copy(counters *to, const counters *from) {
  for (int r = 0; r < ROUTE_COUNT; r++) to->runs[r] = atomic_load(&from->runs[r]);
  for (int w = 0; w < WHY_COUNT; w++) to->fallbacks[w] = atomic_load(&from->fallbacks[w]);
  to->traces = atomic_load(&from->traces);
  to->compiles = atomic_load(&from->compiles);
  to->hits = atomic_load(&from->hits);
  to->evictions = atomic_load(&from->evictions);
  to->bytes_copied = atomic_load(&from->bytes_copied);
}

static void one(text *out, const char *name, const atomic_ullong *n) {
  text_put(out, ",\"%s\":%llu", name, (unsigned long long)atomic_load(n));
}

void counters_runs_json(const counters *c, text *out) {
  for (int r = 0; r < ROUTE_COUNT; r++)
    text_put(out, "%s\"%s\":%llu", r ? "," : "{", route_name((route_kind)r), (unsigned long long)atomic_load(&c->runs[r]));
  text_put(out, "}");
}

void counters_json(const counters *c, text *out) {
  text_put(out, "{\"runs\":");
  counters_runs_json(c, out);
  one(out, "traces", &c->traces);
  one(out, "compiles", &c->compiles);
  one(out, "hits", &c->hits);
  one(out, "evictions", &c->evictions);
  one(out, "bytes_copied", &c->bytes_copied);
  text_put(out, ",\"fallbacks\":{");
  bool some = false;
  for (int w = WHY_NONE + 1; w < WHY_COUNT; w++) {
    unsigned long long n = atomic_load(&c->fallbacks[w]);
    if (!n) continue;
    text_put(out, "%s\"%s\":%llu", some ? "," : "", why_text((why_eager)w), n);
    some = true;
  }
  text_put(out, "}}");
}
