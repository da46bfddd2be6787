"""Random cases where arithmetic ends: extreme integers, every pair of types, ties, axes without elements, and the rarer modes."""
from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from ml_dtypes import bfloat16

from case import Case, numpy_type
from properties import (ALL, FLOATS, HALVES, INTS, SIGNED, UNSIGNED, axes_of, axis_of, flags, i64, index_of, one_of, pair, prop, shape,
                        some_const, values)


# ---- integers at their ends ---------------------------------------------------------------------------------------------------
def extremes(draw, dims, t, avoid=()) -> np.ndarray:
    """The ends of the type, numbers near zero, and some of any size."""
    info, rng = np.iinfo(t), np.random.default_rng(draw(st.integers(0, 2**16)))
    near = [v for v in (info.min, info.min + 1, -3, -2, -1, 0, 1, 2, 3, 7, info.max // 2, info.max - 1, info.max) if info.min <= v <= info.max]
    x = rng.choice(np.array([v for v in near if v not in avoid], t), dims)
    wild = rng.integers(info.min, info.max, dims, t, endpoint=True)
    return np.asarray(np.where((rng.random(dims) < 0.3) & ~np.isin(wild, avoid), wild, x)).astype(t)


def by_python(f, t, *operands) -> np.ndarray:
    """f on whole numbers of any size, wrapped into the type."""
    info = np.iinfo(t)
    parts = np.broadcast_arrays(*operands)
    whole = [(f(*(int(v) for v in row)) - info.min) % (1 << info.bits) + info.min for row in zip(*(p.ravel() for p in parts))]
    return np.array(whole, t).reshape(parts[0].shape)


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@prop
@st.composite
def test_integer_division(draw):
    t, dims = draw(one_of(INTS)), pair(draw, shape(draw, hi=4))
    a, b = extremes(draw, dims[0], t), extremes(draw, dims[1], t, avoid=(0,))
    form = draw(one_of(("Div", "Mod", "fmod")))
    f = {"Div": truncated, "Mod": lambda x, y: x % y, "fmod": lambda x, y: x - y * truncated(x, y)}[form]
    attrs = {"fmod": int(form == "fmod")} if form != "Div" else {}
    return Case("Div" if form == "Div" else "Mod", 14 if form == "Div" else 13, [a, b], attrs=attrs, const=draw(one_of(((), (0,), (1,)))),
                want=[by_python(f, t, a, b)])


@prop
@st.composite
def test_integer_arithmetic(draw):
    t, dims = draw(one_of(INTS)), pair(draw, shape(draw, hi=4))
    ops = {"Add": lambda x, y: x + y, "Sub": lambda x, y: x - y, "Mul": lambda x, y: x * y, "Max": max, "Min": min}
    op = draw(one_of(sorted(ops)))
    a, b = extremes(draw, dims[0], t), extremes(draw, dims[1], t)
    return Case(op, 14 if op in ("Add", "Sub", "Mul") else 13, [a, b], want=[by_python(ops[op], t, a, b)])


@prop
@st.composite
def test_integer_unary(draw):
    op = draw(one_of(("Abs", "Neg", "Sign", "BitwiseNot")))
    t = draw(one_of(SIGNED if op == "Neg" else INTS))
    f = {"Abs": abs, "Neg": lambda v: -v, "Sign": lambda v: (v > 0) - (v < 0), "BitwiseNot": lambda v: ~v}[op]
    x = extremes(draw, shape(draw), t)
    return Case(op, 18 if op[0] == "B" else 13, [x], want=[by_python(f, t, x)])


@prop
@st.composite
def test_integer_compare(draw):
    t, dims = draw(one_of(INTS)), pair(draw, shape(draw, hi=4))
    op, f = draw(one_of((("Equal", np.equal), ("Less", np.less), ("Greater", np.greater), ("LessOrEqual", np.less_equal),
                         ("GreaterOrEqual", np.greater_equal))))
    a, b = extremes(draw, dims[0], t), extremes(draw, dims[1], t)
    return Case(op, 16 if "Or" in op else 13, [a, b], want=[np.asarray(f(a, b))])


@prop
@st.composite
def test_shifts(draw):
    """A count of the width or more moves every bit out."""
    t, dims, left = draw(one_of(UNSIGNED)), pair(draw, shape(draw, hi=4)), draw(flags)
    a = extremes(draw, dims[0], t)
    b = values(draw, dims[1], t, lo=0, hi=np.iinfo(t).bits + 2) if draw(flags) else extremes(draw, dims[1], t)
    want = by_python(lambda x, n: 0 if n > 64 else x << n if left else x >> n, t, a, b)
    return Case("BitShift", 11, [a, b], attrs={"direction": "LEFT" if left else "RIGHT"}, want=[want])


@prop
@st.composite
def test_integer_power(draw):
    """What is exact: it wraps like a product. A negative power of 0 is nowhere defined."""
    t, to = draw(one_of((np.int32, np.int64))), draw(one_of(INTS))
    dims = pair(draw, shape(draw, hi=4))
    a = extremes(draw, dims[0], t, avoid=(0,))
    b = values(draw, dims[1], to, lo=-3, hi=9)
    return Case("Pow", 15, [a, b], want=[by_python(lambda x, n: x**n if n >= 0 else x if x * x == 1 and n % 2 else int(x * x == 1), t, a, b)],
                const=draw(one_of(((), (1,)))))


@prop
@st.composite
def test_integer_sums(draw):
    """Sums and products of 32 and 64 bits wrap."""
    op, t = draw(one_of(("ReduceSum", "ReduceProd", "CumSum"))), draw(one_of((np.int32, np.int64, np.uint32, np.uint64)))
    dims = shape(draw, lo=1, hi=3, zeros=False)
    x, axis = extremes(draw, dims, t), axis_of(draw, len(dims))
    with np.errstate(over="ignore"):
        if op == "CumSum":
            return Case(op, 14, [x, i64(axis)], want=[np.cumsum(x, axis, dtype=t)])
        f = np.sum if op == "ReduceSum" else np.prod
        return Case(op, 18, [x, i64([axis])], want=[np.asarray(f(x, axis, dtype=t, keepdims=True))])


# ---- floats at their ends -----------------------------------------------------------------------------------------------------
ENDS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-8, 1e30, -1e30, 65504.0, 65519.0, 65536.0, 3.3e38, 1e-45, 0.5, 1.5, 2.5, -0.5, -2.5)


def ends(draw, dims, t) -> np.ndarray:
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    with np.errstate(over="ignore"):
        return np.where(rng.random(dims) < 0.4, rng.standard_normal(dims) * 100, rng.choice(ENDS, dims)).astype(t)


@prop
@st.composite
def test_cast_floats(draw):
    """Between floats: to the nearest, ties to even, beyond the greatest to infinity. To bool: all but zero is true."""
    t, to = draw(one_of(FLOATS)), draw(one_of(FLOATS + (np.bool_,)))
    x = ends(draw, shape(draw), t)
    if t == np.float64 and to in HALVES:
        x = x.astype(np.float32).astype(t)  # ONNX Runtime rounds to float32 between
    with np.errstate(over="ignore"):
        want = x != 0 if to == np.bool_ else x.astype(to)
    return Case("Cast", draw(one_of((13, 19, 21))), [x], attrs={"to": numpy_type(to)}, want=[np.asarray(want)], tol=(0, 0))


@prop
@st.composite
def test_cast_to_integers(draw):
    """Of what fits: toward zero. The rest is not defined."""
    t, to = draw(one_of(FLOATS)), draw(one_of(INTS))
    info, dims = np.iinfo(to), shape(draw)
    x = values(draw, dims, np.float64, lo=max(info.min, -60000), hi=min(info.max, 60000))
    if draw(flags):
        x = values(draw, dims, np.float64, lo=float(info.min) * 0.9, hi=float(info.max) * 0.9)
    x = np.where(abs(x) < 60000, x, 3.7) if t == np.float16 else x
    x = x.astype(t)
    whole = np.trunc(x.astype(np.float64))
    x = np.where((whole >= info.min) & (whole <= info.max), x, t(1.5))
    return Case("Cast", 19, [x], attrs={"to": numpy_type(to)}, want=[np.trunc(x.astype(np.float64)).astype(to)])


@prop
@st.composite
def test_cast_integers(draw):
    """Between integers the low bits stay; to floats to the nearest, to bool all but zero is true."""
    t, to = draw(one_of(INTS + (np.bool_,))), draw(one_of(ALL))
    dims = shape(draw)
    x = values(draw, dims, np.bool_) if t == np.bool_ else extremes(draw, dims, t)
    with np.errstate(over="ignore"):
        want = (x.astype(np.float32) if to in HALVES else x).astype(to)
    like = draw(flags)
    ins = [x, np.zeros(draw(one_of(((), (0,), (2, 1)))), to)] if like else [x]
    return Case("CastLike" if like else "Cast", 19, ins, attrs={} if like else {"to": numpy_type(to)}, want=[want], tol=(0, 0))


SAME_WIDTH = [(np.int8, np.uint8), (np.int16, np.uint16, np.float16, bfloat16), (np.int32, np.uint32, np.float32), (np.int64, np.uint64, np.float64)]


@prop
@st.composite
def test_bit_cast(draw):
    types = draw(one_of(SAME_WIDTH))
    x = extremes(draw, shape(draw), types[0]).view(draw(one_of(types)))
    to = draw(one_of(types))
    want = x.view(to)
    assume(want.dtype.kind in "iu" or not np.isnan(want.astype(np.float64)).any())
    return Case("BitCast", 26, [x], attrs={"to": numpy_type(to)}, want=[want], tol=(0, 0))


@prop
@st.composite
def test_float_pairs(draw):
    """Arithmetic and comparisons of NaN, infinities and zeros."""
    t, op = draw(one_of((np.float32, np.float64))), draw(one_of("Add Sub Mul Div Max Min Equal Less Greater LessOrEqual GreaterOrEqual".split()))
    a, b = (ends(draw, d, t) for d in pair(draw, shape(draw, hi=4)))
    f = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum, "Min": np.minimum, "Equal": np.equal,
         "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal, "GreaterOrEqual": np.greater_equal}[op]
    with np.errstate(all="ignore"):
        return Case(op, 16 if "Or" in op else 13, [a, b], want=[np.asarray(f(a, b))], tol=(1e-6, 1e-37))


@prop
@st.composite
def test_fmod_floats(draw):
    t = draw(one_of((np.float32, np.float64)))
    a, b = (values(draw, d, t, scale=8) for d in pair(draw, shape(draw, hi=4)))
    b = np.where(abs(b) < 0.25, t(0.75), b)
    a = np.where(values(draw, a.shape, np.float32) < -4, t(np.inf), a)
    with np.errstate(invalid="ignore"):
        return Case("Mod", 13, [a, b], attrs={"fmod": 1}, want=[np.asarray(np.fmod(a, b))], tol=(1e-5, 1e-5))


@prop
@st.composite
def test_float_power(draw):
    t = draw(one_of((np.float32, np.float64)))
    a, b = pair(draw, shape(draw, hi=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    a = np.asarray(rng.choice(ENDS[:7] + (2.0, -2.0, 0.25, 9.0), a)).astype(t)
    b = np.asarray(rng.choice((0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, np.inf, -np.inf, np.nan), b)).astype(t)
    with np.errstate(all="ignore"):
        wide = [np.array(v) for v in np.broadcast_arrays(a, b)]  # with one exponent of 0.5, numpy takes roots, of -inf too
        return Case("Pow", 15, [a, b], want=[np.asarray(np.power(*wide))], const=draw(one_of(((), (1,)))))


# ---- ties ---------------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_ties(draw):
    """The first of equal elements wins (ArgMax and ArgMin: or the last)."""
    op = draw(one_of(("TopK", "ArgMax", "ArgMin")))
    t = draw(one_of((np.float32, np.float64, np.float16, bfloat16) + INTS))
    dims = shape(draw, lo=1, hi=4, most=7, zeros=False)
    x, axis = values(draw, dims, t, lo=0, hi=2).round().astype(t), axis_of(draw, len(dims))
    big = draw(flags)
    if op == "TopK":
        k = draw(st.integers(0, dims[axis]))
        wide = x.astype(np.float64)
        order = np.argsort(-wide if big else wide, axis, kind="stable").take(range(k), axis)
        return Case(op, 24 if t == bfloat16 else 11, [x, i64([k])], outs=2, attrs={"axis": axis, "largest": int(big)}, const=some_const(draw, (1,)),
                    want=[np.take_along_axis(x, order, axis), order.astype(np.int64)])
    last, keep = draw(flags), draw(flags)
    y = x.astype(np.float64) if op == "ArgMax" else -x.astype(np.float64)
    best = dims[axis] - 1 - np.flip(y, axis).argmax(axis) if last else y.argmax(axis)
    want = np.expand_dims(best, axis) if keep else best
    attrs = {"axis": axis, "select_last_index": int(last), "keepdims": int(keep)}
    return Case(op, 13, [x], attrs=attrs, want=[np.asarray(want, np.int64)])


# ---- nothing to reduce --------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_empty_reductions(draw):
    op = draw(one_of("Sum Prod L1 L2 SumSquare LogSum LogSumExp Max Min".split()))
    t = draw(one_of((np.float32, np.float64, np.float16, bfloat16) + ((np.int32, np.int64, np.uint8, np.int8) if op in ("Max", "Min") else ())
                    + ((np.int32, np.int64) if op in ("Sum", "Prod") else ())))
    dims = list(shape(draw, lo=1, hi=5, zeros=False))
    axes = axes_of(draw, len(dims), 1)
    dims[axes[0]] = 0
    whole = draw(flags)
    keep = draw(one_of((0, 1)))
    least, most = (np.iinfo(t).min, np.iinfo(t).max) if np.dtype(t).kind in "iu" else (-np.inf, np.inf)
    none = {"Prod": 1, "LogSum": -np.inf, "LogSumExp": -np.inf, "Max": least, "Min": most}.get(op, 0)
    over = range(len(dims)) if whole else [a % len(dims) for a in axes]
    kept = [1 if a in over else d for a, d in enumerate(dims) if keep or a not in over]
    ins = [np.zeros(dims, t)] + ([] if whole else [i64(axes)])
    return Case("Reduce" + op, 13 if op == "Sum" else 20 if op in ("Max", "Min") else 18, ins, attrs={"keepdims": keep}, const=some_const(draw, range(1, len(ins))),
                want=[np.full(kept, none, t)])


# ---- slices -------------------------------------------------------------------------------------------------------------------
FAR = (2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2**62)


@prop
@st.composite
def test_far_slices(draw):
    """Starts, ends and steps beyond the tensor, against Python's slices."""
    x = values(draw, shape(draw, lo=1, hi=4), draw(one_of((np.float32, np.int64, np.uint8, np.bool_, np.float16))))
    axes = axes_of(draw, x.ndim, 1)
    t = draw(one_of((np.int64, np.int32)))
    inside = np.iinfo(t)
    far = st.one_of(st.integers(-9, 9), one_of([v for v in FAR if inside.min <= v <= inside.max]))
    starts, stops = ([draw(far) for _ in axes] for _ in range(2))
    steps = [draw(st.one_of(st.integers(-4, 4), one_of([v for v in FAR if inside.min <= v <= inside.max])).filter(bool)) for _ in axes]
    # ONNX Runtime takes the greatest end for the end of the axis in either direction, and so does the provider.
    assume(not any(k < 0 and j in (2**31 - 1, 2**63 - 1) for j, k in zip(stops, steps)))
    cut = [slice(None)] * x.ndim
    for a, i, j, k in zip(axes, starts, stops, steps):
        n = x.shape[a]
        i, j = (v + n if v < 0 else v for v in (i, j))
        i, j = (min(max(i, 0), n), min(max(j, 0), n)) if k > 0 else (min(max(i, 0), n - 1), min(max(j, -1), n - 1))
        cut[a % x.ndim] = slice(i, None if j < 0 else j, k) if n else slice(0, 0)
    ins = [x, *(np.asarray(v, t) for v in (starts, stops, axes, steps))]
    return Case("Slice", draw(one_of((10, 13))), ins, const=some_const(draw, range(1, 5)), want=[x[tuple(cut)]])


# ---- attention with a past ----------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_causal_attention(draw):
    """Versions 23 and 24, several new tokens after a past, fewer or more keys than queries, against onnx.reference."""
    version, kv, times, batch = draw(one_of((23, 24))), draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    rows, keys, past, size = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(0, 4)), draw(one_of((2, 4)))
    heads, flat, has_past = kv * times, draw(flags), draw(flags)
    ins = [values(draw, (batch, n, h * size) if flat else (batch, h, n, size), np.float32, scale=1) for h, n in ((heads, rows), (kv, keys), (kv, keys))]
    attrs = {"is_causal": 1} | ({"q_num_heads": heads, "kv_num_heads": kv} if flat else {}) | ({"softcap": 2.0} if draw(flags) else {})
    total = keys + (past if has_past else 0)
    if draw(flags):
        mask = values(draw, (rows, total), draw(one_of((np.bool_, np.float32))), scale=1)
        ins.append(np.logical_or(mask, np.arange(total) == 0) if mask.dtype == np.bool_ else mask)
    if has_past:
        ins += [None] * (4 - len(ins)) + [values(draw, (batch, kv, past, size), np.float32, scale=1) for _ in range(2)]
    return Case("Attention", version, ins, outs=3 if has_past else 1, attrs=attrs, tol=(1e-4, 1e-5), ref="onnx")


# ---- resizing -----------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_resize_modes(draw):
    """Policies, axes, regions and antialiasing, against ONNX Runtime."""
    mode = draw(one_of(("nearest", "linear", "cubic")))
    rank = draw(st.integers(3, 4)) if mode == "nearest" else 4
    dims = tuple(draw(st.integers(1, 6)) for _ in range(rank))
    x = values(draw, dims, draw(one_of((np.float32, np.uint8) if mode == "nearest" else (np.float32,))))
    coordinates = draw(one_of(("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")))
    attrs, roi, axes = {"mode": mode, "coordinate_transformation_mode": coordinates}, None, [rank - 2, rank - 1]
    if mode == "nearest":
        attrs["nearest_mode"] = draw(one_of(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")))
    elif draw(flags) and coordinates not in ("tf_crop_and_resize", "half_pixel_symmetric"):
        attrs["antialias"] = 1
    if mode == "cubic" and draw(flags):
        attrs |= {"cubic_coeff_a": -0.5, "exclude_outside": draw(one_of((0, 1)))}
    named = draw(flags)
    if named:
        attrs["axes"] = axes
    if coordinates == "tf_crop_and_resize":
        low, high = values(draw, (2,), np.float32, lo=0, hi=0.4), values(draw, (2,), np.float32, lo=0.5, hi=1)
        ends = [low, high] if named else [np.r_[np.zeros(rank - 2), low], np.r_[np.ones(rank - 2), high]]
        roi, attrs["extrapolation_value"] = np.concatenate(ends).astype(np.float32), 1.5
    if draw(flags):
        some = [draw(one_of((0.5, 1, 2, 1.5, 3, 0.75))) for _ in axes]
        assume(roi is None or 1 not in some)  # ORT copies along an axis that keeps its length, whatever the region
        return Case("Resize", 19, [x, roi, np.array(some if named else [1] * (rank - 2) + some, np.float32)], attrs=attrs, const=some_const(draw, (2,)),
                    tol=(1e-4, 1e-4))
    some = [draw(st.integers(1, 9)) for _ in axes]
    assume(roi is None or all(a != d for a, d in zip(some, dims[-2:])))
    if named and roi is None and draw(flags):
        attrs["keep_aspect_ratio_policy"] = draw(one_of(("stretch", "not_larger", "not_smaller")))
    return Case("Resize", 19, [x, roi, None, i64(some if named else [*dims[:-2], *some])], attrs=attrs, const=(3,), tol=(1e-4, 1e-4))
