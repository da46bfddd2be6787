import ml_dtypes
import numpy as np
from case import Family

f = Family("norm")
rng = np.random.default_rng(4)
F32, F16, F64, BF16 = np.float32, np.float16, np.float64, ml_dtypes.bfloat16
TOL = {F32: (1e-5, 1e-5), F16: (4e-3, 4e-3), BF16: (3e-2, 3e-2), F64: (1e-10, 1e-10)}
MS = "com.microsoft"


def data(shape, dtype=F32):
    return rng.standard_normal(shape).astype(dtype)


def statistics(x, axes, eps, centred=True):
    x, eps = x.astype(F64), F64(F32(eps))  # attributes are float32
    mean = x.mean(axis=axes, keepdims=True) if centred else 0 * x.mean(axis=axes, keepdims=True)
    inv = 1 / np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + eps)
    return (x - mean) * inv, mean, inv


# ---- over trailing axes ----------------------------------------------------------------------------------------------
def trailing(x, scale, bias=None, axis=-1, eps=1e-5, centred=True):
    axes = tuple(range(axis % x.ndim, x.ndim))
    y, mean, inv = statistics(x, axes, eps, centred)
    y = y * scale.astype(F64) + (0 if bias is None else bias.astype(F64))
    return y.astype(x.dtype), mean.astype(F32), inv.astype(F32)


x = data((2, 3, 4))
for axis in (-1, 0, 1, 2, -2):
    shape = x.shape[axis % 3:]
    scale, bias = data(shape), data(shape)
    for ins in ([x, scale], [x, scale, bias]):
        f.case("LayerNormalization", 17, ins, attrs={"axis": axis}, tol=TOL[F32])
        f.case("LayerNormalization", 17, ins, attrs={"axis": axis}, outs=3, tol=TOL[F32])
    f.case("LayerNormalization", 17, [x, scale, bias], attrs={"axis": axis, "epsilon": 0.1}, outs=2, tol=TOL[F32])
    f.case("LayerNormalization", 17, [x, scale, bias], attrs={"axis": axis}, outs=3, skip_outs=(1,), tol=TOL[F32],
           want=[trailing(x, scale, bias, axis)[i] for i in (0, 2)])
    f.case("RMSNormalization", 23, [x, scale], attrs={"axis": axis}, tol=TOL[F32])
    f.case("SimplifiedLayerNormalization", 17, [x, scale], attrs={"axis": axis}, tol=TOL[F32], out_types=[F32])
    f.case("SimplifiedLayerNormalization", 17, [x, scale], attrs={"axis": axis}, outs=2, tol=TOL[F32],
           out_types=[F32, F32])
# Scale and bias that broadcast.
for shape in ((), (1,), (1, 1, 4), (3, 4), (3, 1), (2, 3, 4)):
    scale, bias, row = data(shape), data(shape), data((4,))
    f.case("LayerNormalization", 17, [x, scale, bias], want=[trailing(x, scale, bias)[0]], tol=TOL[F32])
    f.case("LayerNormalization", 17, [x, row, bias], want=[trailing(x, row, bias)[0]], tol=TOL[F32])
    f.case("RMSNormalization", 23, [x, scale], want=[trailing(x, scale, None, -1, 1e-5, False)[0]], tol=TOL[F32])
for dtype in (F16, BF16, F64):
    v = data((3, 8), dtype)
    scale, bias = data((8,), dtype), data((8,), dtype)
    for axis in (-1, 0):
        s, b = (scale, bias) if axis else (data((3, 8), dtype), data((3, 8), dtype))
        want = trailing(v, s, b, axis)
        f.case("LayerNormalization", 17, [v, s, b], attrs={"axis": axis}, want=want[:1], out_types=[dtype],
               tol=TOL[dtype])
        # float64 statistics are compared as the float32 that they are given in
        f.case("LayerNormalization", 17, [v, s, b], attrs={"axis": axis}, want=want, outs=3,
               out_types=[dtype, F32, F32], tol=TOL[dtype] if dtype != F64 else (1e-6, 1e-6))
        rms = trailing(v, s, None, axis, 1e-5, False)
        f.case("RMSNormalization", 23, [v, s], attrs={"axis": axis}, want=rms[:1], out_types=[dtype], tol=TOL[dtype])
        f.case("SimplifiedLayerNormalization", 17, [v, s], attrs={"axis": axis}, want=rms[:1], out_types=[dtype],
               tol=TOL[dtype])
