"""Attention of ai.onnx against ONNX Runtime's CPU kernel where it has one, and against ONNX's own reference."""
import ml_dtypes
import numpy as np

from case import Family

rng = np.random.default_rng(17)
f = Family("attention")
f16, bf16, f32, f64 = np.float16, ml_dtypes.bfloat16, np.float32, np.float64


def normal(*shape, dtype=f32):
    return rng.standard_normal(shape).astype(dtype)


def qkv(b=2, h=4, kv=2, s=3, t=5, d=8, dv=6, flat=False, dtype=f32):
    if flat:
        return [normal(b, s, h * d, dtype=dtype), normal(b, t, kv * d, dtype=dtype), normal(b, t, kv * dv, dtype=dtype)]
    return [normal(b, h, s, d, dtype=dtype), normal(b, kv, t, d, dtype=dtype), normal(b, kv, t, dv, dtype=dtype)]


def pasts(b=2, kv=2, p=4, d=8, dv=6, dtype=f32):
    return [normal(b, kv, p, d, dtype=dtype), normal(b, kv, p, dv, dtype=dtype)]


def case(ins, opset=23, name="", tol=(1e-4, 1e-5), outs=1, ref="ort", skip_outs=(), want=None, out_types=None, **attrs):
    f.case("Attention", opset, ins, outs=outs, attrs=attrs, name=name, tol=tol, ref=ref, skip_outs=skip_outs, want=want, out_types=out_types)


flat = {"q_num_heads": 4, "kv_num_heads": 2}
for opset in (23, 24):
    case(qkv(), opset, "4d")
    case(qkv(flat=True), opset, "3d", **flat)
    case(qkv(s=5), opset, "causal", is_causal=1)
    case(qkv(kv=4) + [None] + pasts(kv=4), opset, "past", outs=3)
    case(qkv(s=5) + [None] + pasts(), opset, "past-causal", outs=3, is_causal=1)
    case(qkv(s=1, t=1, flat=True) + [None] + pasts(), opset, "decode-3d", outs=3, is_causal=1, **flat)
    case(qkv() + [normal(3, 5)], opset, "float-mask")
    case(qkv() + [rng.random((3, 5)) > 0.3], opset, "bool-mask")
    case(qkv() + [normal(3, 5)], opset, "softcap", softcap=2.0)
case(qkv(kv=1), name="mqa")
case(qkv(s=7, t=3), name="causal-long", is_causal=1)
case(qkv(flat=True, s=4, t=4), name="causal-3d", is_causal=1, **flat)
case(qkv(), name="scale", scale=0.5)
case(qkv(), name="presents", outs=3)
case(qkv(b=1, h=1, kv=1, s=1, t=1), name="ones")
case(qkv() + [None] + pasts(p=0), name="past-empty", outs=3)
for shape in ((4, 3, 5), (2, 1, 3, 5), (2, 4, 3, 5), (1, 1, 3, 5), (1, 4, 1, 5), (1, 5)):
    case(qkv() + [normal(*shape)], name=f"float-{len(shape)}d", ref="onnx")
    case(qkv() + [rng.random(shape) > 0.2], name=f"bool-{len(shape)}d", ref="onnx")
case(qkv() + [normal(5)], name="float-1d", ref="onnx")
case(qkv(s=5, t=4) + [rng.random((5, 8)) > 0.2] + pasts(), name="bool-past-causal", outs=3, is_causal=1)
case(qkv(s=5, t=4) + [normal(5, 8)] + pasts(), name="float-past-causal", outs=3, is_causal=1)
masked = rng.random((3, 5)) > 0.4
masked[1] = False
infinite = np.where(masked, normal(3, 5), f32(-np.inf)).astype(f32)
case(qkv() + [masked], name="masked-row")
case(qkv() + [infinite], name="masked-row-float", ref="onnx")
case(qkv(s=3) + [masked], name="masked-row-causal", is_causal=1)
case(qkv() + [np.zeros((3, 5), bool)], name="all-masked", softcap=1.0, ref="onnx")
case(qkv() + [rng.integers(0, 3, (3, 5))], name="int-mask")
case(qkv() + [normal(3, 5, dtype=f64)], name="double-mask", ref="onnx")
# the products' output
for mode in range(4):
    extra = {"qk_matmul_output_mode": mode}
    case(qkv() + [normal(3, 5)], 24, f"qk{mode}", outs=4, ref="onnx", **extra)
    case(qkv(t=3) + [normal(3, 7)] + pasts(), 24, f"qk{mode}-past", outs=4, is_causal=1, ref="onnx", **extra)
    if mode != 2:  # ONNX Runtime's biased products hold the lowest float for what is masked
        case(qkv() + [masked], 24, f"qk{mode}-softcap", outs=4, skip_outs=(1, 2), softcap=1.5, **extra)
