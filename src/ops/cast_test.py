"""Changes of element type, compared with numpy and, where it has a kernel, with ONNX Runtime."""
import math

import ml_dtypes
import numpy as np
from case import Family
from onnx import TensorProto, helper

f = Family("cast")
BF16 = ml_dtypes.bfloat16
INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]
ALL = INTS + FLOATS + [np.bool_]
WITH_BF16 = ALL + [BF16]
NAN, INF = np.nan, np.inf


def onnx_type(t):
    return helper.np_dtype_to_tensor_dtype(np.dtype(t))


def sample(t):
    if t is np.bool_:
        return np.array([True, False, True])
    if np.dtype(t).kind in "iu":
        info = np.iinfo(t)
        return np.array([0, 1, 100, info.min, info.max, info.max // 2 + 3], t)
    return np.array([0, -0.0, 1.75, -1.75, 100.5, -100.5, 0.0009765625]).astype(t)


def converted(x, t):
    with np.errstate(all="ignore"):
        kind = np.dtype(t).kind
        if np.dtype(x.dtype).name in ("float16", "bfloat16"):
            x = x.astype(np.float32)
        if x.dtype.kind == "f" and kind == "u":  # a negative number wraps
            return np.trunc(x.astype(np.float64)).astype(np.int64).astype(t)
        if x.dtype.kind in "iu" and t in (np.float16, BF16):
            return x.astype(np.float32).astype(t)
        return x.astype(t)


def everywhere(op, version, types):
    for a in types:
        for b in types:
            x = sample(a)
            want = [converted(x, b)]
            attrs = {"to": onnx_type(b)} if op == "Cast" else {}
            inputs = [x] if op == "Cast" else [x, np.zeros(1, b)]
            f.case(op, version, inputs, attrs=attrs, want=want, tol=(0, 0), name=f"to {np.dtype(b)}")


everywhere("Cast", 13, WITH_BF16)
everywhere("CastLike", 15, [np.float32, np.float16, BF16, np.float64, np.int64, np.uint8, np.bool_])
for version in (6, 9, 19, 21, 23, 24, 25):
    everywhere("Cast", version, [np.float32, np.int64, np.bool_] + [BF16] * (version > 9))
    if version > 15:
        everywhere("CastLike", version, [np.float32, np.int64])
for t in (np.float16, np.float32, np.float64, np.int64):
    to = {np.float16: "FLOAT16", np.float32: "FLOAT", np.float64: "DOUBLE", np.int64: "INT64"}[t]
    f.case("Cast", 1, [sample(np.int32)], attrs={"to": to}, want=[converted(sample(np.int32), t)], tol=(0, 0), out_types=[t],
           name=f"to {to}")

# Rounding between floats, to even; what is too large becomes infinite.
halves = np.array([2049, 2051, 65519, 65520, 1e-8, 6e-8, NAN, INF, -INF, 3e38], np.float32)
for t in (np.float16, BF16, np.float64):
    f.case("Cast", 13, [halves], attrs={"to": onnx_type(t)}, want=[converted(halves, t)], tol=(0, 0), name="rounding")
f.case("Cast", 13, [np.array([257, 259, 2049, 2051, 65520, 2**31 - 1], np.int32)], attrs={"to": TensorProto.FLOAT16}, name="integers")
f.case("Cast", 13, [np.array([257, 259, 2**24 + 1, 2**24 + 3], np.int32)], attrs={"to": TensorProto.BFLOAT16}, tol=(0, 0),
       want=[np.array([257, 259, 2**24 + 1, 2**24 + 3]).astype(np.float32).astype(BF16)], name="integers")
f.case("Cast", 13, [np.array([2**53 + 1, 2**24 + 1, -(2**63)], np.int64)], attrs={"to": TensorProto.FLOAT}, tol=(0, 0), name="integers")
f.case("Cast", 13, [np.array([2**53 + 1, 2**62 + 1])], attrs={"to": TensorProto.DOUBLE}, tol=(0, 0), name="integers")
f.case("Cast", 13, [np.array([2**64 - 1, 2**63], np.uint64)], attrs={"to": TensorProto.DOUBLE}, tol=(0, 0), name="unsigned")
# ONNX: everything but a zero is true.
for t in FLOATS + [BF16]:
    x = np.array([NAN, 0, -0.0, 0.1, INF, -INF, 6e-5]).astype(t)
    f.case("Cast", 13, [x], attrs={"to": TensorProto.BOOL}, want=[np.array([True, False, False, True, True, True, True])], name="truth")
f.case("Cast", 13, [np.array([300, -1, 128, 2**40 + 5, -(2**40)])], attrs={"to": TensorProto.INT8}, name="higher bits go")
f.case("Cast", 13, [np.array([300, -1, 128, 2**40 + 5, -(2**40)])], attrs={"to": TensorProto.UINT32}, name="higher bits go")
# Undefined in ONNX; on this processor as in ONNX Runtime: no trap, the same numbers.
wild = np.array([NAN, INF, -INF, 300, -300, 3e9, 1e19], np.float32)
for t in INTS:
    f.case("Cast", 13, [wild], attrs={"to": onnx_type(t)}, name=f"out of range to {np.dtype(t)}")

SHAPES = [(), (1,), (0,), (2, 0, 3), (2, 3, 4), (1,) * 10]


def shaped(shape):
    return np.asarray(np.arange(math.prod(shape)) * 0.75 - 2, np.float32).reshape(shape)


for shape in SHAPES:
    x = shaped(shape)
    f.case("Cast", 13, [x], attrs={"to": TensorProto.INT32}, name=f"{shape}")
    f.case("CastLike", 15, [x, np.zeros((2, 0), np.int64)], name=f"{shape}", want=[x.astype(np.int64)])
    f.case("BitCast", 26, [x], attrs={"to": TensorProto.INT32}, want=[x.view(np.int32)], name=f"{shape}")
    f.case("Identity", 16, [x], name=f"{shape}")

for version in (1, 13, 14, 16, 19, 21, 23, 24, 25):
    for t in ALL + [BF16] * (version >= 13):
        if version in (1, 13, 25) or t in (np.float32, np.int64):
            f.case("Identity", version, [sample(t)], want=[sample(t)], tol=(0, 0))
f.case("Identity", 13, [np.array([NAN, -0.0, INF], np.float32)], name="special values")

for width, types in ((1, [np.int8, np.uint8]), (2, [np.int16, np.uint16, np.float16, BF16]), (4, [np.int32, np.uint32, np.float32]),
                     (8, [np.int64, np.uint64, np.float64])):
    bits = np.random.default_rng(width).integers(0, 256, 12 * width).astype(np.uint8)
    for a in types:
        for b in types:
            x = bits.view(a).reshape(3, 4)
            f.case("BitCast", 26, [x], attrs={"to": onnx_type(b)}, want=[x.view(b)], tol=(0, 0), name=f"to {np.dtype(b)}")
f.case("BitCast", 26, [np.array([True, False])], attrs={"to": TensorProto.UINT8}, want=[np.array([1, 0], np.uint8)], name="bool")
f.case("BitCast", 26, [np.array([1, 0], np.uint8)], attrs={"to": TensorProto.BOOL}, want=[np.array([True, False])], name="to bool")

strings = {"attrs": {"to": TensorProto.STRING}}
f.declines("Cast", 13, [np.ones(2, np.float32)], why="string", **strings)

test_cast = f.pytest()
