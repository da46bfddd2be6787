"""Linear attention and what stands around it, against ONNX Runtime's CPU kernels and against a recurrence in NumPy."""
import ml_dtypes
import numpy as np
import pytest

from case import Case, Family, check_runs

rng = np.random.default_rng(31)
f = Family("linear_attn")
f32, f16, bf16 = np.float32, np.float16, ml_dtypes.bfloat16
MS = "com.microsoft"
B, T, DK, DV = 2, 5, 4, 6
half = {"tol": (1e-2, 5e-3)}


def normal(*shape, dtype=f32):
    return rng.standard_normal(shape).astype(dtype)


# ---- LinearAttention ----------------------------------------------------------------------------------------------------------
def linear_inputs(hq=4, hkv=2, t=T, past=True, each=False, beta_one=False, dtype=f32, window=0, rule="gated_delta"):
    state = normal(*([window] if window else []), B, hkv, DK, DV, dtype=dtype)
    decay = -rng.random((B, t, hkv * (DK if each else 1))).astype(dtype)
    beta = rng.random((B, t, 1 if beta_one else hkv)).astype(dtype)
    key = normal(B, t, hkv, DK)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    ins = [normal(B, t, hq * DK, dtype=dtype), key.reshape(B, t, -1).astype(dtype), normal(B, t, hkv * DV, dtype=dtype)]
    return ins + [state if past else None, decay if "gated" in rule else None, beta if "delta" in rule else None]


