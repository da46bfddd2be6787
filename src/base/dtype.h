// Element types: the values of ONNXTensorElementDataType, so that they cross every border unchanged. TensorProto.DataType
// has the same but for the last three.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
  DT_NONE = 0,
  DT_F32 = 1,
  DT_U8 = 2,
  DT_I8 = 3,
  DT_U16 = 4,
  DT_I16 = 5,
  DT_I32 = 6,
  DT_I64 = 7,
  DT_STRING = 8,
  DT_BOOL = 9,
  DT_F16 = 10,
  DT_F64 = 11,
  DT_U32 = 12,
  DT_U64 = 13,
  DT_C64 = 14,
  DT_C128 = 15,
  DT_BF16 = 16,
  DT_F8E4M3FN = 17,
  DT_F8E4M3FNUZ = 18,
  DT_F8E5M2 = 19,
  DT_F8E5M2FNUZ = 20,
  DT_U4 = 21,
  DT_I4 = 22,
  DT_F4E2M1 = 23,
  DT_U2 = 24,
  DT_I2 = 25,
  DT_F8E8M0 = 26,
  DT_COUNT
} dtype;

// Sets of types, one bit each.
typedef uint32_t dtypes;
#define DTYPE_BIT(t) (1u << (t))
enum {
  DTS_F16_BF16 = DTYPE_BIT(DT_F16) | DTYPE_BIT(DT_BF16),
  DTS_FLOAT = DTYPE_BIT(DT_F32) | DTYPE_BIT(DT_F16) | DTYPE_BIT(DT_BF16),  // the floats every device has
  DTS_FLOAT64 = DTS_FLOAT | DTYPE_BIT(DT_F64),                             // f64: CPU device only
  DTS_SIGNED = DTYPE_BIT(DT_I8) | DTYPE_BIT(DT_I16) | DTYPE_BIT(DT_I32) | DTYPE_BIT(DT_I64),
  DTS_UNSIGNED = DTYPE_BIT(DT_U8) | DTYPE_BIT(DT_U16) | DTYPE_BIT(DT_U32) | DTYPE_BIT(DT_U64),
  DTS_INT = DTS_SIGNED | DTS_UNSIGNED,
  DTS_NUMERIC = DTS_FLOAT64 | DTS_INT,
  DTS_BOOL = DTYPE_BIT(DT_BOOL),
  DTS_TENSOR = DTS_NUMERIC | DTS_BOOL,  // every type that MLX holds as it is (complex64 aside)
  // The narrow types, which MLX has not. In a program such an element is its code, one a byte: the value of an integer, the
  // bits of a float.
  DTS_NARROW_INT = DTYPE_BIT(DT_U4) | DTYPE_BIT(DT_I4) | DTYPE_BIT(DT_U2) | DTYPE_BIT(DT_I2),
  DTS_NARROW_FLOAT = DTYPE_BIT(DT_F8E4M3FN) | DTYPE_BIT(DT_F8E4M3FNUZ) | DTYPE_BIT(DT_F8E5M2) | DTYPE_BIT(DT_F8E5M2FNUZ) |
                     DTYPE_BIT(DT_F4E2M1) | DTYPE_BIT(DT_F8E8M0),
  DTS_NARROW = DTS_NARROW_INT | DTS_NARROW_FLOAT
};

static inline bool dtype_in(dtype t, dtypes set) { return t > DT_NONE && t < DT_COUNT && (set & DTYPE_BIT(t)) != 0; }
static inline bool dtype_is_float(dtype t) { return dtype_in(t, DTS_FLOAT64); }
static inline bool dtype_is_int(dtype t) { return dtype_in(t, DTS_INT); }

const char *dtype_name(dtype t);  // "float32", "int64", ... ; "undefined" for what is not a type
size_t dtype_size(dtype t);       // bytes of an element; 0 for strings and for types under a byte

double dtype_f16_value(uint16_t bits);
double dtype_bf16_value(uint16_t bits);

dtype dtype_code(dtype t);   // what codes of a narrow type are held in: int8 for int4 and int2, else uint8; any other t itself
size_t dtype_shared(dtype t);  // elements that share a byte on the host, the first in the lowest bits: 4, 2 or 1
// Codes from and to a host's bytes; n elements. Bits that no element has are zero.
void dtype_unpack(dtype t, const uint8_t *packed, uint8_t *codes, size_t n);
void dtype_pack(dtype t, const uint8_t *codes, uint8_t *packed, size_t n);
