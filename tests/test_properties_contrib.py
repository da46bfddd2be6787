"""Random cases of com.microsoft's operators on floats: fused activations, norms and products, and every kind of attention."""
from __future__ import annotations

import math

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from ml_dtypes import bfloat16

from case import Case
from properties import axis_of, built, family, flags, i64, one_of, partner, prop, shape, some_const, values

MS = "com.microsoft"
F32 = np.float32
TOL = {np.float32: (1e-4, 1e-5), np.float16: (1e-2, 1e-2), np.float64: (1e-8, 1e-10), bfloat16: (5e-2, 5e-2)}


def ms(op: str, ins: list, **kw) -> Case:
    while ins[-1] is None:
        ins.pop()
    return Case(op, 1, ins, domain=MS, **kw)


def wide(*arrays) -> list:
    return [None if a is None else a.astype(np.float64) for a in arrays]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def fast_gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


# ---- activations and sums -----------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_fused_activation(draw):
    op = draw(one_of("BiasGelu FastGelu Gelu QuickGelu BiasAdd GatedAdd ScaledSiLU BiasSplitGelu".split()))
    t = draw(one_of((np.float32, np.float16, bfloat16) if op in ("FastGelu", "QuickGelu") else (np.float32, np.float16)))  # the schemas' types
    dims = shape(draw, lo=3, hi=3) if op in ("BiasAdd", "BiasSplitGelu") else shape(draw, lo=1)
    if op == "BiasSplitGelu":
        dims = (*dims[:2], 2 * dims[2])
    x, attrs, ins = values(draw, dims, t), {}, []
    bias = values(draw, dims[-1:], t)
    if op in ("BiasGelu", "BiasSplitGelu") or (op == "FastGelu" and draw(flags)):
        ins = [bias]
    elif op == "BiasAdd":
        ins = [bias, values(draw, dims, t)]
    elif op == "GatedAdd":
        ins = [values(draw, dims, t), values(draw, dims, t)]
    elif op in ("QuickGelu", "ScaledSiLU") and draw(flags):
        attrs = {"alpha": draw(one_of((0.5, 1.0, 1.702)))}
    v, *more = wide(x, *ins)
    with np.errstate(over="ignore"):
        y = v + more[0] if more and op != "GatedAdd" else v
        if op == "BiasAdd":
            y = y + more[1]
        elif op == "GatedAdd":
            y = v + more[0] * more[1]
        elif op in ("QuickGelu", "ScaledSiLU"):
            a = attrs.get("alpha", 1.702 if op[0] == "Q" else 1.0)
            y = v * sigmoid(a * v) * (a if op[0] == "S" else 1)
        elif op == "FastGelu":
            y = fast_gelu(y)
        else:
            erf = np.vectorize(math.erf, otypes=[float])
            left, right = np.split(y, 2, -1) if op == "BiasSplitGelu" else (1, y)
            y = left * 0.5 * right * (1 + erf(right / np.sqrt(2)))
    return ms(op, [x, *ins], attrs=attrs, want=[np.asarray(y).astype(t)], tol=TOL[t], out_types=[t])


