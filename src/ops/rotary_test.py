"""Rotary embeddings against ONNX Runtime's CPU kernels, and against NumPy where there is none."""
import ml_dtypes
import numpy as np

from case import Family

rng = np.random.default_rng(29)
f = Family("rotary")
f32, f16, bf16 = np.float32, np.float16, ml_dtypes.bfloat16
MS = "com.microsoft"
B, S, H, D, ROWS = 2, 3, 4, 8, 16
pos = np.array([[0, 1, 2], [5, 3, 9]])


def normal(*shape, dtype=f32):
    return rng.standard_normal(shape).astype(dtype)


def caches(half=D // 2, dtype=f32, lead=(ROWS,)):
    angle = rng.random((*lead, half)) * 6
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


def turned(x, cos, sin, interleaved=False):
    """x [B, H, S, D], cos and sin [B, S, half]; float32."""
    half = cos.shape[-1]
    cos, sin, y = cos[:, None].astype(f32), sin[:, None].astype(f32), x.astype(f32).copy()
    a, b = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    y[..., a], y[..., b] = (x[..., a].astype(f32) * cos - x[..., b].astype(f32) * sin,
                            x[..., a].astype(f32) * sin + x[..., b].astype(f32) * cos)
    return y


flat, apart = normal(B, S, H * D), normal(B, H, S, D)


def onnx(x, cos, sin, at=None, name="", **attrs):
    f.case("RotaryEmbedding", 23, [x, cos, sin] + ([] if at is None else [at]), attrs=attrs, name=name)


def ms(x, at, cos, sin, name="", tol=None, want=None, out_types=None, **attrs):
    f.case("RotaryEmbedding", 1, [x, at, cos, sin], domain=MS, attrs=attrs, name=name, tol=tol, want=want, out_types=out_types)


for inter in (0, 1):
    onnx(apart, *caches(), pos, "4d", interleaved=inter)
    onnx(flat, *caches(), pos, "3d", interleaved=inter, num_heads=H)
    onnx(apart, *caches(lead=(B, S)), name="4d-rows", interleaved=inter)
    onnx(flat, *caches(lead=(B, S)), name="3d-rows", interleaved=inter, num_heads=H)
    onnx(apart, *caches(2), pos, "4d-part", interleaved=inter, rotary_embedding_dim=4)
    onnx(flat, *caches(2), pos, "3d-part", interleaved=inter, rotary_embedding_dim=4, num_heads=H)
    onnx(flat, *caches(2, lead=(B, S)), name="3d-part-rows", interleaved=inter, rotary_embedding_dim=4, num_heads=H)
    ms(apart, pos, *caches(), "4d", interleaved=inter)
    ms(flat, pos, *caches(), "3d", interleaved=inter)
    ms(flat, pos, *caches(), "3d-heads", interleaved=inter, num_heads=H)
    ms(apart, np.array([4]), *caches(), "4d-start", interleaved=inter)
    ms(flat, np.array([13]), *caches(), "3d-start", interleaved=inter)
    ms(apart, pos, *caches(2), "4d-part", interleaved=inter, num_heads=H, rotary_embedding_dim=4)
    ms(flat, pos, *caches(2), "3d-part", interleaved=inter, num_heads=H, rotary_embedding_dim=4)
half = {"tol": (4e-3, 2e-3)}
for x in (flat, apart):
    ms(x.astype(f16), pos, *caches(dtype=f16), "f16", **half)
f.case("RotaryEmbedding", 23, [apart.astype(f16), *caches(dtype=f16), pos], **half)
cos, sin = caches(dtype=bf16)
x = apart.astype(bf16)
want = [turned(x, cos[pos], sin[pos]).astype(bf16)]
ms(x, pos, cos, sin, "bf16", want=want, out_types=[bf16])
f.case("RotaryEmbedding", 23, [x, cos, sin, pos], want=want, out_types=[bf16])
ms(normal(1, 1, H * D), np.array([[7]]), *caches(), "decode")
ms(normal(B, 0, H * D), np.zeros((B, 0), np.int64), *caches(), "no-tokens", want=[np.zeros((B, 0, H * D), f32)])

_f = lambda at, why: f.fails("RotaryEmbedding", 1, [apart, at, *caches()], why, domain=MS)  # noqa: E731
_f(pos + 10, "out of range")
_f(pos - 1, "out of range")
_f(np.array([14]), "out of range")
_f(pos[:, :2], "position_ids")
f.fails("RotaryEmbedding", 23, [apart, *caches(), pos + 10], "out of range")
f.fails("RotaryEmbedding", 23, [apart, *caches(3), pos], "do not fit")
_d = lambda why, op="RotaryEmbedding", at=pos, **attrs: f.declines(op, 1, [apart, at, *caches()], why, domain=MS, attrs=attrs)  # noqa: E731
_d("scale", scale=2.0)
_d("is_packed_batching", is_packed_batching=1)
_d("rotary_embedding_dim", rotary_embedding_dim=3, num_heads=H)


# ---- MRotaryEmbedding ---------------------------------------------------------------------------------------------------------
streams = rng.integers(0, ROWS, (3, B, S))
for section in ([2, 1, 1], [0, 4, 0], [4, 0, 0], [1, 1, 2]):
    for layout in (0, 1):
        f.case("MRotaryEmbedding", 1, [apart, streams, *caches()], domain=MS, attrs={"mrope_section": section, "mrope_layout": layout})
f.case("MRotaryEmbedding", 1, [flat, streams, *caches()], domain=MS, attrs={"mrope_section": [2, 1, 1], "interleaved": 1, "num_heads": H})
f.case("MRotaryEmbedding", 1, [flat, streams, *caches(3)], domain=MS, name="part",
       attrs={"mrope_section": [1, 1, 1], "mrope_layout": 1, "rotary_embedding_dim": 6, "num_heads": H})
f.case("MRotaryEmbedding", 1, [apart.astype(f16), streams, *caches(dtype=f16)], domain=MS, attrs={"mrope_section": [2, 1, 1]}, **half)
f.fails("MRotaryEmbedding", 1, [apart, streams + 10, *caches()], "out of range", domain=MS, attrs={"mrope_section": [2, 1, 1]})
f.fails("MRotaryEmbedding", 1, [apart, streams, *caches()], "mrope_section", domain=MS, attrs={"mrope_section": [2, 1, 2]})
_d("mrope_layout", "MRotaryEmbedding", streams, mrope_section=[2, 1, 1], mrope_layout=2)
_d("mrope_section", "MRotaryEmbedding", streams, mrope_section=[2, 2])

# ---- GemmaRotaryEmbedding -----------------------------------------------------------------------------------------------------
angle = normal(B, S, D)
states = [normal(B, H, S, D, dtype=f16) for _ in range(4)]
c, s = (g(angle).astype(f16)[:, None].astype(f32) for g in (np.cos, np.sin))
want = [(states[i].astype(f32) * c + states[i + 1].astype(f32) * s).astype(f16) for i in (0, 2)]
f.case("GemmaRotaryEmbedding", 1, [angle, *states], outs=2, domain=MS, want=want, out_types=[f16, f16])

test_rotary = f.pytest()
