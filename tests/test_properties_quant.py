"""Random cases of quantised operators and of weights of few bits."""
from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from case import Case
from properties import axis_of, built, flags, one_of, pair, prop, shape, some_const, values

MS = "com.microsoft"
BYTES = (np.uint8, np.int8)


def q8(draw, t, *dims) -> np.ndarray:
    return values(draw, dims, t, lo=-128, hi=255)


def scale(draw, *dims, lo=0.01, hi=0.05) -> np.ndarray:
    return values(draw, dims, np.float32, lo=lo, hi=hi)


# ---- products -----------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_integer_products(draw):
    """Exact, whatever the types, the zero points and the length."""
    ta, tb = draw(one_of(BYTES)), draw(one_of(BYTES))
    batch, m, k, n = shape(draw, hi=2, most=3), draw(st.integers(0, 5)), draw(one_of((0, 1, 3, 60, 300))), draw(st.integers(0, 5))
    a, b = q8(draw, ta, *batch, m, k), q8(draw, tb, *(batch if draw(flags) else ()), k, n)
    za = draw(one_of((None, (), (m,)))) if not batch else draw(one_of((None, ())))
    za = None if za is None else q8(draw, ta, *za)
    zb = draw(one_of((None, (), (n,))))
    zb = None if zb is None else q8(draw, tb, *zb)
    wa, wb = a.astype(np.int32), b.astype(np.int32)
    wa = wa if za is None else wa - (za.astype(np.int32)[:, None] if za.ndim else za.astype(np.int32))
    wb = wb if zb is None else wb - zb.astype(np.int32)
    ins = [a, b, za, zb]
    while ins[-1] is None:
        ins.pop()
    return Case("MatMulInteger", 10, ins, const=some_const(draw, [i for i in range(1, len(ins)) if ins[i] is not None]), want=[wa @ wb])


@prop
@st.composite
def test_quantised_products(draw):
    op = draw(one_of(("QLinearMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QGemm")))
    tb = draw(one_of(BYTES))
    m, k, n = draw(st.integers(1, 5)), draw(st.integers(1, 40)), draw(st.integers(1, 5))
    columns = draw(flags)
    per = (n,) if columns else ()
    zero_b = np.zeros(per, np.int8) if tb == np.int8 else q8(draw, tb, *per)
    const = some_const(draw, (1, 3, 4))
    if op == "QLinearMatMul":
        ta = draw(one_of(BYTES))
        ins = [q8(draw, ta, m, k), scale(draw), q8(draw, ta), q8(draw, tb, k, n), scale(draw, *per), zero_b, scale(draw, lo=2, hi=9), q8(draw, ta)]
        return Case(op, 10, ins, const=const)
    if op == "MatMulIntegerToFloat":
        bias = [scale(draw, n, lo=-2, hi=2)] if draw(flags) else []
        return Case(op, 1, [q8(draw, np.uint8, m, k), q8(draw, tb, k, n), scale(draw), scale(draw, *per), q8(draw, np.uint8), q8(draw, tb, *per), *bias],
                    domain=MS, const=some_const(draw, (1, 3)), tol=(1e-4, 1e-4))
    if op == "DynamicQuantizeMatMul":
        ins = [values(draw, (m, k), np.float32), q8(draw, tb, k, n), scale(draw, *per), q8(draw, tb, *per)] + ([scale(draw, n)] if draw(flags) else [])
        return Case(op, 1, ins, domain=MS, const=some_const(draw, (1, 2)), tol=(1e-4, 1e-4))
    attrs = {"transA": draw(one_of((0, 1))), "transB": draw(one_of((0, 1))), "alpha": draw(one_of((1.0, 0.5)))}
    ins = [q8(draw, np.uint8, *((k, m) if attrs["transA"] else (m, k))), scale(draw), q8(draw, np.uint8), q8(draw, tb, *((n, k) if attrs["transB"] else (k, n))),
           scale(draw, *per), zero_b, values(draw, (n,), np.int32, lo=-999, hi=999)]
    ins += [scale(draw, lo=1, hi=2), q8(draw, np.uint8)] if draw(flags) else []
    return Case(op, 1, ins, domain=MS, attrs=attrs, const=const, tol=(1e-4, 1e-4))


