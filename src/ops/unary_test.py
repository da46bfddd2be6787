"""Operators of one input. Float results are compared with numpy in float64, rounded to the type under test."""
import math

import ml_dtypes
import numpy as np
from case import Family

f = Family("unary")
BF16 = ml_dtypes.bfloat16
TOL = {np.float32: (1e-5, 1e-6), np.float16: (2e-3, 1e-3), BF16: (1e-2, 1e-2), np.float64: (1e-12, 1e-13)}
SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]

NAN, INF = np.nan, np.inf
LINE = np.array([-7.25, -2.5, -1.5, -1, -0.5, -0.0, 0.0, 0.25, 0.5, 1, 1.5, 2.5, 6, NAN, INF, -INF])
UNIT = np.array([-1, -0.75, -0.25, -0.0, 0.0, 0.5, 0.9375, 1, 1.5, -2, NAN])
ABOVE = np.array([1, 1.25, 2, 8, 100, 0.5, NAN, INF])
POSITIVE = np.array([0.0, 0.125, 0.5, 1, 2, 9, 1000, -1, NAN, INF])

erf = np.vectorize(lambda v: v if math.isnan(v) else math.erf(v))


def sigmoid(x):
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


def mended(fn, **at):  # numpy leaves nan where a limit is meant
    def g(x):
        y = fn(x)
        for value, result in at.items():
            y = np.where(x == {"minf": -INF, "inf": INF}[value], result, y)
        return y
    return g


# operator, its schema versions, the first one with bfloat16, reference, data, has float64
FLOAT_OPS = [
    ("Sqrt", (1, 6, 13), 13, np.sqrt, POSITIVE, True),
    ("Reciprocal", (1, 6, 13), 13, np.reciprocal, LINE, True),
    ("Exp", (1, 6, 13), 13, np.exp, LINE, True),
    ("Log", (1, 6, 13), 13, np.log, POSITIVE, True),
    ("Sin", (7, 22), 22, np.sin, LINE, True),
    ("Cos", (7, 22), 22, np.cos, LINE, True),
    ("Tan", (7, 22), 22, np.tan, LINE, True),
    ("Asin", (7, 22), 22, np.arcsin, UNIT, True),
    ("Acos", (7, 22), 22, np.arccos, UNIT, True),
    ("Atan", (7, 22), 22, np.arctan, LINE, True),
    ("Sinh", (9, 22), 22, np.sinh, LINE, True),
    ("Cosh", (9, 22), 22, np.cosh, LINE, True),
    ("Tanh", (1, 6, 13), 13, np.tanh, LINE, True),
    ("Asinh", (9, 22), 22, np.arcsinh, LINE, True),
    ("Acosh", (9, 22), 22, np.arccosh, ABOVE, True),
    ("Atanh", (9, 22), 22, np.arctanh, UNIT, True),
    ("Erf", (9, 13), 13, erf, LINE, False),
    ("Ceil", (1, 6, 13), 13, np.ceil, LINE, True),
    ("Floor", (1, 6, 13), 13, np.floor, LINE, True),
    ("Round", (11, 22), 22, np.rint, LINE, True),
    ("Sigmoid", (1, 6, 13), 13, mended(sigmoid, minf=0), LINE, True),
    ("Sign", (9, 13), 13, np.sign, LINE, True),
    ("Abs", (1, 6, 13), 13, np.abs, LINE, True),
    ("Neg", (1, 6, 13), 13, np.negative, LINE, True),
]

SHAPES = [(), (1,), (0,), (2, 0, 3), (1, 1), (2, 3, 4), (1,) * 10]


def shaped(shape, dtype=np.float32):
    return (np.arange(math.prod(shape)) % 5 / 4 + 0.125).reshape(shape).astype(dtype)


