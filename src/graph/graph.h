// A graph of ONNX nodes, without the host that it came from. Invariants:
// - Everything lives in the graph's arena; names are unique strings of it. A body lives in the arena of its main graph,
//   and a value that it takes from the graph around it is a value of its own that points there.
// - nodes is in topological order. An absent optional input or output is NULL.
// - A dim of -1 is unknown until a run; rank -1 means that not even the rank is known.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"
#include "base/mem.h"

enum { GRAPH_MAX_RANK = 10 };

typedef struct tensor {
  dtype type;
  int rank;
  const int64_t *dims;
  const void *data;  // row-major; NULL for a constant of a built program that lives on the device only
  size_t bytes;
} tensor;

struct node;
struct graph;

typedef struct value {
  const char *name;
  dtype type;  // DT_NONE when it is no tensor or not known
  int rank;    // -1 unknown
  int64_t dims[GRAPH_MAX_RANK];
  const tensor *constant;  // NULL unless its data is fixed
  struct node *producer;   // NULL for inputs, constants and captured values
  struct value *outer;     // of a body's captured value: what it stands for in the parent graph, where it is fixed or
                           // computed; NULL for every other value
  bool is_output;          // of the graph that holds it
  bool is_input;
  uint32_t consumers;      // uses by nodes of this graph, captures included
  size_t id;               // index in graph.values
} value;

typedef enum { ATTR_INT = 1, ATTR_FLOAT, ATTR_STRING, ATTR_INTS, ATTR_FLOATS, ATTR_STRINGS, ATTR_TENSOR, ATTR_GRAPH } attr_kind;

typedef struct attr {
  const char *name;
  attr_kind kind;
  size_t n;  // entries of a list
  union {
    int64_t i;
    float f;
    const char *s;
    const int64_t *ints;
    const float *floats;
    const char *const *strings;
    const tensor *t;
    struct graph *g;
  };
} attr;

typedef struct node {
  const char *name, *domain, *op_type;  // domain "" is ai.onnx
  int since;                            // the schema version that applies
  value **in, **out;
  size_t n_in, n_out;
  const attr *attrs;
  size_t n_attrs;
  value **captures;  // outer values that its bodies read
  size_t n_captures;
  size_t index;      // in graph.nodes
  const void *host;  // the importer's own handle; not used below the host layer
} node;

typedef struct graph {
  arena *mem;
  arena *loose;  // of a main graph: data of constants that rewrites made, needed until a program is built; or NULL
  const char *name;
  node *nodes;
  size_t n_nodes;
  value **values;
  size_t n_values, cap_values;
  value **inputs, **outputs;  // formal ones, in order
  size_t n_inputs, n_outputs;
  struct graph *parent;  // NULL for a main graph
  bool no_captures;      // the host gives a group of this graph no computed values that only bodies read
} graph;

graph *graph_new(err *e);   // with an arena of its own
graph *graph_body(graph *parent, err *e);  // in its parent's arena
void graph_let_go(graph *g);  // of the data in loose; constants that point there lose it. A body's goes with its main graph
void graph_free(graph *g);  // NULL is fine; bodies go with their main graph, and freeing one alone does nothing

// Building, for importers and tests. All return NULL (or false) with an error when out of memory.
value *graph_value(graph *g, const char *name, dtype type, int rank, const int64_t *dims, err *e);
value *graph_find(const graph *g, const char *name);  // NULL if there is none
int graph_input_of(const graph *g, const value *v);  // the place of g's input that v is or, in a body, stands for; -1: it is none
bool graph_set_nodes(graph *g, size_t n, err *e);     // room for n nodes, zeroed; fill nodes[i] then graph_link
bool graph_link(graph *g, err *e);                    // producers, consumer counts, indices; checks that order is topological