@prop
@st.composite
def test_quantised_convolutions(draw):
    op = draw(one_of(("ConvInteger", "QLinearConv")))
    tx, tw = draw(one_of(((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)) if op[0] == "Q" else ((np.uint8, np.uint8), (np.uint8, np.int8))))
    kernel = shape(draw, lo=1, hi=2, most=3, zeros=False)
    group, each, outs = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    attrs = {"group": group} | {k: v for k, v in (("strides", [2] * len(kernel)), ("pads", [1] * 2 * len(kernel))) if draw(flags)}
    assume("pads" not in attrs or min(kernel) > 1)
    sides = tuple(draw(st.integers(3, 7)) for _ in kernel)
    x, w = q8(draw, tx, draw(st.integers(1, 2)), group * each, *sides), q8(draw, tw, group * outs, each, *kernel)
    if op == "ConvInteger":
        return Case(op, 10, [x, w, q8(draw, tx), q8(draw, tw)], attrs=attrs, const=some_const(draw, (1, 2, 3)))
    per = (group * outs,) if draw(flags) else ()
    zero = np.zeros(per, np.int8) if tw == np.int8 else np.full(per, q8(draw, tw))  # ORT wants one for all
    bias = [values(draw, (group * outs,), np.int32, lo=-999, hi=999)] if draw(flags) else []
    return Case(op, 10, [x, scale(draw), q8(draw, tx), w, scale(draw, *per), zero, scale(draw, lo=0.5, hi=2), q8(draw, tx), *bias], attrs=attrs,
                const=some_const(draw, (3, 4)))


# ---- elements -----------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_quantised_elements(draw):
    op = draw(one_of("QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu QLinearSoftmax QLinearConcat QLinearWhere".split()))
    t = draw(one_of(BYTES))
    dims = shape(draw, lo=1, hi=4)
    x, s, z, to = q8(draw, t, *dims), scale(draw), q8(draw, t), [scale(draw, lo=0.02, hi=0.2), q8(draw, t)]
    if op in ("QLinearAdd", "QLinearMul"):
        a, b = pair(draw, dims)
        return Case(op, 1, [q8(draw, t, *a), s, z, q8(draw, t, *b), scale(draw), q8(draw, t), *to], domain=MS, const=some_const(draw, (1, 2, 6, 7)))
    if op == "QLinearSigmoid":
        return Case(op, 1, [x, s, z, np.float32(1 / 256), np.array(np.iinfo(t).min, t)], domain=MS)
    if op == "QLinearLeakyRelu":
        return Case(op, 1, [x, s, z, *to], domain=MS, attrs={"alpha": draw(one_of((0.01, 0.3)))}, const=some_const(draw, (1, 2, 3, 4)))
    if op == "QLinearSoftmax":
        axis, opset = axis_of(draw, len(dims)), draw(one_of((11, 13)))
        # Of one element ORT gives 0 for some scales, with 1 / 256 it wraps a probability of 1 to 0.
        assume(x.size and (np.prod(dims[axis:]) if opset < 13 else dims[axis]) > 1)
        to = [np.array(draw(one_of((1 / 255, 0.009))), np.float32), np.array(np.iinfo(t).min, t)]
        return Case(op, 1, [x, s, z, *to], domain=MS, attrs={"opset": opset, "axis": axis})
    if op == "QLinearWhere":
        a, b = pair(draw, dims)
        return Case(op, 1, [values(draw, dims, np.bool_), q8(draw, t, *a), s, z, q8(draw, t, *b), scale(draw), q8(draw, t), *to], domain=MS)
    axis, parts = axis_of(draw, len(dims)), []
    for _ in range(draw(st.integers(1, 3))):
        d = list(dims)
        d[axis] = draw(st.integers(1, 3))
        parts += [q8(draw, t, *d), scale(draw), q8(draw, t)]
    return Case(op, 1, [*to, *parts], domain=MS, attrs={"axis": axis})


