#include <string.h>

#include "ort/import.h"

static bool tensor_dims(const ort *o, arena *mem, const OrtTensorTypeAndShapeInfo *info, tensor *t, err *e) {
  size_t rank = 0;
  if (!ORT_CALL(o, e, GetDimensionsCount, info, &rank)) return false;
  int64_t *dims = rank <= INT16_MAX ? ARENA_ARRAY(mem, int64_t, rank) : NULL;
  if (!dims) return FAIL(e, ERR_NO_MEMORY, "out of memory for the shape of a tensor of rank %zu", rank);
  t->rank = (int)rank;
  t->dims = dims;
  return ORT_CALL(o, e, GetDimensions, info, dims, rank);
}

static bool tensor_shape(const ort *o, arena *mem, const OrtValue *v, tensor *t, err *e) {
  OrtTensorTypeAndShapeInfo *info = NULL;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  if (!ORT_CALL(o, e, GetTensorTypeAndShape, v, &info)) return false;
  bool ok = ORT_CALL(o, e, GetTensorElementType, info, &type) && tensor_dims(o, mem, info, t, e);
  o->api->ReleaseTensorTypeAndShapeInfo(info);
  t->type = (int)type < DT_COUNT ? (dtype)type : DT_NONE;
  return ok;
}

bool import_tensor(const ort *o, arena *mem, const OrtValue *v, tensor *t, err *e) {
  *t = (tensor){0};
  if (!tensor_shape(o, mem, v, t, e) || t->type == DT_STRING) return err_ok(e);
  ORT_CALL(o, e, GetTensorSizeInBytes, v, &t->bytes);
  ORT_CALL(o, e, GetTensorData, v, &t->data);
  size_t count = 0, want = 0, size = dtype_size(t->type);
  if (!dims_count(t->dims, t->rank, &count) || !size_mul(count, size, &want) || (size && want != t->bytes))
    return FAIL(e, ERR_HOST, "a tensor of %zu elements of type %s has %zu bytes", count, dtype_name(t->type), t->bytes);
  return err_ok(e);
}

// The bytes of an attribute and a NUL after them.
static void *read_attr(const ort *o, arena *mem, const OrtOpAttr *a, OrtOpAttrType type, size_t *bytes, err *e) {
  char none[8];
  size_t need = 0;
  err too_small = {0};  // how the runtime tells the size
  ORT_CALL(o, &too_small, ReadOpAttr, a, type, none, 0, &need);
  char *p = need < SIZE_MAX ? arena_alloc(mem, need + 1, 1) : NULL;
  if (!p) {
    FAIL(e, ERR_NO_MEMORY, "out of memory for an attribute of %zu bytes", need);
    return NULL;
  }
  ORT_CALL(o, e, ReadOpAttr, a, type, p, need, bytes);
  return p;
}

static bool read_strings(const ort *o, arena *mem, const OrtOpAttr *src, attr *a, err *e) {
  size_t bytes = 0;
  const char *p = read_attr(o, mem, src, ORT_OP_ATTR_STRINGS, &bytes, e);  // each ends with a NUL
  if (!p) return false;
  for (size_t i = 0; i < bytes; i++) a->n += p[i] == '\0';
  const char **list = ARENA_ARRAY(mem, const char *, a->n);
  if (!list) return FAIL(e, ERR_NO_MEMORY, "out of memory for attribute '%s'", a->name);
  for (size_t i = 0; i < a->n; i++, p += strlen(p) + 1) list[i] = p;
  a->strings = list;
  return err_ok(e);
}

static bool read_tensor(const ort *o, arena *mem, const OrtOpAttr *src, attr *a, err *e) {
  OrtValue *v = NULL;
  if (!ORT_CALL(o, e, OpAttr_GetTensorAttributeAsOrtValue, src, &v)) return false;
  tensor *t = ARENA_NEW(mem, tensor);
  bool ok = t && import_tensor(o, mem, v, t, e);
  if (ok && t->data) t->data = arena_copy(mem, t->data, t->bytes);
  ok = ok && (t->data || !t->bytes);
  o->api->ReleaseValue(v);
  a->t = t;
  return ok ? true : FAIL(e, ERR_NO_MEMORY, "out of memory for attribute '%s'", a->name);
}

