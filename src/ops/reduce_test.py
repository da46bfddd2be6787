import ml_dtypes
import numpy as np
from case import Family

f = Family("reduce")
rng = np.random.default_rng(1)
F32, F16, F64, BF16 = np.float32, np.float16, np.float64, ml_dtypes.bfloat16
INTS = (np.int32, np.int64, np.uint32, np.uint64)  # of every reduction; maxima and minima also take 8 bits
INTS_EXTREMES = INTS + (np.int8, np.uint8)
INTS_ARG = INTS_EXTREMES + (np.int16, np.uint16)
EXTREMES = ("ReduceMax", "ReduceMin")
REDUCE = ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
          "ReduceLogSumExp") + EXTREMES
TOL = {F32: (1e-5, 1e-5), F16: (2e-3, 2e-3), BF16: (2e-2, 2e-2), F64: (1e-13, 1e-13)}


def data(shape, dtype, positive=False):
    if np.issubdtype(dtype, np.integer):
        return rng.integers(1 if positive or np.issubdtype(dtype, np.unsignedinteger) else -4, 5, shape).astype(dtype)
    size = rng.uniform(0.25, 2, shape)
    return (size if positive else size * rng.choice([-1, 1], shape)).astype(dtype)


def by_numpy(op, x, axes, keepdims):
    """ONNX's definition: sums of integers wrap in their type, roots and logarithms are truncated into it."""
    t, axes = x.dtype, tuple(axes)
    exact = x if t.kind in "iu" else x.astype(F64)
    kw = {"axis": axes, "keepdims": keepdims}
    if op in EXTREMES:
        return getattr(exact, op[6:].lower())(**kw).astype(t)
    if op == "ReduceMean":
        count = np.prod([x.shape[a] for a in axes], dtype=np.int64)
        total = exact.sum(**kw).astype(t if t.kind in "iu" else F64)
        return (np.trunc(total / F64(count)) if t.kind in "iu" else total / count).astype(t)
    if op == "ReduceProd":
        return exact.prod(**kw).astype(t)
    if op == "ReduceLogSumExp":
        top = exact.max(axis=axes, keepdims=True).astype(F64)
        y = np.log(np.exp(exact - top).sum(axis=axes, keepdims=True)) + top
        return (y if keepdims else y.squeeze(axes)).astype(t)
    pre = {"ReduceL1": np.abs, "ReduceL2": np.square, "ReduceSumSquare": np.square}.get(op, lambda v: v)
    post = {"ReduceL2": np.sqrt, "ReduceLogSum": np.log}.get(op, lambda v: v)
    return post(pre(exact).sum(**kw).astype(t if t.kind in "iu" else F64)).astype(t)


def newest(op):
    return 20 if op in EXTREMES else 18


for op in REDUCE:
    tol, positive = TOL[F32], op == "ReduceLogSum"
    x = data((2, 3, 4, 5), F32, positive)
    # The forms of the axes: none, attribute, constant input, run-time input.
    f.case(op, 1, [x], attrs={"axes": [0, 2]}, tol=tol)
    f.case(op, 11, [x], attrs={"axes": [-1], "keepdims": 0}, tol=tol)
    f.case(op, 12, [x], tol=tol)
    if op != "ReduceSum":
        f.case(op, 13, [x], attrs={"axes": [1]}, tol=tol)
    for opset in (13, 18) if op == "ReduceSum" else (18, 20):
        f.case(op, opset, [x, np.array([-2, 0])], const=(1,), tol=tol)
        f.case(op, opset, [x, np.array([3])], attrs={"keepdims": 0}, tol=tol, name="axes at run time")
    f.case(op, newest(op), [x], attrs={"keepdims": 0}, tol=tol)
    f.case(op, newest(op), [x, np.zeros(0, np.int64)], const=(1,), tol=tol, name="no axes: all")
    f.case(op, newest(op), [x], attrs={"noop_with_empty_axes": 1}, tol=tol, name="no axes: none")
    f.case(op, newest(op), [x, np.zeros(0, np.int64)], attrs={"noop_with_empty_axes": 1}, tol=tol)
    f.case(op, newest(op), [np.array(1.5, F32)], tol=tol, name="scalar")
    f.case(op, newest(op), [data((1, 1, 3), F32), np.array([0, 1])], const=(1,), tol=tol, name="size 1")
    # Nothing to reduce, and reductions of nothing.
    f.case(op, newest(op), [np.zeros((2, 0, 3), F32), np.array([0])], const=(1,))
    f.case(op, newest(op), [np.zeros((2, 0, 3), F32), np.array([1])], const=(1,), attrs={"keepdims": 0})
    f.case(op, newest(op), [np.zeros((0,), F32)])
    # Every other type, against the definition.
    for i, dtype in enumerate((F16, BF16, F64) + (INTS_EXTREMES if op in EXTREMES else INTS)):
        v = data((3, 4, 2), dtype, positive)
        axes, keep = ((1,), 1) if i % 2 else ((0, 2), 0)
        f.case(op, newest(op), [v, np.array(axes)], const=(1,), attrs={"keepdims": keep}, tol=TOL.get(dtype),
               want=[by_numpy(op, v, axes, bool(keep))], out_types=[dtype], name=np.dtype(dtype).name)
    f.fails(op, newest(op), [x, np.array([4])], why="out of range")
    f.fails(op, newest(op), [x, np.array([1, -3])], why="named twice")