# Large values of float16: the squares are taken in float32.
large = (300 * data((2, 16))).astype(F16)
one = np.ones((16,), F16)
f.case("LayerNormalization", 17, [large, one], want=trailing(large, one)[:1], out_types=[F16], tol=TOL[F16])
f.case("RMSNormalization", 23, [large, one], want=trailing(large, one, None, -1, 1e-5, False)[:1], out_types=[F16],
       tol=TOL[F16])
f.case("RMSNormalization", 23, [large, one.astype(F32)], want=[trailing(large, one, None, -1, 1e-5, False)[0].astype(F32)],
       out_types=[F32], tol=TOL[F16], name="scale of another type")
f.case("LayerNormalization", 17, [x, data((4,))], attrs={"stash_type": 16}, tol=TOL[F32], out_types=[F32],
       want=None, name="stash_type of less precision")
for shape in ((0, 4), (2, 0, 4)):
    f.case("LayerNormalization", 17, [np.zeros(shape, F32), data((4,))], want=[np.zeros(shape, F32)])
    f.case("RMSNormalization", 23, [np.zeros(shape, F32), data((4,))], want=[np.zeros(shape, F32)])
f.case("LayerNormalization", 17, [np.array([[1, np.nan, 2], [np.inf, 1, 2], [1, 2, 3]], F32), np.ones(3, F32)],
       want=[np.array([[np.nan] * 3, [np.nan] * 3, [-1.2247356, 0, 1.2247356]], F32)], tol=TOL[F32])
f.declines("LayerNormalization", 17, [x, data((4,))], attrs={"stash_type": 11}, why="stash_type asks for float64")

# ---- with a residual -------------------------------------------------------------------------------------------------
for op, centred in (("SkipLayerNormalization", True), ("SkipSimplifiedLayerNormalization", False)):
    for dtype in (F32, F16, BF16):
        v, skip = data((2, 3, 8), dtype), data((2, 3, 8), dtype)
        gamma, beta, bias = data((8,), dtype), data((8,), dtype), data((8,), dtype)
        for more in ([], [beta], [None, bias], [beta, bias]) if centred else ([], [bias]):
            has_bias = len(more) == 2 or (not centred and more)
            total = v.astype(F64) + skip.astype(F64) + (bias.astype(F64) if has_bias else 0)
            total = total.astype(dtype)
            y, mean, inv = trailing(total, gamma, beta if centred and more and more[0] is not None else None, -1, 1e-12,
                                    centred)
            mean = mean if centred else 0 * mean
            f.case(op, 1, [v, skip, gamma] + more, domain=MS, want=[y], out_types=[dtype], tol=TOL[dtype])
            f.case(op, 1, [v, skip, gamma] + more, domain=MS, want=[y, total], outs=4, skip_outs=(1, 2),
                   out_types=[dtype, F32, F32, dtype], tol=TOL[dtype])
            f.case(op, 1, [v, skip, gamma] + more, domain=MS, want=[y, mean, inv, total], outs=4,
                   out_types=[dtype, F32, F32, dtype], tol=TOL[dtype])
    v, gamma = data((2, 3, 8)), data((8,))
    f.case(op, 1, [v, data((2, 3, 8)), gamma], domain=MS, attrs={"epsilon": 1e-3}, outs=4, tol=TOL[F32])
    f.case(op, 1, [v, data((2, 3, 8)), gamma], domain=MS, tol=TOL[F32])
    f.case(op, 1, [v, data((1, 3, 8)), gamma], domain=MS, outs=4, skip_outs=(1, 2), tol=TOL[F32])
    f.case(op, 1, [v, data((3, 8)), gamma], domain=MS, outs=4, skip_outs=(1, 2), tol=TOL[F32])
    f.case(op, 1, [v[0], data((3, 8)), gamma], domain=MS, tol=TOL[F32], name="rank 2")
    f.case(op, 1, [np.zeros((0, 3, 8), F32), np.zeros((0, 3, 8), F32), gamma], domain=MS, outs=4, skip_outs=(1, 2),
           want=[np.zeros((0, 3, 8), F32)] * 2, out_types=[F32] * 4)

