// What the author of an operator sees. Invariants:
// - An operator is one op_row in its family's table; nothing else in the project knows it by name. What others must
//   know of it (host-read inputs, traits) stands in the row.
// - claim() looks at types, ranks, attributes and constants and either stays silent or gives a reason; what it accepts,
//   translate() can do for every shape. What only a run can show (a wrong shape, an index out of range) translate()
//   reports with mx_fail; it never gives a wrong number.
// - translate() keeps no state and makes the same graph for the same node, shapes and host values.
#pragma once
#include "graph/attr.h"
#include "graph/graph.h"
#include "mx/mx.h"

// ---- rows -----------------------------------------------------------------------------------------------------------
typedef struct claim claim;
typedef struct op op;

enum {  // traits
  OP_NO_TRACE = 1u << 0,   // reads data or shapes its output by data: never inside a compiled closure
  OP_CHEAP = 1u << 1,      // moves or reinterprets only: a group of nothing else is not worth its copies
  OP_RANDOM = 1u << 2,     // two runs differ
  OP_KV = 1u << 3,         // keeps a cache or a state from run to run
  OP_ANY_TYPE = 1u << 4,   // claim() checks the types itself (packed weights, types that MLX has not)
  OP_NARROW = 1u << 5      // takes and gives the narrow types too, as codes (see ops/narrow.h)
};
#define IN(i) (1u << (i))  // an input as a bit, for host_in, prepared_in and typed_in
#define ALL_IN UINT32_MAX
enum { ANY = 1 << 30 };    // no upper opset

typedef struct op_row {
  const char *domain, *type;  // domain "" is ai.onnx
  int since, until;           // schema versions, both included
  void (*claim)(claim *c);    // NULL: claimed whenever the types fit
  void (*translate)(op *o);
  uint32_t host_in;  // inputs whose values translate() reads on the host: a closure is made for these values alone
  uint32_t traits;
  dtypes types;        // that the main input may have, checked before claim(); 0: whatever the device has (and OP_NARROW adds)
  uint32_t typed_in;   // the inputs that `types` is about; 0: the first. Others that share its type in ONNX need no bit
  const char *limits;  // for readers: what claim() declines beyond types, as far as valid models can have it; NULL: nothing
  // Optional: turns constant inputs into what translate() uses (packed weights), once, when the program is built. May
  // give NULL without an error: translate() then goes without. prepared_in: inputs that need not be kept after that.
  void *(*prepare)(const node *n, mx_device d, err *e);
  void (*unprepare)(void *prepared);
  uint32_t prepared_in;
  uint32_t index_in;  // inputs that hold indices: read on the host where it has them, checked as data in a trace
  // Attention that keeps a cache [B, heads, rows, size]: where its past key comes in and its present key goes out (the
  // values follow each); 0: none.
  uint8_t past_in, present_out;
} op_row;
// Members that are left out are zero.
#define OP(domain, type, since, until, claim, translate, ...) {domain, type, since, until, claim, translate, __VA_ARGS__}

// ---- claiming ---------------------------------------------------------------------------------------------------------
struct claim {
  const node *n;
  mx_device device;
  bool declined;
  char reason[200];  // a sentence, once declined
};
// Declines with a reason and returns from the claim function, unless cond holds.
#define REQUIRE(c, cond, ...)      \
  do {                             \
    if (!(cond)) {                 \
      claim_decline(c, __VA_ARGS__); \
      return;                      \
    }                              \
  } while (0)
// The same after a call that may have declined.
#define CLAIM_GOES_ON(c)     \
  do {                       \
    if ((c)->declined) return; \
  } while (0)
