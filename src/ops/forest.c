#include "ops/forest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

#include "graph/attr.h"

enum { NODES_MAX = 1 << 24 };

typedef struct builder {
  forest *f;
  const node *n;
  char *why;
  size_t why_size;
} builder;

static bool no(builder *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool no(builder *b, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(b->why, b->why_size, fmt, args);
  va_end(args);
  return false;
}

// Exactly n integers, or NULL.
static const int64_t *ints(builder *b, const char *name, size_t n) {
  size_t have = 0;
  const int64_t *v = attr_ints(b->n, name, &have);
  if (v && have == n) return v;
  no(b, "attribute %s has %zu entries, not %zu", name, have, n);
  return NULL;
}

// The numbers of attribute name, or of the tensor that may stand in its place; NULL if there are none.
static double *numbers(builder *b, const char *name, const char *in_tensor, size_t *n) {
  const float *f = name ? attr_floats(b->n, name, n) : NULL;
  const tensor *t = in_tensor ? attr_t(b->n, in_tensor) : NULL;
  if (!f && (!t || !t->data || !dims_count(t->dims, t->rank, n))) return *n = 0, NULL;
  double *v = ARENA_ARRAY(b->f->mem, double, *n + 1);
  for (size_t i = 0; v && i < *n; i++) {
    if (f) v[i] = (double)f[i];
    else if (t->type == DT_F32) v[i] = (double)((const float *)t->data)[i];
    else if (t->type == DT_F64) v[i] = ((const double *)t->data)[i];
    else if (t->type == DT_F16) v[i] = dtype_f16_value(((const uint16_t *)t->data)[i]);
    else if (t->type == DT_U8) v[i] = ((const uint8_t *)t->data)[i];
    else return *n = 0, NULL;
  }
  return v;
}

static bool room(builder *b, size_t n, size_t roots, size_t targets) {
  forest *f = b->f;
  size_t cells = 0;
  if (n < 1 || n > NODES_MAX || targets < 1 || !size_mul(n, targets, &cells) || cells > 1u << 27)
    return no(b, "%zu nodes for %zu targets", n, targets);
  f->n = (int)n;
  f->targets = (int)targets;
  int32_t **columns[] = {&f->feature, &f->yes, &f->no, &f->mode, &f->missing};
  bool ok = true;
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) ok = (*columns[i] = ARENA_ARRAY(f->mem, int32_t, n)) && ok;
  f->root = ARENA_ARRAY(f->mem, int32_t, roots + 1);
  f->split = ARENA_ARRAY(f->mem, double, n);
  f->votes = ARENA_ARRAY(f->mem, double, cells);
  f->has = ARENA_ARRAY(f->mem, uint8_t, cells);
  return (ok && f->root && f->split && f->votes && f->has) || no(b, "out of memory for %zu nodes", n);
}

static bool vote(builder *b, size_t at, int64_t target, double weight) {
  forest *f = b->f;
  if (target < 0 || target >= f->targets) return no(b, "a vote for %lld of %d", (long long)target, f->targets);
  size_t cell = at * (size_t)f->targets + (size_t)target;
  if (f->has[cell]) return no(b, "a leaf votes twice for one target");
  f->votes[cell] = weight;
  f->has[cell] = 1;
  f->positive = f->positive && weight >= 0;
  if (f->vote_class >= 0 && f->vote_class != target) f->one_vote_class = false;
  f->vote_class = (int)target;
  return true;
}

// Counts the ways into each node that can be reached; queue has room for all. Gives how many those are.
static size_t reach(forest *f, int32_t *queue, int32_t *ways, uint8_t *seen) {
  size_t from = 0, to = 0;
  for (int i = 0; i < f->roots; i++) {
    if (!seen[f->root[i]]) queue[to++] = f->root[i];
    seen[f->root[i]] = 1;
  }
  for (; from < to; from++) {
    int at = queue[from], next[2] = {f->yes[at], f->no[at]};
    if (f->mode[at] == MODE_LEAF) continue;
    if (f->feature[at] >= f->features) f->features = f->feature[at] + 1;
    f->modes |= 1u << f->mode[at];
    for (int i = 0; i < 2; i++) {
      ways[next[i]]++;
      if (!seen[next[i]]) queue[to++] = next[i];
      seen[next[i]] = 1;
    }
  }
  return to;
}

