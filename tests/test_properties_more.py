"""Random cases of the families that index, sort, multiply, slide windows, quantize, resize and recur."""
from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from onnx import numpy_helper

from case import Case
from properties import (ALL, INTS, axis_of, flags, i64, index_of, one_of, partner, prop, shape, some_const, values)

CONV = {np.float32: (1e-4, 1e-4), np.float16: (2e-2, 2e-2)}


def indices(draw, dims, size: int):
    return index_of(draw, values(draw, dims, np.int64, lo=-size, hi=size - 1) if size else np.zeros(dims, np.int64))


# ---- indices ------------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_gather(draw):
    x = values(draw, shape(draw, lo=1, hi=4), draw(one_of(ALL)))
    axis = axis_of(draw, x.ndim)
    dims = shape(draw, hi=3, most=3)
    assume(x.shape[axis] or 0 in dims)
    return Case("Gather", 13, [x, indices(draw, dims, x.shape[axis])], attrs={"axis": axis}, const=draw(one_of(((), (0,), (1,)))))


@prop
@st.composite
def test_gather_elements(draw):
    x = values(draw, shape(draw, lo=1, hi=5), draw(one_of(ALL)))
    axis = axis_of(draw, x.ndim)
    dims = [draw(st.integers(0, d)) for d in x.shape]
    dims[axis] = draw(st.integers(0, 6))
    assume(x.shape[axis] or 0 in dims)
    return Case("GatherElements", 13, [x, indices(draw, dims, x.shape[axis])], attrs={"axis": axis}, const=some_const(draw, (1,)))


def tuples(draw, dims: tuple, data: tuple) -> np.ndarray:
    """Indices of parts of the data: dims of them, each as long as data."""
    return np.stack([values(draw, dims, np.int64, lo=-d, hi=d - 1) for d in data], -1)


@prop
@st.composite
def test_gather_nd(draw):
    x = values(draw, shape(draw, lo=1, hi=5, zeros=False), draw(one_of((np.float32, np.float64, np.int64, np.uint8, np.bool_))))
    batch = draw(st.integers(0, min(2, x.ndim - 1)))
    deep = draw(st.integers(1, x.ndim - batch))
    dims = x.shape[:batch] + shape(draw, hi=2, most=3)
    return Case("GatherND", 13, [x, tuples(draw, dims, x.shape[batch:batch + deep])], attrs={"batch_dims": batch}, const=some_const(draw, (1,)))


@prop
@st.composite
def test_one_hot(draw):
    deep, t = draw(st.integers(1, 6)), draw(one_of((np.float32, np.int64)))
    i = values(draw, shape(draw, hi=4), np.int64, lo=-deep - 2, hi=deep + 2)
    axis = draw(st.integers(-i.ndim - 1, i.ndim))
    depth = i64(deep if draw(flags) else [deep])
    return Case("OneHot", 11, [i, depth, values(draw, (2,), t)], attrs={"axis": axis}, const=some_const(draw, (1, 2)))


@prop
@st.composite
def test_reverse_sequence(draw):
    x = values(draw, shape(draw, lo=2, hi=4), draw(one_of((np.float32, np.int64, np.uint8))))
    time = draw(one_of((0, 1)))
    lengths = values(draw, (x.shape[1 - time],), np.int64, lo=0, hi=x.shape[time])
    return Case("ReverseSequence", 10, [x, lengths], attrs={"time_axis": time, "batch_axis": 1 - time}, const=some_const(draw, (1,)))


@prop
@st.composite
def test_scatter_elements(draw):
    t = draw(one_of((np.float32, np.float64, np.int32, np.int64, np.uint8)))
    x = values(draw, shape(draw, lo=1, hi=4), t)
    axis = axis_of(draw, x.ndim)
    reduction = draw(one_of(("none", "add", "mul", "max", "min")))
    dims = [draw(st.integers(0, d)) for d in x.shape]
    if reduction == "none":  # each place once
        i = np.argsort(values(draw, (*dims[:axis % x.ndim], x.shape[axis], *dims[axis % x.ndim + 1:]), np.float32), axis)
        i = index_of(draw, np.take(i, range(dims[axis]), axis))
    else:
        assume(x.shape[axis] or 0 in dims)
        i = indices(draw, dims, x.shape[axis])
    attrs = {"axis": axis} | ({"reduction": reduction} if reduction != "none" else {})
    return Case("ScatterElements", 18, [x, i, values(draw, i.shape, t)], attrs=attrs, const=some_const(draw, (1, 2)), tol=(1e-4, 1e-5))