@prop
@st.composite
def test_quantised_pools(draw):
    op, t = draw(one_of(("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearReduceMean", "NhwcMaxPool"))), draw(one_of(BYTES))
    last, side = draw(one_of((0, 1))), (draw(st.integers(3, 6)), draw(st.integers(3, 6)))
    batch, c = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    x = q8(draw, t, *((batch, *side, c) if last or op[0] == "N" else (batch, c, *side)))
    s = scale(draw)
    ins = [x, s, q8(draw, t), np.asarray(s * np.float32(1.2345)), q8(draw, t)]  # with one scale, halves fall on either side in ORT
    if op == "QLinearReduceMean":
        axes, keep = sorted({draw(st.integers(0, 3)), draw(st.integers(0, 3))}), draw(one_of((0, 1)))
        y = np.mean((x.astype(np.float64) - ins[2]) * ins[1], axis=tuple(axes), keepdims=bool(keep)) / ins[3]
        assume(np.all(abs(y - np.floor(y) - 0.5) > 1e-3))  # not on the border between two
        info = np.iinfo(t)
        want = np.clip(np.rint(y) + ins[4], info.min, info.max).astype(t)
        return Case(op, 1, ins, domain=MS, attrs={"axes": axes, "keepdims": keep}, want=[want], out_types=[t])
    if op == "QLinearGlobalAveragePool":
        return Case(op, 1, ins, domain=MS, attrs={"channels_last": last})
    kernel = [draw(st.integers(1, 3)), draw(st.integers(1, 3))]
    attrs = {"kernel_shape": kernel} | ({"strides": [2, 1]} if draw(flags) else {}) | ({"pads": [draw(st.integers(0, k - 1)) for k in kernel * 2]} if draw(flags) else {})
    if op == "NhwcMaxPool":
        return Case(op, 1, [x], domain=MS, attrs=attrs)
    return Case(op, 1, ins, domain=MS, attrs=attrs | {"channels_last": last, "count_include_pad": draw(one_of((0, 1)))})


# ---- weights of few bits ------------------------------------------------------------------------------------------------------
def lead(draw) -> tuple:
    return draw(one_of(((), (1,), (0,), (3,), (2, 1), (2, 3))))


@prop
@st.composite
def test_block_weights(draw):
    bits, block = draw(one_of((2, 4, 8))), draw(one_of((16, 32, 64)))
    k, n = draw(st.integers(1, 150)), draw(st.integers(1, 20))
    zeros = draw(one_of((None, "packed", "float")))
    return built(draw, "nbits", lambda m: m.nbits(lead(draw), n, k, bits, block, zeros, bias=draw(flags)))


@prop
@st.composite
def test_block_weights_of_layers(draw):
    op = draw(one_of(("MatMulNBitsMlp", "MatMulNBitsQkv")))
    n, kv, k = draw(st.integers(1, 9)), draw(st.integers(1, 5)), draw(st.integers(1, 4)) * 16
    norm, qkv = draw(flags), op.endswith("Qkv")
    norm = norm or qkv
    skip = norm and draw(flags)
    return built(draw, "nbits_fused", lambda m: m.case(op, draw(one_of(((1,), (2, 3)))), k, (n, kv, kv) if qkv else (n, n), bits=draw(one_of((2, 4, 8))), block=16,
                                                       bias=draw(flags), norm=norm, skip=skip, total=skip and draw(flags)))


@prop
@st.composite
def test_quantised_tables(draw):
    bits, rows, blocks = draw(one_of((4, 8))), draw(st.integers(1, 9)), draw(st.integers(1, 3))

    def build(m):
        d, s, z = m.table(rows, 16 * blocks, bits, 16)
        at = values(draw, shape(draw, hi=3, most=3), draw(one_of((np.int32, np.int64))), lo=-rows, hi=rows - 1)
        m.lookup(d, at, s, z if draw(flags) else None, bits)

    return built(draw, "nbits", build)