// The longest way down. A node may have several parents, but there must be no way round.
static bool measure(builder *b) {
  forest *f = b->f;
  size_t n = (size_t)f->n, from = 0, to = 0;
  int32_t *queue = ARENA_ARRAY(f->mem, int32_t, n), *ways = ARENA_ARRAY(f->mem, int32_t, n), *level = ARENA_ARRAY(f->mem, int32_t, n);
  uint8_t *seen = ARENA_ARRAY(f->mem, uint8_t, n);
  if (!queue || !ways || !level || !seen) return no(b, "out of memory for %d nodes", f->n);
  size_t all = reach(f, queue, ways, seen);
  for (int i = 0; i < f->roots; i++) {
    if (ways[f->root[i]] == 0 && seen[f->root[i]] == 1) queue[to++] = f->root[i];
    seen[f->root[i]] = 2;
  }
  for (; from < to; from++) {
    int at = queue[from], next[2] = {f->yes[at], f->no[at]};
    if (level[at] > f->depth) f->depth = level[at];
    if (f->mode[at] == MODE_LEAF) continue;
    for (int i = 0; i < 2; i++) {
      if (level[next[i]] <= level[at]) level[next[i]] = level[at] + 1;
      if (--ways[next[i]] == 0) queue[to++] = next[i];
    }
  }
  return to == all || no(b, "the nodes form a circle");
}

static bool set_feature(builder *b, size_t at, int64_t feature) {
  if (feature < 0 || feature >= 1 << 30) return no(b, "feature %lld", (long long)feature);
  b->f->feature[at] = (int32_t)feature;
  return true;
}

// ---- versions 1 to 4: nodes by tree and number ----------------------------------------------------------------------
typedef struct node_key {
  int64_t tree, number;
  int32_t at;
} node_key;

static int by_key(const void *x, const void *y) {
  const node_key *a = x, *b = y;
  if (a->tree != b->tree) return a->tree < b->tree ? -1 : 1;
  return a->number < b->number ? -1 : a->number > b->number;
}

static int32_t find(const node_key *keys, size_t n, int64_t tree, int64_t number) {
  node_key want = {tree, number, 0};
  const node_key *k = bsearch(&want, keys, n, sizeof want, by_key);
  return k ? k->at : -1;
}

static int mode_named(const char *name) {
  static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "", "LEAF"};
  for (int i = 0; i <= MODE_LEAF; i++)
    if (!strcmp(name, names[i])) return i;
  return MODE_MEMBER;
}

static node_key *sorted_keys(builder *b, const int64_t *trees, const int64_t *numbers_of, size_t n) {
  node_key *keys = ARENA_ARRAY(b->f->mem, node_key, n + 1);
  if (!keys) return no(b, "out of memory for %zu nodes", n), NULL;
  for (size_t i = 0; i < n; i++) keys[i] = (node_key){trees[i], numbers_of[i], (int32_t)i};
  qsort(keys, n, sizeof *keys, by_key);
  for (size_t i = 1; i < n; i++)
    if (!by_key(&keys[i - 1], &keys[i])) return no(b, "a node is there twice"), NULL;
  return keys;
}

static bool old_votes(builder *b, const node_key *keys, size_t nodes, bool classes) {
  size_t n = 0, n_weights = 0;
  attr_ints(b->n, classes ? "class_ids" : "target_ids", &n);
  const int64_t *ids = ints(b, classes ? "class_ids" : "target_ids", n);
  const int64_t *trees = ints(b, classes ? "class_treeids" : "target_treeids", n);
  const int64_t *at = ints(b, classes ? "class_nodeids" : "target_nodeids", n);
  const double *w = numbers(b, classes ? "class_weights" : "target_weights",
                            classes ? "class_weights_as_tensor" : "target_weights_as_tensor", &n_weights);
  if (!ids || !trees || !at || !w || n_weights != n) return no(b, "the lists of votes differ in size");
  for (size_t i = 0; i < n; i++) {
    int32_t leaf = find(keys, nodes, trees[i], at[i]);
    if (leaf < 0 || b->f->mode[leaf] != MODE_LEAF) return no(b, "a vote stands at no leaf");
    if (!vote(b, (size_t)leaf, ids[i], w[i])) return false;
  }
  return true;
}