@prop
@st.composite
def test_scatter_nd(draw):
    t = draw(one_of((np.float32, np.float64, np.int32, np.int64, np.uint8)))
    x = values(draw, shape(draw, lo=1, hi=4, zeros=False), t)
    deep = draw(st.integers(1, x.ndim))
    reduction = draw(one_of(("none", "add", "mul", "max", "min")))
    i = tuples(draw, shape(draw, hi=2, most=3), x.shape[:deep])
    if reduction == "none":
        flat = np.ravel_multi_index(tuple(np.moveaxis(i % x.shape[:deep], -1, 0)), x.shape[:deep])
        assume(len(np.unique(flat)) == flat.size)
    attrs = {"reduction": reduction} if reduction != "none" else {}
    u = values(draw, i.shape[:-1] + x.shape[deep:], t)
    return Case("ScatterND", 18, [x, i, u], attrs=attrs, const=some_const(draw, (1, 2)), tol=(1e-4, 1e-5))


# ---- order and choice ---------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_top_k(draw):
    x = values(draw, shape(draw, lo=1, hi=5), draw(one_of((np.float32, np.float64, np.int32, np.int64))), lo=0, hi=5).round()
    axis = axis_of(draw, x.ndim)
    k = i64([draw(st.integers(0, x.shape[axis]))])
    return Case("TopK", 11, [x, k], outs=2, attrs={"axis": axis, "largest": draw(one_of((0, 1)))}, const=some_const(draw, (1,)))


@prop
@st.composite
def test_non_zero(draw):
    return Case("NonZero", 13, [values(draw, shape(draw), draw(one_of((np.float32, np.int32, np.int64, np.uint8, np.bool_))), lo=-1, hi=1).round()])


@prop
@st.composite
def test_compress(draw):
    x = values(draw, shape(draw, lo=1), draw(one_of((np.float32, np.float64, np.int32, np.uint8, np.bool_))))
    axis = axis_of(draw, x.ndim) if draw(flags) else None
    size = x.size if axis is None else x.shape[axis]
    keep = values(draw, (draw(st.integers(0, min(size, 9))),), np.bool_)
    return Case("Compress", 11, [x, keep], attrs={} if axis is None else {"axis": axis}, const=some_const(draw, (1,)))


@prop
@st.composite
def test_unique(draw):
    x = values(draw, shape(draw, lo=1, hi=4), draw(one_of((np.float32, np.float64, np.int64, np.int8))), lo=0, hi=2).round()
    attrs = {"sorted": draw(one_of((0, 1)))} | ({"axis": axis_of(draw, x.ndim)} if draw(flags) else {})
    assume(x.size or "axis" not in attrs)  # ORT aborts
    return Case("Unique", 11, [x], outs=draw(st.integers(1, 4)), attrs=attrs)


@prop
@st.composite
def test_fill(draw):
    op = draw(one_of(("ConstantOfShape", "Range", "EyeLike")))
    if op == "ConstantOfShape":
        value = values(draw, (1,), draw(one_of((np.float32, np.float64, np.float16, *INTS, np.bool_))))
        return Case(op, 20, [i64(shape(draw))], attrs={"value": numpy_helper.from_array(value)} if draw(flags) else {})
    if op == "EyeLike":
        x = values(draw, shape(draw, lo=2, hi=2), draw(one_of((np.float32, np.float64, np.int32, np.int64))))
        return Case(op, 9, [x], attrs={"k": draw(st.integers(-6, 6))} if draw(flags) else {})
    t = draw(one_of((np.float32, np.float64, np.int16, np.int32, np.int64)))
    step = draw(st.integers(1, 5)) * draw(one_of((1, -1))) / (4 if np.dtype(t).kind == "f" else 1)
    return Case(op, 11, [np.array(v, t) for v in (draw(st.integers(-9, 9)), draw(st.integers(-20, 20)), step)], const=draw(one_of(((), (0,), (1, 2)))))


