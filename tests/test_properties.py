"""Random cases of each family of operators: shapes, types, attributes, constant or computed parameters."""
from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from case import Case, numpy_type
from properties import (ALL, FLOATS, INTS, SIGNED, UNSIGNED, axes_of, axis_of, flags, i64, index_of, one_of, pair, partner, prop,
                        shape, some_const, values)

LOOSE = {np.float32: (1e-4, 1e-5), np.float64: (1e-8, 1e-10)}


# ---- elements one by one ------------------------------------------------------------------------------------------------------
ANYWHERE = ("Abs Neg Sign Reciprocal Sqrt Exp Log Sin Cos Atan Tanh Sinh Cosh Asinh Asin Acos Acosh Atanh Ceil Floor Round IsNaN "
            "IsInf Sigmoid Erf").split()


@prop
@st.composite
def test_unary(draw):
    op = draw(one_of([*ANYWHERE, "Not", "BitwiseNot"]))
    types = {"Not": (np.bool_,), "BitwiseNot": INTS, "Abs": FLOATS + INTS, "Neg": FLOATS + SIGNED, "Sign": FLOATS + INTS}
    t = draw(one_of(types.get(op, FLOATS)))
    assume(op != "Erf" or t != np.float64)
    attrs = {}
    if op == "IsInf" and draw(flags):
        attrs = {"detect_negative": draw(one_of((0, 1))), "detect_positive": draw(one_of((0, 1)))}
    x = values(draw, shape(draw), t, special=op not in ("Neg", "Abs") or np.dtype(t).kind not in "iu")
    return Case(op, draw(one_of((18, 20))), [x], attrs=attrs)


@prop
@st.composite
def test_activation(draw):
    number = st.floats(0.0625, 2, width=16)
    table = {"Relu": (), "LeakyRelu": ("alpha",), "ThresholdedRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "HardSwish": (),
             "Elu": ("alpha",), "Selu": ("alpha", "gamma"), "Celu": ("alpha",), "Softplus": (), "Softsign": (), "Mish": (),
             "Shrink": ("lambd", "bias"), "Gelu": (), "PRelu": (), "Clip": ()}
    op = draw(one_of(sorted(table)))
    types = FLOATS + ((np.int32, np.int64) if op in ("Relu", "PRelu") else INTS if op == "Clip" else ())
    t = draw(one_of(types))
    assume(op != "Shrink" or t != np.float64)  # ORT computes it in float32
    attrs = {k: float(draw(number)) for k in table[op] if draw(flags)}
    dims = shape(draw)
    x = values(draw, dims, t, special=op in ("Relu", "Clip", "LeakyRelu", "Elu", "Softplus"))
    if op == "Gelu":
        assume(t != np.float64)
        attrs = {"approximate": draw(one_of(("none", "tanh")))}
    ins = [x]
    if op == "PRelu":
        ins = [x, values(draw, partner(draw, dims), t)]
    if op == "Clip":
        ins = [x, *(values(draw, (), t, lo=lo, hi=hi) if draw(flags) else None for lo, hi in ((-2, 0), (1, 3)))]
        while ins[-1] is None:
            ins.pop()
    return Case(op, 20, ins, attrs=attrs, const=some_const(draw, [i for i in range(1, len(ins)) if ins[i] is not None]))