static bool old_nodes(builder *b, const node_key *keys, const int64_t *trees, size_t n) {
  forest *f = b->f;
  size_t n_splits = 0, n_missing = 0;
  const int64_t *feature = ints(b, "nodes_featureids", n), *yes = ints(b, "nodes_truenodeids", n);
  const int64_t *other = ints(b, "nodes_falsenodeids", n), *missing = attr_ints(b->n, "nodes_missing_value_tracks_true", &n_missing);
  const double *split = numbers(b, "nodes_values", "nodes_values_as_tensor", &n_splits);
  const attr *modes = attr_get(b->n, "nodes_modes");
  if (!feature || !yes || !other || !split || n_splits != n || !modes || modes->kind != ATTR_STRINGS || modes->n != n)
    return no(b, "the lists of nodes differ in size");
  for (size_t i = 0; i < n; i++) {
    f->mode[i] = mode_named(modes->strings[i]);
    if (f->mode[i] == MODE_MEMBER) return no(b, "mode '%s'", modes->strings[i]);
    f->yes[i] = f->no[i] = (int32_t)i;
    if (i == 0 || trees[i] != trees[i - 1]) f->root[f->roots++] = (int32_t)i;
    if (f->mode[i] == MODE_LEAF) continue;
    if (!set_feature(b, i, feature[i])) return false;
    f->split[i] = split[i];
    f->missing[i] = i < n_missing && missing[i] == 1;
    f->yes[i] = find(keys, n, trees[i], yes[i]);
    f->no[i] = find(keys, n, trees[i], other[i]);
    if (f->yes[i] < 0 || f->no[i] < 0) return no(b, "a child is missing");
  }
  return true;
}

static bool old_forest(builder *b, bool classes) {
  size_t n = 0, labels = 0;
  attr_ints(b->n, "nodes_treeids", &n);
  attr_ints(b->n, "classlabels_int64s", &labels);
  int64_t targets = classes ? (int64_t)labels : attr_i(b->n, "n_targets", 0);
  const int64_t *trees = ints(b, "nodes_treeids", n), *number = ints(b, "nodes_nodeids", n);
  if (!trees || !number || !room(b, n, n, targets > 0 ? (size_t)targets : 0)) return false;
  const node_key *keys = sorted_keys(b, trees, number, n);
  return keys && old_nodes(b, keys, trees, n) && old_votes(b, keys, n, classes) && measure(b);
}

// ---- version 5: inner nodes and leaves apart ------------------------------------------------------------------------
typedef struct lists {
  size_t n, leaves, members, n_missing;
  const int64_t *feature, *yes, *no, *yes_leaf, *no_leaf, *missing, *target;
  const double *mode, *split, *weight, *member;
} lists;

static bool new_lists(builder *b, lists *l) {
  size_t splits = 0, weights = 0;
  l->mode = numbers(b, NULL, "nodes_modes", &l->n);
  l->split = numbers(b, NULL, "nodes_splits", &splits);
  l->weight = numbers(b, NULL, "leaf_weights", &weights);
  l->member = numbers(b, NULL, "membership_values", &l->members);
  l->missing = attr_ints(b->n, "nodes_missing_value_tracks_true", &l->n_missing);
  l->feature = ints(b, "nodes_featureids", l->n);
  l->yes = ints(b, "nodes_truenodeids", l->n);
  l->no = ints(b, "nodes_falsenodeids", l->n);
  l->yes_leaf = ints(b, "nodes_trueleafs", l->n);
  l->no_leaf = ints(b, "nodes_falseleafs", l->n);
  l->target = attr_ints(b->n, "leaf_targetids", &l->leaves);
  bool ok = l->mode && l->split && splits == l->n && l->feature && l->yes && l->no && l->yes_leaf && l->no_leaf && l->target;
  return (ok && l->weight && weights == l->leaves) || no(b, "the lists of nodes or of leaves differ in size");
}

