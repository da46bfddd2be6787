// If, Loop and Scan. Their bodies are programs that the route runs (op_env.run_body); what is here decides how often and
// with what. Rounds of a loop are built lazily and settled, which evaluates them and lets go of everything but the carried
// values and the scan outputs, every few rounds.
#include <string.h>

#include "ops/op.h"

// ---- rounds ---------------------------------------------------------------------------------------------------------
enum { NODES_A_SETTLING = 256, ROUNDS_A_SETTLING = 64, NODES_A_TRACE = 1 << 14 };

typedef struct pile {  // one scan output
  mx *fresh;           // slices of the rounds that are not settled
  mx_held **parts;     // settled rounds, [rounds, slice..] each
  size_t n_parts, cap_parts;
  mx_ints slice;       // shape of one, once there is one
} pile;

typedef struct rounds {
  op *o;
  const graph *body;
  arena *mem;
  size_t mark;
  size_t every, n_fresh;           // rounds a settling, rounds since the last
  size_t n_done;
  size_t in_at, out_at;            // where the carried values begin among the body's inputs and outputs
  size_t n_carried, n_piles;
  mx *in, *out;                    // the body's
  mx *carried;
  mx *keep;
  pile *piles;
} rounds;

static bool no_memory(op *o) {
  mx_fail(o->s, ERR_NO_MEMORY, "out of memory for a loop");
  return false;
}

// The counts come from the body: its outputs are out_at others, then the carried values, then the scan outputs.
static bool rounds_begin(rounds *r, op *o, size_t in_at, size_t out_at, size_t n_carried) {
  const graph *body = attr_g(o->n, "body");
  size_t nodes = body->n_nodes ? body->n_nodes : 1, every = NODES_A_SETTLING / nodes;
  *r = (rounds){.o = o, .body = body, .mem = arena_new(), .mark = mx_scope_mark(o->s), .in_at = in_at, .out_at = out_at};
  r->every = every < 1 ? 1 : every > ROUNDS_A_SETTLING ? ROUNDS_A_SETTLING : every;
  r->n_carried = n_carried;
  r->n_piles = body->n_outputs - out_at - n_carried;
  if (!r->mem) return no_memory(o);
  r->in = ARENA_ARRAY(r->mem, mx, body->n_inputs);
  r->out = ARENA_ARRAY(r->mem, mx, body->n_outputs);
  r->carried = ARENA_ARRAY(r->mem, mx, n_carried);
  r->keep = ARENA_ARRAY(r->mem, mx, n_carried + r->n_piles);
  r->piles = ARENA_ARRAY(r->mem, pile, r->n_piles);
  bool ok = r->in && r->out && r->carried && r->keep && r->piles;
  for (size_t k = 0; ok && k < r->n_piles; k++) {
    r->piles[k].fresh = ARENA_ARRAY(r->mem, mx, r->every);
    ok = r->piles[k].fresh != NULL;
  }
  return ok || no_memory(o);
}

static void rounds_end(rounds *r) {
  for (size_t k = 0; r->piles && k < r->n_piles; k++)
    for (size_t i = 0; i < r->piles[k].n_parts; i++) mx_held_free(r->piles[k].parts[i]);
  arena_free(r->mem);
}

static bool same_shape(mx_ints a, mx_ints b) {
  return a.n == b.n && !memcmp(a.v, b.v, (size_t)a.n * sizeof *a.v);
}

// Puts the round's scan outputs on their piles.
static void add_slices(rounds *r) {
  for (size_t k = 0; k < r->n_piles; k++) {
    pile *p = &r->piles[k];
    mx x = r->out[r->out_at + r->n_carried + k];
    if (mx_ndim(x) >= MX_MAX_RANK) op_fail(r->o, "scan output %zu has rank %d; MLX holds at most %d", k, mx_ndim(x) + 1, MX_MAX_RANK);
    if (r->n_done && !same_shape(p->slice, mx_shape(x))) op_fail(r->o, "scan output %zu changes its shape between iterations", k);
    p->slice = mx_shape(x);
    p->fresh[r->n_fresh] = x;
  }
}

// One run of the body; the caller has set its inputs but for the carried ones.
static bool round_once(rounds *r) {
  const op_env *env = r->o->env;
  for (size_t i = 0; i < r->n_carried; i++) r->in[r->in_at + i] = r->carried[i];
  if (!env->run_body(r->o, r->body, r->in, r->out)) return false;
  for (size_t i = 0; i < r->n_carried; i++) r->carried[i] = r->out[r->out_at + i];
  add_slices(r);
  r->n_fresh++;
  r->n_done++;
  return mx_ok(r->o->s);
}