# ---- products -----------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_matmul(draw):
    t = draw(one_of((np.float32, np.float64, np.float16, np.int32, np.int64)))
    m, k, n = (draw(st.integers(0, 6)) for _ in range(3))
    batch = shape(draw, hi=3, most=3)
    a, b = (*batch, m, k), (*partner(draw, batch), k, n)
    if draw(flags):
        a, b = (*partner(draw, batch), m, k), (*batch, k, n)
    form = draw(one_of(("matrices", "matrices", "left", "right", "both")))
    a = (k,) if form in ("left", "both") else a
    b = (k,) if form in ("right", "both") else b
    ins = [values(draw, a, t), values(draw, b, t)]
    want = None if k else [np.asarray(np.matmul(*ins))]  # ORT leaves some products over nothing unset
    return Case("MatMul", 13, ins, const=draw(one_of(((), (0,), (1,)))), tol=CONV.get(t), want=want)


@prop
@st.composite
def test_gemm(draw):
    t = draw(one_of((np.float32, np.float64, np.float16)))
    m, k, n = draw(st.integers(0, 6)), draw(st.integers(1, 6)), draw(st.integers(0, 6))  # of products over nothing ORT ignores beta
    ta, tb = draw(one_of((0, 1))), draw(one_of((0, 1)))
    ins = [values(draw, (k, m) if ta else (m, k), t), values(draw, (n, k) if tb else (k, n), t)]
    if draw(flags):
        ins.append(values(draw, partner(draw, (m, n)), t))
    attrs = {"transA": ta, "transB": tb} | {a: draw(one_of((0.5, 1.0, 2.0, 0.0))) for a in ("alpha", "beta") if draw(flags)}
    return Case("Gemm", 13, ins, attrs=attrs, const=some_const(draw, range(1, len(ins))), tol=CONV.get(t))


@prop
@st.composite
def test_einsum(draw):
    sizes = {c: draw(st.integers(1, 4)) for c in "abcde"}
    terms = [draw(st.lists(one_of("abcde"), unique=True, max_size=4)) for _ in range(draw(st.integers(1, 3)))]
    seen = sorted(set(sum(terms, [])))
    out = draw(st.permutations(seen))[:draw(st.integers(0, len(seen)))]
    equation = ",".join("".join(x) for x in terms) + ("->" + "".join(out) if draw(flags) else "")
    assume(seen and all(terms))
    t = draw(one_of((np.float32, np.float64)))
    return Case("Einsum", 12, [values(draw, tuple(sizes[c] for c in x), t, scale=1) for x in terms], attrs={"equation": equation}, tol=CONV.get(t))


# ---- windows ------------------------------------------------------------------------------------------------------------------
def window(draw, kernel: tuple) -> dict:
    attrs = {"strides": [draw(st.integers(1, 3)) for _ in kernel]} if draw(flags) else {}
    if draw(flags):
        attrs["dilations"] = [draw(st.integers(1, 2)) for _ in kernel]
    auto = draw(one_of(("", "", "", "VALID", "SAME_UPPER", "SAME_LOWER", "NOTSET")))
    if auto:
        attrs["auto_pad"] = auto
    if auto in ("", "NOTSET") and draw(flags):
        attrs["pads"] = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    # SAME with a stride beyond the kernel: ORT pads by less than nothing. With a dilation: its pools leave that out of account.
    assume(auto[:4] != "SAME" or all(d == 1 for d in attrs.get("dilations", ())))
    assume(auto[:4] != "SAME" or all(s <= k for s, k in zip(attrs.get("strides", kernel), kernel)))
    return attrs


@prop
@st.composite
def test_conv(draw):
    t = draw(one_of((np.float32, np.float32, np.float16)))
    kernel = shape(draw, lo=1, hi=3, most=3, zeros=False)
    group, each, outs = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    batch, sides = draw(st.integers(0, 2)), tuple(draw(st.integers(1, 8)) for _ in kernel)
    attrs = window(draw, kernel) | ({"group": group} if group > 1 or draw(flags) else {})
    ins = [values(draw, (batch, group * each, *sides), t), values(draw, (group * outs, each, *kernel), t)]
    if draw(flags):
        ins.append(values(draw, (group * outs,), t))
    return Case("Conv", draw(one_of((1, 11, 22))), ins, attrs=attrs, const=some_const(draw, range(1, len(ins))), tol=CONV[t])


