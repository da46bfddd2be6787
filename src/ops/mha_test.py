"""MultiHeadAttention, Attention and DecoderMaskedMultiHeadAttention of com.microsoft against ONNX Runtime's CPU kernels."""
import ml_dtypes
import numpy as np

from case import Family

rng = np.random.default_rng(23)
f = Family("mha")
i32, f32, f16 = np.int32, np.float32, np.float16
MS = "com.microsoft"
B, S, T, H, D, P = 2, 3, 5, 4, 8, 4
W = H * D


def normal(*shape, dtype=f32):
    return rng.standard_normal(shape).astype(dtype)


def ints(*v):
    return np.array(v, i32)


def case(op, ins, outs=1, name="", tol=(1e-4, 1e-5), want=None, out_types=None, any_out=(), **attrs):
    f.case(op, 1, ins, outs=outs, domain=MS, attrs={"num_heads": H, **attrs}, name=name, tol=tol, want=want, out_types=out_types,
           any_out=any_out)


def attend(q, k, v):
    """[B, S, H * D] from [B, H, S, D]."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    e = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]))
    y = e / e.sum(-1, keepdims=True) @ v
    return y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)


def split(x):
    return x.reshape(*x.shape[:2], H, -1).transpose(0, 2, 1, 3)


# ---- MultiHeadAttention ---------------------------------------------------------------------------------------------------
def mha(ins, **kw):
    case("MultiHeadAttention", ins, **kw)


def cross(dv=D, dtype=f32):
    return [normal(B, S, W, dtype=dtype), normal(B, T, W, dtype=dtype), normal(B, T, H * dv, dtype=dtype)]


def own(rows=S):
    return [normal(B, rows, W), normal(B, rows, W), normal(B, rows, W)]


def cache(rows=P):
    return [normal(B, H, rows, D), normal(B, H, rows, D)]


masks = {"lengths": ints(3, 5), "packed-lengths": ints(5, 3, 0, 3, 6, 0, 5, 8), "keys": (rng.random((B, T)) > 0.3).astype(i32),
         "keys-queries": (rng.random((B, S, T)) > 0.3).astype(i32) - (rng.random((B, S, T)) > 0.8).astype(i32),
         "none": np.zeros((B, T), i32)}
mha(cross(), name="cross")
mha(cross(6), name="value-size")
mha(cross() + [normal(3 * W)], name="bias")
mha(cross(6) + [normal(2 * W + 6 * H)], name="bias-value-size")
for name, mask in masks.items():
    mha(cross() + [None, mask], name=f"mask-{name}", tol=(2e-3, 2e-3))
    mha(cross() + [normal(3 * W), mask, normal(1, H, S, T)], name=f"mask-bias-{name}", tol=(2e-3, 2e-3))
mha(cross() + [None, masks["keys"]], name="filter", mask_filter_value=-2.0)
mha(cross() + [None, masks["keys"]], name="filter-lowest", mask_filter_value=-3.4028234663852886e38)
for a, b in ((1, H), (B, H), (1, 1), (B, 1)):
    mha(cross() + [None, None, normal(a, b, S, T)], name=f"added-{a}-{b}")
mha(cross(), name="scale", scale=0.4)
apart = [normal(B, S, W), normal(B, H, T, D), normal(B, H, T, D)]
mha(apart, name="heads-apart")
mha(apart, name="heads-apart-present", outs=3)
mha(apart + [normal(3 * W), masks["keys"]], name="heads-apart-bias")
mha(own(), name="presents", outs=3)
mha(own() + [None, None, None] + cache(), name="past", outs=3)
mha(own() + [normal(3 * W), np.ones((B, P + S), i32), normal(1, H, S, P + S)] + cache(), name="past-all", outs=3)
mha(own(1) + [None, None, None] + cache(0), name="past-empty", outs=3)
mha(own() + [None, None, None] + cache(), name="unidirectional-past", outs=3, unidirectional=1)
mha(own(1) + [None, None, None] + cache(), name="unidirectional-decode", outs=3, unidirectional=1)
mha(own() + [None, None, None], name="unidirectional", unidirectional=1)
mha(own() + [None, (rng.random((B, S)) > 0.4).astype(i32)], name="unidirectional-mask", unidirectional=1, tol=(2e-3, 2e-3))
for rows in (1, 3):
    mha(own(rows) + [None, None, None] + cache(8) + [ints(3)], name=f"shared-S{rows}", outs=3)
mha(own(1) + [normal(3 * W), None, None] + cache(8) + [ints(7)], name="shared-full", outs=3)
mha(own(1) + [None, None, None] + cache(8) + [ints(0)], name="shared-first", outs=3)
packed = normal(B, S, H, 3, D)
parts = packed.transpose(3, 0, 2, 1, 4)
mha([packed, None, None], name="packed-qkv", want=[attend(*parts).astype(f32)], out_types=[f32])
bias = normal(3 * W)
shifted = parts + bias.reshape(3, 1, H, 1, D)
mha([packed, None, None, bias], name="packed-qkv-bias", want=[attend(*shifted).astype(f32)], out_types=[f32])
q, kv = normal(B, S, W), normal(B, T, H, 2, D)
mha([q, kv, None], name="packed-kv", want=[attend(split(q), *kv.transpose(3, 0, 2, 1, 4)).astype(f32)], out_types=[f32])
for dtype, tol in ((f16, (6e-3, 3e-3)), (ml_dtypes.bfloat16, (3e-2, 2e-2))):
    ins = cross(dtype=dtype)
    mha(ins, name=np.dtype(dtype).name, want=[attend(*map(split, ins)).astype(dtype)], out_types=[dtype], tol=tol)
mha([normal(0, S, W), normal(0, T, W), normal(0, T, W)], name="empty", want=[np.zeros((0, S, W), f32)])

_f = lambda ins, why, op="MultiHeadAttention", **attrs: f.fails(op, 1, ins, why, domain=MS, attrs={"num_heads": H, **attrs})  # noqa: E731
_d = lambda ins, why, op="MultiHeadAttention", outs=1, **attrs: f.declines(op, 1, ins, why, domain=MS, outs=outs, attrs={"num_heads": H, **attrs})  # noqa: E731
_f(cross() + [None, np.ones((B, 2), i32)], "mask")
_f(cross() + [None, np.ones((B, 1), i32)], "mask")
_f(cross() + [None, None, normal(1, H, S, T - 1)], "attention_bias")
_f(cross() + [normal(5)], "bias")
_f(own() + [None, None, None] + cache(8) + [ints(6)], "past_sequence_length")
_f([normal(B, S, W), normal(B, T, 2 * W), normal(B, T, W)], "do not fit")
_d(own() + [None, None, None] + cache(8) + [ints(1), np.zeros((B, 1, 8), i32)], "cache_indirection", outs=3)
f.declines("MultiHeadAttention", 1, own(), "qk", domain=MS, outs=4, attrs={"num_heads": H}, out_types=[f32] * 4)
_d(own(), "heads", num_heads=0)


# ---- DecoderMaskedMultiHeadAttention ----------------------------------------------------------------------------------------
def decoder(ins, **kw):
    case("DecoderMaskedMultiHeadAttention", ins, **kw)


share = {"past_present_share_buffer": 1, "outs": 3}
decoder(own(1), name="alone")
decoder(own(1) + [None, None] + cache(8) + [ints(3)], name="shared", **share)
decoder(own(1) + [ints(1, 1, 0, 1, 1, 0, 1, 1).reshape(B, 4), None] + cache(8) + [ints(3)], name="shared-mask", **share)
decoder(own(1) + [None, normal(1, H, 1, 4)] + cache(8) + [ints(3), None, None, normal(3 * W)], name="shared-bias", **share)
one_apart = [normal(B, 1, W)] + apart[1:]
decoder(one_apart, name="cross")
decoder(one_apart + [masks["keys"], None, None, None, None, None, None, normal(3 * W)], name="cross-mask-bias")
_d(own(1) + [None, None] + cache(8), "past_present_share_buffer", op="DecoderMaskedMultiHeadAttention", outs=3)
_d([normal(B, 1, 3 * W)], "packed", op="DecoderMaskedMultiHeadAttention")


# ---- Attention --------------------------------------------------------------------------------------------------------------
def whole(ins, **kw):
    case("Attention", ins, **kw)


x, w, b = normal(B, S, 10), normal(10, 3 * W), normal(3 * W)
past = normal(2, B, H, P, D)
whole([x, w, b], name="plain")
whole([x, w, b], name="present", outs=2)
whole([x, w, b], name="scale", scale=0.7)
whole([x, w, b, None, past], name="past", outs=2)
whole([x, w, b, None, normal(2, B, H, 0, D)], name="past-empty", outs=2)
whole([x, w, b, None, past], name="unidirectional-past", outs=2, unidirectional=1)
whole([x, w, b], name="unidirectional", unidirectional=1)
for name, mask in {"ends": ints(3, 2), "ends-starts": ints(3, 2, 1, 0), "packed": ints(3, 2, 0, 3, 5, 0, 3, 6),
                   "keys": ints(1, 1, 0, 1, 0, 1).reshape(B, S), "keys-queries": (rng.random((B, S, S)) > 0.3).astype(i32),
                   "dummy": np.zeros((B, 1), i32), "dummy-one": np.zeros((1, 1), i32)}.items():
    whole([x, w, b, mask], name=f"mask-{name}", tol=(2e-3, 2e-3))
    whole([x, w, b, mask], name=f"mask-{name}-unidirectional", unidirectional=1, tol=(2e-3, 2e-3))
whole([x, w, b, ints(7, 5), past], name="mask-ends-past", outs=2)
whole([x, w, b, (rng.random((B, P + S)) > 0.3).astype(i32), past], name="mask-keys-past", outs=2, unidirectional=1)
whole([x, w, b, None, None, normal(1, H, S, S)], name="added")
whole([x, w, b, ints(3, 2), None, normal(B, 1, S, S)], name="added-mask")
whole([x, normal(10, 2 * W + H * 6), normal(2 * W + H * 6)], name="hidden-sizes", qkv_hidden_sizes=[W, W, H * 6])
h = x @ w
whole([x, w], name="no-bias", want=[attend(*(split(p) for p in np.split(h, 3, 2))).astype(f32)], out_types=[f32])
xh, wh, bh = x.astype(f16), (w * 0.3).astype(f16), b.astype(f16)
h = xh.astype(f32) @ wh.astype(f32) + bh.astype(f32)
whole([xh, wh, bh], name="f16", want=[attend(*(split(p) for p in np.split(h, 3, 2))).astype(f16)], out_types=[f16], tol=(1e-2, 1e-2))
_f([x, normal(9, 3 * W), b], "weights", op="Attention")
_f([x, w, b, ints(1, 2, 3)], "mask", op="Attention")
_d([x, w, b], "do_rotary", op="Attention", do_rotary=1)
_d([x, w, b, np.ones((B, 1, 8, 8), i32)], "rank 4", op="Attention")
_d([x, normal(10, 2 * W + H * 6), normal(2 * W + H * 6)], "different sizes", op="Attention", outs=2, qkv_hidden_sizes=[W, W, H * 6])

test_mha = f.pytest()