static bool add_part(rounds *r, pile *p, mx x) {
  if (p->n_parts == p->cap_parts) {
    size_t cap = p->cap_parts ? 2 * p->cap_parts : 8;
    mx_held **parts = ARENA_ARRAY(r->mem, mx_held *, cap);
    if (!parts) return no_memory(r->o);
    if (p->n_parts) memcpy(parts, p->parts, p->n_parts * sizeof *parts);
    p->parts = parts;
    p->cap_parts = cap;
  }
  p->parts[p->n_parts] = mx_hold(x);
  if (p->parts[p->n_parts]) p->n_parts++;
  return mx_ok(r->o->s);
}

// Every handle that a round made is dangling after this, but those in r->carried. A trace has nothing to evaluate: there a
// loop is so many copies of its body.
static bool settle(rounds *r) {
  mx_scope *s = r->o->s;
  size_t n = r->n_carried + r->n_piles;
  if (!r->n_fresh) return mx_ok(s);
  if (r->n_carried) memcpy(r->keep, r->carried, r->n_carried * sizeof *r->keep);
  for (size_t k = 0; k < r->n_piles; k++) r->keep[r->n_carried + k] = mx_stack(s, r->piles[k].fresh, r->n_fresh, 0);
  if (in_trace(r->o)) {
    if (r->n_done * (r->body->n_nodes + 1) > NODES_A_TRACE) mx_fail(s, ERR_UNSUPPORTED, "a loop of so many rounds has no trace");
  } else {
    mx_scope_rewind(s, r->mark, r->keep, n);
    mx_eval(s, r->keep, n);
  }
  if (!mx_ok(s)) return false;
  if (r->n_carried) memcpy(r->carried, r->keep, r->n_carried * sizeof *r->keep);
  for (size_t k = 0; k < r->n_piles; k++)
    if (!add_part(r, &r->piles[k], r->keep[r->n_carried + k])) return false;
  r->n_fresh = 0;
  return true;
}

static bool settle_if_due(rounds *r) { return r->n_fresh < r->every || settle(r); }

// Scan output k as [rounds, slice..], once settled. Without a round its shape is the declared one, 0 where unknown.
static mx gather(rounds *r, size_t k) {
  const pile *p = &r->piles[k];
  mx_scope *s = r->o->s;
  if (!p->n_parts) {
    const value *v = r->body->outputs[r->out_at + r->n_carried + k];
    mx_ints shape = {.n = 1};
    for (int i = 0; i < v->rank && i < MX_MAX_RANK - 1; i++) {
      int dim = 0;
      if (v->dims[i] > 0 && !fits_int(r->o, v->dims[i], &dim)) return NULL;
      shape.v[shape.n++] = dim;
    }
    return mx_full(s, shape, 0, v->type);
  }
  mx *parts = ARENA_ARRAY(r->mem, mx, p->n_parts);
  for (size_t i = 0; parts && i < p->n_parts; i++) parts[i] = mx_use(s, p->parts[i]);
  if (!parts) no_memory(r->o);
  return parts ? mx_concatenate(s, parts, p->n_parts, 0) : NULL;
}

static bool can_run_bodies(op *o) {
  if (o->env && o->env->run_body) return true;
  op_fail(o, "this route runs no bodies");
  return false;
}

// ---- If -------------------------------------------------------------------------------------------------------------
static void claim_branch(claim *c, const char *name) {
  const graph *g = attr_g(c->n, name);
  REQUIRE(c, g, "there is no %s", name);
  REQUIRE(c, g->n_inputs == 0, "%s has inputs", name);
  REQUIRE(c, g->n_outputs == c->n->n_out, "%s has %zu outputs where the node has %zu", name, g->n_outputs, c->n->n_out);
}

static void claim_if(claim *c) {
  claim_branch(c, "then_branch");
  claim_branch(c, "else_branch");
}

static void run_if(op *o) {
  int64_t yes = 0;
  if (!can_run_bodies(o) || !host_int(o, 0, &yes)) return;
  arena *mem = arena_new();
  mx *outs = mem ? ARENA_ARRAY(mem, mx, o->n->n_out) : NULL;
  if (!outs) no_memory(o);
  else if (o->env->run_body(o, attr_g(o->n, yes ? "then_branch" : "else_branch"), NULL, outs))
    for (size_t i = 0; i < o->n->n_out; i++) out(o, i, outs[i]);
  arena_free(mem);
}

// ---- Loop -----------------------------------------------------------------------------------------------------------
enum { LOOP_OWN = 2 };  // the inputs before the carried ones: trip count and condition