# Booleans have an order only from opset 20 on.
b = np.array([[True, False, True], [False, False, False], [True, True, True]])
f.case("ReduceMax", 20, [b, np.array([1])], const=(1,))
f.case("ReduceMin", 20, [b, np.array([1])], const=(1,), attrs={"keepdims": 0})
f.case("ReduceMax", 20, [np.zeros((2, 0), bool), np.array([1])], const=(1,), want=[np.zeros((2, 1), bool)],
       out_types=[bool])
f.case("ReduceMin", 20, [np.zeros((2, 0), bool), np.array([1])], const=(1,), want=[np.ones((2, 1), bool)],
       out_types=[bool])
# The identity of an empty maximum is the least value of its type.
for dtype in INTS_EXTREMES:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    none = np.zeros((2, 0), dtype)
    f.case("ReduceMax", 20, [none, np.array([1])], const=(1,), want=[np.full((2, 1), low, dtype)], out_types=[dtype])
    f.case("ReduceMin", 20, [none, np.array([1])], const=(1,), want=[np.full((2, 1), high, dtype)], out_types=[dtype])
# NaN and infinities go through.
odd = np.array([[1, np.nan, 3], [np.inf, 2, 1], [-np.inf, -np.inf, -np.inf], [np.inf, -np.inf, 0]], F32)
for dtype in (F32, F16, F64):
    v = odd.astype(dtype)
    one = np.array([1])
    f.case("ReduceMax", 18, [v, one], const=(1,), want=[v.max(axis=1, keepdims=True)], out_types=[dtype])
    f.case("ReduceMin", 18, [v, one], const=(1,), want=[v.min(axis=1, keepdims=True)], out_types=[dtype])
    f.case("ReduceSum", 18, [v, one], const=(1,), want=[v.sum(axis=1, keepdims=True)], out_types=[dtype])
    f.case("ReduceLogSumExp", 18, [v[:3], one], const=(1,), out_types=[dtype], tol=TOL[dtype],
           want=[np.array([[np.nan], [np.inf], [-np.inf]], dtype)])
# Large arguments do not overflow, and float64 is more than float32.
big = np.array([[1000.0, 1000.5, -1000]], F64)
f.case("ReduceLogSumExp", 18, [big, np.array([1])], const=(1,), want=[by_numpy("ReduceLogSumExp", big, (1,), True)],
       tol=(1e-15, 0))
# Sums of 16-bit floats are taken in float32: 70000 ones are more than float16 can count.
ones = np.ones((70000,), F16)
f.case("ReduceMean", 18, [ones], want=[np.ones((1,), F16)], tol=(0, 0))
f.case("ReduceSum", 18, [np.ones((4096,), F16)], want=[np.array([4096], F16)], tol=(0, 0))
f.case("ReduceSum", 18, [np.ones((1000,), BF16)], want=[np.array([1000], BF16)], out_types=[BF16], tol=(0, 0))
# Means of integers are truncated, also at the ends of the type.
f.case("ReduceMean", 18, [np.array([[-7, 0], [7, 0], [-1, 0]], np.int32), np.array([1])], const=(1,))
f.case("ReduceMean", 18, [np.array([[-(2**63), 0], [2**63 - 1, 0]], np.int64), np.array([1])], const=(1,),
       want=[np.array([[-(2**62)], [2**62 - 1]])], out_types=[np.int64])
f.case("ReduceMax", 18, [np.array([2**64 - 1, 2**63], np.uint64)], want=[np.array([2**64 - 1], np.uint64)],
       out_types=[np.uint64])

