import numpy as np
from case import Family
from ml_dtypes import bfloat16

f = Family("slice")
rng = np.random.default_rng(2)
TYPES = [np.float32, np.float16, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_]
FAR = 2**63 - 1


def data(shape, t=np.float32):
    return (rng.standard_normal(shape) * 50).astype(t) if np.dtype(t).kind != "b" else rng.random(shape) < 0.5


def i64(*v):
    return np.array(v, np.int64)


def i32(*v):
    return np.array(v, np.int32)


x = data((4, 5, 6))
v7 = data((7,))
empty = np.zeros((0, 3), np.float32)
bf = data((4, 5)).astype(bfloat16)
special = np.array([[np.nan, np.inf, -np.inf], [-0.0, 1e-40, 3.4e38]], np.float32)
big = np.array([[2**63 - 1, -2**63, 1], [2**53 + 1, -1, 0]], np.int64)

# Slice
f.case("Slice", 1, [x], attrs={"starts": [1, 2], "ends": [3, 5]})
f.case("Slice", 1, [x], attrs={"starts": [-2, 0], "ends": [2**31 - 1, -1], "axes": [2, 0]})
f.case("Slice", 9, [x], attrs={"starts": [9], "ends": [10], "axes": [1]})
f.case("Slice", 9, [data((4, 5), np.int64)], attrs={"starts": [1], "ends": [-1], "axes": [-1]})
for opset in (10, 11, 13):
    f.case("Slice", opset, [x, i64(1, 0), i64(3, 4)])
    f.case("Slice", opset, [x, i64(1, 0), i64(3, 4), i64(2, 0)])
    f.case("Slice", opset, [x, i64(3, 5), i64(0, 0), i64(0, 2), i64(-1, -2)])
for t in TYPES:
    f.case("Slice", 13, [data((4, 5), t), i32(1), i32(4), i32(1), i32(2)])
    f.case("Slice", 13, [data((4, 5), t), i64(-1), i64(-FAR), i64(1), i64(-2)])
SPANS = [(0, FAR, 1), (FAR, 0, -1), (FAR, -FAR - 1, -1), (-FAR - 1, FAR, 2), (-1, -8, -1), (6, -8, -3), (2, 2, 1), (5, 2, 1),
         (2, 5, -1), (-3, -1, 1), (3, FAR, FAR), (3, -FAR, -FAR - 1), (4, FAR, -1), (6, 2**31 - 1, -2), (4, 2**31, -1), (-9, -99, -1), (-9, FAR, -2), (6, 0, -6), (6, -99, -6), (7, 9, 1), (-9, 1, 1), (1, 6, 4)]
for start, end, step in SPANS:
    f.case("Slice", 13, [v7, i64(start), i64(end), i64(0), i64(step)], name=f"{start}:{end}:{step}")
    f.case("Slice", 13, [i64(*range(7)), i64(start), i64(end), i64(0), i64(step)], const=(0,), name=f"known {start}:{end}:{step}")
f.case("Slice", 13, [x, i64(1), i64(3), i64(-2)], const=(1, 2, 3))
f.case("Slice", 13, [x, i64(1, 1, 1), i64(3, -1, 9), None, i64(1, 2, 3)], want=[x[1:3, 1:-1:2, 1:9:3]])
f.case("Slice", 13, [empty, i64(0), i64(5), i64(0)])
f.case("Slice", 13, [empty, i64(2), i64(0), i64(1), i64(-1)])
f.case("Slice", 13, [empty, i64(9), i64(-9), i64(0), i64(-1)])
f.case("Slice", 13, [data((1, 1)), i64(-1, 0), i64(-2, 1), i64(0, 1), i64(-1, 1)])
f.case("Slice", 13, [bf, i64(1), i64(3), i64(1)], want=[bf[:, 1:3]], name="bf16")
f.case("Slice", 13, [special, i64(2), i64(-9), i64(1), i64(-1)], name="special values")
f.fails("Slice", 13, [x, i64(1), i64(3), i64(3)], why="out of range")
f.fails("Slice", 13, [x, i64(1), i64(3), i64(0), i64(0)], why="step of axis 0 is 0")
f.fails("Slice", 13, [x, i64(1, 1), i64(3, 3), i64(1, -2)], why="named twice")
f.fails("Slice", 13, [x, i64(1, 1), i64(3)], why="one length")

# Split
f.case("Split", 1, [x], outs=2, attrs={"axis": 0, "split": [1, 3]}, want=[x[:1], x[1:]])
for opset in (2, 11):
    f.case("Split", opset, [x], outs=2)
    f.case("Split", opset, [x], outs=3, attrs={"axis": 2, "split": [1, 3, 2]})
f.case("Split", 11, [x], outs=2, attrs={"axis": -3})
for opset in (13, 18):
    f.case("Split", opset, [x, i64(1, 0, 4)], outs=3, attrs={"axis": 1})
    f.case("Split", opset, [x, i64(4, 2)], outs=2, attrs={"axis": -1}, const=(1,))
f.case("Split", 13, [x], outs=3, attrs={"axis": 2})
for t in TYPES:
    f.case("Split", 13, [data((6, 2), t)], outs=2)
