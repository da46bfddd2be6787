import numpy as np
from case import Family
from ml_dtypes import bfloat16

f = Family("shape")
rng = np.random.default_rng(1)
TYPES = [np.float32, np.float16, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_]


def data(shape, t=np.float32):
    return (rng.standard_normal(shape) * 50).astype(t) if np.dtype(t).kind != "b" else rng.random(shape) < 0.5


def i64(*v):
    return np.array(v, np.int64)


x = data((2, 3, 4))
special = np.array([[np.nan, np.inf, -np.inf], [-0.0, 1e-40, 3.4e38]], np.float32)
big = np.array([[2**63 - 1, -2**63], [2**53 + 1, -1]], np.int64)
empty = np.zeros((0, 3, 2), np.float32)
bf = data((2, 3, 4)).astype(bfloat16)

# Shape, Size
for opset in (1, 13, 15, 19, 21, 23, 24, 25):
    f.case("Shape", opset, [x])
    f.case("Size", opset, [x])
for start, end in ((0, 2), (1, None), (-1, None), (-9, 9), (2, 1), (1, -1)):
    f.case("Shape", 15, [x], attrs={"start": start} | ({} if end is None else {"end": end}))
for t in TYPES:
    f.case("Shape", 21, [data((5, 1), t)])
    f.case("Size", 21, [data((5, 1), t)])
for a in (np.float32(3), empty, data((1,))):
    f.case("Shape", 21, [a])
    f.case("Size", 21, [a])

# Reshape
for opset in (5, 13, 14, 19, 21, 23, 24, 25):
    f.case("Reshape", opset, [x, i64(4, 6)])
    f.case("Reshape", opset, [x, i64(0, -1)], const=(1,))
f.case("Reshape", 1, [x], attrs={"shape": [3, 8]})
f.case("Reshape", 4, [x], attrs={"shape": [0, -1, 2]})
for t in TYPES:
    f.case("Reshape", 14, [data((2, 6), t), i64(3, -1)])
for shape in ((24,), (-1,), (2, -1, 2, 3), (0, 0, 0), (1, 2, 1, 3, 1, 4), (0, 0, 4, 1)):
    f.case("Reshape", 14, [x, i64(*shape)])
f.case("Reshape", 14, [data((1, 1)), i64()])
f.case("Reshape", 14, [np.float32(2), i64(1, -1)])
f.case("Reshape", 14, [empty, i64(0, 6)], name="zero copied")
f.case("Reshape", 14, [empty, i64(-1, 6)])
f.case("Reshape", 14, [empty, i64(5, 0, 7)], attrs={"allowzero": 1})
f.case("Reshape", 14, [x, i64(4, -1)], attrs={"allowzero": 1})
f.case("Reshape", 14, [bf, i64(-1)], want=[bf.reshape(-1)], name="bf16")
f.case("Reshape", 14, [special, i64(3, 2)], name="special values")
f.case("Reshape", 14, [i64(1, 2, 3, 4), i64(2, 2)], const=(0, 1), name="known data")
f.fails("Reshape", 14, [x, i64(5, -1)], why="do not fit")
f.fails("Reshape", 14, [x, i64(5, 5)], why="do not fit")
f.fails("Reshape", 14, [x, i64(-1, -1)], why="only one -1")
f.fails("Reshape", 14, [x, i64(-2, 12)], why="only one -1")
f.fails("Reshape", 14, [x, i64(2, 3, 4, 0)], why="copies a dim")
f.fails("Reshape", 14, [empty, i64(0, -1)], why="do not fit", name="nothing to infer from")
f.fails("Reshape", 14, [empty, i64(0, -1)], attrs={"allowzero": 1}, why="both -1 and 0")

# Flatten
for opset in (1, 9, 11, 13, 21, 23, 24, 25):
    f.case("Flatten", opset, [x])
for axis in range(-3, 4):
    f.case("Flatten", 13, [x], attrs={"axis": axis})
for a in (data((5,)), empty, data((0,))):
    f.case("Flatten", 13, [a])
f.case("Flatten", 13, [np.float32(7)], attrs={"axis": 0})
for t in TYPES:
    f.case("Flatten", 13, [data((2, 2, 3), t)], attrs={"axis": 2})
f.case("Flatten", 13, [bf], want=[bf.reshape(2, 12)], name="bf16")

# Transpose
for opset in (1, 13, 21, 23, 24, 25):
    f.case("Transpose", opset, [x])
    f.case("Transpose", opset, [x], attrs={"perm": [2, 0, 1]})
for t in TYPES:
    f.case("Transpose", 13, [data((3, 4), t)])
for a in (data((4,)), empty, np.float32(1), data((1, 5, 1, 2)), special, big):
    f.case("Transpose", 13, [a])
f.case("Transpose", 13, [bf], want=[bf.transpose(2, 1, 0)], name="bf16")

# Squeeze, Unsqueeze
ones = data((1, 3, 1, 4, 1))
for opset in (1, 11):
    f.case("Squeeze", opset, [ones], attrs={"axes": [0, 2]})
    f.case("Squeeze", opset, [ones])
    f.case("Unsqueeze", opset, [x], attrs={"axes": [0, 3]})
f.case("Squeeze", 11, [ones], attrs={"axes": [-1, 2]})
f.case("Unsqueeze", 11, [x], attrs={"axes": [-1, 1]})
for opset in (13, 21, 23, 24, 25):
    f.case("Squeeze", opset, [ones, i64(4, 0)])
    f.case("Unsqueeze", opset, [x, i64(4, 0)])
for axes in ((), (0,), (-1,), (-5, -3), (0, 2, 4)):
    f.case("Squeeze", 13, [ones, i64(*axes)], const=(1,))