void claim_row(claim *c, const op_row *row);  // asks the row, after what holds for every operator
void claim_decline(claim *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool has_in(const claim *c, size_t i);
bool has_out(const claim *c, size_t i);
dtype in_type(const claim *c, size_t i);   // DT_NONE if absent
dtype out_type(const claim *c, size_t i);
int in_rank(const claim *c, size_t i);     // -1 if unknown or absent
int64_t in_dim(const claim *c, size_t i, int axis);  // -1 if unknown; negative axes count from the end
const tensor *in_const(const claim *c, size_t i);    // NULL if not constant
void require_types(claim *c, size_t i, dtypes set);   // declines when input i is present with another type
void require_in_types(claim *c, dtypes set);          // every present input
void require_known(claim *c, const char *const *attrs);  // declines for an attribute that is not in this NULL-ended list

// ---- translating --------------------------------------------------------------------------------------------------------
typedef struct op_memo op_memo;
// A cache that the route takes care of: in() gives its past, or none when nothing is past; what goes to out() is not the
// present but its new rows alone.
enum { CACHE_ROWS = 2 };  // the axis of its rows
typedef struct op_cache {
  bool first;  // the first prompt: nothing is past
  mx pos;      // set by translate(): int32 [B], the row in each entry's cache where the new ones begin; NULL: behind past
} op_cache;

// What an operator may know of its route; every member may be NULL (absent). Filled by run/.
typedef struct op_env {
  // The value on the host, without touching the device; false if it is not known there (then it is computed).
  bool (*host_value)(const struct op_env *env, const value *v, tensor *out);
  const void *route;  // for host_value
  // Runs a body of o's node: in are its formal inputs; out gets one array for each of its outputs. False when the scope
  // has failed.
  bool (*run_body)(op *o, const graph *body, const mx *in, mx *out);
  const struct body_frame *frame;  // for run_body
  // In a trace, where no input can be read: takes note of a bool of any shape. A run in which it is not all true is done
  // again outside the trace, where the same node reports its error.
  void (*require)(const struct op_env *env, mx ok);
  // In a trace: the node's cache if the route takes care of it, else NULL.
  op_cache *(*cache)(const struct op_env *env, const node *n);
} op_env;

struct op {
  const node *n;
  mx_scope *s;
  const mx *in;   // NULL for an absent one, and for one in row.prepared_in once prepared
  mx *out;        // what translate() fills through out()
  void *prepared; // from row.prepare, or NULL
  op_memo *memo;
  const op_env *env;
};

mx in(const op *o, size_t i);          // NULL if absent
bool wants(const op *o, size_t i);     // is output i used?
// Converts to the declared type, but for a narrow one, whose codes x must be; does nothing for an unused output.
void out(op *o, size_t i, mx x);
dtype want_type(const op *o, size_t i);  // declared type of output i
mx op_fail(op *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));  // ERR_INVALID

bool in_trace(const op *o);
void trace_require(op *o, mx ok);         // see op_env.require; in a trace only
op_cache *trace_cache(const op *o);       // see op_env.cache; NULL outside traces

bool is_const(const op *o, size_t i);
// A value made from constant inputs only, computed once and kept for later runs; slot counts from 0 within the node.
enum { OP_MEMO_SLOTS = 4 };
mx memo(op *o, int slot, mx (*make)(op *o));

// Input i when its value is on the host already (a constant or a graph's input); false if it would have to be computed.
bool host_tensor(const op *o, size_t i, tensor *t);
// Input i as host integers; false (and the scope fails) if there are more than cap or it cannot be read.
bool host_ints(op *o, size_t i, int64_t *v, size_t cap, size_t *n);
bool host_int(op *o, size_t i, int64_t *v);    // exactly one element
bool host_float(op *o, size_t i, double *v);   // exactly one element

int norm_axis(op *o, int64_t axis, int rank);  // into [0, rank); fails and gives 0 when out of range
// Axes of an operator that takes them as an attribute (older opsets) or as input `input`: normalised, ascending, no
// duplicates (a duplicate fails). Absent or empty gives n = 0.
mx_ints op_axes(op *o, const char *attribute, size_t input, int rank);
bool fits_int(op *o, int64_t v, int *out);     // a size or step as int; fails when it does not fit

static inline bool is_half(mx x) { return dtype_in(mx_dtype(x), DTS_F16_BF16); }
mx f32_up(mx x);             // float16 and bfloat16 as float32, others as they are: for sums
mx_ints all_axes(int rank);  // 0..rank-1
mx_ints perm_identity(int rank);