# lengths of an outer cache
for lengths in ((3, 5), (0, 2), (5, 5), (1, 0)):
    n = np.array(lengths)
    ins = qkv() + [None, None, None, n]
    case(ins, 24, f"lengths{lengths}", ref="onnx")
    case(ins, 24, f"lengths-causal{lengths}", is_causal=1, ref="onnx")
case(qkv() + [rng.random((3, 5)) > 0.3, None, None, np.array([4, 2])], 24, "lengths-mask", ref="onnx")
case(qkv() + [normal(3, 4), None, None, np.array([4, 2])], 24, "lengths-short-mask", ref="onnx")
case(qkv() + [normal(3, 4)], 24, "short-mask", ref="onnx")
case(qkv() + [rng.random((3, 4)) > 0.2], 24, "short-mask-bool", ref="onnx")
case(qkv() + [None, None, None, np.array([4, 2])], 24, "lengths-qk", outs=4, skip_outs=(1, 2), qk_matmul_output_mode=3, ref="onnx")
# types
half = {"tol": (6e-3, 3e-3)}
case(qkv(dtype=f16), name="f16", **half)
case(qkv(dtype=f16) + [normal(3, 5, dtype=f16)] + pasts(p=0, dtype=f16), name="f16-mask", outs=3, **half)
case(qkv(dtype=f16, s=5), name="f16-causal-cap", is_causal=1, softcap=2.0, **half)
case(qkv(dtype=f64), name="f64", ref="onnx", tol=(1e-10, 1e-12))
case(qkv(dtype=f64) + [masked], name="f64-mask", ref="onnx", tol=(1e-10, 1e-12), is_causal=1, softcap=3.0)
ins = qkv()
case(ins[:2] + [ins[2].astype(f16)], name="mixed", ref="onnx", outs=3, tol=(2e-3, 1e-3))
for precision, tol in ((1, (1e-4, 1e-5)), (10, (5e-3, 3e-3)), (11, (1e-4, 1e-5)), (16, (5e-2, 5e-2))):
    case(qkv(), name=f"precision{precision}", softmax_precision=precision, tol=tol, ref="ort" if precision < 16 else "onnx")
# nothing
for sizes in ({"b": 0}, {"s": 0}, {"t": 0}, {"dv": 0}):
    q, k, v = qkv(**sizes)
    case([q, k, v], name=f"empty-{sizes}", want=[np.zeros((*q.shape[:3], v.shape[3]), f32)])


def attend_f32(q, k, v):
    q, k, v = (x.astype(f32) for x in (q, k, v))
    k, v = np.repeat(k, q.shape[1] // k.shape[1], 1), np.repeat(v, q.shape[1] // v.shape[1], 1)
    e = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(f32(q.shape[3])))
    return e / e.sum(-1, keepdims=True) @ v


ins = qkv(dtype=bf16)
case(ins, name="bf16", want=[attend_f32(*ins).astype(bf16)], out_types=[bf16])
ins = qkv(dtype=f16)  # the same for all keys: no more than a shift
case(ins + [np.full((3, 5), -65504, f16)], name="f16-lowest", want=[attend_f32(*ins).astype(f16)], tol=(1e-2, 1e-2))
nan = qkv()
nan[0][0, 1, 2, 3] = np.nan
case(nan, name="nan")

good = qkv()
_f = lambda ins, why, opset=23, **attrs: f.fails("Attention", opset, ins, why, attrs=attrs)  # noqa: E731
_f(good + [normal(3, 4)], "broadcast")
_d = lambda ins, why, opset=23, outs=1, **attrs: f.declines("Attention", opset, ins, why, attrs=attrs, outs=outs)  # noqa: E731
_d(good, "scale", scale=-1.0)
_d(good, "softmax_precision", softmax_precision=7)
_d(good, "qk_matmul_output_mode", qk_matmul_output_mode=5)

test_attention = f.pytest()