@prop
@st.composite
def test_conv_transpose(draw):
    t = np.float32
    kernel = shape(draw, lo=1, hi=3, most=3, zeros=False)
    group, each, outs = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    sides = tuple(draw(st.integers(1, 6)) for _ in kernel)
    attrs = window(draw, kernel) | {"group": group}
    if "strides" in attrs and draw(flags):
        attrs["output_padding"] = [draw(st.integers(0, s - 1)) for s in attrs["strides"]]
    ins = [values(draw, (draw(st.integers(0, 2)), group * each, *sides), t), values(draw, (group * each, outs, *kernel), t)]
    if draw(flags):
        ins.append(values(draw, (group * outs,), t))
    return Case("ConvTranspose", draw(one_of((1, 11, 22))), ins, attrs=attrs, const=some_const(draw, range(1, len(ins))), tol=CONV[t])


@prop
@st.composite
def test_pool(draw):
    op = draw(one_of("MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool".split()))
    t = draw(one_of((np.float32, np.float64, np.float16)))
    kernel = shape(draw, lo=1, hi=3, most=3, zeros=False)
    sides = tuple(draw(st.integers(5, 9)) for _ in kernel)  # no window is greater
    x = values(draw, (draw(st.integers(0, 2)), draw(st.integers(1, 3)), *sides), t)
    if op.startswith("Global"):
        return Case(op, 1 if op != "GlobalLpPool" else 2, [x], attrs={"p": draw(st.integers(1, 3))} if op == "GlobalLpPool" else {}, tol=CONV.get(t))
    attrs, outs = window(draw, kernel) | {"kernel_shape": list(kernel)}, 1
    if draw(flags):
        attrs["ceil_mode"] = draw(one_of((0, 1)))
    if op == "MaxPool":
        outs = draw(one_of((1, 2)))
        attrs |= {"storage_order": draw(one_of((0, 1)))} if outs == 2 else {}
        return Case(op, 12, [x], outs=outs, attrs=attrs)
    if op == "AveragePool":
        return Case(op, 19, [x], attrs=attrs | {"count_include_pad": draw(one_of((0, 1)))}, tol=CONV.get(t))
    return Case(op, 18, [x], attrs=attrs | {"p": draw(st.integers(1, 3))}, tol=CONV.get(t))