@prop
@st.composite
def test_low_floats(draw):
    form = draw(one_of(("bnb", "fp4", "fp8", "gemm")))
    n, k = draw(st.integers(1, 9)), draw(st.integers(1, 9)) * 8
    if form == "bnb":
        return built(draw, "lowbit", lambda m: m.bnb(lead(draw), n, 2 * k, draw(one_of((16, 32, 64))), 1, want="nf4"))
    if form == "fp4":
        return built(draw, "lowfloat", lambda m: m.fp4(lead(draw), n, k, 16, bias=draw(flags)))
    if form == "fp8":
        return built(draw, "lowfloat", lambda m: m.fp8(lead(draw), n, k, 32, block_size=32, bias=draw(flags)))
    ta, tb, rows = draw(one_of((0, 1))), draw(one_of((0, 1))), draw(st.integers(1, 4))

    def build(m):
        a, b = m.normal(*((k, rows) if ta else (rows, k))), m.normal(*((n, k) if tb else (k, n)))
        m.gemm(a, b, m.normal(rows, n) if draw(flags) else None, transA=ta, transB=tb, alpha=draw(one_of((1.0, 0.5))), beta=draw(one_of((1.0, 2.0))))

    return built(draw, "lowfloat", build)


@prop
@st.composite
def test_mixtures_of_experts(draw):
    tokens, experts = draw(st.integers(1, 6)), draw(st.integers(2, 5))
    attrs = {"k": draw(st.integers(1, experts)), "normalize_routing_weights": draw(one_of((0, 1)))}
    act = draw(one_of(("relu", "gelu", "silu", "identity", "swiglu")))
    attrs |= {"activation_type": act} | ({"swiglu_fusion": draw(one_of((1, 2)))} if act == "swiglu" else {})
    packed, bits, block, zeros = draw(flags), draw(one_of((4, 8))), draw(one_of((0, 16, 32))), draw(flags)

    def build(m):
        m.T, m.E = tokens, experts
        if packed:
            m.packed(bits, block, attrs, zeros, oracle="numpy", bias=draw(flags))
        else:
            m.plain(attrs, shape=(tokens, m.H), bias=draw(flags), oracle="numpy")

    return built(draw, "moe", build)


# ---- parts of models ----------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_quantised_parts_of_models(draw):
    form, t = draw(one_of(("attention", "embed", "lstm"))), draw(one_of(BYTES))
    if form == "attention":
        batch, rows, heads, size, past = (draw(st.integers(1, 3)) for _ in range(5))
        held = past if draw(flags) else 0
        mask = values(draw, (batch, rows + held), np.int32, lo=0, hi=1) if draw(flags) else None
        kw = {"unidirectional": 1} if draw(flags) else {}
        return built(draw, "qmodel", lambda m: m.attention(t, batch, rows, heads, size, 4 * draw(st.integers(1, 5)), mask=mask, past=held, columns=draw(flags),
                                                           tol=(2e-3, 2e-3), **kw))
    if form == "embed":
        return built(draw, "qmodel", lambda m: m.f.case(**m.embed(t, segments=draw(flags), mask=m.rng.integers(0, 2, (2, 4)).astype(np.int32) if draw(flags) else None)))
    direction, dims = draw(one_of(("forward", "reverse", "bidirectional"))), [draw(st.integers(1, 4)) for _ in range(3)]
    dirs = 2 if direction[0] == "b" else 1
    return built(draw, "qmodel", lambda m: m.f.case(m.L, 1, m.lstm(t, dirs, *dims, 4, False, bias=draw(flags), start=draw(flags)), outs=3, domain=MS,
                                                    attrs={"hidden_size": 4, "direction": direction}, tol=(0.05, 0.05), const=(1, 2, 8, 9, 10, 11)))
