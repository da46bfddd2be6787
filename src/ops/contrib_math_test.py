import ml_dtypes
import numpy as np
from case import Family

f = Family("contrib_math")
MS = {"domain": "com.microsoft"}
rng = np.random.default_rng(0)
f32, f16, f64 = np.float32, np.float16, np.float64

# IsAllFinite
good, nan, inf = np.array([[1.0, -2.0]]), np.array([np.nan, 1.0]), np.array([1.0, -np.inf])
for t in (f32, f64, f16, ml_dtypes.bfloat16):
    for attrs, bad in (({}, ("nan", "inf")), ({"isnan_only": 1}, ("nan",)), ({"isinf_only": 1}, ("inf",))):
        f.case("IsAllFinite", 1, [good.astype(t)], attrs=attrs, want=[np.bool_(True)], **MS)
        f.case("IsAllFinite", 1, [good.astype(t), nan.astype(t)], attrs=attrs, want=[np.bool_("nan" not in bad)], **MS)
        f.case("IsAllFinite", 1, [inf.astype(t), good.astype(t)], attrs=attrs, want=[np.bool_("inf" not in bad)], **MS)
f.case("IsAllFinite", 1, [np.zeros((0, 3), f32)], want=[np.bool_(True)], **MS)

# ReduceSumInteger, MulInteger
for t, wide in ((np.int8, np.int32), (np.uint8, np.uint32)):
    v = rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, (3, 40, 5)).astype(t)
    for axes in ([0], [1, -1], [0, 1, 2]):
        for keep in (0, 1):
            want = v.astype(wide).sum(tuple(axes), keepdims=bool(keep), dtype=wide)
            f.case("ReduceSumInteger", 1, [v], attrs={"axes": axes, "keepdims": keep}, want=[want], out_types=[wide], **MS)
    w = rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, (5,)).astype(t)
    zero = t(7)
    signed = [a.astype(np.int32) for a in (v, w)]
    f.case("MulInteger", 1, [v, zero, w, zero], want=[(signed[0] - 7) * (signed[1] - 7)], **MS)
f.case("ReduceSumInteger", 1, [v[:0]], attrs={"axes": [0], "keepdims": 1}, want=[np.zeros((1, 40, 5), np.uint32)], out_types=[np.uint32], **MS)

# SampleOp, GemmFastGelu
for t in (f32, f64, f16, np.int32, np.int64, np.uint32, np.uint64):
    f.case("SampleOp", 1, [good.astype(t) if np.dtype(t).kind != "u" else np.array([1, 2], t)], want=[good.astype(t) if np.dtype(t).kind != "u" else np.array([1, 2], t)], **MS)


def fast_gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x ** 3)))


x, w, b = rng.standard_normal((2, 3, 4)), rng.standard_normal((4, 5)), rng.standard_normal(5)
for t, tol in ((f32, (1e-4, 1e-5)), (f16, (1e-2, 1e-2)), (ml_dtypes.bfloat16, (3e-2, 3e-2))):
    tx, tw, tb = (v.astype(t) for v in (x, w, b))
    wide = [v.astype(f64) for v in (tx, tw, tb)]
    f.case("GemmFastGelu", 1, [tx, tw], tol=tol, want=[fast_gelu(wide[0] @ wide[1]).astype(t)], **MS)
    f.case("GemmFastGelu", 1, [tx, tw, tb], tol=tol, want=[fast_gelu(wide[0] @ wide[1] + wide[2]).astype(t)], **MS)

# TransposeMatMul, FusedMatMulActivation
a, c = rng.standard_normal((2, 4, 3)).astype(f32), rng.standard_normal((2, 5, 4)).astype(f32)
product = 0.5 * np.swapaxes(a, 1, 2) @ np.swapaxes(c, 1, 2)
trans = {"transA": 1, "transB": 1, "alpha": 0.5}
f.case("TransposeMatMul", 1, [a, c], attrs=trans, **MS)
f.case("TransposeMatMul", 1, [a, np.swapaxes(a, 1, 2)], **MS)
for name, want in (("Relu", np.maximum(product, 0)), ("Tanh", np.tanh(product)), ("Sigmoid", 1 / (1 + np.exp(-product))),
                   ("LeakyRelu", np.where(product < 0, product * f32(0.2), product))):
    f.case("FusedMatMulActivation", 1, [a, c], attrs={**trans, "activation": name, "activation_alpha": 0.2}, want=[want.astype(f32)], **MS)
f.declines("FusedMatMulActivation", 1, [a, c], attrs={**trans, "activation": "Erf"}, why="activation 'Erf'", **MS)
test_contrib_math = f.pytest()