# ---- smaller and other numbers ------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_quant(draw):
    op = draw(one_of(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")))
    dims = shape(draw, hi=5)
    x = values(draw, dims, np.float32, scale=20)
    if op[:2] == "Dy":
        assume(x.size)
        return Case(op, 11, [x], outs=3)
    t = draw(one_of((np.uint8, np.int8, np.uint16, np.int16)))
    info, axis, size, attrs = np.iinfo(t), 0, (), {}
    form = draw(one_of(("all", "axis", "block"))) if dims else "all"
    if form != "all":
        axis = axis_of(draw, len(dims))
        size, attrs = (dims[axis],), {"axis": axis}
    if form == "block":
        assume(op[0] == "D" or x.size)  # ORT divides by zero blocks
        block = draw(st.integers(1, 3))
        attrs["block_size"] = block
        size = tuple(-(-d // block) if a == axis % len(dims) else d for a, d in enumerate(dims))
    scale = values(draw, size, np.float32, lo=0.2, hi=1)
    zero = [values(draw, size, t, lo=info.min, hi=info.max)] if draw(flags) else []
    if op[0] == "Q":
        zero = zero or ([np.zeros(size, t)] if t != np.uint8 else [])
        ins = [x, scale, *zero]
    else:
        ins = [values(draw, dims, t, lo=info.min, hi=info.max), scale, *zero]
    const = some_const(draw, range(1, len(ins)))
    if form != "block" and t in (np.uint8, np.int8) and len(ins) == 3 and draw(flags):
        return Case(op, 1, ins, attrs=attrs, const=const, domain="com.microsoft")
    return Case(op, 21, ins, attrs=attrs, const=const)


@prop
@st.composite
def test_resize(draw):
    mode = draw(one_of(("nearest", "linear", "cubic")))
    rank = draw(st.integers(1, 5)) if mode == "nearest" else 4 if mode == "cubic" else draw(one_of((2, 4)))
    dims = tuple(draw(st.integers(1, 5)) for _ in range(rank))
    x = values(draw, dims, np.float32)
    free = range(rank) if mode == "nearest" else range(max(0, rank - 2), rank)
    coordinates = draw(one_of(("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")))
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attrs["nearest_mode"] = draw(one_of(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")))
    if mode == "cubic" and draw(flags):
        attrs |= {"cubic_coeff_a": -0.5, "exclude_outside": draw(one_of((0, 1)))}
    if draw(flags):
        sizes = [draw(st.integers(1, 9)) if a in free else d for a, d in enumerate(dims)]
        return Case("Resize", draw(one_of((13, 19))), [x, None, None, i64(sizes)], attrs=attrs, const=(3,), tol=(1e-4, 1e-4))
    scales = np.array([draw(one_of((0.5, 1, 2, 1.5, 3, 0.75))) if a in free else 1 for a in range(rank)], np.float32)
    return Case("Resize", draw(one_of((13, 19))), [x, None, scales], attrs=attrs, const=some_const(draw, (2,)), tol=(1e-4, 1e-4))


# ---- sequences ----------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_attention(draw):
    kv, times = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    heads, batch = kv * times, draw(st.integers(1, 2))
    q_len, kv_len, past = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(0, 3))
    size, v_size = draw(one_of((4, 8))), draw(one_of((4, 8, 16)))
    t, attrs = np.float32, {}
    if draw(flags):
        ins = [values(draw, (batch, h, n, s), t, scale=1) for h, n, s in ((heads, q_len, size), (kv, kv_len, size), (kv, kv_len, v_size))]
    else:
        ins = [values(draw, (batch, n, h * s), t, scale=1) for h, n, s in ((heads, q_len, size), (kv, kv_len, size), (kv, kv_len, v_size))]
        attrs = {"q_num_heads": heads, "kv_num_heads": kv}
    has_past = draw(flags)
    total = kv_len + (past if has_past else 0)
    mask = draw(one_of((None, np.bool_, np.float32)))
    if mask is not None:
        m = values(draw, partner(draw, (batch, heads)) + (q_len, total), mask, scale=1)
        ins.append(np.logical_or(m, np.arange(total) == 0) if mask == np.bool_ else m)  # each row has a key
    if has_past:
        ins += [None] * (mask is None) + [values(draw, (batch, kv, past, s), t, scale=1) for s in (size, v_size)]
    if (q_len > 1 or kv_len == 1) and draw(flags):  # ORT drops the rule for a single query, though later keys may be there
        attrs["is_causal"] = 1
    attrs |= {k: v for k, v in (("scale", 0.5), ("softcap", 2.0)) if draw(flags)}
    return Case("Attention", 23, ins, outs=3 if has_past else 1, attrs=attrs, tol=(1e-4, 1e-5))


@prop
@st.composite
def test_recurrent(draw):
    op = draw(one_of(("RNN", "GRU", "LSTM")))
    gates, direction = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], draw(one_of(("forward", "reverse", "bidirectional")))
    dirs = 2 if direction[0] == "b" else 1
    steps, batch, size, hidden = (draw(st.integers(1, 4)) for _ in range(4))
    t = np.float32
    ins = [values(draw, (steps, batch, size), t, scale=1), values(draw, (dirs, gates * hidden, size), t, scale=1),
           values(draw, (dirs, gates * hidden, hidden), t, scale=1)]
    more = [values(draw, (dirs, 2 * gates * hidden), t, scale=1), values(draw, (batch,), np.int32, lo=1, hi=steps)]
    more += [values(draw, (dirs, batch, hidden), t, scale=1)] * (2 if op == "LSTM" else 1)
    more += [values(draw, (dirs, 3 * hidden), t, scale=1)] if op == "LSTM" else []
    ins += [a if draw(flags) else None for a in more]
    while ins[-1] is None:
        ins.pop()
    attrs = {"direction": direction, "hidden_size": hidden}
    if op == "GRU" and draw(flags):
        attrs["linear_before_reset"] = draw(one_of((0, 1)))
    if op == "LSTM" and draw(flags):
        attrs["input_forget"] = draw(one_of((0, 1)))
    if draw(flags):
        attrs["clip"] = 1.5
    outs = 3 if op == "LSTM" else 2
    return Case(op, 14, ins, outs=outs, attrs=attrs, const=some_const(draw, [i for i in range(1, len(ins)) if ins[i] is not None]), tol=(1e-4, 1e-5))
