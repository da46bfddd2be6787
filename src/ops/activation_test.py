"""Activations. Float results are compared with numpy in float64, rounded to the type under test."""
import math

import ml_dtypes
import numpy as np
from case import Family

f = Family("activation")
BF16 = ml_dtypes.bfloat16
TOL = {np.float32: (1e-5, 1e-6), np.float16: (2e-3, 1e-3), BF16: (1e-2, 1e-2), np.float64: (1e-12, 1e-13)}
MS = "com.microsoft"

NAN, INF = np.nan, np.inf
LINE = np.array([-30, -7.25, -3, -2.5, -1.5, -1, -0.5, -0.0, 0.0, 0.25, 0.5, 1, 1.5, 2.5, 3, 6, 30, NAN, INF, -INF])
erf = np.vectorize(lambda v: v if math.isnan(v) else math.erf(v))


def sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def elu(x, alpha=1.0):
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def celu(x, alpha=1.0):
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0)


def hard_sigmoid(x, alpha=0.2, beta=0.5):
    return np.clip(alpha * x + beta, 0, 1)


def selu(x, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    return gamma * elu(x, alpha)


def shrink(x, lambd=0.5, bias=0.0):
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def swish(x, alpha=1.0):
    return x * sigmoid(alpha * x)


def thresholded(x, alpha=1.0):
    return np.where(x > alpha, x, 0)


def leaky(x, alpha=0.01):
    return np.where(x < 0, alpha * x, x)


# operator, domain, schema versions, the first one with bfloat16, has float64, reference, attribute sets
FLOAT_OPS = [
    ("Relu", "", (1, 6, 13, 14), 13, True, lambda x: np.maximum(x, 0), [{}]),
    ("LeakyRelu", "", (1, 6, 16), 16, True, leaky, [{}, {"alpha": 0.25}, {"alpha": 2.0}, {"alpha": -0.5}]),
    ("ThresholdedRelu", "", (10, 22), 22, True, thresholded, [{}, {"alpha": 2.5}, {"alpha": -1.0}]),
    ("HardSigmoid", "", (1, 6, 22), 22, True, hard_sigmoid, [{}, {"alpha": 0.5, "beta": 0.25}]),
    ("HardSwish", "", (14, 22), 22, True, lambda x: x * hard_sigmoid(x, 1 / 6, 0.5), [{}]),
    ("Shrink", "", (9,), 99, True, shrink, [{}, {"lambd": 1.5, "bias": 1.0}]),
    ("Elu", "", (1, 6, 22), 22, True, elu, [{}, {"alpha": 2.0}]),
    ("Selu", "", (6, 22), 22, True, selu, [{}, {"alpha": 2.0, "gamma": 3.0}]),
    ("Selu", "", (1,), 22, True, lambda x: selu(x, 1.6732, 1.0507), [{}]),
    ("Celu", "", (12,), 28, False, celu, [{}, {"alpha": 2.0}]),
    ("Softplus", "", (1, 22), 22, True, softplus, [{}]),
    ("Softsign", "", (1, 22), 22, True, lambda x: x / (1 + np.abs(x)), [{}]),
    ("Mish", "", (18, 22), 22, True, lambda x: x * np.tanh(softplus(x)), [{}]),
    ("Swish", "", (24,), 24, True, swish, [{}, {"alpha": 1.5}]),
    ("Gelu", "", (20,), 20, False, lambda x, approximate="none": gelu(x), [{}, {"approximate": "none"}]),
    ("Gelu", "", (20,), 20, True, lambda x, approximate: gelu_tanh(x), [{"approximate": "tanh"}]),
    ("Gelu", MS, (1,), 1, False, gelu, [{}]),
    ("FastGelu", MS, (1,), 1, True, gelu_tanh, [{}]),
    ("QuickGelu", MS, (1,), 1, True, lambda x, alpha=1.702: swish(x, alpha), [{}, {"alpha": 1.0}]),
]

SHAPES = [(), (1,), (0,), (2, 0, 3), (1, 1), (2, 3, 4)]


def shaped(shape, dtype=np.float32):
    return np.asarray(np.arange(math.prod(shape)) % 7 / 2 - 1.25, dtype).reshape(shape)


def in_float64(ref, *arrays, **attrs):
    with np.errstate(all="ignore"):
        return ref(*(a.astype(np.float64) for a in arrays), **attrs)


for op, domain, versions, bf16_from, has_f64, ref, attr_sets in FLOAT_OPS:
    for version in versions:
        types = [np.float32] + [np.float16] * (op != "Celu") + [BF16] * (version >= bf16_from) + [np.float64] * has_f64
        for t in types:
            if domain and t is not np.float32:
                continue  # ONNX's inference knows no types there; see below
            for attrs in attr_sets:
                x = LINE.astype(t)
                ref_attrs = {k: float(np.float32(v)) if isinstance(v, float) else v for k, v in attrs.items()}
                f.case(op, version, [x], attrs=attrs, domain=domain, want=[in_float64(ref, x, **ref_attrs).astype(t)],
                       tol=TOL[t] if t is not np.float64 else (1e-7, 1e-12), name=f"{version} {attrs}")
    if attr_sets[0] or domain:
        continue
    for shape in SHAPES:
        x = shaped(shape)
        want = np.asarray(in_float64(ref, x), np.float32).reshape(shape) if x.size else x
        f.case(op, versions[-1], [x], domain=domain, want=[want], name=f"shape {shape}")

for t in (np.float16, BF16, np.float64):
    x = LINE.astype(t)
    for op, ref in (("FastGelu", gelu_tanh), ("QuickGelu", lambda v: swish(v, float(np.float32(1.702))))):
        f.case(op, 1, [x], domain=MS, want=[in_float64(ref, x).astype(t)], tol=TOL[t], out_types=[t])
for op, opset, attrs in (("Elu", 6, {}), ("Selu", 6, {}), ("Celu", 12, {"alpha": 0.5}), ("Softplus", 1, {}), ("Mish", 18, {}),
                         ("HardSwish", 14, {}), ("Gelu", 20, {}), ("Gelu", 20, {"approximate": "tanh"}), ("Swish", 24, {})):
    x = np.random.default_rng(2).uniform(-5, 5, (3, 40)).astype(np.float32)
    f.case(op, opset, [x], attrs=attrs, name="like ONNX Runtime", ref="onnx" if op == "Swish" else "ort")
# Close to 0 nothing may cancel.
tiny = np.array([-1e-9, 1e-9, -1e-4, 1e-4])
for op in ("Elu", "Celu"):
    f.case(op, 12, [tiny.astype(np.float32)], want=[in_float64(elu, tiny).astype(np.float32)], tol=(1e-6, 1e-14), name="tiny")
f.case("Softplus", 22, [np.linspace(-40, 40, 161)], want=[softplus(np.linspace(-40, 40, 161))], tol=(1e-13, 1e-18), name="exact")

f.declines("Gelu", 20, [np.ones(2, np.float32)], attrs={"approximate": "sigmoid"}, why="approximate is 'sigmoid'")

# ---- integers ----
for t in (np.int8, np.int16, np.int32, np.int64):
    x = np.array([np.iinfo(t).min, -3, -1, 0, 1, 3, np.iinfo(t).max], t)
    f.case("Relu", 14, [x], want=[np.maximum(x, 0)])
for t in (np.int8, np.int16, np.uint8, np.uint16):
    x = np.array([-3, -2, -1, 0, 1, 2, 3, 100]).astype(t) if np.iinfo(t).min else np.array([0, 1, 2, 3, 200], t)
    for lambd, bias in ((1.5, 1.5), (1.0, 2.0), (0.0, 0.5)):
        want = np.trunc(shrink(x.astype(np.float64), lambd, bias)).astype(np.int64).astype(t)
        f.case("Shrink", 9, [x], attrs={"lambd": lambd, "bias": bias}, want=[want], name=f"{lambd} {bias}")
for t in (np.int32, np.int64, np.uint32):
    x = np.array([2**31 - 1, 2**30 + 1, 5, 1, 0] + [-7, -(2**30) - 1] * (t is not np.uint32)).astype(t)
    want = np.where(x.astype(np.int64) < -4, x.astype(np.int64) + 3, np.where(x > 4, x.astype(np.int64) - 3, 0)).astype(t)
    f.case("Shrink", 9, [x], attrs={"lambd": 4.0, "bias": 3.0}, want=[want], name="whole parameters")
f.declines("Shrink", 9, [np.ones(2, np.int32)], attrs={"lambd": 1.5}, why="needs whole lambd and bias")
f.declines("Shrink", 9, [np.ones(2, np.uint64)], why="type uint64")

# ---- PRelu ----
x = np.random.default_rng(3).standard_normal((2, 3, 4, 5))
for slope_shape in ((), (1,), (5,), (3, 1, 1), (2, 3, 4, 5), (1, 1, 4, 1)):
    slope = np.random.default_rng(4).standard_normal(slope_shape)
    for version, t in ((7, np.float32), (9, np.float64), (16, np.float32), (16, BF16), (16, np.float16)):
        a, s = x.astype(t), np.asarray(slope).astype(t)
        want = in_float64(lambda a, s: np.where(a < 0, a * s, a), a, s).astype(t)
        f.case("PRelu", version, [a, s], want=[want], tol=TOL[t], name=f"slope {slope_shape}")
for t in (np.int32, np.int64, np.uint32, np.uint64):
    a, s = np.array([[3, 2**30, 0]], t) - t(4 if np.iinfo(t).min else 0), np.array([2], t)
    f.case("PRelu", 9, [a, s], want=[np.where(a < 0, a * s, a)])
for version in (1, 6):
    for shape in ((2, 3, 4, 5), (2, 3), (4,)):
        n = shape[1] if len(shape) > 1 else shape[0]
        a = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
        s = np.linspace(0.1, 0.9, n).astype(np.float32)
        per_channel = s.reshape((n,) + (1,) * (len(shape) - 2)) if len(shape) > 1 else s
        f.case("PRelu", version, [a, s], want=[np.where(a < 0, a * per_channel, a)], name=f"channels {shape}")
        f.case("PRelu", version, [a, s[:1]], want=[np.where(a < 0, a * s[0], a)], name=f"shared {shape}")
special = np.array([0, -0.0, -1, NAN, INF, -INF], np.float32)
f.case("PRelu", 16, [special, np.array([NAN, NAN, 2, 1, NAN, 0.5], np.float32)], name="special values")
f.case("PRelu", 16, [np.zeros((0, 3), np.float32), np.ones(3, np.float32)], name="empty")

# ---- Clip ----
for version, types in ((12, (np.int8, np.uint8, np.int32, np.int64, np.uint32, np.uint64, np.float64)),
                       (13, (np.int16, np.uint16, BF16, np.float16, np.float32))):
    for t in types:
        a = np.array([0, 1, 5, 9, 100]).astype(t)
        lo, hi = np.array(2).astype(t), np.array(50).astype(t)
        for bounds in ((lo, hi), (lo, None), (None, hi), (), (hi, lo)):
            lo_, hi_ = (list(bounds) + [None, None])[:2]
            want = a if lo_ is None else np.maximum(a, lo_)
            want = want if hi_ is None else np.minimum(want, hi_)
            name = "".join("x" if b is not None else "-" for b in bounds) + ("reversed" if bounds[:1] == (hi,) else "")
            f.case("Clip", version, [a, *bounds], want=[want.astype(t)], name=name)
big = np.array([2**63 - 1, -(2**63), 2**53 + 1, 7], np.int64)
f.case("Clip", 13, [big, np.array(-(2**53) - 1), np.array(2**60 + 1)], name="64 bits")
f.case("Clip", 11, [special, np.array(-0.5, np.float32), np.array(0.5, np.float32)], name="special values")
f.case("Clip", 11, [special, np.array(-0.5, np.float32), np.array(0.5, np.float32)], const=(1, 2), name="constants")
f.case("Clip", 13, [special, np.array([-0.5], np.float32)], want=[np.clip(special, np.float32(-0.5), np.finfo(np.float32).max)], name="bound of rank 1")
f.case("Clip", 13, [np.float32(3), np.float32(0), np.float32(1)], name="rank 0")
f.case("Clip", 13, [np.zeros((0, 2), np.float32), np.float32(0), np.float32(1)], name="empty")
f.case("Clip", 13, [special], name="default bounds are finite")
f.case("Clip", 13, [special, np.float32(-0.5)], name="the upper bound is finite")
for t in (np.float64, np.float16, BF16):
    ends, most = special.astype(t), ml_dtypes.finfo(t).max
    f.case("Clip", 13, [ends], want=[np.where(np.isinf(ends), np.where(ends < 0, -most, most), ends)], name="default bounds are finite")
f.case("Clip", 6, [special], name="defaults")
f.case("Clip", 6, [special], attrs={"min": -0.5}, name="min")
f.case("Clip", 6, [special], attrs={"max": 0.5}, name="max")
f.case("Clip", 1, [special], want=[special], name="no bounds")
f.case("Clip", 1, [special], attrs={"min": -0.5, "max": 0.25}, want=[np.clip(special, np.float32(-0.5), np.float32(0.25))])
f.case("Clip", 6, [special.astype(np.float16)], want=[special.astype(np.float16)], name="float32's limits are outside")
f.fails("Clip", 13, [special, np.array([0, 1], np.float32)], why="a bound, holds 2 numbers")

# ---- Dropout ----
drop = np.array([[1, -2, NAN], [0, INF, 3]], np.float32)
for version in (1, 6):
    f.case("Dropout", version, [drop], attrs={"is_test": 1}, want=[drop], name="is_test")
    f.case("Dropout", version, [drop], outs=2, attrs={"is_test": 1}, want=[drop, np.ones_like(drop)], name="mask")
    f.declines("Dropout", version, [drop], why="is_test is 0")
f.case("Dropout", 7, [drop], want=[drop])
f.case("Dropout", 7, [drop], outs=2, want=[drop, np.ones_like(drop)], name="mask")
f.case("Dropout", 10, [drop], outs=2, want=[drop, np.ones(drop.shape, bool)], name="mask")
for version in (12, 13, 22):
    for t in (np.float32, np.float16, np.float64):
        f.case("Dropout", version, [drop.astype(t)], outs=2, want=[drop.astype(t), np.ones(drop.shape, bool)])
    f.case("Dropout", version, [drop, np.float32(0.3)], outs=2, want=[drop, np.ones(drop.shape, bool)], name="ratio")
    f.case("Dropout", version, [drop, np.float32(0.3), np.array(False)], outs=2, const=(2,),
           want=[drop, np.ones(drop.shape, bool)], name="inference")
    f.case("Dropout", version, [drop, np.float32(0.3), np.array(False)], const=(1, 2), want=[drop], name="no mask")
    for const in ((2,), ()):
        f.declines("Dropout", version, [drop, np.float32(0.3), np.array(bool(const))], const=const,
                   why="training_mode is not constant false")
f.case("Dropout", 13, [drop.astype(BF16)], want=[drop.astype(BF16)])
f.case("Dropout", 13, [np.zeros((2, 0), np.float32)], outs=2, want=[np.zeros((2, 0), np.float32), np.ones((2, 0), bool)])

# ---- contributed forms with more inputs ----
a = np.random.default_rng(6).standard_normal((2, 3, 8))
bias, skip = np.linspace(-1, 1, 8), np.random.default_rng(7).standard_normal((2, 3, 8))
gate = np.random.default_rng(8).standard_normal((2, 3, 1))
for t in (np.float32, np.float16, BF16):
    A, B, S, G = (v.astype(t) for v in (a, bias, skip, gate))
    common = {"domain": MS, "tol": TOL[t], "out_types": [t]}
    f.case("BiasGelu", 1, [A, B], want=[in_float64(lambda x, b: gelu(x + b), A, B).astype(t)], **common)
    f.case("FastGelu", 1, [A, B], want=[in_float64(lambda x, b: gelu_tanh(x + b), A, B).astype(t)], name="bias", **common)
    f.case("GatedAdd", 1, [A, S, G], want=[A + (S * G).astype(t)], **common)
    f.case("ScaledSiLU", 1, [A], attrs={"alpha": 0.5}, want=[in_float64(lambda x: swish(x / 2), A).astype(t)], name="alpha", **common)
    f.case("ScaledSiLU", 1, [A], want=[in_float64(swish, A).astype(t)], name="default", **common)
    f.case("ScaledSiLU", 1, [A, np.array(2).astype(t)], want=[in_float64(lambda x: swish(2 * x), A).astype(t)], name="scale",
           **common)
    f.case("Gelu", 1, [A], want=[in_float64(gelu, A).astype(t)], **common)
for t in (np.float32, np.float16):
    A, B, S = (v.astype(t) for v in (a, bias, skip))
    common = {"domain": MS, "tol": TOL[t], "out_types": [t]}
    f.case("BiasAdd", 1, [A, B, S], want=[in_float64(lambda x, b, s: x + b + s, A, B, S).astype(t)], **common)
    f.case("BiasSplitGelu", 1, [A, B], **common,
           want=[in_float64(lambda x, b: (x + b)[..., :4] * gelu((x + b)[..., 4:]), A, B).astype(t)])
f.case("BiasGelu", 1, [a.astype(np.float32), bias.astype(np.float32)], domain=MS, name="like ONNX Runtime")
f.case("FastGelu", 1, [a.astype(np.float32), bias.astype(np.float32)], domain=MS, name="like ONNX Runtime")
f.case("QuickGelu", 1, [a.astype(np.float32)], domain=MS, attrs={"alpha": 0.7}, name="like ONNX Runtime")
f.declines("BiasGelu", 1, [a, bias], domain=MS, why="type float64", out_types=[np.float64])

test_activation = f.pytest()