@prop
@st.composite
def test_contrib_elements(draw):
    op = draw(one_of(("IsAllFinite", "SampleOp", "ReduceSumInteger", "MulInteger", "ComplexMul", "ComplexMulConj", "ExpandDims", "UnfoldTensor", "TorchEmbedding")))
    if op == "IsAllFinite":
        xs = [values(draw, shape(draw, hi=3), draw(one_of((np.float32,))), special=True) for _ in range(draw(st.integers(1, 3)))]
        only = draw(one_of((None, "isnan_only", "isinf_only")))
        bad = {None: lambda a: ~np.isfinite(a), "isnan_only": np.isnan, "isinf_only": np.isinf}[only]
        return ms(op, xs, attrs={only: 1} if only else {}, want=[np.bool_(not any(bad(a).any() for a in xs))])
    if op == "SampleOp":
        x = values(draw, shape(draw), draw(one_of((np.float32, np.int64, np.float16))), special=True)
        return ms(op, [x], want=[x])
    if op == "ReduceSumInteger":
        t, w = draw(one_of(((np.int8, np.int32), (np.uint8, np.uint32))))
        x = values(draw, shape(draw, lo=1, hi=4), t, lo=-128, hi=255)
        axis, keep = axis_of(draw, x.ndim), draw(one_of((0, 1)))
        return ms(op, [x], attrs={"axes": [axis], "keepdims": keep}, want=[x.sum(axis, dtype=w, keepdims=bool(keep))], out_types=[w])
    if op == "MulInteger":
        t, dims = draw(one_of((np.int8, np.uint8))), shape(draw, hi=4)
        a, b = values(draw, dims, t, lo=-128, hi=255), values(draw, partner(draw, dims), t, lo=-128, hi=255)
        za, zb = values(draw, (), t, lo=-128, hi=255), values(draw, (), t, lo=-128, hi=255)
        return ms(op, [a, za, b, zb], want=[(a.astype(np.int32) - za) * (b.astype(np.int32) - zb)], out_types=[np.int32])
    if op.startswith("Complex"):
        dims = shape(draw, hi=3)
        a, b = values(draw, (*dims, 2), F32), values(draw, (*partner(draw, dims), 2), F32)
        za, zb = (v[..., 0].astype(complex) + 1j * v[..., 1] for v in (a, b))
        z = za * (zb.conj() if op.endswith("Conj") else zb)
        return ms(op, [a, b], want=[np.stack([z.real, z.imag], -1).astype(F32)], tol=(1e-4, 1e-4))
    x = values(draw, shape(draw, lo=1, hi=4, zeros=op != "UnfoldTensor"), draw(one_of((np.float32, np.int64))))
    if op == "ExpandDims":
        axis = draw(st.integers(-x.ndim - 1, x.ndim))
        return ms(op, [x, np.array(axis, np.int32)], const=(1,), want=[np.expand_dims(x, axis)], out_types=[x.dtype])
    if op == "UnfoldTensor":
        dim, step = axis_of(draw, x.ndim), draw(st.integers(1, 3))
        size = draw(st.integers(1, x.shape[dim]))
        view = np.lib.stride_tricks.sliding_window_view(x, size, dim)
        cut = tuple(slice(None, None, step if a == dim % x.ndim else 1) for a in range(view.ndim))
        return ms(op, [x], attrs={"dim": dim, "size": size, "step": step}, want=[view[cut]], out_types=[x.dtype])
    x = values(draw, (draw(st.integers(1, 5)), draw(st.integers(0, 4))), F32)
    at = values(draw, shape(draw, hi=3), np.int64, lo=0, hi=x.shape[0] - 1)
    return ms(op, [x, at], want=[x[at]], out_types=[F32], const=some_const(draw, (0, 1)))


# ---- norms --------------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_group_norm(draw):
    t, groups, each = draw(one_of((np.float32, np.float16))), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    c, skip = groups * each, draw(flags)
    dims = (draw(st.integers(0, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 4)), c)
    last = skip or draw(flags)
    x = values(draw, dims if last else (dims[0], c, *dims[1:3]), t)
    gamma, beta = values(draw, (c,), F32), values(draw, (c,), F32)
    silu, norm = draw(one_of((0, 1))), family("contrib_norm").group_norm
    attrs = {"groups": groups, "activation": silu, "epsilon": 0.25, "channels_last": int(last)}
    if not skip:
        want = norm(x, gamma, beta, groups, 0.25, silu, last) if x.size else x
        return ms("GroupNorm", [x, gamma, beta], attrs=attrs, want=[want.astype(t)], tol=TOL[t])
    form = draw(one_of((dims, (dims[0], 1, 1, c), (dims[0], c))))
    s, bias = values(draw, form, t), values(draw, (c,), t) if draw(flags) else None
    total = x.astype(np.float64) + (s[:, None, None] if len(form) == 2 else s) + (0 if bias is None else bias)
    want = norm(total, gamma, beta, groups, 0.25, silu) if x.size else total
    return ms("SkipGroupNorm", [x, gamma, beta, s, bias], outs=2, attrs=attrs, want=[want.astype(t), total.astype(t)], tol=TOL[t])