@prop
@st.composite
def test_binary(draw):
    table = {op: FLOATS + INTS for op in ("Add", "Sub", "Mul", "Div", "Mod", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")}
    table |= {op: (np.bool_,) for op in ("And", "Or", "Xor")} | {op: INTS for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")}
    table |= {"Equal": ALL, "BitShift": UNSIGNED, "Pow": FLOATS + (np.int32, np.int64)}
    op = draw(one_of(sorted(table)))
    t = draw(one_of(table[op]))
    integer = np.dtype(t).kind in "iu"
    attrs, opset = {}, 20 if op != "Add" else draw(one_of((7, 13, 14)))
    a, b = (values(draw, d, t, special=op not in ("Mod", "Pow", "BitShift")) for d in pair(draw, shape(draw)))
    if op in ("Div", "Mod") and integer:
        b = np.where(b == 0, 3, b).astype(t)
        b = np.where(b == -1, 2, b).astype(t) if np.dtype(t).kind == "i" else b
    if op == "Mod":
        attrs = {"fmod": 1} if not integer or draw(flags) else {}
        if not integer:
            b = np.where(abs(b) < 0.5, 1.5, b).astype(t)
    if op == "BitShift":
        attrs, b = {"direction": draw(one_of(("LEFT", "RIGHT")))}, values(draw, b.shape, t, lo=0, hi=7)
    if op == "Pow":
        other = draw(one_of((np.float32, np.int32, np.int64))) if t in (np.float32, np.int32, np.int64) else t
        a, b = values(draw, a.shape, t, lo=1, hi=3), values(draw, b.shape, other, lo=0, hi=3)
    const = draw(one_of(((), (0,), (1,))))
    return Case(op, opset, [a, b], attrs=attrs, const=const)


@prop
@st.composite
def test_variadic(draw):
    op = draw(one_of(("Max", "Min", "Sum", "Mean")))
    t = draw(one_of(FLOATS + (() if op in ("Sum", "Mean") else INTS)))
    dims = shape(draw, hi=4)
    ins = [values(draw, partner(draw, dims), t, special=True) for _ in range(draw(st.integers(1, 4)))]
    return Case(op, 13, ins, const=some_const(draw, range(1, len(ins))))


@prop
@st.composite
def test_where(draw):
    t, dims = draw(one_of(ALL)), shape(draw)
    a, b = pair(draw, dims)
    return Case("Where", draw(one_of((9, 16))), [values(draw, partner(draw, dims), np.bool_), values(draw, a, t, special=True),
                                               values(draw, b, t, special=True)], const=draw(one_of(((), (0,), (1,), (2,)))))


@prop
@st.composite
def test_cast(draw):
    t, to = draw(one_of(ALL)), draw(one_of(ALL))
    x = values(draw, shape(draw), t, lo=0 if to in UNSIGNED else None, hi=9)
    want = [x.astype(to)]  # ORT's Python hands out no bfloat16 by numpy
    if t == to and draw(flags):
        return Case("Identity", 16, [x], want=want)
    if draw(flags):
        return Case("CastLike", 19, [x, np.zeros((1,), to)], const=some_const(draw, (1,)), want=want)
    return Case("Cast", draw(one_of((13, 19, 21))), [x], attrs={"to": numpy_type(to)}, want=want)


# ---- over axes ----------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_reduce(draw):
    kinds = "Sum Mean Prod L1 L2 SumSquare LogSum LogSumExp Max Min".split()
    op = "Reduce" + draw(one_of(kinds))
    t = draw(one_of((np.float32, np.float64, np.float16, np.int32, np.int64)))
    assume(op != "ReduceLogSumExp" or np.dtype(t).kind == "f")  # ORT takes exp and log in whole numbers: 8 of [7, 8, 6, 7, 3, 8]
    dims, attrs = shape(draw), {}
    x = values(draw, dims, t, lo=1, hi=3) if op in ("ReduceProd", "ReduceLogSum") else values(draw, dims, t)
    axes = axes_of(draw, len(dims)) if draw(flags) else None
    if draw(flags):
        attrs["keepdims"] = draw(one_of((0, 1)))
    if op == "ReduceProd" and np.dtype(t).kind == "i":
        x = np.where(x == 2, -2, 1).astype(t) if x.size < 24 else np.ones_like(x)  # ORT's products saturate
    reduced = [dims[a] for a in axes] if axes else dims
    assume(op == "ReduceSum" or 0 not in reduced)  # ORT keeps an empty axis
    tol = LOOSE.get(t)
    if draw(flags) and op != "ReduceSum":
        if axes:
            attrs["axes"] = axes
        return Case(op, draw(one_of((11, 13))), [x], attrs=attrs, tol=tol)
    if draw(flags):
        attrs["noop_with_empty_axes"] = draw(one_of((0, 1)))
    ins = [x] if axes is None else [x, i64(axes)]
    return Case(op, 13 if op == "ReduceSum" else draw(one_of((18, 20))), ins, attrs=attrs, const=some_const(draw, range(1, len(ins))), tol=tol)


@prop
@st.composite
def test_arg_reduce(draw):
    dims = shape(draw, lo=1, zeros=False)  # ORT forgets keepdims of an empty tensor
    axis = axis_of(draw, len(dims))
    t = draw(one_of((np.float32, np.float64, np.float16, np.int32, np.int64, np.int8, np.uint8)))
    attrs = {"axis": axis, "keepdims": draw(one_of((0, 1))), "select_last_index": draw(one_of((0, 1)))}
    return Case(draw(one_of(("ArgMax", "ArgMin"))), draw(one_of((12, 13))), [values(draw, dims, t, lo=0, hi=4).round()], attrs=attrs)


@prop
@st.composite
def test_cum_sum(draw):
    dims = shape(draw, lo=1)
    t = draw(one_of((np.float32, np.float64, np.int32, np.int64)))
    axis = index_of(draw, axis_of(draw, len(dims)))
    axis = axis.reshape(1) if draw(flags) else axis
    attrs = {"exclusive": draw(one_of((0, 1))), "reverse": draw(one_of((0, 1)))}
    return Case("CumSum", draw(one_of((11, 14))), [values(draw, dims, t), axis], attrs=attrs, const=some_const(draw, (1,)), tol=LOOSE.get(t))


@prop
@st.composite
def test_softmax(draw):
    dims = shape(draw, lo=1)
    t = draw(one_of(FLOATS))
    op = draw(one_of(("Softmax", "LogSoftmax", "Hardmax")))
    attrs = {"axis": axis_of(draw, len(dims))} if draw(flags) else {}
    opset = draw(one_of((11, 13)))
    assume(opset == 13 or attrs or len(dims) > 1)
    return Case(op, opset, [values(draw, dims, t)], attrs=attrs)


@prop
@st.composite
def test_loss(draw):
    op = draw(one_of(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")))
    t = draw(one_of((np.float32, np.float64)))
    classes, rest = draw(st.integers(1, 5)), shape(draw, hi=3, zeros=False)
    batch = draw(st.integers(1, 4))
    labels = values(draw, (batch, *rest), draw(one_of((np.int64, np.int32))), lo=0, hi=classes - 1)
    attrs = {"reduction": draw(one_of(("none", "mean", "sum")))}
    ins = [values(draw, (batch, classes, *rest), t), labels]
    if draw(flags):
        attrs["ignore_index"] = draw(st.integers(-1, classes - 1))
    if draw(flags):
        ins.append(values(draw, (classes,), t, lo=0.5, hi=2))
    if op[0] == "S":
        return Case(op, 13, ins, attrs=attrs, outs=draw(one_of((1, 2))), tol=LOOSE[t])
    return Case(op, 13, ins, attrs=attrs, tol=LOOSE[t])


@prop
@st.composite
def test_norm(draw):
    op = draw(one_of("LayerNormalization RMSNormalization BatchNormalization InstanceNormalization GroupNormalization LRN "
                     "LpNormalization MeanVarianceNormalization".split()))
    t = draw(one_of((np.float32, np.float64, np.float16)))
    dims = shape(draw, lo=1 if op[:2] in ("La", "RM", "Lp") else 3, hi=5)
    assume(t != np.float64 or op[0] not in "GR")  # ORT computes these in float32
    x, attrs = values(draw, dims, t), {}
    if op in ("LayerNormalization", "RMSNormalization"):
        axis = axis_of(draw, len(dims))
        attrs = {"axis": axis, "epsilon": draw(one_of((1e-5, 0.25)))}
        ins = [x, values(draw, dims[axis:], t)]
        if op[0] == "L" and draw(flags):
            ins.append(values(draw, dims[axis:], t))
        outs = draw(one_of((1, 3))) if op[0] == "L" and t == np.float32 else 1
        return Case(op, 17 if op[0] == "L" else 23, ins, outs=outs, attrs=attrs, tol=LOOSE.get(t, (1e-2, 1e-2)))
    channels = dims[1:2]
    if op == "BatchNormalization":
        ins = [x, *(values(draw, channels, t) for _ in range(3)), values(draw, channels, t, lo=0.5, hi=2)]
        attrs, opset = {"epsilon": 0.25}, draw(one_of((9, 14, 15)))
    elif op == "InstanceNormalization":
        ins, attrs, opset = [x, values(draw, channels, t), values(draw, channels, t)], {"epsilon": 0.25}, 6
    elif op == "GroupNormalization":
        groups = draw(one_of((1, 2)))
        assume(dims[1] % groups == 0)
        ins, attrs, opset = [x, values(draw, channels, t), values(draw, channels, t)], {"num_groups": groups, "epsilon": 0.25}, 21
    elif op == "LRN":
        ins, attrs, opset = [x], {"size": draw(one_of((1, 3, 5))), "alpha": 0.25, "beta": 0.75, "bias": 1.0}, 13
    elif op == "LpNormalization":
        ins, attrs, opset = [x], {"axis": axis_of(draw, len(dims)), "p": draw(one_of((1, 2)))}, draw(one_of((1, 22)))
    else:
        ins, attrs, opset = [x], {"axes": sorted(a % len(dims) for a in axes_of(draw, len(dims), 1))}, 13
        ins[0] = (x * 5).astype(t)
        assume(np.all(np.var(ins[0].astype(np.float64), axis=tuple(attrs["axes"])) > 1))  # ORT's variance of one value may be negative
    return Case(op, opset, ins, attrs=attrs, const=some_const(draw, range(1, len(ins))), tol=LOOSE.get(t, (1e-2, 1e-2)))


# ---- shapes -------------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_reshape(draw):
    x = values(draw, shape(draw), draw(one_of(ALL)))
    allow = 0 not in x.shape and draw(flags)
    to, left = [], x.size
    for d in draw(st.permutations(x.shape)):
        if draw(flags) and to and d:
            to[-1] *= d
        else:
            to.append(d)
    to = to or draw(one_of(([], [1], [1, 1])))
    if to and left and draw(flags):
        to[draw(st.integers(0, len(to) - 1))] = -1
    attrs = {"allowzero": 1} if allow or (0 in x.shape) else {}
    return Case("Reshape", 14, [x, i64(to)], attrs=attrs, const=some_const(draw, (1,)))


@prop
@st.composite
def test_views(draw):
    x = values(draw, shape(draw), draw(one_of(ALL)))
    rank, op = x.ndim, draw(one_of("Shape Size Flatten Transpose Squeeze Unsqueeze Expand Tile".split()))
    if op == "Shape":
        return Case(op, 15, [x], attrs={k: draw(st.integers(-7, 7)) for k in ("start", "end") if draw(flags)})
    if op == "Size":
        return Case(op, 13, [x])
    if op == "Flatten":
        return Case(op, 13, [x], attrs={"axis": draw(st.integers(-rank, rank))} if draw(flags) else {})
    if op == "Transpose":
        return Case(op, 13, [x], attrs={"perm": draw(st.permutations(range(rank)))} if rank and draw(flags) else {})
    if op == "Squeeze":
        ones = [a for a in axes_of(draw, rank) if x.shape[a] == 1]
        ins = [x, i64(ones)] if ones else [x]
        return Case(op, 13, ins, const=some_const(draw, range(1, len(ins))))
    if op == "Unsqueeze":
        axes = axes_of(draw, rank + draw(st.integers(1, 3)), 1)
        assume(rank + len(axes) <= 10)  # the device's limit
        return Case(op, 13, [x, i64(axes)], const=some_const(draw, (1,)))
    if op == "Expand":
        return Case(op, 13, [values(draw, partner(draw, x.shape), x.dtype), i64(partner(draw, x.shape))], const=some_const(draw, (1,)))
    return Case(op, 13, [x, i64([draw(st.integers(0, 3)) for _ in range(rank)])], const=some_const(draw, (1,)))


@prop
@st.composite
def test_blocks(draw):
    block, t = draw(st.integers(1, 3)), draw(one_of((np.float32, np.float64, np.uint8)))
    n, c, h, w = (draw(st.integers(0, 3)) for _ in range(4))
    if draw(flags):
        return Case("SpaceToDepth", 13, [values(draw, (n, c, h * block, w * block), t)], attrs={"blocksize": block})
    return Case("DepthToSpace", 13, [values(draw, (n, c * block * block, h, w), t)], attrs={"blocksize": block, "mode": draw(one_of(("DCR", "CRD")))})


@prop
@st.composite
def test_slice(draw):
    x = values(draw, shape(draw, lo=1), draw(one_of(ALL)))
    axes = axes_of(draw, x.ndim, 1)
    far = st.one_of(st.integers(-7, 7), one_of((2**31 - 1, -2**31, 2**63 - 1, -2**63)))
    as_type = np.int64
    rows = [[draw(far) for _ in axes] for _ in range(2)] + [axes, [draw(st.integers(1, 4)) * draw(one_of((1, -1))) for _ in axes]]
    ins = [x, *(np.asarray(r, as_type) for r in rows)]
    if draw(flags):
        ins.pop()
    return Case("Slice", draw(one_of((10, 11, 13))), ins, const=some_const(draw, range(1, len(ins))))


@prop
@st.composite
def test_split(draw):
    x = values(draw, shape(draw, lo=1), draw(one_of((np.float32, np.int32, np.int64, np.uint8))))
    axis = axis_of(draw, x.ndim)
    parts = draw(st.integers(1, 3))
    if draw(flags):
        return Case("Split", 18, [x], outs=parts, attrs={"axis": axis, "num_outputs": parts})
    cuts = sorted(draw(st.integers(0, x.shape[axis])) for _ in range(parts - 1))
    sizes = i64(np.diff([0, *cuts, x.shape[axis]]))
    if draw(flags):
        return Case("Split", 11, [x], outs=parts, attrs={"axis": axis, "split": sizes.tolist()})
    return Case("Split", draw(one_of((13, 18))), [x, sizes], outs=parts, attrs={"axis": axis}, const=some_const(draw, (1,)))


@prop
@st.composite
def test_concat(draw):
    dims, t = shape(draw, lo=1), draw(one_of(ALL))
    axis = axis_of(draw, len(dims))
    ins = []
    for _ in range(draw(st.integers(1, 4))):
        d = list(dims)
        d[axis] = draw(st.integers(0, 3))
        ins.append(values(draw, d, t))
    return Case("Concat", 13, ins, attrs={"axis": axis}, const=some_const(draw, range(1, len(ins))))


@prop
@st.composite
def test_pad(draw):
    t = draw(one_of((np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8, np.bool_)))
    x = values(draw, shape(draw, lo=1, hi=5), t)
    mode = draw(one_of(("constant", "edge", "reflect", "wrap")))
    axes = axes_of(draw, x.ndim, 1) if draw(flags) else None
    n = x.ndim if axes is None else len(axes)
    room = [x.shape[a] for a in (range(x.ndim) if axes is None else axes)] * 2
    least = 0 if mode == "wrap" else -1
    most = [3 if mode == "constant" else r - 1 if mode == "reflect" else min(r, 3) for r in room]
    pads = [draw(st.integers(max(least, -r), max(m, 0))) for r, m in zip(room, most)]
    assume(all(room[k] + pads[k] + pads[k + n] >= 0 for k in range(n)))
    value = values(draw, (), t) if mode == "constant" and draw(flags) else None
    ins = [x, i64(pads), value, None if axes is None else i64(axes)]
    while ins[-1] is None:
        ins.pop()
    return Case("Pad", draw(one_of((19, 21))), ins, attrs={"mode": mode}, const=some_const(draw, [i for i in range(1, len(ins)) if ins[i] is not None]))


@prop
@st.composite
def test_trilu(draw):
    x = values(draw, shape(draw, lo=2), draw(one_of((np.float32, np.float64, np.int64, np.bool_))))
    ins = [x] + ([i64(draw(st.integers(-6, 6)))] if draw(flags) else [])
    return Case("Trilu", 14, ins, attrs={"upper": draw(one_of((0, 1)))} if draw(flags) else {}, const=some_const(draw, range(1, len(ins))))
