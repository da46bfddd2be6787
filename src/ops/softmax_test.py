import ml_dtypes
import numpy as np
from case import Family

f = Family("softmax")
rng = np.random.default_rng(2)
F32, F16, F64, BF16 = np.float32, np.float16, np.float64, ml_dtypes.bfloat16
TOL = {F32: (1e-5, 1e-6), F16: (2e-3, 1e-3), BF16: (2e-2, 1e-2), F64: (1e-14, 1e-15)}


def by_numpy(op, x, axis):
    v = x.astype(F64)
    if op == "Hardmax":
        y = np.zeros_like(v)
        np.put_along_axis(y, v.argmax(axis=axis, keepdims=True), 1, axis)
        return y.astype(x.dtype)
    v = v - v.max(axis=axis, keepdims=True)
    log_p = v - np.log(np.exp(v).sum(axis=axis, keepdims=True))
    return (log_p if op == "LogSoftmax" else np.exp(log_p)).astype(x.dtype)


x = rng.standard_normal((2, 3, 4, 5)).astype(F32)
for op in ("Softmax", "LogSoftmax", "Hardmax"):
    for axis in (0, 1, 2, 3):  # before opset 13 the axes from here on are one
        f.case(op, 1, [x], attrs={"axis": axis})
        f.case(op, 11, [x], attrs={"axis": axis - 4})
        f.case(op, 13, [x], attrs={"axis": axis})
        f.case(op, 13, [x], attrs={"axis": axis - 4})
    f.case(op, 1, [x])
    f.case(op, 11, [x[0, 0]])
    f.case(op, 13, [x])
    f.case(op, 13, [x[0, 0, 0]], name="rank 1")
    f.case(op, 11, [x[0, 0, 0]], attrs={"axis": 0}, name="rank 1")
    f.case(op, 13, [np.ones((3, 1), F32)])
    for shape in ((0, 3), (3, 0), (2, 0, 3)):
        f.case(op, 13, [np.zeros(shape, F32)], want=[np.zeros(shape, F32)])
        f.case(op, 11, [np.zeros(shape, F32)], want=[np.zeros(shape, F32)])
    for dtype in (F16, BF16, F64):
        v = (3 * x).astype(dtype)
        for axis in (-1, 1):
            f.case(op, 13, [v], attrs={"axis": axis}, want=[by_numpy(op, v, axis)], out_types=[dtype], tol=TOL[dtype])
    joined = x.reshape(2, -1).astype(F16)
    f.case(op, 11, [joined.reshape(x.shape)], want=[by_numpy(op, joined, 1).reshape(x.shape)], out_types=[F16],
           tol=TOL[F16], name="float16, joined axes")
    f.case(op, 13, [np.array([[1e4, 1e4 + 1, 0], [-1e4, -1e4 - 1, -2e4]], F32)], name="large")

# The first maximum of several, and infinities.
f.case("Hardmax", 13, [np.array([[1, 3, 3, 2], [0, 0, 0, 0], [-np.inf, -np.inf, -np.inf, -1]], F32)])
f.case("Hardmax", 13, [np.array([[1, np.inf, 3], [-np.inf, -np.inf, -np.inf]], F32)])
odd = np.array([[1, -np.inf, 2], [np.nan, 1, 2], [-np.inf, -np.inf, -np.inf], [np.inf, 1, 2]], F32)
for dtype in (F32, F64, F16):
    nan = np.nan
    p = 1 / (1 + np.exp(-1.0))
    f.case("Softmax", 13, [odd.astype(dtype)], out_types=[dtype], tol=TOL[dtype],
           want=[np.array([[1 - p, 0, p], [nan] * 3, [nan] * 3, [nan] * 3], dtype)])
    f.case("LogSoftmax", 13, [odd[:3].astype(dtype)], out_types=[dtype], tol=TOL[dtype],
           want=[np.array([[np.log(1 - p), -np.inf, np.log(p)], [nan] * 3, [nan] * 3], dtype)])

# ---- losses ----------------------------------------------------------------------------------------------------------
LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")


def loss(op, scores, target, weight=None, reduction="mean", ignored=None):
    v = scores.astype(F64)
    log_p = v if op == LOSSES[0] else by_numpy("LogSoftmax", v, 1)
    counted = np.ones(target.shape, bool) if ignored is None else target != ignored
    t = np.where(counted, target, 0)
    w = (np.ones(target.shape) if weight is None else weight.astype(F64)[t]) * counted
    each = np.where(counted, -np.take_along_axis(log_p, t[:, None], 1).squeeze(1) * w, 0)
    y = {"none": each, "sum": each.sum(), "mean": each.sum() / w.sum()}[reduction]
    outs = [np.asarray(y).astype(scores.dtype)]
    return outs if op == LOSSES[0] else outs + [log_p.astype(scores.dtype)]


for op in LOSSES:
    for opset in (12, 13, 22):
        for shape in ((4, 5), (2, 3, 4), (2, 3, 2, 2)):
            scores = rng.standard_normal(shape).astype(F32)
            target = rng.integers(0, shape[1], (shape[0],) + shape[2:])
            weight = rng.uniform(0.5, 2, shape[1]).astype(F32)
            for reduction in ("none", "sum", "mean"):
                f.case(op, opset, [scores, target], attrs={"reduction": reduction}, tol=(1e-5, 1e-5))
                want = loss(op, scores, target, weight, reduction)
                f.case(op, opset, [scores, target.astype(np.int32), weight], attrs={"reduction": reduction},
                       outs=len(want), want=want, out_types=[F32] * len(want), tol=(1e-5, 1e-5))
    some = np.where(target == 1, -1, target)
    for w in (None, weight):
        for reduction in ("none", "sum", "mean"):
            want = loss(op, scores, some, w, reduction, -1)
            f.case(op, 13, [scores, some] + ([] if w is None else [w]), attrs={"reduction": reduction, "ignore_index": -1},
                   outs=len(want), want=want, out_types=[F32] * len(want), tol=(1e-5, 1e-5), name="ignored")
    for dtype in (F16, F64) + ((BF16,) if op == LOSSES[1] else ()):
        v = scores.astype(dtype)
        want = loss(op, v, target)
        f.case(op, 13, [v, target], outs=len(want), want=want, out_types=[dtype] * len(want), tol=TOL[dtype])
    f.fails(op, 13, [scores, target + 3], why="out of range", out_types=[F32])
    f.fails(op, 13, [scores, target - 5], why="out of range", out_types=[F32])

test_softmax = f.pytest()