f.case("Split", 18, [x], outs=2, attrs={"axis": 2, "num_outputs": 2})
f.case("Split", 18, [x], outs=3, attrs={"axis": 1, "num_outputs": 3}, name="uneven")
f.case("Split", 18, [v7], outs=4, attrs={"num_outputs": 4}, name="uneven")
f.case("Split", 18, [v7], outs=1, attrs={"num_outputs": 1})
f.case("Split", 18, [data((12, 2))], outs=12, attrs={"num_outputs": 12}, name="many")
f.case("Split", 18, [empty, i64(0, 0)], outs=2)
f.case("Split", 18, [empty, i64(1, 2)], outs=2, attrs={"axis": 1})
f.case("Split", 18, [bf], outs=2, attrs={"num_outputs": 2}, want=[bf[:2], bf[2:]], name="bf16")
f.fails("Split", 13, [x, i64(1, 1, 1)], outs=3, attrs={"axis": 1}, why="do not give 3 parts")
f.fails("Split", 13, [x, i64(-1, 6)], outs=2, attrs={"axis": 1}, why="do not give 2 parts")
f.fails("Split", 13, [x, i64(6, -1)], outs=2, attrs={"axis": 1}, why="do not give 2 parts")
f.declines("Split", 1, [x, np.array([1, 3], np.float32)], outs=2, attrs={"axis": 0}, why="as floats")

# Concat
a, b = data((2, 3)), data((2, 1))
f.case("Concat", 1, [a, b], want=[np.concatenate([a, b], 1)])
for opset in (4, 11, 13):
    f.case("Concat", opset, [a, b, a], attrs={"axis": 1})
f.case("Concat", 13, [a, data((5, 3))], attrs={"axis": -2})
f.case("Concat", 13, [a], attrs={"axis": 0})
f.case("Concat", 13, [a, empty, a], attrs={"axis": 0})
f.case("Concat", 13, [empty, empty], attrs={"axis": 0})
f.case("Concat", 13, [i64(1, 2), i64(3), i64()], attrs={"axis": 0}, const=(0, 1, 2), name="known data")
f.case("Concat", 13, [i64(*range(40)), i64(*range(40))], attrs={"axis": 0}, const=(0, 1), name="too long to be known")
f.case("Concat", 13, [i32(1, 2), i32(3)], attrs={"axis": 0}, const=(0, 1), name="known int32")
f.case("Concat", 13, [data((1, 2))] * 40, attrs={"axis": 0}, name="many")
for t in TYPES:
    f.case("Concat", 13, [data((2, 3), t), data((2, 2), t)], attrs={"axis": 1})
f.case("Concat", 13, [bf, bf], attrs={"axis": 1}, want=[np.concatenate([bf, bf], 1)], name="bf16")
f.case("Concat", 13, [special, special], attrs={"axis": 0}, name="special values")

# Pad
f.case("Pad", 1, [a], attrs={"paddings": [0, 2, 1, 0], "value": 1.5}, want=[np.pad(a, ((0, 1), (2, 0)), constant_values=1.5)])
f.case("Pad", 2, [a], attrs={"pads": [0, 2, 1, 0], "value": 1.5})
f.case("Pad", 10, [x], attrs={"pads": [1, 2, 0, 0, 1, 3], "mode": "reflect"})
f.case("Pad", 2, [x], attrs={"pads": [1, 2, 0, 0, 1, 3], "mode": "edge"})
f.case("Pad", 2, [x], attrs={"pads": [1, -2, 0, 0, 1, -3]})
for opset in (11, 13, 18, 19, 21, 23, 24, 25):
    for mode in ("constant", "reflect", "edge") + (("wrap",) if opset >= 19 else ()):
        f.case("Pad", opset, [x, i64(1, 2, 0, 0, 1, 3)], attrs={"mode": mode}, name=mode)
    f.case("Pad", opset, [x, i64(1, 2, 0, 0, 1, 3), np.float32(-7)], const=(1, 2))
for t in TYPES:
    f.case("Pad", 19, [data((2, 3), t), i64(1, 0, 0, 2)], ref="onnx")
    for mode in ("edge", "reflect", "wrap"):
        f.case("Pad", 19, [data((2, 3), t), i64(1, 0, 0, 2)], attrs={"mode": mode}, ref="onnx", name=mode)
f.case("Pad", 18, [big, i64(0, 1, 0, 0), np.int64(2**62 + 1)], name="exact value")
f.case("Pad", 18, [x, i64(1, 3), None, i64(-1)])
f.case("Pad", 18, [x, i64(1, 2, 3, 4), np.float32(2), i32(2, 0)])
f.case("Pad", 18, [x, i64(1, 2, -3, 4), np.float32(2), i32(2, 0)], attrs={"mode": "edge"})
for mode in ("constant", "edge", "reflect", "wrap"):
    f.case("Pad", 19, [a, i64(0, -1, 0, 1)], attrs={"mode": mode}, name=f"cut and {mode}")
    f.case("Pad", 19, [a, i64(0, -1, -1, -1)], attrs={"mode": mode}, name=f"cut, {mode}")
    f.case("Pad", 19, [a, i64(0, 0, 0, 0)], attrs={"mode": mode}, name=f"nothing, {mode}")