def recurrence(ins, hq, hkv, rule="gated_delta", window=0):
    """Output and states after each token in float64; the heads of the queries are a multiple of those of the keys."""
    q, k, v, past, decay, beta = (None if a is None else a.astype(np.float64) for a in ins)
    t = q.shape[1]
    q, k, v = q.reshape(B, t, hkv, hq // hkv, DK), k.reshape(B, t, hkv, DK), v.reshape(B, t, hkv, DV)
    s = np.zeros((B, hkv, DK, DV)) if past is None else past[-1] if window else past
    outs, states = [], []
    for i in range(t):
        if "gated" in rule:
            s = s * np.exp(decay[:, i].reshape(B, hkv, -1, 1))
        u = v[:, i]
        if "delta" in rule:
            u = beta[:, i].reshape(B, -1, 1) * (u - np.einsum("bhk,bhkv->bhv", k[:, i], s))
        s = s + k[:, i][..., None] * u[:, :, None, :]
        states.append(s)
        outs.append(np.einsum("bhgk,bhkv->bhgv", q[:, i], s) / np.sqrt(DK))
    y = np.stack(outs, 1).reshape(B, t, hq * DV)
    if not window:
        return y, s
    return y, np.stack([states[t - window + j] if t - window + j >= 0 else np.zeros_like(s) for j in range(window)])


def linear(ins, hq=4, hkv=2, name="", tol=(1e-4, 1e-5), want=None, out_types=None, **attrs):
    f.case("LinearAttention", 1, ins, outs=2, domain=MS, attrs={"q_num_heads": hq, "kv_num_heads": hkv, **attrs}, name=name,
           tol=tol, want=want, out_types=out_types)


for rule in ("linear", "gated", "delta", "gated_delta"):
    for past in (False, True):
        linear(linear_inputs(past=past, rule=rule), update_rule=rule, name=rule)
    linear(linear_inputs(t=1, rule=rule), update_rule=rule, name=f"{rule}-decode")
linear(linear_inputs(each=True), name="decay-each")
linear(linear_inputs(beta_one=True), name="beta-one")
linear(linear_inputs(4, 4), hkv=4, name="equal-heads")
linear(linear_inputs(2, 4), hq=2, hkv=4, name="inverse")
linear(linear_inputs(), name="scale", scale=0.3)
linear(linear_inputs(dtype=f16), name="f16", **half)
ins = linear_inputs(dtype=bf16)
linear(ins, name="bf16", want=[w.astype(bf16) for w in recurrence(ins, 4, 2)], out_types=[bf16, bf16], tol=(3e-2, 2e-2))
for t, window, past in ((5, 3, True), (2, 3, True), (1, 4, False)):
    ins = linear_inputs(t=t, window=window, past=past)
    linear(ins, name=f"window-T{t}", state_window=window, want=[w.astype(f32) for w in recurrence(ins, 4, 2, window=window)])
good, heads = linear_inputs(), {"q_num_heads": 4, "kv_num_heads": 2}
f.fails("LinearAttention", 1, good[:3] + [normal(B, 2, DK, DV + 1)] + good[4:], "past_state", outs=2, domain=MS, attrs=heads)
f.fails("LinearAttention", 1, [good[0], normal(B, T, 9)] + good[2:], "input 1", outs=2, domain=MS, attrs=heads)
f.declines("LinearAttention", 1, good[:4], "needs decay", outs=2, domain=MS, attrs=heads)
f.declines("LinearAttention", 1, good, "heads", outs=2, domain=MS, attrs={"q_num_heads": 4, "kv_num_heads": 3})


# ---- CausalConvWithState --------------------------------------------------------------------------------------------------------
def conv(x, past=None, bias=None, taps=4, name="", channels=6, tol=(1e-4, 1e-5), want=None, out_types=None, **attrs):
    f.case("CausalConvWithState", 1, [x, normal(channels, 1, taps, dtype=x.dtype), bias, past], outs=2, domain=MS, attrs=attrs,
           name=name, tol=tol, want=want, out_types=out_types)


x = normal(B, 6, T)
conv(x, name="plain")
conv(x, normal(B, 6, 3), normal(6), name="all", activation="silu")
conv(x, normal(B, 6, 3), name="swish", activation="swish")
conv(x[:, :, :1], normal(B, 6, 3), name="decode")
conv(x[:, :, :2], name="short")
conv(x, taps=1, name="one-tap")
conv(x, normal(B, 6, 6), name="dilation", dilation=2)
conv(normal(B, T, 6), normal(B, 3, 6), name="last", channels_last=1)
conv(normal(B, T, 2, 3), normal(B, 6, 2, 3), normal(6), name="last-apart", channels_last=1, dilation=2, activation="silu")
conv(x.astype(f16), normal(B, 6, 3, dtype=f16), normal(6, dtype=f16), name="f16", **half)
good = [x, normal(6, 1, 4)]
f.fails("CausalConvWithState", 1, [x, normal(5, 1, 4)], "do not fit", outs=2, domain=MS)
f.declines("CausalConvWithState", 1, [normal(B, 6, T, T), normal(6, 1, 3, 3)], "ndim", outs=2, domain=MS, attrs={"ndim": 2})
f.declines("CausalConvWithState", 1, good, "activation", outs=2, domain=MS, attrs={"activation": "relu"})


def conv_of(x, w, bias, past):
    """Output in float64 and the samples it was taken of, channels first, dilation 1."""
    whole = np.concatenate([past, x], 2).astype(np.float64)
    y = sum(w[:, 0, j, None] * whole[:, :, j:j + x.shape[2]] for j in range(w.shape[2])) + bias[:, None]
    return y, whole


for tokens, window in ((5, 3), (2, 3)):
    x, w, bias, past = normal(B, 6, tokens), normal(6, 1, 4), normal(6), normal(window, B, 6, 3)
    y, whole = conv_of(x, w, bias, past[-1])
    ends = [tokens - window + 1 + j for j in range(window)]
    states = np.stack([whole[:, :, e:e + 3] if e > 0 else np.zeros((B, 6, 3)) for e in ends]).astype(f32)
    f.case("CausalConvWithState", 1, [x, w, bias, past], outs=2, domain=MS, attrs={"state_window": window}, name=f"window-T{tokens}",
           want=[y.astype(f32), states], tol=(1e-4, 1e-5))


# ---- LinearAttentionGate, GatedRMSNorm --------------------------------------------------------------------------------------------
for dtype, kw in ((f32, {"tol": (1e-4, 1e-6)}), (f16, half)):
    a, b = normal(B, T, 4, dtype=dtype) * dtype(5), normal(B, T, 4, dtype=dtype)
    f.case("LinearAttentionGate", 1, [a, normal(4), normal(4), b], outs=2, domain=MS, **kw)
    f.case("LinearAttentionGate", 1, [a, normal(4), normal(4)], domain=MS, **kw)
    for activation in ("silu", "swish", "sigmoid"):
        x, gate = normal(B, T, 8, dtype=dtype), normal(B, T, 8, dtype=dtype)
        for c in (8, 4):
            f.case("GatedRMSNorm", 1, [x, normal(c, dtype=dtype), gate], domain=MS, attrs={"activation": activation, "epsilon": 1e-5}, **kw)
f.fails("LinearAttentionGate", 1, [normal(B, T, 4), normal(3), normal(4)], "input 1", domain=MS)
f.fails("GatedRMSNorm", 1, [normal(B, 8), normal(3), normal(B, 8)], "do not fit", domain=MS, attrs={"epsilon": 1e-5})

test_linear_attn = f.pytest()


@pytest.mark.parametrize("symbolic", (False, True))
def test_onnx_27(monkeypatch, symbolic):
    """ONNX Runtime takes opset 27 only where that is asked for."""
    monkeypatch.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
    for rule in ("linear", "gated_delta"):
        ins = linear_inputs(rule=rule)
        want = [w.astype(f32) for w in recurrence(ins, 4, 2, rule)]
        check_runs(Case("LinearAttention", 27, ins, outs=2, attrs={**heads, "update_rule": rule}, want=want, tol=(1e-4, 1e-5)), symbolic)
    x, w, bias, past = normal(B, 6, T), normal(6, 1, 4), normal(6), normal(B, 6, 3)
    y, whole = conv_of(x, w, bias, past)
    want = [(y / (1 + np.exp(-y))).astype(f32), whole[:, :, T:].astype(f32)]
    check_runs(Case("CausalConvWithState", 27, [x, w, bias, past], outs=2, attrs={"activation": "silu"}, want=want, tol=(1e-4, 1e-5)), symbolic)
