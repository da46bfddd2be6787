import numpy as np
from case import Family
from ml_dtypes import bfloat16
from onnx import numpy_helper

f = Family("fill")
rng = np.random.default_rng(5)
TYPES = [np.float32, np.float16, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_]
BIG = 2**62 + 1


def i64(*v):
    return np.array(v, np.int64)


def tensor(*v, t=np.float32):
    return numpy_helper.from_array(np.array(v, t))


# ConstantOfShape
for opset in (9, 20, 21, 23, 24, 25):
    f.case("ConstantOfShape", opset, [i64(2, 3)])
    f.case("ConstantOfShape", opset, [i64(2, 3)], attrs={"value": tensor(1.5)}, const=(0,))
for t in TYPES:
    f.case("ConstantOfShape", 21, [i64(3, 1)], attrs={"value": tensor(1, t=t)})
for shape in (i64(), i64(0), i64(4, 0, 2), i64(1), i64(70)):
    f.case("ConstantOfShape", 21, [shape], attrs={"value": tensor(BIG, t=np.int64)}, name="exact int64")
    f.case("ConstantOfShape", 21, [shape], attrs={"value": tensor(np.nan)})
f.case("ConstantOfShape", 21, [i64(2)], attrs={"value": numpy_helper.from_array(np.array([1.5], bfloat16))},
       want=[np.full(2, 1.5, bfloat16)], out_types=[bfloat16], name="bf16")
f.fails("ConstantOfShape", 21, [i64(2, -1)], why="negative")
f.fails("ConstantOfShape", 21, [i64(2**40)], why="32 bits")
f.fails("ConstantOfShape", 21, [i64(*[2**31 - 1] * 5)], why="more elements than memory")

# Range
for t in (np.int16, np.int32, np.int64, np.float32, np.float64):
    for start, stop, step in ((0, 5, 1), (1, 10, 3), (10, 1, -4), (3, 3, 1), (5, 1, 1), (1, 5, -1), (-3, 4, 2), (0, 1, 9)):
        f.case("Range", 11, [np.array(v, t) for v in (start, stop, step)])
    f.case("Range", 1, [np.array(v, t) for v in (2, 9, 2)], domain="com.microsoft", const=(0, 1, 2))
    f.case("Range", 1, [np.array(v, t) for v in (2, 9)], domain="com.microsoft")
f.case("Range", 11, [np.int64(0), np.int64(1000), np.int64(3)], const=(0, 1, 2))
f.case("Range", 11, [np.int64(BIG), np.int64(BIG + 4), np.int64(2)], want=[i64(BIG, BIG + 2)], name="exact int64")
f.case("Range", 11, [np.float32(0), np.float32(1), np.float32(0.1)])
for _ in range(12):  # limits that are a whole number of steps away, up to rounding
    start, step = np.float32(rng.integers(-30, 30) * 0.1), np.float32(rng.integers(1, 9) * 0.1)
    f.case("Range", 11, [start, np.float32(start + step * np.float32(rng.integers(1, 20))), step], name="rounding")
f.case("Range", 11, [np.float64(0), np.float64(1), np.float64(1e-3)])
f.case("Range", 11, [np.float32(1), np.float32(-1), np.float32(-0.25)], const=(2,))
f.case("Range", 1, [i64(1), i64(7), i64(2)], domain="com.microsoft", want=[i64(1, 3, 5)])
f.fails("Range", 11, [np.int64(0), np.int64(5), np.int64(0)], why="is no range")
f.fails("Range", 11, [np.float32(0), np.float32(5), np.float32(0)], why="is no range")
f.fails("Range", 11, [np.float32(0), np.float32(np.inf), np.float32(1)], why="is no range")
f.fails("Range", 11, [np.float32(0), np.float32(np.nan), np.float32(1)], why="is no range")
f.fails("Range", 11, [np.int64(-2**63), np.int64(2**62), np.int64(1)], why="is no range")
f.fails("Range", 11, [np.int64(0), np.int64(2**40), np.int64(1)], why="32 bits")

# EyeLike
for opset in (9, 22):
    f.case("EyeLike", opset, [np.ones((3, 4), np.float32)])
    f.case("EyeLike", opset, [np.ones((4, 3), np.float32)], attrs={"k": 1, "dtype": 7})
for k in (-9, -2, 0, 2, 9, 2**62, -2**63):
    f.case("EyeLike", 22, [np.ones((3, 4), np.int64)], attrs={"k": k}, want=[np.eye(3, 4, max(-9, min(9, k)), dtype=np.int64)])
NUMBERS = {np.float32: 1, np.uint8: 2, np.int8: 3, np.uint16: 4, np.int16: 5, np.int32: 6, np.int64: 7, np.bool_: 9, np.float16: 10,
           np.float64: 11, np.uint32: 12, np.uint64: 13}
for t, number in NUMBERS.items():
    f.case("EyeLike", 9, [np.ones((2, 2), np.float32)], attrs={"dtype": number}, want=[np.eye(2, dtype=t)])
    f.case("EyeLike", 9, [np.ones((2, 3), t)], want=[np.eye(2, 3, dtype=t)])
f.case("EyeLike", 22, [np.ones((2, 2), np.float32)], attrs={"dtype": 16}, want=[np.eye(2).astype(bfloat16)], name="bf16")
f.case("EyeLike", 9, [np.zeros((0, 3), np.float32)], want=[np.zeros((0, 3), np.float32)])
f.case("EyeLike", 9, [np.zeros((1, 1), np.float32)])

test_fill = f.pytest()
