import numpy as np
from case import Family
from ml_dtypes import bfloat16

f = Family("scatter")
rng = np.random.default_rng(4)
INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
TYPES = [np.float32, np.float16, np.float64, *INTS, np.bool_]
REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def data(shape, t=np.float32):
    return (rng.standard_normal(shape) * 5).astype(t) if np.dtype(t).kind != "b" else rng.random(shape) < 0.5


def i64(*v):
    return np.array(v, np.int64)


x = data((4, 5, 6))
bf = data((4, 3)).astype(bfloat16)
empty = np.zeros((0, 3), np.float32)


def places(n, shape, axis):
    """Indices without duplicates along the axis."""
    rows = np.stack([rng.permutation(n)[: shape[axis]] for _ in range(int(np.prod(shape)) // shape[axis])])
    others = [s for k, s in enumerate(shape) if k != axis]
    return np.moveaxis(rows.reshape(*others, shape[axis]), -1, axis) - n * (rng.random(shape) < 0.5)


def elements(base, index, updates, axis, fn):
    out = base.astype(np.float32)
    for at in np.ndindex(index.shape):
        to = list(at)
        to[axis] = index[at]
        out[tuple(to)] = fn(out[tuple(to)], np.float32(updates[at]))
    return [out.astype(base.dtype)]


def tuples(base, index, updates, fn):
    out = base.astype(np.float32)
    for at in np.ndindex(index.shape[:-1]):
        to = tuple(index[at])
        out[to] = fn(out[to], updates[at].astype(np.float32))
    return [out.astype(base.dtype)]


# ScatterElements, Scatter
for op, opset in (("Scatter", 9), ("ScatterElements", 11), ("ScatterElements", 13), ("ScatterElements", 16), ("ScatterElements", 18)):
    for axis, shape in ((0, (2, 5, 6)), (1, (4, 3, 6)), (-1, (3, 4, 4)), (2, (4, 5, 6)), (0, (1, 1, 1))):
        index = places(x.shape[axis], shape, axis if axis >= 0 else 2)
        f.case(op, opset, [x, index, data(shape)], attrs={"axis": axis})
    f.case(op, opset, [x, places(4, (2, 5, 6), 0).astype(np.int32), data((2, 5, 6))], const=(1,))
for t in TYPES:
    f.case("ScatterElements", 18, [data((3, 4), t), places(4, (3, 2), 1), data((3, 2), t)], attrs={"axis": 1})
for name, fn in REDUCTIONS.items():
    index = rng.integers(-3, 3, (5, 4))
    for t in (np.float32, np.float64, *INTS):
        f.case("ScatterElements", 18, [data((3, 4), t), index, data((5, 4), t)], attrs={"reduction": name}, name=name)
    for t in (np.float16, bfloat16):
        base, up = data((3, 4)).astype(t), data((5, 4)).astype(t)
        f.case("ScatterElements", 18, [base, index, up], attrs={"reduction": name}, want=elements(base, index, up, 0, fn), name=name)
    if name in ("add", "mul"):
        f.case("ScatterElements", 16, [data((3, 4)), index, data((5, 4))], attrs={"reduction": name}, name=name)
        f.case("ScatterElements", 18, [data((3, 4), np.bool_), index, data((5, 4), np.bool_)], attrs={"reduction": name}, name=name)
f.case("ScatterElements", 18, [np.zeros(2, np.float16), np.zeros(3000, np.int64), np.ones(3000, np.float16)], attrs={"reduction": "add"},
       want=[np.array([3000, 0], np.float16)], name="sums in float32")
f.case("ScatterElements", 18, [np.array([2**62 + 1, 5]), i64(1), i64(2**62 + 3)], name="exact int64")
f.case("ScatterElements", 18, [np.array([2**62 + 1, 5]), i64(0), i64(2)], attrs={"reduction": "add"}, name="exact int64")
f.case("ScatterElements", 18, [x, np.zeros((0, 5, 6), np.int64), np.zeros((0, 5, 6), np.float32)])
f.case("ScatterElements", 18, [empty, np.zeros((0, 3), np.int64), empty])
f.case("ScatterElements", 18, [data((5,)), i64(-1), np.float32([np.nan])], name="special values")
f.case("ScatterElements", 18, [bf, np.array([[1, 0, 3]]), bf[:1]], want=elements(bf, np.array([[1, 0, 3]]), bf[:1], 0, lambda a, b: b), name="bf16")
f.fails("ScatterElements", 18, [x, np.full((1, 1, 1), 4), data((1, 1, 1))], why="out of range")
f.fails("ScatterElements", 18, [x, np.full((1, 1, 1), -5), data((1, 1, 1))], const=(1,), why="out of range")
f.fails("ScatterElements", 18, [x, np.zeros((1, 6, 1), np.int64), data((1, 6, 1))], why="one shape that fits")
f.fails("ScatterElements", 18, [x, np.zeros((1, 2, 1), np.int64), data((1, 1, 1))], why="one shape that fits")
f.declines("ScatterElements", 18, [data((4,)), i64(0), data((1,))], attrs={"reduction": "mean"}, why="reduction 'mean'")

# ScatterND
for opset in (11, 13, 16, 18):
    f.case("ScatterND", opset, [x, np.array([[0], [-1]]), data((2, 5, 6))])
    f.case("ScatterND", opset, [x, np.array([[[0, 1]], [[3, -1]]]), data((2, 1, 6))], const=(1,))
    f.case("ScatterND", opset, [x, np.array([[0, 1, 2], [3, -5, -6]]), data((2,))])
for t in TYPES:
    f.case("ScatterND", 18, [data((3, 4), t), np.array([[2], [0]]), data((2, 4), t)])
for name, fn in REDUCTIONS.items():
    index = rng.integers(-3, 3, (6, 1))
    for t in (np.float32, np.float64, *INTS):
        f.case("ScatterND", 18, [data((3, 2), t), index, data((6, 2), t)], attrs={"reduction": name}, name=name)
    for t in (np.float16, bfloat16):
        base, up = data((3, 2)).astype(t), data((6, 2)).astype(t)
        f.case("ScatterND", 18, [base, index, up], attrs={"reduction": name}, want=tuples(base, index, up, fn), name=name)
    if name in ("add", "mul"):
        f.case("ScatterND", 16, [data((3, 2)), index, data((6, 2))], attrs={"reduction": name}, name=name)
        f.case("ScatterND", 18, [data((3, 2), np.bool_), index, data((6, 2), np.bool_)], attrs={"reduction": name}, name=name)
f.case("ScatterND", 18, [x, i64(1, 2), data((6,))])
f.case("ScatterND", 18, [x, np.zeros((0, 2), np.int64), np.zeros((0, 6), np.float32)])
f.case("ScatterND", 18, [np.zeros((3, 0), np.float32), np.array([[1]]), np.zeros((1, 0), np.float32)])
f.case("ScatterND", 18, [bf, np.array([[1]]), bf[:1]], want=tuples(bf, np.array([[1]]), bf[:1], lambda a, b: b), name="bf16")
f.fails("ScatterND", 18, [x, np.array([[0, 5]]), data((1, 6))], why="out of range")
f.fails("ScatterND", 18, [x, np.array([[-5]]), data((1, 5, 6))], why="out of range")
f.declines("ScatterND", 18, [data((4,)), np.array([[0]]), data((1,))], attrs={"reduction": "mean"}, why="reduction 'mean'")

# TensorScatter
cache, update = data((3, 2, 8, 4)), data((3, 2, 3, 4))
for at in (None, i64(0, 0, 0), i64(5, 5, 5), i64(1, 0, 5), i64(2, 2, 0)):
    f.case("TensorScatter", 24, [cache, update] + ([] if at is None else [at]))
for at in (i64(6, 6, 6), i64(7, 0, 5), i64(8, 17, 100)):
    f.case("TensorScatter", 24, [cache, update, at], attrs={"mode": "circular"})
    f.case("TensorScatter", 24, [cache, update, at], attrs={"mode": "circular", "axis": 2}, const=(2,))
f.case("TensorScatter", 24, [data((2, 6, 3)), data((2, 2, 3)), i64(1, 4)], attrs={"axis": 1})
f.case("TensorScatter", 24, [data((2, 6)), data((2, 6)), i64(0, 0)], attrs={"axis": -1})
f.case("TensorScatter", 24, [data((2, 6, 3)), np.zeros((2, 0, 3), np.float32), i64(1, 4)], ref="onnx")
for t in TYPES:
    base, up = data((2, 4, 3), t), data((2, 1, 3), t)
    want = base.copy()
    want[0, 1], want[1, 3] = up[0, 0], up[1, 0]
    f.case("TensorScatter", 24, [base, up, i64(1, 3)], want=[want])
half = np.stack([bf, bf])
want = half.copy()
want[:, 2] = half[:, 0]
f.case("TensorScatter", 24, [half, half[:, :1].copy(), i64(2, 2)], want=[want], name="bf16")
f.fails("TensorScatter", 24, [cache, update, i64(0, 6, 0)], why="out of range")
f.fails("TensorScatter", 24, [cache, update, i64(0, -1, 0)], why="out of range")

f.declines("TensorScatter", 24, [cache, update], attrs={"mode": "ring"}, why="mode 'ring'")

test_scatter = f.pytest()