// The list's bytes, and in a->n how many entries of that size.
static void *read_list(const ort *o, arena *mem, const OrtOpAttr *src, OrtOpAttrType type, size_t size, attr *a,
                       err *e) {
  size_t bytes = 0;
  void *p = read_attr(o, mem, src, type, &bytes, e);
  a->n = bytes / size;
  return p;
}

// Sets the value of an attribute whose kind is set.
static bool read_value(const ort *o, arena *mem, const OrtOpAttr *src, OrtOpAttrType type, attr *a, err *e) {
  size_t bytes = 0;
  switch (a->kind) {
    case ATTR_INT: return ORT_CALL(o, e, ReadOpAttr, src, type, &a->i, sizeof a->i, &bytes);
    case ATTR_FLOAT: return ORT_CALL(o, e, ReadOpAttr, src, type, &a->f, sizeof a->f, &bytes);
    case ATTR_STRING: a->s = read_attr(o, mem, src, type, &bytes, e); break;
    case ATTR_INTS: a->ints = read_list(o, mem, src, type, sizeof *a->ints, a, e); break;
    case ATTR_FLOATS: a->floats = read_list(o, mem, src, type, sizeof *a->floats, a, e); break;
    case ATTR_STRINGS: return read_strings(o, mem, src, a, e);
    case ATTR_TENSOR: return read_tensor(o, mem, src, a, e);
    case ATTR_GRAPH: break;  // import_attr sets it
  }
  return err_ok(e);
}

// An attribute of a kind that is not known here keeps kind 0, so that it is seen but not read.
static const attr_kind KINDS[] = {
    [ORT_OP_ATTR_INT] = ATTR_INT,       [ORT_OP_ATTR_INTS] = ATTR_INTS,     [ORT_OP_ATTR_FLOAT] = ATTR_FLOAT,
    [ORT_OP_ATTR_FLOATS] = ATTR_FLOATS, [ORT_OP_ATTR_STRING] = ATTR_STRING, [ORT_OP_ATTR_STRINGS] = ATTR_STRINGS,
    [ORT_OP_ATTR_GRAPH] = ATTR_GRAPH,   [ORT_OP_ATTR_TENSOR] = ATTR_TENSOR};

static graph *body_named(const node_bodies *b, const char *name) {
  for (size_t i = 0; i < b->n; i++)
    if (!strcmp(b->names[i], name)) return b->graphs[i];
  return NULL;
}

static bool import_attr(const ort *o, arena *mem, const OrtOpAttr *src, const node_bodies *b, attr *a, err *e) {
  const char *name = NULL;
  OrtOpAttrType type = ORT_OP_ATTR_UNDEFINED;
  err unknown = {0};
  if (!ORT_CALL(o, e, OpAttr_GetName, src, &name)) return false;
  a->name = arena_str(mem, name ? name : "");
  if (!a->name) return FAIL(e, ERR_NO_MEMORY, "out of memory for attribute '%s'", name ? name : "");
  ORT_CALL(o, &unknown, OpAttr_GetType, src, &type);
  if ((size_t)type < sizeof KINDS / sizeof KINDS[0]) a->kind = KINDS[type];
  if (a->kind == ATTR_GRAPH) a->g = body_named(b, a->name);
  return read_value(o, mem, src, type, a, e) || err_add(e, "attribute '%s': ", a->name);
}

bool import_attrs(const ort *o, arena *mem, const OrtNode *src, const node_bodies *b, node *n, err *e) {
  size_t count = 0;
  if (!ORT_CALL(o, e, Node_GetNumAttributes, src, &count)) return false;
  const OrtOpAttr **list = ARENA_ARRAY(mem, const OrtOpAttr *, count);
  attr *attrs = ARENA_ARRAY(mem, attr, count);
  if (!list || !attrs) return FAIL(e, ERR_NO_MEMORY, "out of memory for %zu attributes", count);
  if (count && !ORT_CALL(o, e, Node_GetAttributes, src, list, count)) return false;
  for (size_t i = 0; i < count; i++)
    if (!import_attr(o, mem, list[i], b, &attrs[i], e)) return false;
  n->attrs = attrs;
  n->n_attrs = count;
  return true;
}