static size_t loop_carried(const node *n) { return n->n_in > LOOP_OWN ? n->n_in - LOOP_OWN : 0; }

static void claim_loop(claim *c) {
  const graph *g = attr_g(c->n, "body");
  size_t carried = loop_carried(c->n);
  REQUIRE(c, g, "there is no body");
  REQUIRE(c, g->n_inputs == LOOP_OWN + carried, "the body has %zu inputs; %zu carried values need %zu", g->n_inputs,
          carried, LOOP_OWN + carried);
  REQUIRE(c, g->n_outputs == 1 + c->n->n_out && c->n->n_out >= carried, "the body has %zu outputs where the node has %zu",
          g->n_outputs, c->n->n_out);
  for (size_t i = 0; i < carried; i++) REQUIRE(c, has_in(c, LOOP_OWN + i), "carried value %zu has no start", i);
}

// Some bodies declare the iteration and the condition with rank 1.
static mx ranked(mx x, const value *v) { return v->rank == 1 ? mx_reshape(x, MXI(1)) : x; }

static bool goes_on(op *o, mx x) {
  int64_t v = 0;
  size_t n = 0;
  if (mx_read_i64(x, &v, 1, &n) && n != 1) op_fail(o, "the body's condition is empty");
  return mx_ok(o->s) && v;
}

static void loop_rounds(rounds *r, int64_t trips, bool go) {
  op *o = r->o;
  for (size_t i = 0; i < r->n_carried; i++) r->carried[i] = in(o, LOOP_OWN + i);
  for (int64_t t = 0; go && t < trips; t++) {
    r->in[0] = ranked(mx_scalar_i64(o->s, t, DT_I64), r->body->inputs[0]);
    r->in[1] = ranked(mx_scalar_i64(o->s, 1, DT_BOOL), r->body->inputs[1]);
    if (!round_once(r)) return;
    go = goes_on(o, r->out[0]);
    if (!settle_if_due(r)) return;
  }
  if (!settle(r)) return;
  for (size_t i = 0; i < r->n_carried; i++) out(o, i, r->carried[i]);
  for (size_t k = 0; k < r->n_piles && mx_ok(o->s); k++) out(o, r->n_carried + k, gather(r, k));
}

static void loop(op *o) {
  int64_t trips = INT64_MAX, go = 1;
  rounds r;
  if (!can_run_bodies(o) || (in(o, 0) && !host_int(o, 0, &trips)) || (in(o, 1) && !host_int(o, 1, &go))) return;
  if (rounds_begin(&r, o, LOOP_OWN, 1, loop_carried(o->n))) loop_rounds(&r, trips, go != 0);
  rounds_end(&r);
}

// ---- Scan -----------------------------------------------------------------------------------------------------------
static void claim_scan_with(claim *c, size_t own) {
  const graph *g = attr_g(c->n, "body");
  int64_t scans = attr_i(c->n, "num_scan_inputs", 0);
  REQUIRE(c, g, "there is no body");
  REQUIRE(c, scans >= 1 && c->n->n_in >= own && (uint64_t)scans <= c->n->n_in - own, "num_scan_inputs is %lld", (long long)scans);
  REQUIRE(c, g->n_inputs == c->n->n_in - own, "the body has %zu inputs where the node has %zu", g->n_inputs, c->n->n_in - own);
  REQUIRE(c, g->n_outputs == c->n->n_out && c->n->n_out >= g->n_inputs - (size_t)scans,
          "the body has %zu outputs where the node has %zu", g->n_outputs, c->n->n_out);
  for (size_t i = own; i < c->n->n_in; i++) REQUIRE(c, has_in(c, i), "input %zu is absent", i);
}

static void claim_list(claim *c, const char *name, size_t want) {
  size_t n = 0;
  attr_ints(c->n, name, &n);
  REQUIRE(c, !n || n == want, "%s has %zu entries; %zu are needed", name, n, want);
}

static void claim_scan(claim *c) {
  claim_scan_with(c, 0);
  CLAIM_GOES_ON(c);
  size_t scans = (size_t)attr_i(c->n, "num_scan_inputs", 0), outs = c->n->n_out - (c->n->n_in - scans);
  claim_list(c, "scan_input_axes", scans);
  claim_list(c, "scan_input_directions", scans);
  claim_list(c, "scan_output_axes", outs);
  claim_list(c, "scan_output_directions", outs);
}

static int64_t entry(const node *n, const char *name, size_t i) {
  size_t count = 0;
  const int64_t *list = attr_ints(n, name, &count);
  return i < count ? list[i] : 0;
}