// Nodes come first, then the leaves, then what sets of members add.
static int32_t child(const lists *l, int64_t at, bool leaf) {
  if (at < 0 || (size_t)at >= (leaf ? l->leaves : l->n)) return -1;
  return (int32_t)((size_t)at + (leaf ? l->n : 0));
}

// A set of k members is a chain of k nodes that compare with one each. Gives the place after the set, or 0.
static size_t chain(builder *b, const lists *l, size_t at, size_t from, int *spare) {
  forest *f = b->f;
  int32_t here = (int32_t)at, last = f->no[at];
  size_t i = from;
  for (; i < l->members && !isnan(l->member[i]); i++) {
    if (i > from) {
      int32_t next = (*spare)++;
      f->no[here] = next;
      f->feature[next] = f->feature[here];
      f->yes[next] = f->yes[here];
      f->missing[next] = f->missing[here];
      here = next;
    }
    f->mode[here] = MODE_EQ;
    f->split[here] = l->member[i];
    f->no[here] = last;
  }
  if (i == from) return no(b, "a node tests membership of an empty set"), (size_t)0;
  return i + 1;
}

static bool new_nodes(builder *b, const lists *l) {
  forest *f = b->f;
  size_t member = 0;
  int spare = (int)(l->n + l->leaves);
  for (size_t i = 0; i < l->n; i++) {
    if (!(l->mode[i] >= 0 && l->mode[i] <= MODE_MEMBER)) return no(b, "node %zu has no such child or mode", i);
    f->mode[i] = (int32_t)l->mode[i];
    f->split[i] = l->split[i];
    f->missing[i] = i < l->n_missing && l->missing[i] == 1;
    f->yes[i] = child(l, l->yes[i], l->yes_leaf[i] != 0);
    f->no[i] = child(l, l->no[i], l->no_leaf[i] != 0);
    if (f->yes[i] < 0 || f->no[i] < 0) return no(b, "node %zu has no such child or mode", i);
    if (!set_feature(b, i, l->feature[i])) return false;
    if (f->mode[i] == MODE_MEMBER && !(member = chain(b, l, i, member, &spare))) return false;
  }
  for (size_t i = 0; i < l->leaves; i++) {
    size_t at = l->n + i;
    f->mode[at] = MODE_LEAF;
    f->yes[at] = f->no[at] = (int32_t)at;
    if (!vote(b, at, l->target[i], l->weight[i])) return false;
  }
  for (int i = spare; i < f->n; i++) f->mode[i] = MODE_LEAF;
  return true;
}

static bool new_forest(builder *b) {
  lists l = {0};
  size_t roots = 0;
  const int64_t *root = attr_ints(b->n, "tree_roots", &roots);
  int64_t targets = attr_i(b->n, "n_targets", 0);
  if (!new_lists(b, &l)) return false;
  if (!room(b, l.n + l.leaves + l.members, roots, targets > 0 ? (size_t)targets : 0) || !new_nodes(b, &l)) return false;
  for (size_t i = 0; i < roots; i++) {
    if (root[i] < 0 || (size_t)root[i] >= l.n) return no(b, "root %lld is no node", (long long)root[i]);
    b->f->root[b->f->roots++] = (int32_t)root[i];
  }
  return measure(b);
}

forest *forest_new(const node *n, char *why, size_t size) {
  arena *mem = arena_new();
  forest *f = mem ? ARENA_NEW(mem, forest) : NULL;
  builder b = {.f = f, .n = n, .why = why, .why_size = size};
  if (!f) {
    arena_free(mem);
    no(&b, "out of memory for a forest");
    return NULL;
  }
  *f = (forest){.mem = mem, .one_vote_class = true, .positive = true, .vote_class = -1};
  bool whole = !strcmp(n->op_type, "TreeEnsemble");
  bool ok = whole ? new_forest(&b) : old_forest(&b, !strcmp(n->op_type, "TreeEnsembleClassifier"));
  if (ok && f->roots > 0) return f;
  if (ok) no(&b, "there are no trees");
  arena_free(mem);
  return NULL;
}

void forest_free(forest *f) {
  if (f) arena_free(f->mem);
}