@prop
@st.composite
def test_skip_norm(draw):
    op = draw(one_of(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization", "SimplifiedLayerNormalization")))
    batch, rows, size = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 6))
    eps = {"epsilon": draw(one_of((1e-5, 0.25)))}
    gamma, beta = values(draw, (size,), F32), values(draw, (size,), F32)
    if op[0] == "E":
        ids, segments = values(draw, (batch, rows), np.int32, lo=0, hi=8), values(draw, (batch, rows), np.int32, lo=0, hi=1)
        tables = [values(draw, (n, size), F32) for n in (9, 5, 2)]
        if draw(flags):
            segments, tables[2] = None, None
        mask = values(draw, (batch, rows), np.int32, lo=0, hi=1) if draw(flags) else None
        at = values(draw, (draw(one_of((1, batch))), rows), np.int32, lo=0, hi=4) if draw(flags) else None
        return ms(op, [ids, segments, *tables, gamma, beta, mask, at], outs=3 if mask is not None else 2, attrs=eps, tol=(1e-4, 1e-4))
    x = values(draw, (batch, rows, size), F32)
    if op == "SimplifiedLayerNormalization":
        return Case(op, 1, [x, gamma], attrs=eps | {"axis": -1}, tol=(1e-4, 1e-4))
    skip = values(draw, draw(one_of(((batch, rows, size), (1, rows, size), (rows, size)))), F32)
    bias = values(draw, (size,), F32) if draw(flags) else None
    more = [beta if draw(flags) else None, bias] if op == "SkipLayerNormalization" else [bias]
    outs, skips = (4, (1, 2)) if draw(flags) else (1, ())
    return ms(op, [x, skip, gamma, *more], outs=outs, skip_outs=skips, attrs=eps, tol=(1e-4, 1e-4))