f.case("Squeeze", 13, [ones])
f.case("Squeeze", 13, [ones, None])
f.case("Squeeze", 13, [data((1,))])
f.case("Squeeze", 13, [np.zeros((1, 0, 1), np.float32)])
f.case("Squeeze", 13, [x])
for axes in ((0,), (-1,), (0, 1), (-4, 1), (3, 0, 1)):
    f.case("Unsqueeze", 13, [x, i64(*axes)], const=(1,))
f.case("Unsqueeze", 13, [np.float32(3), i64(0, 1)])
f.case("Unsqueeze", 13, [np.int64(3), i64(0)], const=(0, 1), name="known data")
f.case("Squeeze", 13, [i64(3), i64(0)], const=(0, 1), name="known data")
f.case("Squeeze", 13, [np.array([[3]], np.int32)], const=(0,), name="known int32")
f.case("Unsqueeze", 13, [empty, i64(1)])
for t in TYPES:
    f.case("Squeeze", 13, [data((1, 4), t), i64(0)])
    f.case("Unsqueeze", 13, [data((4,), t), i64(1)])
f.case("Unsqueeze", 13, [bf, i64(0)], want=[bf[None]], name="bf16")
f.case("Squeeze", 13, [bf[:1], i64(0)], want=[bf[0]], name="bf16")
f.fails("Squeeze", 13, [ones, i64(1)], why="cannot be squeezed")
f.fails("Squeeze", 13, [ones, i64(5)], why="out of range")
f.fails("Unsqueeze", 13, [x, i64(1, 1)], why="named twice")
f.fails("Unsqueeze", 13, [x, i64(4)], why="out of range")
f.fails("Unsqueeze", 13, [x, i64(*range(8))], why="is above 10")

# Expand
for opset in (8, 13):
    f.case("Expand", opset, [data((3, 1)), i64(2, 1, 6)])
for t in TYPES:
    f.case("Expand", 13, [data((1, 3), t), i64(2, 1)])
for shape in ((), (1,), (4,), (3, 4), (2, 3, 1), (5, 1, 1, 4)):
    f.case("Expand", 13, [data((3, 4)), i64(*shape)], const=(1,))
f.case("Expand", 13, [np.float32(3), i64(2, 2)])
f.case("Expand", 13, [np.float32(3), i64()])
f.case("Expand", 13, [data((1, 3)), i64(0, 3)], name="to zero")
f.case("Expand", 13, [empty, i64(4, 1, 1, 1)])
f.case("Expand", 13, [bf[:1], i64(3, 1, 1)], want=[np.repeat(bf[:1], 3, 0)], name="bf16")
f.case("Expand", 13, [special[:, :1], i64(2, 3)], name="special values")
f.fails("Expand", 13, [data((3, 4)), i64(2, 4)], why="cannot be broadcast")
f.fails("Expand", 13, [data((1, 4)), i64(-1, 4)], why="negative")

# Tile
for opset in (6, 13):
    f.case("Tile", opset, [x, i64(2, 1, 3)])
for t in TYPES:
    f.case("Tile", 13, [data((2, 3), t), i64(2, 2)])
for reps in ((1, 1, 1), (3, 1, 1), (1, 1, 2), (0, 1, 2), (2, 2, 2)):
    f.case("Tile", 13, [x, i64(*reps)], const=(1,))
f.case("Tile", 13, [empty, i64(2, 2, 2)])
f.case("Tile", 13, [np.float32(3), i64()])
f.case("Tile", 13, [bf, i64(1, 2, 1)], want=[np.tile(bf, (1, 2, 1))], name="bf16")
f.case("Tile", 13, [big, i64(1, 2)], name="exact int64")
f.fails("Tile", 13, [x, i64(1, -2, 1)], why="out of range")

# DepthToSpace, SpaceToDepth
deep, wide = data((2, 8, 2, 3)), data((2, 3, 4, 6))
for opset in (1, 11, 13):
    f.case("DepthToSpace", opset, [deep], attrs={"blocksize": 2})
for opset in (1, 13):
    f.case("SpaceToDepth", opset, [wide], attrs={"blocksize": 2})
for mode in ("DCR", "CRD"):
    f.case("DepthToSpace", 13, [deep], attrs={"blocksize": 2, "mode": mode})
    f.case("DepthToSpace", 13, [data((1, 18, 1, 2))], attrs={"blocksize": 3, "mode": mode})
    f.case("DepthToSpace", 13, [deep], attrs={"blocksize": 1, "mode": mode})
for t in TYPES:
    f.case("DepthToSpace", 13, [data((1, 4, 2, 3), t)], attrs={"blocksize": 2}, ref="onnx")
    f.case("SpaceToDepth", 13, [data((1, 1, 2, 4), t)], attrs={"blocksize": 2}, ref="onnx")
f.case("DepthToSpace", 13, [np.zeros((0, 4, 2, 3), np.float32)], attrs={"blocksize": 2}, want=[np.zeros((0, 1, 4, 6), np.float32)])
f.case("SpaceToDepth", 13, [np.zeros((0, 1, 2, 4), np.float32)], attrs={"blocksize": 2}, want=[np.zeros((0, 4, 1, 2), np.float32)])
f.case("SpaceToDepth", 13, [wide[:, :, :3]], attrs={"blocksize": 3})
f.declines("DepthToSpace", 13, [deep], attrs={"blocksize": 2, "mode": "XYZ"}, why="mode 'XYZ'")
f.fails("DepthToSpace", 13, [data((1, 6, 2, 2))], attrs={"blocksize": 2}, why="multiple of 4")
f.fails("SpaceToDepth", 13, [data((1, 6, 2, 3))], attrs={"blocksize": 2}, why="multiples of 2")

test_shape = f.pytest()