# ---- EmbedLayerNormalization -----------------------------------------------------------------------------------------
for dtype in (F32, F16):
    words, positions, segments = data((9, 8), dtype), data((6, 8), dtype), data((3, 8), dtype)
    gamma, beta = data((8,), dtype), data((8,), dtype)
    ids = np.array([[1, 8, 0], [4, 4, 2]], np.int32)
    types = np.array([[0, 1, 2], [2, 1, 0]], np.int32)
    mask = np.array([[1, 1, 0], [1, 0, 0]], np.int32)
    at = np.array([[5, 1, 0], [3, 3, 3]], np.int32)
    tables = [words, positions, segments, gamma, beta]
    kw = {"domain": MS, "tol": TOL[dtype], "const": (2, 3, 4, 5, 6)}
    f.case("EmbedLayerNormalization", 1, [ids, types] + tables + [mask], outs=3, **kw)
    f.case("EmbedLayerNormalization", 1, [ids, types] + tables, outs=2, attrs={"epsilon": 1e-5}, **kw)
    f.case("EmbedLayerNormalization", 1, [ids, None, words, positions, None, gamma, beta, mask], outs=2, **kw)
    f.case("EmbedLayerNormalization", 1, [ids, types] + tables + [mask, at], outs=3, **kw)
    f.case("EmbedLayerNormalization", 1, [ids, types] + tables + [None, at[:1]], outs=3, skip_outs=(1,), **kw)
f.fails("EmbedLayerNormalization", 1, [ids + 3, types] + tables, domain=MS, outs=2, why="out of range",
        out_types=[F16, np.int32], const=(2, 3, 4, 5, 6))
f.fails("EmbedLayerNormalization", 1, [ids, types + 1] + tables, domain=MS, outs=2, why="out of range",
        out_types=[F16, np.int32], const=(2, 3, 4, 5, 6))
f.fails("EmbedLayerNormalization", 1, [ids - 1, types] + tables, domain=MS, outs=2, why="out of range",
        out_types=[F16, np.int32], const=(2, 3, 4, 5, 6))

# ---- BatchNormalization ----------------------------------------------------------------------------------------------
def batch_ins(shape, dtype=F32, channels=None):
    c = channels or ((shape[1] if len(shape) > 1 else 1),)
    return [data(shape, dtype)] + [data(c, dtype) for _ in range(3)] + [rng.uniform(0.5, 2, c).astype(dtype)]


def batch(ins, eps=1e-5):
    x, scale, bias, mean, var = (v.astype(F64) for v in ins)
    at = (-1,) + (1,) * (x.ndim - 2)
    y = (x - mean.reshape(at)) / np.sqrt(var.reshape(at) + F64(F32(eps))) * scale.reshape(at) + bias.reshape(at)
    return [y.astype(ins[0].dtype)]


for shape in ((2, 3, 4, 5), (2, 3, 4), (4, 3), (1, 1, 1, 1), (2, 3, 2, 2, 2)):
    for const in ((), (1, 2, 3, 4), (1, 2)):
        ins = batch_ins(shape)
        for opset in (7, 9, 14, 15):
            f.case("BatchNormalization", opset, ins, const=const, tol=TOL[F32])
        f.case("BatchNormalization", 15, ins, const=const, attrs={"epsilon": 0.01, "momentum": 0.5}, tol=TOL[F32])
