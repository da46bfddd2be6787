import numpy as np
from case import Family

f = Family("contrib_norm")
MS = {"domain": "com.microsoft"}
rng = np.random.default_rng(0)
f32, f16 = np.float32, np.float16
TOL, HALF = (1e-4, 1e-4), (1e-2, 1e-2)


def group_norm(x, gamma, beta, groups, eps, silu, last=True):
    x = x.astype(np.float64)
    if not last:
        return np.moveaxis(group_norm(np.moveaxis(x, 1, -1), gamma, beta, groups, eps, silu), -1, 1)
    v = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    v = (v - v.mean((1, 3), keepdims=True)) / np.sqrt(v.var((1, 3), keepdims=True) + eps)
    y = v.reshape(x.shape) * gamma.astype(np.float64) + beta.astype(np.float64)
    return y / (1 + np.exp(-y)) if silu else y


gamma, beta, bias = (rng.standard_normal(6).astype(f32) for _ in range(3))
x = rng.standard_normal((2, 3, 4, 6)).astype(f32)
nchw = rng.standard_normal((2, 6, 3, 4)).astype(f32)
for groups in (1, 2, 6):
    for silu in (0, 1):
        attrs = {"groups": groups, "activation": silu, "epsilon": 1e-3}
        f.case("GroupNorm", 1, [x, gamma, beta], attrs=attrs, tol=TOL, want=[group_norm(x, gamma, beta, groups, 1e-3, silu).astype(f32)], **MS)
        f.case("GroupNorm", 1, [nchw, gamma, beta], attrs={**attrs, "channels_last": 0}, tol=TOL,
               want=[group_norm(nchw, gamma, beta, groups, 1e-3, silu, False).astype(f32)], **MS)
attrs = {"groups": 2, "activation": 1}
h = x.astype(f16)
f.case("GroupNorm", 1, [h, gamma, beta], attrs=attrs, tol=HALF, want=[group_norm(h, gamma, beta, 2, 1e-5, 1).astype(f16)], **MS)
f.case("GroupNorm", 1, [h, gamma.astype(f16), beta.astype(f16)], attrs=attrs, tol=HALF,
       want=[group_norm(h, gamma.astype(f16), beta.astype(f16), 2, 1e-5, 1).astype(f16)], **MS)
f.case("GroupNorm", 1, [x[:0], gamma, beta], attrs=attrs, want=[x[:0]], **MS)
f.declines("GroupNorm", 1, [x, gamma, beta], attrs={"groups": 2, "activation": 2}, why="activation 2", **MS)
f.fails("GroupNorm", 1, [x, gamma, beta], attrs={"groups": 4, "activation": 0}, why="4 groups do not divide", **MS)
f.fails("GroupNorm", 1, [x, gamma[:5], beta], attrs={"groups": 2, "activation": 0}, why="one entry for each of 6 channels", **MS)

# SkipGroupNorm
for skip in (rng.standard_normal(x.shape).astype(f32), rng.standard_normal((2, 1, 1, 6)).astype(f32), rng.standard_normal((2, 6)).astype(f32)):
    for b in (None, bias):
        total = x + (skip[:, None, None] if skip.ndim == 2 else skip) + (0 if b is None else b)
        want = [group_norm(total, gamma, beta, 2, 1e-5, 1).astype(f32), total.astype(f32)]
        ins = [x, gamma, beta, skip] + ([] if b is None else [b])
        f.case("SkipGroupNorm", 1, ins, outs=2, attrs=attrs, tol=TOL, want=want, **MS)
        f.case("SkipGroupNorm", 1, ins, attrs=attrs, tol=TOL, want=want[:1], **MS)
f.declines("SkipGroupNorm", 1, [nchw, gamma, beta, nchw], attrs={**attrs, "channels_last": 0}, why="channels that are not last", **MS)
f.fails("SkipGroupNorm", 1, [x[:1], gamma, beta, x], attrs=attrs, why="do not fit the input", **MS)


# BiasSoftmax
def softmax(v, axis):
    flat = v.astype(np.float64).reshape(*v.shape[:axis], -1)
    e = np.exp(flat - flat.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).reshape(v.shape)


scores = rng.standard_normal((2, 3, 4, 5)).astype(f32)
for shape, axis, inner in [((2, 1, 1, 5), 3, 1), ((1, 1, 4, 5), 3, 0), ((4, 5), 3, 0), ((2, 1, 4, 5), 2, 1), ((2, 3, 4, 5), 1, 1), ((2, 1, 1, 5), -1, 1)]:
    b = rng.standard_normal(shape).astype(f32)
    for t in (f32, f16):
        want = softmax(scores.astype(t).astype(f32) + b.astype(t).astype(f32), axis % 4).astype(t)
        f.case("BiasSoftmax", 1, [scores.astype(t), b.astype(t)], attrs={"axis": axis, "is_inner_broadcast": inner}, want=[want], **MS)
f.case("BiasSoftmax", 1, [scores[:0], scores[:0]], attrs={"axis": 3, "is_inner_broadcast": 0}, want=[scores[:0]], **MS)
f.declines("BiasSoftmax", 1, [scores.astype(np.float64)] * 2, attrs={"axis": 3, "is_inner_broadcast": 0}, why="type float64", **MS)
f.fails("BiasSoftmax", 1, [scores[:1], scores], attrs={"axis": 3, "is_inner_broadcast": 0}, why="bias does not fit", **MS)

# BiasDropout, for inference
data, b, rest = rng.standard_normal((2, 3, 5)), rng.standard_normal(5), rng.standard_normal((2, 3, 5))
for t in (f32, np.float64, f16):
    d, v, r = data.astype(t), b.astype(t), rest.astype(t)
    f.case("BiasDropout", 1, [d, v], outs=2, want=[d + v, np.ones(d.shape, bool)], **MS)
    f.case("BiasDropout", 1, [d, v, r], want=[(d.astype(np.float64) + v + r).astype(t)], **MS)
    f.case("BiasDropout", 1, [d, d, r, f32(0.5), np.bool_(False)], const=(3, 4), outs=2, want=[(d.astype(np.float64) + d + r).astype(t), np.ones(d.shape, bool)], **MS)
    mask = np.full(-(-d.size // 32), 2**32 - 1, np.uint32)
    f.case("BitmaskBiasDropout", 1, [d, v, r], outs=2, want=[(d.astype(np.float64) + v + r).astype(t), mask], **MS)
    f.case("BitmaskBiasDropout", 1, [d, v, None, f32(0.5), np.bool_(False)], const=(3, 4), want=[d + v], **MS)
    f.case("BitmaskDropout", 1, [d], outs=2, want=[d, mask], **MS)
    f.case("BitmaskDropout", 1, [d, f32(0.5), np.bool_(False)], const=(1, 2), want=[d], **MS)
f.case("BitmaskDropout", 1, [np.zeros((5, 7, 3), np.float32)], outs=2, want=[np.zeros((5, 7, 3), np.float32), np.full(4, 2**32 - 1, np.uint32)], **MS)
f.declines("BitmaskDropout", 1, [d, f32(0.5), np.bool_(True)], const=(1, 2), why="training_mode", **MS)
f.declines("BiasDropout", 1, [d, v, None, f32(0.5), np.bool_(True)], const=(3, 4), why="training_mode", **MS)
f.declines("BiasDropout", 1, [d, v, None, f32(0.5), np.bool_(False)], const=(3,), why="training_mode", **MS)
test_contrib_norm = f.pytest()
