"""Attention of sequences without padding, against NumPy: ONNX Runtime has no CPU kernel of it."""
import numpy as np

from case import Family

rng = np.random.default_rng(37)
f = Family("packed")
f32, f16, i32 = np.float32, np.float16, np.int32
MS, H, D = "com.microsoft", 4, 8
W = H * D


def normal(*shape):
    return rng.standard_normal(shape).astype(f32)


def attend(q, k, v, starts, added=None, scale=None):
    """q, k [tokens, H, D], v [tokens, H, Dv]; each sequence by itself."""
    y = np.zeros((q.shape[0], H, v.shape[2]))
    for b, (i, j) in enumerate(zip(starts, starts[1:])):
        s = np.einsum("qhd,khd->hqk", q[i:j].astype(np.float64), k[i:j].astype(np.float64)) * (scale or q.shape[2] ** -0.5)
        if added is not None:
            s = s + added[b % added.shape[0], :, :j - i, :j - i]
        e = np.exp(s - s.max(-1, keepdims=True)) if j > i else s
        y[i:j] = np.einsum("hqk,khd->qhd", e / e.sum(-1, keepdims=True), v[i:j].astype(np.float64))
    return y.reshape(q.shape[0], -1)


def offsets(starts):
    return np.arange((len(starts) - 1) * max(np.diff(starts), default=0), dtype=i32).reshape(len(starts) - 1, -1)


def split(x):
    return x.reshape(x.shape[0], H, -1)


def mha(q, k, v, starts, bias=None, added=None, name="", tol=(1e-4, 1e-5), **attrs):
    parts = list(q.transpose(2, 0, 1, 3)) if k is None else [split(x) for x in (q, k, v)]
    if bias is not None:
        cut = np.split(bias, [W, 2 * W])
        parts = [p + c.reshape(1, H, -1) for p, c in zip(parts, cut)]
    want = attend(*parts, starts, added, attrs.get("scale")).astype(q.dtype)
    f.case("PackedMultiHeadAttention", 1, [q, k, v, bias, offsets(starts), np.array(starts, i32), added], domain=MS, name=name,
           attrs={"num_heads": H, **attrs}, want=[want], out_types=[q.dtype], tol=tol)


tokens = lambda n, dv=D: (normal(n, W), normal(n, W), normal(n, H * dv))  # noqa: E731
mha(*tokens(7), [0, 1, 3, 7], name="three")
mha(*tokens(7, 6), [0, 3, 7], name="value-size")
mha(*tokens(5), [0, 5], name="one")
mha(*tokens(5), [0, 2, 2, 5], name="empty-entry")
mha(*tokens(7), [0, 1, 3, 7], bias=normal(3 * W), name="bias")
mha(normal(7, H, 3, D), None, None, [0, 3, 7], name="whole")
mha(normal(7, H, 3, D), None, None, [0, 3, 7], bias=normal(3 * W), name="whole-bias")
for shape in ((1, 1), (1, H), (2, 1), (2, H)):
    mha(*tokens(7), [0, 3, 7], added=normal(*shape, 4, 4), name=f"added-{shape}")
mha(*tokens(7), [0, 3, 7], name="scale", scale=0.2)
mha(*(x.astype(f16) for x in tokens(7)), [0, 3, 7], name="f16", tol=(1e-2, 5e-3))

x, w, b = normal(7, 10), normal(10, 3 * W), normal(3 * W)
w2, b2 = normal(10, 2 * W + H * 6), normal(2 * W + H * 6)
for weights, bias, attrs in ((w, b, {}), (w2, b2, {"qkv_hidden_sizes": [W, W, H * 6]})):
    want = attend(*(split(p) for p in np.split(x @ weights + bias, [W, 2 * W], 1)), [0, 3, 7]).astype(f32)
    f.case("PackedAttention", 1, [x, weights, bias, offsets([0, 3, 7]), np.array([0, 3, 7], i32)], domain=MS,
           attrs={"num_heads": H, **attrs}, want=[want], out_types=[f32], tol=(1e-4, 1e-5))

q, k, v = tokens(7)
for starts in ([0, 3, 8], [0, 5, 3, 7], [1, 3, 7]):
    f.fails("PackedMultiHeadAttention", 1, [q, k, v, None, np.zeros((2, 4), i32), np.array(starts, i32)], "cumulative_sequence_length",
            domain=MS, attrs={"num_heads": H})
f.declines("PackedMultiHeadAttention", 1, [q, k, v, None, np.zeros((2, 4), i32), np.array([0, 7], i32)], "heads", domain=MS,
           attrs={"num_heads": 0})

test_packed = f.pytest()