# ArgMax, ArgMin
ties = np.array([[2, 1, 2, 0], [1, 1, 1, 1], [-3, 0, 4, 4]], F32)
for op in ("ArgMax", "ArgMin"):
    f.case(op, 1, [ties])
    f.case(op, 11, [ties], attrs={"axis": -1, "keepdims": 0})
    for opset in (12, 13):
        f.case(op, opset, [ties], attrs={"axis": 1})
        f.case(op, opset, [ties], attrs={"axis": 1, "select_last_index": 1})
        f.case(op, opset, [ties], attrs={"axis": 0, "select_last_index": 1, "keepdims": 0})
    f.case(op, 13, [x], attrs={"axis": 2})
    f.case(op, 13, [np.ones((3, 1), F32)], attrs={"axis": 1, "select_last_index": 1})
    f.case(op, 13, [np.ones((0, 3), F32)], attrs={"axis": 1})
    f.case(op, 13, [np.ones((0, 3), F32)], attrs={"axis": 1, "keepdims": 0})
    for dtype in (F16, BF16, F64) + INTS_ARG:
        v = rng.permutation(24).reshape(4, 6).astype(dtype)
        want = getattr(np, op.lower())(v.astype(F32), axis=1).reshape(4, 1)
        f.case(op, 13, [v], attrs={"axis": 1}, want=[want], out_types=[np.int64], name=np.dtype(dtype).name)
    top = np.array([[2**63 + 1, 2**63, 2**64 - 1]], np.uint64)
    f.case(op, 13, [top], attrs={"axis": 1}, want=[getattr(np, op.lower())(top, axis=1, keepdims=True)],
           out_types=[np.int64])
    nans = np.array([[1, np.nan, 3]], F32)
    f.case(op, 13, [nans], attrs={"axis": 1}, want=[np.array([[1]])], out_types=[np.int64], name="NaN")
    f.fails(op, 13, [np.ones((2, 0), F32)], attrs={"axis": 1}, why="no elements", out_types=[np.int64])

# CumSum, CumProd
for op, opsets, scan, start in (("CumSum", (11, 14), np.cumsum, 0), ("CumProd", (26,), np.cumprod, 1)):
    def running(v, axis, exclusive, reverse):
        v = np.flip(v, axis) if reverse else v
        y = scan(v if v.dtype.kind in "iu" else v.astype(F64), axis=axis).astype(v.dtype)
        if exclusive:
            y = np.concatenate([np.full_like(y.take([0], axis), start), y.take(range(y.shape[axis] - 1), axis)], axis)
        return np.flip(y, axis) if reverse else y

    for opset in opsets:
        for exclusive in (0, 1):
            for reverse in (0, 1):
                for axis in (0, -2, 2):
                    v = data((3, 4, 2), F32)
                    f.case(op, opset, [v, np.array(axis, np.int32)], const=(1,), tol=TOL[F32],
                           attrs={"exclusive": exclusive, "reverse": reverse},
                           want=[running(v, axis, exclusive, reverse)], out_types=[F32])
        for dtype in (np.int32, np.int64, np.uint32, np.uint64, F64) + ((F16, BF16) if opset > 11 else ()):
            v = data((5, 3), dtype)
            f.case(op, opset, [v, np.array(1)], const=(1,), want=[running(v, 1, 0, 0)], out_types=[dtype],
                   tol=TOL.get(dtype), name=np.dtype(dtype).name)
    f.case(op, opsets[-1], [v, np.array([0])], want=[running(v, 0, 0, 0)], out_types=[v.dtype.type], tol=(2e-2, 2e-2),
           name="axis at run time, rank 1")
    f.case(op, opsets[-1], [np.zeros((2, 0), F32), np.array(1)], const=(1,), want=[np.zeros((2, 0), F32)],
           out_types=[F32])
    w = np.array([1, np.inf, 2, np.nan], F32)
    f.case(op, opsets[-1], [w, np.array(0)], const=(1,), want=[scan(w)], out_types=[F32], name="NaN")
    f.fails(op, opsets[-1], [v, np.array(2)], why="out of range", out_types=[v.dtype.type])
    f.fails(op, opsets[-1], [np.array(1, F32), np.array(0)], why="out of range for rank 0", out_types=[F32])
f.case("CumSum", 14, [data((2, 3), F32), np.array(1)], const=(1,), attrs={"exclusive": 1, "reverse": 1})
f.case("CumSum", 14, [np.ones((3000,), F16), np.array(0)], const=(1,), want=[np.arange(1, 3001).astype(F16)],
       out_types=[F16], tol=(0, 0), name="float16 counts on in float32")

test_reduce = f.pytest()