f.case("Pad", 18, [a, i64(0, -4, 0, 2)], name="more cut than there is")
f.case("Pad", 18, [a, i64(0, -3, 0, 0)], name="all cut")
f.case("Pad", 19, [a, i64(1, 5, 7, 4)], attrs={"mode": "wrap"}, name="many turns")
f.case("Pad", 18, [a, i64(1, 9, 0, 6)], attrs={"mode": "reflect"}, want=[np.pad(a, ((1, 0), (9, 6)), mode="reflect")], name="many reflections")
f.case("Pad", 18, [b, i64(0, 2, 0, 1)], attrs={"mode": "reflect"}, want=[np.pad(b, ((0, 0), (2, 1)), mode="reflect")], name="one element")
f.case("Pad", 18, [empty, i64(1, 0, 1, 0), np.float32(4)])
f.case("Pad", 18, [empty, i64(0, 1, 0, 0)])
f.case("Pad", 18, [np.float32(3), i64()], want=[np.float32(3)])
f.case("Pad", 18, [bf, i64(0, 1, 0, 0)], want=[np.pad(bf, ((0, 0), (1, 0)))], name="bf16")
f.case("Pad", 18, [bf, i64(0, 1, 0, 0)], attrs={"mode": "edge"}, want=[np.pad(bf, ((0, 0), (1, 0)), mode="edge")], name="bf16")
f.case("Pad", 18, [special, i64(0, 1, 1, 1), np.float32(np.nan)], name="special values")
f.case("Pad", 1, [a, i64(0, 1, 1, 0), np.array([2.5], np.float32)], domain="com.microsoft")
f.case("Pad", 1, [a, i64(0, 1, 1, 0).reshape(1, 4)], domain="com.microsoft", attrs={"mode": "edge"})
f.fails("Pad", 18, [empty, i64(1, 0, 1, 0)], attrs={"mode": "edge"}, why="is empty")
f.fails("Pad", 18, [a, i64(0, -4, 0, 0)], why="negative")
f.fails("Pad", 18, [a, i64(0, 1, 0)], why="3 entries for 2 axes")
f.fails("Pad", 18, [a, i64(0, 1), None, i64(2)], why="out of range")
f.declines("Pad", 18, [a, i64(0, 1, 0, 0)], attrs={"mode": "symmetric"}, why="mode 'symmetric'")

# Trilu
square, batch = data((4, 4)), data((2, 3, 5))
for upper in (0, 1):
    f.case("Trilu", 14, [square], attrs={"upper": upper})
    for k in (0, 1, -1, 4, -4, 9, -9, FAR, -FAR - 1):
        f.case("Trilu", 14, [batch, np.int64(k)], attrs={"upper": upper}, const=(1,), want=[(np.triu if upper else np.tril)(batch, max(-99, min(99, k)))])
    for t in TYPES:
        f.case("Trilu", 14, [data((3, 4), t), np.int64(1)], attrs={"upper": upper}, ref="onnx")
f.case("Trilu", 14, [square])
f.case("Trilu", 14, [data((3, 1))])
f.case("Trilu", 14, [data((3, 0))], want=[np.zeros((3, 0), np.float32)])
f.case("Trilu", 14, [batch, i64(1).reshape(())])
f.case("Trilu", 14, [bf], want=[np.triu(bf.astype(np.float32)).astype(bfloat16)], name="bf16")
f.case("Trilu", 14, [special], name="special values")
f.case("Trilu", 1, [square, np.int64(-1)], domain="com.microsoft", attrs={"upper": 0})

# CenterCropPad
c = data((5, 8, 3))
for shape in ((5, 8, 3), (3, 9, 3), (4, 4, 6), (10, 1, 2), (2, 11, 7)):
    f.case("CenterCropPad", 18, [c, i64(*shape)], ref="onnx")
    f.case("CenterCropPad", 18, [c, i32(*shape)], const=(1,), ref="onnx")
f.case("CenterCropPad", 18, [c, i64(9, 2)], attrs={"axes": [-1, 1]}, ref="onnx")
f.case("CenterCropPad", 18, [c, i64(4)], attrs={"axes": [0]}, ref="onnx")
f.case("CenterCropPad", 18, [c, i64(0, 8, 9)], want=[np.zeros((0, 8, 9), np.float32)])
f.case("CenterCropPad", 18, [empty, i64(2, 3)], want=[np.zeros((2, 3), np.float32)])
for t in TYPES:
    f.case("CenterCropPad", 18, [data((3, 5), t), i64(4, 3)], ref="onnx")
f.case("CenterCropPad", 18, [bf, i64(2, 7)], want=[np.pad(bf[1:3], ((0, 0), (1, 1)))], name="bf16")
f.fails("CenterCropPad", 18, [c, i64(5, 8)], why="2 entries for 3 axes")
f.fails("CenterCropPad", 18, [c, i64(5, 8, -1)], why="negative")

test_slice = f.pytest()