// x at one index of an axis, which goes.
static mx at(mx x, int axis, int i) { return mx_squeeze(mx_slice_axis(x, axis, i, i + 1), MXI(axis)); }

static int input_axis(op *o, size_t first, size_t i) {
  mx x = in(o, first + i);
  return norm_axis(o, entry(o->n, "scan_input_axes", i), mx_ndim(x));
}

// The common length of the scan inputs; -1 after an error.
static int scan_length(op *o, size_t first, size_t n_scans) {
  int length = -1;
  for (size_t i = 0; i < n_scans && mx_ok(o->s); i++) {
    int axis = input_axis(o, first, i), here = mx_ok(o->s) ? mx_dim(in(o, first + i), axis) : 0;
    if (length >= 0 && here != length)
      op_fail(o, "scan input %zu has length %d where others have %d", i, here, length);
    length = here;
  }
  return mx_ok(o->s) ? length : -1;
}

// [rounds, slice..] to what the node gives: in reverse if asked for, the rounds at their axis.
static mx scan_output(op *o, mx x, size_t k) {
  if (!x || !mx_ok(o->s)) return x;
  mx_ints shape = mx_shape(x), step = {.n = shape.n}, start = {.n = shape.n}, stop = shape, perm = {.n = shape.n};
  int axis = norm_axis(o, entry(o->n, "scan_output_axes", k), shape.n);
  if (entry(o->n, "scan_output_directions", k) && shape.v[0] > 1) {
    for (int i = 0; i < shape.n; i++) step.v[i] = 1;
    step.v[0] = -1;
    start.v[0] = shape.v[0] - 1;
    stop.v[0] = -shape.v[0] - 1;
    x = mx_slice(x, start, stop, step);
  }
  for (int i = 0; i < shape.n; i++) perm.v[i] = i == axis ? 0 : i < axis ? i + 1 : i;
  return mx_transpose(x, perm);
}

static void scan_rounds(rounds *r, size_t n_scans) {
  op *o = r->o;
  size_t first = r->n_carried;
  int length = scan_length(o, first, n_scans);
  for (size_t i = 0; i < r->n_carried; i++) r->carried[i] = in(o, i);
  for (int t = 0; t < length; t++) {
    for (size_t i = 0; i < n_scans; i++) {
      bool back = entry(o->n, "scan_input_directions", i) != 0;
      r->in[first + i] = at(in(o, first + i), input_axis(o, first, i), back ? length - 1 - t : t);
    }
    if (!round_once(r) || !settle_if_due(r)) return;
  }
  if (!settle(r)) return;
  for (size_t i = 0; i < r->n_carried; i++) out(o, i, r->carried[i]);
  for (size_t k = 0; k < r->n_piles && mx_ok(o->s); k++) out(o, r->n_carried + k, scan_output(o, gather(r, k), k));
}

static void scan(op *o) {
  size_t scans = (size_t)attr_i(o->n, "num_scan_inputs", 0);
  rounds r;
  if (!can_run_bodies(o)) return;
  if (rounds_begin(&r, o, 0, 0, o->n->n_in - scans)) scan_rounds(&r, scans);
  rounds_end(&r);
}

// ---- Scan of opset 8: a batch of sequences, each with a length of its own -------------------------------------------
static void claim_scan_8(claim *c) {
  claim_scan_with(c, 1);
  CLAIM_GOES_ON(c);
  claim_list(c, "directions", (size_t)attr_i(c->n, "num_scan_inputs", 0));
}

typedef struct batch {
  op *o;
  arena *mem;
  size_t n_scans, n_carried;
  int size, length;
  int64_t *lengths;  // [size]
  mx *all;           // [n_out, size]: what each sequence gave; NULL for a scan output without a round
} batch;

static bool batch_sizes(batch *b) {
  op *o = b->o;
  size_t n = 0, first = 1 + b->n_carried;
  b->size = mx_dim(in(o, 1), 0);
  b->length = mx_dim(in(o, first), 1);
  for (size_t i = 1; i < o->n->n_in; i++) {
    mx x = in(o, i);
    bool fits = mx_ndim(x) >= (i < first ? 1 : 2) && mx_dim(x, 0) == b->size && (i < first || mx_dim(x, 1) == b->length);
    if (!fits) op_fail(o, "input %zu is not [%d, %s..]", i, b->size, i < first ? "" : "the common length, ");
  }
  b->lengths = ARENA_ARRAY(b->mem, int64_t, (size_t)b->size + 1);
  b->all = ARENA_ARRAY(b->mem, mx, o->n->n_out * (size_t)b->size + 1);
  if (!b->lengths || !b->all) return no_memory(o);
  for (int i = 0; i < b->size; i++) b->lengths[i] = b->length;
  if (in(o, 0) && host_ints(o, 0, b->lengths, (size_t)b->size, &n) && n != (size_t)b->size)
    op_fail(o, "%zu sequence lengths for %d sequences", n, b->size);
  for (int i = 0; i < b->size && mx_ok(o->s); i++)
    if (b->lengths[i] < 0 || b->lengths[i] > b->length)
      op_fail(o, "sequence length %lld is not within 0..%d", (long long)b->lengths[i], b->length);
  return mx_ok(o->s);
}

