"""Recurrent layers over packed sequences against numpy; ONNX Runtime's CPU provider has neither."""
import ml_dtypes
import numpy as np

from case import Family

MS = "com.microsoft"
rng = np.random.default_rng(99)
f = Family("delta")
BF16 = ml_dtypes.bfloat16
TOL = {np.float32: (2e-5, 2e-5), np.float16: (5e-3, 5e-3), BF16: (4e-2, 4e-2)}


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def recurrence(q, k, v, decay, beta, state, starts, scale):
    """float64: q, k [T, H, dk], v [T, H, dv], decay [T, H, dk or 1] or None, beta [T, H] or None, state [B, H, dv, dk]."""
    y, state = np.zeros_like(v), state.copy()
    for b in range(len(starts) - 1):
        for t in range(starts[b], starts[b + 1]):
            s = state[b].swapaxes(1, 2)  # [H, dk, dv]
            if decay is not None:
                s = s * np.exp(decay[t])[..., None]
            add = v[t]
            if beta is not None:
                add = beta[t][:, None] * (add - np.einsum("hkv,hk->hv", s, k[t]))
            s = s + k[t][..., None] * add[:, None]
            y[t] = np.einsum("hkv,hk->hv", s, q[t]) * scale
            state[b] = s.swapaxes(1, 2)
    return y, state


def net(lengths, key_heads=2, heads=4, dk=8, dv=6, rule="gated_delta", dtype=np.float32, ragged=True, initial=True, each=False,
        packed=False, rank4=False, qwen=False, sig=False, norm=True, scale=0.0):
    tokens, batch = sum(lengths), len(lengths)
    q, k, v = normal(tokens, key_heads, dk, dtype=dtype), normal(tokens, key_heads, dk, dtype=dtype), normal(tokens, heads, dv, dtype=dtype)
    decay = -np.abs(normal(tokens, heads, dk) if each else normal(tokens, heads)) if "gated" in rule else None
    beta = rng.uniform(0, 1, (tokens, heads)).astype(np.float32) if "delta" in rule else None
    state = normal(batch, heads, dv, dk) if initial else None
    a_log, dt = (normal(heads), normal(heads)) if qwen else (None, None)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    if norm:
        wide[:2] = [x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6) for x in wide[:2]]
    wide[:2] = [np.repeat(x, heads // key_heads, 1) for x in wide[:2]]
    g = None if decay is None else decay.astype(np.float64)
    if qwen:
        g = -np.exp(a_log.astype(np.float64)) * np.log1p(np.exp(g + dt))
    g = g if g is None or each else g[..., None]
    b = None if beta is None else sigmoid(beta.astype(np.float64)) if sig else beta.astype(np.float64)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    first = np.zeros((batch, heads, dv, dk)) if state is None else state.astype(np.float64)
    y, last = recurrence(*wide, g, b, first, starts, scale or 1 / np.sqrt(dk))
    if packed:
        q, k, v = np.concatenate([x.reshape(tokens, -1) for x in (q, k, v)], 1), None, None
    y = y.astype(dtype)
    if rank4:
        q, k, v, y = (None if x is None else x.reshape(batch, -1, *x.shape[1:]) for x in (q, k, v, y))
        decay, beta = (None if x is None else x.reshape(batch, -1, *x.shape[1:]) for x in (decay, beta))
    inputs = [q, k, v, starts if ragged else None, decay, beta, state, a_log, dt]
    while inputs[-1] is None:
        inputs.pop()
    attrs = {"update_rule": rule, "qk_l2_norm": int(norm), "scale": scale, "gate_activation": "qwen" if qwen else "none",
             "beta_activation": "sigmoid" if sig else "none"}
    f.case("GatedDeltaNet", 1, inputs, domain=MS, attrs=attrs, outs=2, want=[y, last.astype(np.float32)], tol=TOL[dtype],
           out_types=[dtype, np.float32], name=f"{rule} {lengths}")


for rule in ("linear", "gated", "delta", "gated_delta"):
    net([3, 1, 4], rule=rule)
    net([3, 3], rule=rule, ragged=False, rank4=True)
net([3, 0, 2], initial=False)
net([2, 2], ragged=False, each=True)
net([5], ragged=False, packed=True)
net([2, 2], ragged=False, packed=True, rank4=True)
net([2, 3], qwen=True, sig=True, scale=0.3)
net([4], norm=False, rule="gated")
net([0, 0], ragged=True)
for dtype in (np.float16, BF16):
    net([3, 2], dtype=dtype, qwen=True)

q, g, s = normal(4, 2, 8), normal(4, 2), normal(2, 2, 8, 8)
kw = {"domain": MS, "outs": 2, "out_types": [np.float32, np.float32]}
f.fails("GatedDeltaNet", 1, [q, q, q, np.array([0, 3, 2], np.int32), g, g, s], why="does not rise", **kw)
f.fails("GatedDeltaNet", 1, [q[:3], q[:3], q[:3], None, g[:3], g[:3], s], why="3 tokens of 2 sequences", **kw)
f.declines("GatedDeltaNet", 1, [q, q, q, None, None, g, s], why="needs decay", **kw)
f.declines("GatedDeltaNet", 1, [q, q, q, None, g, g, s], why="update_rule 'other'", attrs={"update_rule": "other"}, **kw)


def conv(lengths, channels=3, taps=4, dilation=1, dtype=np.float32, bias=True, act="none"):
    tokens, kept = sum(lengths), (taps - 1) * dilation
    x, w, b = normal(tokens, channels, dtype=dtype), normal(channels, 1, taps, dtype=dtype), normal(channels, dtype=dtype) if bias else None
    state = normal(len(lengths), channels, kept, dtype=dtype)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    y, last = np.zeros((tokens, channels)), []
    for i in range(len(lengths)):
        rows = np.concatenate([state[i].astype(np.float64).T, x[starts[i] : starts[i + 1]].astype(np.float64)])
        for t in range(lengths[i]):
            y[starts[i] + t] = sum(rows[t + j * dilation] * w[:, 0, j].astype(np.float64) for j in range(taps))
        last.append(rows[len(rows) - kept :].T)
    y = y + (0 if b is None else b.astype(np.float64))
    y = y if act == "none" else y * sigmoid(y)
    f.case("VarlenCausalConvWithState", 1, [x, w, starts, b, state], domain=MS, attrs={"dilation": dilation, "activation": act}, outs=2,
           want=[y.astype(dtype), np.stack(last).astype(dtype)], tol=TOL[dtype], out_types=[dtype] * 2)


conv([3, 1, 5])
conv([3, 1], dilation=2, act="silu")
conv([2], taps=1, bias=False)
for dtype in (np.float16, BF16):
    conv([3, 2], dtype=dtype, act="swish")
x, w, s = normal(4, 3), normal(3, 1, 2), normal(1, 3, 1)
kw = {"domain": MS, "outs": 2, "out_types": [np.float32, np.float32]}
f.fails("VarlenCausalConvWithState", 1, [x, w, np.array([0, 3], np.int32), None, s], why="does not rise from 0 to 4", **kw)
f.declines("VarlenCausalConvWithState", 1, [x, w, np.array([0, 4], np.int32), None, s], why="activation 'relu'", attrs={"activation": "relu"}, **kw)

test_delta = f.pytest()
