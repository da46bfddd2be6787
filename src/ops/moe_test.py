"""MoE and QMoE: ONNX Runtime's CPU provider where it has the form, else plain numpy."""
import ml_dtypes
import numpy as np

from case import Family

MS = "com.microsoft"
rng = np.random.default_rng(64)
f = Family("moe")
T, H, I, E = 7, 32, 64, 5
TOL = (2e-4, 2e-4)


def normal(*shape, scale=0.3, dtype=np.float32):
    return (rng.standard_normal(shape) * scale).astype(dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACT = {"relu": lambda x: np.maximum(x, 0), "silu": lambda x: x * sigmoid(x), "identity": lambda x: x,
       "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))}


def swiglu(g, l, attrs):
    limit = attrs.get("swiglu_limit", np.inf)
    g, l = np.minimum(g, limit), np.clip(l, -limit, limit)
    return g * sigmoid(attrs.get("activation_alpha", 1.0) * g) * (l + attrs.get("activation_beta", 0.0))


def moe(x, router, w, b, attrs, packed=False, weights=None):
    """Token by token in float64; w and b: fc1, fc2, fc3 (or None)."""
    k, act, fusion = attrs["k"], attrs.get("activation_type", "relu"), attrs.get("swiglu_fusion", 0)
    x64, r = x.reshape(-1, x.shape[-1]).astype(np.float64), router.astype(np.float64)
    y = np.zeros_like(x64)
    for t in range(len(x64)):
        p = np.exp(r[t] - r[t].max())
        best = np.argsort(r[t])[-k:]
        scale = weights[t][best].astype(np.float64) if weights is not None else p[best] / (p[best].sum() if packed else p.sum())
        if attrs.get("normalize_routing_weights"):
            scale = scale / scale.sum()
        for e, s in zip(best, scale):
            fc = lambda i, v: v @ w[i][e].astype(np.float64).T + (0 if b[i] is None else b[i][e].astype(np.float64))  # noqa: B023
            h = fc(0, x64[t])
            if act == "swiglu" and w[2] is None:
                g, l = (h[::2], h[1::2]) if fusion == 1 else np.split(h, 2)
                h = swiglu(g, l, attrs)
            elif act == "swiglu":
                h = swiglu(h, fc(2, x64[t]), attrs)
            else:
                h = ACT[act](h) * (1 if w[2] is None else fc(2, x64[t]))
            y[t] += s * fc(1, h)
    return y.reshape(x.shape).astype(x.dtype)


# ---- MoE --------------------------------------------------------------------------------------------------------------
def plain(attrs, dtype=np.float32, third=False, bias=True, shape=(T, H), const=True, oracle="ort"):
    wide = 2 * I if attrs.get("swiglu_fusion") else I
    w = [normal(E, wide, H, dtype=dtype), normal(E, H, I, dtype=dtype), normal(E, I, H, dtype=dtype) if third else None]
    b = [normal(E, wide, dtype=dtype), normal(E, H, dtype=dtype), normal(E, I, dtype=dtype) if third else None] if bias else [None] * 3
    x, r = normal(*shape, scale=1, dtype=dtype), normal(int(np.prod(shape[:-1])), E, scale=1, dtype=dtype)
    inputs = [x, r, w[0], b[0], w[1], b[1]] + ([w[2], b[2]] if third else [])
    tol = TOL if dtype == np.float32 else (3e-2, 3e-2)
    want = None if oracle == "ort" else [moe(x, r, w, b, attrs)]
    f.case("MoE", 1, inputs, domain=MS, attrs=attrs, const=tuple(i for i in range(2, len(inputs)) if inputs[i] is not None) if const else (),
           tol=tol, want=want)


for act in ("relu", "gelu", "silu", "identity"):
    plain({"k": 2, "activation_type": act})
for k, normal_weights in ((1, 0), (3, 1), (E, 1), (E, 0)):
    plain({"k": k, "normalize_routing_weights": normal_weights, "activation_type": "silu"})
gated = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}
plain(gated)
plain(gated | {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7, "normalize_routing_weights": 1})
plain(gated | {"swiglu_fusion": 2, "activation_beta": 1.0}, oracle="numpy")
plain(gated | {"swiglu_fusion": 0}, third=True, oracle="numpy")
plain({"k": 2, "activation_type": "silu", "normalize_routing_weights": 1}, third=True, oracle="numpy")
plain({"k": 2, "activation_type": "silu"}, bias=False, shape=(2, 3, H), const=False)
plain({"k": 2, "activation_type": "silu"}, shape=(1, H))
for dtype in (np.float16, ml_dtypes.bfloat16):
    plain(gated, dtype=dtype, oracle="numpy")
x, r = normal(T, H), normal(T, E)
r[:, 1] = r[:, 3] = 2.0  # the second choice is a draw
r[:, 0] = 3.0
f.case("MoE", 1, [x, r, normal(E, I, H), None, normal(E, H, I)], domain=MS, attrs={"k": 2}, tol=TOL, name="draw")
f.case("MoE", 1, [x[:0], r[:0], normal(E, I, H), None, normal(E, H, I)], domain=MS, attrs={"k": 2}, want=[x[:0]], name="empty")
f.declines("MoE", 1, [x, r, normal(E, I, H), None, normal(E, H, I)], domain=MS, attrs={"k": 2, "activation_type": "tanh"}, why="activation_type")
f.declines("MoE", 1, [x, r, normal(E, I, H), None, normal(E, H, I)], domain=MS, attrs={"k": 2, "use_sparse_mixer": 1}, why="use_sparse_mixer")
f.fails("MoE", 1, [x, r, normal(E, I, H + 1), None, normal(E, H, I)], domain=MS, attrs={"k": 2}, why="layer 1 has")


# ---- QMoE ---------------------------------------------------------------------------------------------------------------
def pack(q, bits):
    each = 8 // bits
    q = np.concatenate([q, np.zeros(q.shape[:-1] + (-q.shape[-1] % each,), q.dtype)], -1)
    q = q.reshape(*q.shape[:-1], -1, each).astype(np.uint32)
    return (q << (np.arange(each) * bits)).sum(-1).astype(np.uint8)


def layer(n, k, bits, block, zeros):
    """Packed weights, scales, zero points (or None) and what they stand for."""
    q = rng.integers(0, 1 << bits, (E, n, k))
    s = rng.uniform(0.2, 0.6, (E, n, k // block if block else 1)).astype(np.float32) / (1 << bits)
    z = rng.integers(0, 1 << bits, s.shape) if zeros else np.full(s.shape, 1 << (bits - 1))
    rep = block or k
    w = (q - np.repeat(z, rep, -1)) * np.repeat(s, rep, -1).astype(np.float64)
    packed_z = None if not zeros else pack(z, bits) if block else pack(z[..., 0], bits)
    return pack(q, bits), s if block else s[..., 0], packed_z, w


def packed(bits, block, attrs, zeros=False, third=False, dtype=np.float32, bias=True, weights=False, oracle="ort", tol=TOL):
    wide = 2 * I if attrs.get("swiglu_fusion") else I
    layers = [layer(wide, H, bits, block, zeros), layer(H, I, bits, block, zeros)] + ([layer(I, H, bits, block, zeros)] if third else [])
    b = [normal(E, wide, dtype=dtype), normal(E, H, dtype=dtype), normal(E, I, dtype=dtype) if third else None] if bias else [None] * 3
    x, r = normal(T, H, scale=1, dtype=dtype), normal(T, E, scale=1, dtype=dtype)
    layers += [(None,) * 4] * (3 - len(layers))
    inputs = [x, r]
    for (q, s, _, _), c in zip(layers, b):
        inputs += [q, None if s is None else s.astype(dtype), c]
    inputs += [z for _, _, z, _ in layers]
    if weights:
        inputs.append(rng.uniform(0.1, 1, (T, E)).astype(dtype))
    while inputs[-1] is None:
        inputs.pop()
    attrs = {"expert_weight_bits": bits, **({"block_size": block} if block else {}), **attrs}
    want = None if oracle == "ort" else [moe(x, r, [w for *_, w in layers], b, attrs, True, inputs[14] if weights else None)]
    f.case("QMoE", 1, inputs, domain=MS, attrs=attrs, const=tuple(i for i in range(2, min(len(inputs), 14)) if inputs[i] is not None), tol=tol, want=want)


for bits in (4, 8):
    for block in (0, 16, 32):
        for zeros in (False, True):
            packed(bits, block, {"k": 2, "activation_type": "silu"}, zeros, oracle="numpy")
    packed(bits, 0, gated | {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7})
    packed(bits, 32, {"k": 2, "activation_type": "gelu"}, weights=True, bias=False, oracle="numpy")
    packed(bits, 32, {"k": 3, "normalize_routing_weights": 1}, weights=True, zeros=True, oracle="numpy")
    packed(bits, 0, {"k": 1, "activation_type": "swiglu"}, third=True, oracle="numpy")
    packed(bits, 0, {"k": 2, "activation_type": "silu", "normalize_routing_weights": 1}, dtype=np.float16, tol=(2e-2, 2e-2))
packed(4, 0, {"k": 2, "activation_type": "silu"})
packed(2, 32, {"k": 2, "activation_type": "silu"}, zeros=True, oracle="numpy")
packed(4, 32, {"k": 2, "fc2_expert_weight_bits": 4})
q1, s1, _, _ = layer(I, H, 4, 0, False)
q2, s2, _, _ = layer(H, I, 4, 0, False)
f.declines("QMoE", 1, [x, r, q1, s1, None, q2, s2], domain=MS, attrs={"k": 2}, why="must be constant")
f.declines("QMoE", 1, [x, r, q1, s1, None, q2, s2[:, 1:]], domain=MS, attrs={"k": 2}, const=(2, 3, 5, 6), why="do not fit")

test_moe = f.pytest()