ins = batch_ins((2, 3, 4, 5))
f.case("BatchNormalization", 6, ins, attrs={"is_test": 1}, want=batch(ins), tol=TOL[F32])
f.case("BatchNormalization", 1, ins, attrs={"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}, want=batch(ins), tol=TOL[F32])
f.case("BatchNormalization", 7, batch_ins((2, 3, 4), channels=(3, 4)), attrs={"spatial": 0}, tol=TOL[F32])
f.case("BatchNormalization", 15, batch_ins((5,)), tol=TOL[F32], name="one axis")
f.case("BatchNormalization", 15, batch_ins((0, 3, 2)), tol=TOL[F32])
for dtype in (F16, BF16, F64):
    ins = batch_ins((2, 3, 4), dtype)
    f.case("BatchNormalization", 15, ins, want=batch(ins), out_types=[dtype], tol=TOL[dtype])
mixed = [data((2, 3, 4), F16)] + [v.astype(F32) for v in ins[1:]]
f.case("BatchNormalization", 15, mixed, want=batch(mixed), out_types=[F16], tol=TOL[F16], name="statistics in float32")
for shape in ((2, 3, 4, 5), (4, 3)):
    for more in ({}, {"momentum": 0.25, "epsilon": 0.1}):
        f.case("BatchNormalization", 14, batch_ins(shape), outs=3, attrs=dict(more, training_mode=1), tol=TOL[F32])
        f.case("BatchNormalization", 15, batch_ins(shape), outs=3, attrs=dict(more, training_mode=1), tol=TOL[F32])
f.declines("BatchNormalization", 9, batch_ins((2, 3, 4)), outs=5, why="training form", out_types=[F32] * 5)
f.declines("BatchNormalization", 15, [data(())] + batch_ins((5,))[1:], why="input is a scalar")

# ---- Instance- and GroupNormalization --------------------------------------------------------------------------------
def group(x, scale, bias, groups, each, eps=1e-5):
    """each: scale and bias for each group, else for each channel."""
    y = statistics(x.reshape(x.shape[0], groups, -1), (2,), eps)[0].reshape(x.shape)
    if each:
        scale, bias = (np.repeat(v, x.shape[1] // groups) for v in (scale, bias))
    at = (-1,) + (1,) * (x.ndim - 2)
    return [(y * scale.astype(F64).reshape(at) + bias.astype(F64).reshape(at)).astype(x.dtype)]


for shape in ((2, 3, 4), (2, 3, 4, 5), (1, 3, 1, 2, 2), (2, 1, 6)):
    c = (shape[1],)
    for opset in (6, 22):
        f.case("InstanceNormalization", opset, [data(shape), data(c), data(c)], tol=(1e-4, 1e-4))
    f.case("InstanceNormalization", 6, [data(shape), data(c), data(c)], attrs={"epsilon": 0.1}, tol=TOL[F32])
for dtype in (F16, BF16, F64):
    ins = [data((2, 3, 4, 2), dtype), data((3,), dtype), data((3,), dtype)]
    f.case("InstanceNormalization", 22, ins, want=group(*ins, 3, False), out_types=[dtype], tol=TOL[dtype])
ins = [data((2, 3, 4)), data((3,)), data((3,))]
f.case("InstanceNormalization", 1, ins, want=group(*ins, 3, False), tol=TOL[F32])
f.case("InstanceNormalization", 6, [np.zeros((0, 3, 4), F32)] + ins[1:], want=[np.zeros((0, 3, 4), F32)])
f.declines("InstanceNormalization", 6, [data((2, 3)), data((3,)), data((3,))], why="no spatial axes")

for shape, groups in (((2, 4, 3), 2), ((2, 6, 2, 2), 3), ((2, 4, 3), 1), ((1, 4, 2, 2), 4), ((3, 4), 2)):
    c, g = (shape[1],), (groups,)
    for dtype in (F32, F16, BF16, F64):
        ins = [data(shape, dtype), data(c, dtype), data(c, dtype)]
        f.case("GroupNormalization", 21, ins, attrs={"num_groups": groups}, tol=TOL[dtype], out_types=[dtype],
               want=group(*ins, groups, False))
        ins = [data(shape, dtype), data(g, dtype), data(g, dtype)]
        f.case("GroupNormalization", 18, ins, attrs={"num_groups": groups, "epsilon": 0.01}, tol=TOL[dtype],
               out_types=[dtype], want=group(*ins, groups, True, 0.01))
    f.case("GroupNormalization", 21, [data(shape), data(c), data(c)], attrs={"num_groups": groups}, tol=(1e-4, 1e-4))
    if len(shape) > 2:
        f.case("GroupNormalization", 18, [data(shape), data(g), data(g)], attrs={"num_groups": groups}, tol=(1e-4, 1e-4))
ins = [np.zeros((0, 4, 3), F32), data((4,)), data((4,))]
f.case("GroupNormalization", 21, ins, attrs={"num_groups": 2}, want=ins[:1])
f.fails("GroupNormalization", 21, [data((1, 4, 2)), data((4,)), data((4,))], attrs={"num_groups": 3}, why="do not divide")


# ---- LRN -------------------------------------------------------------------------------------------------------------
def lrn(x, size, alpha=1e-4, beta=0.75, bias=1.0):
    v, total = x.astype(F64), np.zeros(x.shape)
    alpha, beta = F64(F32(alpha)), F64(F32(beta))
    for c in range(x.shape[1]):
        low, high = max(0, c - (size - 1) // 2), min(x.shape[1] - 1, c + -(-(size - 1) // 2))
        total[:, c] = (v[:, low:high + 1] ** 2).sum(axis=1)
    return [(v / (bias + alpha / size * total) ** beta).astype(x.dtype)]


for opset in (1, 13):
    for size in (1, 3, 5, 15):
        f.case("LRN", opset, [data((2, 7, 3, 2))], attrs={"size": size}, tol=TOL[F32])
        f.case("LRN", opset, [data((2, 7, 3, 2))], attrs={"size": size, "alpha": 0.5, "beta": 0.6, "bias": 2.0},
               tol=TOL[F32])
for dtype in (F32, F16, BF16, F64):
    for shape in ((2, 5), (2, 6, 3), (1, 4, 2, 2, 2)):
        v = data(shape, dtype)
        for size in (2, 3, 4, 100):
            f.case("LRN", 13, [v], attrs={"size": size, "alpha": 0.5}, want=lrn(v, size, 0.5), out_types=[dtype],
                   tol=TOL[dtype])
f.case("LRN", 13, [np.zeros((2, 0, 3), F32)], attrs={"size": 3}, want=[np.zeros((2, 0, 3), F32)])
f.declines("LRN", 13, [data((4,))], attrs={"size": 3}, why="no channels")
f.declines("LRN", 13, [data((2, 3, 4, 4))], attrs={"size": 0}, why="size is missing")


# ---- LpNormalization, MeanVarianceNormalization ----------------------------------------------------------------------
def lp(x, axis, p):
    v = x.astype(F64)
    norm = (np.abs(v) ** p).sum(axis=axis, keepdims=True) ** (1 / p)
    return [np.where(norm == 0, 0, v / np.where(norm == 0, 1, norm)).astype(x.dtype)]


for opset in (1, 22):
    for p in (1, 2):
        for axis in (0, 1, -1):
            f.case("LpNormalization", opset, [data((2, 3, 4))], attrs={"axis": axis, "p": p}, tol=TOL[F32])
        for dtype in (F16, F64) + ((BF16,) if opset > 1 else ()):
            v = data((3, 5), dtype)
            f.case("LpNormalization", opset, [v], attrs={"p": p}, want=lp(v, -1, p), out_types=[dtype], tol=TOL[dtype])
    f.case("LpNormalization", opset, [np.array([[0, 0], [3, 4]], F32)])
    f.case("LpNormalization", opset, [np.zeros((2, 0), F32)], want=[np.zeros((2, 0), F32)])
f.declines("LpNormalization", 22, [data((3,))], attrs={"p": 3}, why="p is 3")
f.declines("LpNormalization", 22, [data(())], why="input is a scalar")
f.fails("LpNormalization", 22, [data((3,))], attrs={"axis": 1}, why="out of range")

for opset in (9, 13):
    f.case("MeanVarianceNormalization", opset, [data((2, 3, 4, 5))], tol=TOL[F32])
    f.case("MeanVarianceNormalization", opset, [data((2, 3, 4))], attrs={"axes": [0, 2]}, tol=TOL[F32])
    f.case("MeanVarianceNormalization", opset, [data((2, 3, 4))], attrs={"axes": [-1]}, tol=TOL[F32])
    for dtype in (F16, F64) + ((BF16,) if opset > 9 else ()):
        v = data((2, 3, 2, 4), dtype)
        want = statistics(v, (0, 2, 3), 0)[0].astype(dtype)
        f.case("MeanVarianceNormalization", opset, [v], want=[want], out_types=[dtype],
               tol=TOL[dtype] if dtype != F64 else (1e-7, 1e-7))
f.case("MeanVarianceNormalization", 13, [np.full((2, 1, 2, 2), 3, F32)], want=[np.zeros((2, 1, 2, 2), F32)])
f.declines("MeanVarianceNormalization", 13, [data(())], why="input is a scalar")
f.fails("MeanVarianceNormalization", 13, [data((2, 3))], why="out of range for rank 2")

test_norm = f.pytest()