static mx padded(mx x, int length) {
  int have = mx_dim(x, 0);
  return have == length ? x : mx_pad(x, MXI(0), MXI(0), MXI(length - have), mx_scalar(x, 0), "constant");
}

static void sequence(batch *b, rounds *r, int at_batch) {
  op *o = b->o;
  int length = (int)b->lengths[at_batch];
  for (size_t i = 0; i < b->n_carried; i++) r->carried[i] = at(in(o, 1 + i), 0, at_batch);
  for (int t = 0; t < length; t++) {
    for (size_t i = 0; i < b->n_scans; i++) {
      bool back = entry(o->n, "directions", i) != 0;
      mx x = at(in(o, 1 + b->n_carried + i), 0, at_batch);
      r->in[b->n_carried + i] = at(x, 0, back ? length - 1 - t : t);
    }
    if (!round_once(r) || !settle_if_due(r)) return;
  }
  if (!settle(r)) return;
  for (size_t i = 0; i < r->n_carried; i++) b->all[i * (size_t)b->size + (size_t)at_batch] = r->carried[i];
  for (size_t k = 0; k < r->n_piles && length; k++)
    b->all[(r->n_carried + k) * (size_t)b->size + (size_t)at_batch] = padded(gather(r, k), b->length);
}

// Zeros for the sequences without a round, of the shape that the others have (or the declared one).
static mx no_rounds(const batch *b, const mx *all, size_t k) {
  const value *v = attr_g(b->o->n, "body")->outputs[k];
  mx_ints shape = {.n = 1, .v = {b->length}};
  for (int i = 0; i < b->size; i++)
    if (all[i]) return mx_full(b->o->s, mx_shape(all[i]), 0, mx_dtype(all[i]));
  for (int i = 0; i < v->rank && shape.n < MX_MAX_RANK - 1; i++)
    shape.v[shape.n++] = v->dims[i] > 0 && v->dims[i] <= INT32_MAX ? (int)v->dims[i] : 0;
  return mx_full(b->o->s, shape, 0, v->type);
}

static void batch_outputs(batch *b) {
  op *o = b->o;
  for (size_t k = 0; k < o->n->n_out && mx_ok(o->s); k++) {
    mx *all = b->all + k * (size_t)b->size;
    if (!b->size && k < b->n_carried) out(o, k, in(o, 1 + k));
    else if (!b->size) {
      mx x = mx_expand_dims(no_rounds(b, all, k), MXI(0));
      out(o, k, mx_slice_axis(x, 0, 0, 0));
    }
    for (int i = 0; i < b->size; i++)
      if (!all[i]) all[i] = no_rounds(b, all, k);
    if (b->size) out(o, k, mx_stack(o->s, all, (size_t)b->size, 0));
  }
}

static void scan_8(op *o) {
  size_t scans = (size_t)attr_i(o->n, "num_scan_inputs", 0);
  batch b = {.o = o, .mem = arena_new(), .n_scans = scans, .n_carried = o->n->n_in - 1 - scans};
  if (!b.mem) no_memory(o);
  bool ok = b.mem && can_run_bodies(o) && batch_sizes(&b);
  for (int i = 0; ok && i < b.size; i++) {
    rounds r;
    if (rounds_begin(&r, o, 0, 0, b.n_carried)) sequence(&b, &r, i);
    rounds_end(&r);
    ok = mx_ok(o->s);
  }
  if (ok) batch_outputs(&b);
  arena_free(b.mem);
}

const op_row ops_control[] = {
    OP("", "If", 1, ANY, claim_if, run_if, .host_in = IN(0), .limits = "every node of its branches must be claimed"),
    OP("", "Loop", 1, ANY, claim_loop, loop, .host_in = IN(0) | IN(1),
       .limits = "every node of its body must be claimed"),
    OP("", "Scan", 8, 8, claim_scan_8, scan_8, .host_in = IN(0), .limits = "every node of its body must be claimed"),
    OP("", "Scan", 9, ANY, claim_scan, scan, .limits = "every node of its body must be claimed"),
    {0},
};