@prop
@st.composite
def test_softmax_and_dropout(draw):
    op = draw(one_of(("BiasSoftmax", "BiasDropout", "BitmaskDropout", "BitmaskBiasDropout", "Dropout")))
    t, dims = draw(one_of((np.float32, np.float16))), shape(draw, lo=1, hi=4)
    x = values(draw, dims, t)
    if op == "BiasSoftmax":
        axis = draw(st.integers(1, len(dims) - 1)) if len(dims) > 1 else 0
        inner = draw(one_of((0, 1)))
        at = draw(st.integers(0, axis))
        lead = tuple(1 if (i < at) != bool(inner) else d for i, d in enumerate(dims[:axis]))
        b = values(draw, (*lead, *dims[axis:]), t)
        want = family("contrib_norm").softmax(x.astype(np.float32) + b.astype(np.float32), axis).astype(t) if x.size else x
        return ms(op, [x, b], attrs={"axis": axis, "is_inner_broadcast": inner}, want=[want], tol=TOL[t])
    if op == "Dropout":
        return Case(op, 13, [x], outs=2, want=[x, np.ones(dims, bool)])
    mask = np.ones(dims, bool) if op == "BiasDropout" else np.full(-(-x.size // 32), 2**32 - 1, np.uint32)
    if op == "BitmaskDropout":
        return ms(op, [x], outs=2, want=[x, mask])
    b, rest = values(draw, draw(one_of((dims, dims[-1:]))), t), values(draw, dims, t) if draw(flags) else None
    want = x.astype(np.float64) + b + (0 if rest is None else rest)
    return ms(op, [x, b, rest], outs=2, want=[want.astype(t), mask], tol=TOL[t])


@prop
@st.composite
def test_hyper_connections(draw):
    op = draw(one_of(("BranchwiseRMSNorm", "HyperConnectionPreMix", "HyperConnectionPostMix", "EngramGate")))
    t = F32
    lead, n, size = shape(draw, hi=3, most=3), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    flat = draw(flags)
    x = values(draw, (*lead, n * size) if flat else (*lead, n, size), t)
    attrs = {"num_branches": n} if flat else {}
    if op == "BranchwiseRMSNorm":
        scale = draw(one_of((None, (n * size,), (n, size), (size,))))
        return ms(op, [x, None if scale is None else values(draw, scale, t)], attrs=attrs | {"epsilon": 0.1}, tol=TOL[t])
    mix = values(draw, (*lead, *draw(one_of(((n,), (n, 1), (n, size))))), t)
    if op == "HyperConnectionPreMix":
        return ms(op, [x, mix], attrs=attrs, tol=TOL[t])
    if op == "HyperConnectionPostMix":
        return ms(op, [x, values(draw, (*lead, size), t), mix, values(draw, (*lead, n, n), t) if draw(flags) else None], attrs=attrs, tol=TOL[t])
    batch, rows = draw(st.integers(0, 2)), draw(st.integers(1, 3))
    k, q, v = (values(draw, d, t) for d in ((batch, rows, n, size), (batch, rows, n, size), (batch, rows, size)))
    return ms(op, [k, q, v, *(values(draw, (n, size), t) for _ in range(2))], attrs={"epsilon": 0.01}, tol=(1e-3, 1e-4))


# ---- products -----------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_fused_product(draw):
    op = draw(one_of(("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", "FusedGemm", "GemmFastGelu", "MatMulInteger16")))
    m, k, n = (draw(st.integers(1, 5)) for _ in range(3))
    ta, tb = draw(one_of((0, 1))), draw(one_of((0, 1)))
    if op == "MatMulInteger16":
        a, b = values(draw, (m, k), np.int16, lo=-9999, hi=9999), values(draw, (k, n), np.int16, lo=-9999, hi=9999)
        return ms(op, [a, b], want=[(a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)])
    if op == "GemmFastGelu":
        x, w, b = values(draw, (*shape(draw, hi=2, zeros=False), m, k), F32), values(draw, (k, n), F32), values(draw, (n,), F32) if draw(flags) else None
        return ms(op, [x, w, b], want=[fast_gelu(x.astype(np.float64) @ w + (0 if b is None else b)).astype(F32)], tol=(1e-4, 1e-4))
    attrs = {"transA": ta, "transB": tb, "alpha": draw(one_of((0.5, 1.0, 2.0)))}
    act = draw(one_of(("Relu", "Tanh", "Sigmoid", "LeakyRelu")))
    if op == "FusedGemm":
        ins = [values(draw, (k, m) if ta else (m, k), F32), values(draw, (n, k) if tb else (k, n), F32), values(draw, partner(draw, (m, n)), F32)]
        return ms(op, ins, attrs=attrs | {"beta": draw(one_of((0.5, 1.0))), "activation": act, "activation_alpha": 0.2}, tol=(1e-4, 1e-4))
    batch = shape(draw, hi=2, most=3, zeros=False)
    a, b = values(draw, (*batch, *((k, m) if ta else (m, k))), F32), values(draw, (*batch, *((n, k) if tb else (k, n))), F32)
    if op == "FusedMatMul" and batch and draw(flags):  # the batch between the two axes of the matrix
        attrs |= {"transBatchA": 1, "transBatchB": 1}
        a, b = (np.ascontiguousarray(np.moveaxis(v, -2, 0)) for v in (a, b))
    if op != "FusedMatMulActivation":
        return ms(op, [a, b], attrs=attrs, tol=(1e-4, 1e-4), const=draw(one_of(((), (1,)))))
    y = attrs["alpha"] * (np.swapaxes(a, -1, -2) if ta else a).astype(np.float64) @ (np.swapaxes(b, -1, -2) if tb else b)
    y = {"Relu": np.maximum(y, 0), "Tanh": np.tanh(y), "Sigmoid": sigmoid(y), "LeakyRelu": np.where(y < 0, np.float32(0.2) * y, y)}[act]
    return ms(op, [a, b], attrs=attrs | {"activation": act, "activation_alpha": 0.2}, want=[y.astype(F32)], tol=(1e-4, 1e-4))


# ---- positions and padding ------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_positions(draw):
    op = draw(one_of(("RelativePositionBias", "GatedRelativePositionBias", "RemovePadding", "RestorePadding")))
    m = family("contrib_bert")
    if op == "RelativePositionBias":
        n, count, heads, both = draw(st.integers(1, 20)), draw(one_of((8, 12, 32))), draw(st.integers(1, 4)), draw(one_of((0, 1)))
        table = values(draw, (count, heads), F32)
        far = draw(one_of((20, 128)))
        want = table.reshape(heads, count)[:, m.buckets(n, count, far, both)][None]
        return ms(op, [table, i64([n]), i64([n])], const=draw(one_of(((), (1, 2)))), attrs={"max_distance": far, "is_bidirectional": both}, want=[want])
    if op == "GatedRelativePositionBias":
        b, s, h, d, half = (draw(st.integers(1, 4)) for _ in range(5))
        args = [values(draw, dims, F32, scale=1) for dims in ((b, s, h * d), (h * d,), (1, h, s, s), (d, 2 * half), (2 * half,), (1, h, 1, 1))]
        return ms(op, args, attrs={"num_heads": h}, want=[m.gated(*args, h).astype(F32)], tol=(1e-4, 1e-4))
    batch, rows, size = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    counts = np.array([draw(st.integers(0, rows)) for _ in range(batch)], np.int32)
    x, there = values(draw, (batch, rows, size), F32), np.arange(rows)[None] < counts[:, None]
    offsets = np.concatenate([np.flatnonzero(there), np.flatnonzero(~there)]).astype(np.int32).reshape(batch, rows)
    if op == "RestorePadding":
        return ms(op, [x[there], offsets], want=[np.where(there[..., None], x, F32(0))])
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return ms(op, [x, counts], outs=4, want=[x[there], offsets, starts, np.array([counts.max()], np.int32)])


@prop
@st.composite
def test_rotary(draw):
    op, inter = draw(one_of(("onnx", "RotaryEmbedding", "MRotaryEmbedding", "GemmaRotaryEmbedding"))), draw(one_of((0, 1)))
    batch, rows, heads, half = draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    if op[0] == "G":
        angle, states = values(draw, (batch, rows, half), F32), [values(draw, (batch, heads, rows, half), np.float16) for _ in range(4)]
        c, s = (g(angle).astype(np.float16)[:, None].astype(F32) for g in (np.cos, np.sin))
        want = [(states[i].astype(F32) * c + states[i + 1].astype(F32) * s).astype(np.float16) for i in (0, 2)]
        return ms(op, [angle, *states], outs=2, want=want, out_types=[np.float16] * 2)
    size = 2 * half + (2 * draw(st.integers(0, 2)) if op != "MRotaryEmbedding" else 0)
    flat, part = draw(flags), size != 2 * half
    x = values(draw, (batch, rows, heads * size) if flat else (batch, heads, rows, size), F32)
    angle = values(draw, (16, half), F32)
    tables = [np.cos(angle), np.sin(angle)]
    at = values(draw, (batch, rows), np.int64, lo=0, hi=15)
    attrs = {"interleaved": inter} | ({"num_heads": heads} if flat or part else {}) | ({"rotary_embedding_dim": 2 * half} if part else {})
    if op == "onnx":
        attrs = {k: v for k, v in attrs.items() if k != "num_heads" or flat}
        ins = [x, *tables, at] if draw(flags) else [x, *(v[at] for v in tables)]
        return Case("RotaryEmbedding", 23, ins, attrs=attrs)
    if op == "RotaryEmbedding":
        if draw(flags):
            at = i64([draw(st.integers(0, 16 - rows))])
        return ms(op, [x, at, *tables], attrs=attrs)
    first = draw(st.integers(0, half))
    second = draw(st.integers(0, half - first))
    attrs |= {"mrope_section": [first, second, half - first - second], "mrope_layout": 0 if inter else draw(one_of((0, 1)))}
    return ms(op, [x, values(draw, (3, batch, rows), np.int64, lo=0, hi=15), *tables], attrs=attrs)


# ---- attention ----------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_group_query_attention(draw):
    kv, times, size = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(one_of((8, 16)))
    rows, past = draw(st.integers(1, 5)), draw(st.integers(0, 7))
    batch = draw(st.integers(1, 3)) if rows == 1 or past == 0 else 1
    capacity = draw(one_of((None, None, 12, 16)))
    attrs = {k: v for k, v in (("local_window_size", draw(st.integers(1, 6))), ("softcap", 2.0), ("scale", 0.4)) if draw(st.integers(0, 2)) == 2}
    sink = draw(one_of((None, "smooth", "sink")))
    if sink == "smooth":
        attrs["smooth_softmax"] = 1
    rotary = size // 2 if draw(flags) else None
    if rotary and draw(flags):
        attrs["rotary_interleaved"] = 1
    packed = draw(flags)
    return built(draw, "gqa", lambda m: m.gqa(batch=batch, rows=rows, past=past, capacity=capacity, heads=kv * times, kv=kv, size=size, packed=packed,
                                             rotary=rotary, sink=m.normal(kv * times) if sink == "sink" else None, attrs=attrs))


@prop
@st.composite
def test_multi_head_attention(draw):
    batch, rows, keys, heads, size, past = (draw(st.integers(1, 4)) for _ in range(6))
    form = draw(one_of(("cross", "past", "apart", "shared")))
    n = {"cross": keys, "past": rows + past, "apart": keys, "shared": rows}[form]
    mask = draw(one_of((None, None, "keys", "keys-queries", "lengths")))
    attrs = {k: v for k, v in (("scale", 0.5), ("mask_filter_value", -100.0)) if draw(flags)}
    added, bias, causal = draw(flags), form != "shared" and draw(flags), form == "past" and mask is None and draw(flags)

    def build(m):
        m.B, m.S, m.T, m.H, m.D, m.P, m.W = batch, rows, keys, heads, size, past, heads * size
        width = heads * size
        q = m.normal(batch, rows, width)
        kv_dims = (batch, heads, keys, size) if form == "apart" else (batch, keys if form == "cross" else rows, width)
        ins = [q, m.normal(*kv_dims), m.normal(*kv_dims), m.normal(3 * width) if bias else None]
        masks = {"keys": (m.rng.random((batch, n)) > 0.3), "keys-queries": m.rng.random((batch, rows, n)) > 0.3,
                 "lengths": m.rng.integers(1, n + 1, batch)}
        if form == "shared":
            m.mha([*ins, None, None, *m.cache(past + rows), m.ints(past)], outs=3, **attrs)
            return
        ins += [None if mask is None else masks[mask].astype(np.int32), m.normal(1, heads, rows, n) if added else None]
        if form == "past":
            ins += m.cache(past)
        m.mha(ins, outs=3 if form == "past" else 1, tol=(2e-3, 2e-3), **attrs, **({"unidirectional": 1} if causal else {}))

    return built(draw, "mha", build)


@prop
@st.composite
def test_decoder_masked_attention(draw):
    batch, heads, size, past = (draw(st.integers(1, 4)) for _ in range(4))
    form = draw(one_of(("alone", "shared", "cross")))

    def build(m):
        m.B, m.H, m.D, m.W = batch, heads, size, heads * size
        if form == "alone":
            m.decoder(m.own(1))
        elif form == "shared":
            m.decoder(m.own(1) + [None, None] + m.cache(past + 3) + [m.ints(past)], past_present_share_buffer=1, outs=3)
        else:
            m.decoder([m.normal(batch, 1, heads * size), m.normal(batch, heads, past, size), m.normal(batch, heads, past, size)])

    return built(draw, "mha", build)


@prop
@st.composite
def test_attention_with_projection(draw):
    batch, rows, heads, size, width, past = (draw(st.integers(1, 4)) for _ in range(6))
    mask = draw(one_of((None, "ends", "keys", "keys-queries")))
    has_past, attrs = draw(flags), {k: v for k, v in (("unidirectional", 1), ("scale", 0.6)) if draw(flags)}
    n = rows + (past if has_past else 0)

    def build(m):
        m.B, m.S, m.H, m.D, m.P, m.W = batch, rows, heads, size, past, heads * size
        w = 3 * heads * size
        masks = {"ends": m.rng.integers(1, n + 1, batch), "keys": m.rng.random((batch, n)) > 0.3, "keys-queries": m.rng.random((batch, rows, n)) > 0.3}
        ins = [m.normal(batch, rows, width), m.normal(width, w), m.normal(w), None if mask is None else masks[mask].astype(np.int32),
               m.normal(2, batch, heads, past, size) if has_past else None]
        m.whole(ins, outs=2 if has_past else 1, tol=(2e-3, 2e-3), **attrs)

    return built(draw, "mha", build)


def lengths_of(draw, least=0, most=5) -> list:
    return [draw(st.integers(least, most)) for _ in range(draw(st.integers(1, 3)))]


@prop
@st.composite
def test_packed_attention(draw):
    heads, size = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    lengths = lengths_of(draw)
    assume(sum(lengths))
    starts = [0, *np.cumsum(lengths).tolist()]
    bias, added, whole = draw(flags), draw(flags), draw(flags)

    def build(m):
        m.H, m.D, m.W = heads, size, heads * size
        n = sum(lengths)
        parts = (m.normal(n, heads, 3, size), None, None) if whole else tuple(m.normal(n, m.W) for _ in range(3))
        m.mha(*parts, starts, bias=m.normal(3 * m.W) if bias else None, added=m.normal(1, heads, max(lengths), max(lengths)) if added else None)

    return built(draw, "packed", build)


@prop
@st.composite
def test_paged_attention(draw):
    lengths = lengths_of(draw, most=4)
    assume(sum(lengths))
    past = [draw(st.integers(0, 12 - n)) for n in lengths]
    kw = {k: True for k in ("rotary", "sink", "norms") if draw(flags)} | ({"softcap": 2.0} if draw(flags) else {}) | ({"is_causal": 0} if draw(flags) else {})
    return built(draw, "paged", lambda m: m.paged(lengths, past, tol=(3e-2, 3e-2), **kw))


@prop
@st.composite
def test_sparse_attention(draw):
    batch, past = draw(st.integers(1, 2)), draw(st.integers(0, 40))
    rows = draw(st.integers(1, 24)) if past == 0 else 1
    kw = {k: True for k in ("packed", "rotary") if draw(flags)}
    lengths = [draw(st.integers(rows, past + rows)) for _ in range(batch - 1)] + [past + rows]
    return built(draw, "sparse", lambda m: m.sparse(batch=batch, rows=rows, past=past, lengths=lengths, **kw))


@prop
@st.composite
def test_selected_attention(draw):
    batch, rows, kv, times = (draw(st.integers(1, 2)) for _ in range(4))
    past = tuple(draw(st.integers(0, 5)) for _ in range(batch))
    local = draw(one_of((0, 0, 2, 9)))
    kw = {"local": local, "aux": draw(st.integers(1, 6)) if local else 0, "shared": bool(local) and draw(flags), "picks": draw(st.integers(0, 4)),
          "packed": draw(flags), "norm": draw(flags), "sink": draw(flags), "rotary": draw(one_of((None, 0, 4))), "interleaved": draw(one_of((0, 1)))}
    return built(draw, "selected", lambda m: m.case(past=past, held=max(past) + draw(st.integers(0, 3)), rows=rows, heads=kv * times, kv=kv, **kw))


@prop
@st.composite
def test_older_attention(draw):
    n, size, batch = draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
    if draw(flags):
        rows, window = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        return built(draw, "decoder", lambda m: m.longformer(batch, 2 * window * rows, n, size, window, spots=(0, 3) if draw(flags) else ()))
    return built(draw, "decoder", lambda m: m.decoder(draw(st.integers(1, 3)), draw(st.integers(1, 5)), batch, n, size, static=draw(flags),
                                                      past=draw(st.integers(0, 3)), mask=draw(flags), const=draw(one_of(((), (8, 9, 10, 11))))))


# ---- recurrences --------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_linear_attention(draw):
    hkv, times, t = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 6))
    rule, kw = draw(one_of(("linear", "gated", "delta", "gated_delta"))), {"past": draw(flags), "each": draw(flags), "beta_one": draw(flags)}
    return built(draw, "linear_attn", lambda m: m.linear(m.linear_inputs(hkv * times, hkv, t, rule=rule, **kw), hq=hkv * times, hkv=hkv, update_rule=rule))