with np.errstate(all="ignore"):
    for op, versions, bf16_from, ref, data, has_f64 in FLOAT_OPS:
        for version in versions:
            types = [np.float16, np.float32] + [BF16] * (version >= bf16_from) + [np.float64] * has_f64
            for t in types:
                x = data.astype(t)
                want = ref(x.astype(np.float64)).astype(t)
                f.case(op, version, [x], want=[want], tol=TOL[t], name=f"{op} {version} {np.dtype(t)}")
        for shape in SHAPES:
            x = shaped(shape)
            want = np.asarray(ref(x.astype(np.float64)), np.float32).reshape(shape) if x.size else x
            f.case(op, versions[-1], [x], want=[want], tol=(1e-5, 1e-5), name=f"{op} shape {shape}")

    # float64 stays float64 far from 0, where a float32 result would be off by 1e-7.
    far = np.linspace(-40, 40, 801)
    for op, ref in (("Exp", np.exp), ("Sin", np.sin), ("Cos", np.cos), ("Sigmoid", sigmoid)):
        f.case(op, 13, [far], want=[ref(far)], tol=(1e-13, 1e-15), name=f"{op} exact float64")
    f.case("Sin", 7, [np.array([1e3, 1e6, 1e9])], want=[np.sin(np.array([1e3, 1e6, 1e9]))], tol=(1e-13, 1e-15),
           name="Sin float64 large")

for op, opset in (("Sqrt", 13), ("Exp", 13), ("Log", 13), ("Sin", 7), ("Cos", 7), ("Tan", 7), ("Asinh", 9), ("Erf", 13),
                  ("Round", 11), ("Sigmoid", 13), ("Tanh", 13), ("Sign", 13)):
    x = np.random.default_rng(1).uniform(0.01, 4, (3, 5)).astype(np.float32)
    f.case(op, opset, [x], name=f"{op} like ONNX Runtime")

f.declines("Erf", 13, [np.ones(2)], why="type float64")
f.declines("Erf", 9, [np.ones(2, np.int32)], why="type int32", name="Erf of integers")

# ---- integers ----
for t in SIGNED + UNSIGNED:
    info = np.iinfo(t)
    x = np.array([info.min, info.min + 1, 0, 1, 7, info.max], t)
    with np.errstate(all="ignore"):
        f.case("Abs", 13, [x], want=[np.abs(x)], name=f"Abs {np.dtype(t)}")
        f.case("Abs", 6, [x], want=[np.abs(x)], name=f"Abs 6 {np.dtype(t)}")
        f.case("Sign", 13, [x], want=[np.sign(x)], name=f"Sign {np.dtype(t)}")
        f.case("Sign", 9, [x], want=[np.sign(x)], name=f"Sign 9 {np.dtype(t)}")
        if t in SIGNED:
            f.case("Neg", 13, [x], want=[np.negative(x)], name=f"Neg {np.dtype(t)}")
            f.case("Neg", 6, [x], want=[np.negative(x)], name=f"Neg 6 {np.dtype(t)}")
    f.case("BitwiseNot", 18, [x], want=[~x], name=f"BitwiseNot {np.dtype(t)}")

# ---- bools ----
for shape in SHAPES:
    f.case("Not", 1, [shaped(shape) > 0.5], name=f"Not {shape}")

# ---- classes of floats ----
for version, types in ((9, (np.float16, np.float32, np.float64)), (13, (BF16, np.float32)), (20, (BF16, np.float16, np.float64))):
    for t in types:
        x = LINE.astype(t)
        f.case("IsNaN", version, [x], want=[np.isnan(x.astype(np.float64))], name=f"IsNaN {version} {np.dtype(t)}")
for version, types in ((10, (np.float32, np.float64)), (20, (np.float16, BF16, np.float32, np.float64))):
    for t in types:
        x = LINE.astype(t).reshape(2, 8)
        wide = x.astype(np.float64)
        for negative in (0, 1):
            for positive in (0, 1):
                want = (np.isneginf(wide) & bool(negative)) | (np.isposinf(wide) & bool(positive))
                f.case("IsInf", version, [x], attrs={"detect_negative": negative, "detect_positive": positive}, want=[want],
                       name=f"IsInf {version} {np.dtype(t)} {negative}{positive}")
f.case("IsInf", 10, [LINE.astype(np.float32)], name="IsInf defaults")
f.case("IsInf", 10, [np.zeros((0, 2), np.float32)], attrs={"detect_negative": 0, "detect_positive": 0}, name="IsInf empty")

test_unary = f.pytest()