@prop
@st.composite
def test_convolution_with_state(draw):
    taps, dilation, channels, t = draw(st.integers(1, 4)), draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 6))
    attrs = {"dilation": dilation, "activation": draw(one_of(("none", "silu", "swish")))}
    last, kept = draw(flags), (taps - 1) * dilation
    if draw(flags):
        lengths = lengths_of(draw)
        assume(sum(lengths) >= len(lengths))  # the schema's own rule
        return built(draw, "delta", lambda m: m.conv(lengths, channels, taps, dilation, bias=draw(flags), act=attrs["activation"]))

    def build(m):
        dims, held = ((2, t, channels), (2, kept, channels)) if last else ((2, channels, t), (2, channels, kept))
        m.conv(m.normal(*dims), m.normal(*held) if draw(flags) else None, m.normal(channels) if draw(flags) else None, taps, channels=channels,
               channels_last=int(last), **attrs)

    return built(draw, "linear_attn", build)


@prop
@st.composite
def test_gates(draw):
    dims = (draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 5)))
    if draw(flags):
        a, b = values(draw, dims, F32), values(draw, dims, F32) if draw(flags) else None
        return ms("LinearAttentionGate", [a, values(draw, dims[2:], F32), values(draw, dims[2:], F32), b], outs=1 if b is None else 2, tol=(1e-4, 1e-5))
    groups = draw(st.integers(1, 3))
    full = (*dims[:2], groups * dims[2])
    return ms("GatedRMSNorm", [values(draw, full, F32), values(draw, dims[2:], F32), values(draw, full, F32)], tol=(1e-4, 1e-5),
              attrs={"activation": draw(one_of(("silu", "swish", "sigmoid"))), "epsilon": 0.01})


@prop
@st.composite
def test_gated_delta_net(draw):
    kv, times = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    rule, ragged = draw(one_of(("linear", "gated", "delta", "gated_delta"))), draw(flags)
    lengths = lengths_of(draw) if ragged else [draw(st.integers(1, 4))] * draw(st.integers(1, 3))
    kw = {"initial": True, "norm": draw(flags), "sig": draw(flags), "each": draw(flags), "scale": draw(one_of((0.0, 0.4)))}
    return built(draw, "delta", lambda m: m.net(lengths, kv, kv * times, draw(st.integers(1, 5)), draw(st.integers(1, 5)), rule, ragged=ragged, **kw))
