"""Random cases of what is left of ONNX: images, signals, detection, control flow, chance, older operators, and ai.onnx.ml."""
from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from case import Case, numpy_type
from properties import axes_of, axis_of, built, family, flags, i64, one_of, prop, shape, some_const, values
from test_properties_more import tuples

MS, ML = "com.microsoft", "ai.onnx.ml"
F32 = np.float32
TOL = (2e-4, 5e-5)


# ---- elements, windows of them, and axes --------------------------------------------------------------------------------------
@prop
@st.composite
def test_newer_elements(draw):
    op, t = draw(one_of(("Tan", "Swish", "CumProd"))), draw(one_of((np.float32, np.float64)))
    x = values(draw, shape(draw, lo=1), t, scale=1)
    wide = x.astype(np.float64)
    if op == "Tan":
        return Case(op, draw(one_of((7, 22))), [x], want=[np.tan(x)], tol=(1e-4, 1e-5))
    if op == "CumProd":
        axis, attrs = axis_of(draw, x.ndim), {"exclusive": draw(one_of((0, 1))), "reverse": draw(one_of((0, 1)))}
        y = np.flip(x, axis) if attrs["reverse"] else x
        y = np.cumprod(y, axis)
        if attrs["exclusive"]:
            y = np.roll(y, 1, axis)
            y[tuple(0 if a == axis % x.ndim else slice(None) for a in range(x.ndim))] = 1
        return Case(op, 26, [x, i64(axis)], attrs=attrs, const=some_const(draw, (1,)), tol=(1e-4, 1e-5), want=[np.flip(y, axis) if attrs["reverse"] else y])
    alpha = draw(one_of((1.0, 1.5)))
    y = wide / (1 + np.exp(-alpha * wide))
    return Case(op, 24, [x], attrs={"alpha": alpha}, want=[y.astype(t)], tol=(1e-5, 1e-6))


@prop
@st.composite
def test_legacy(draw):
    op, x = draw(one_of("Affine ScaledTanh ParametricSoftplus Scale ImageScaler Crop Optional DynamicSlice Upsample Scatter".split())), None
    x = values(draw, shape(draw, hi=4), F32)
    a, b = draw(one_of((0.5, 1.5))), draw(one_of((-2.0, 0.25)))
    if op in ("Affine", "ScaledTanh", "ParametricSoftplus"):
        return Case(op, 1, [x], attrs={"alpha": a, "beta": b})
    if op == "Scale":
        return Case(op, 1, [x], attrs={"scale": a})
    if op == "Optional":
        return Case("OptionalGetElement" if draw(flags) else "OptionalHasElement", draw(one_of((18, 20))), [x])
    image = values(draw, tuple(draw(st.integers(1, 4)) for _ in range(2)) + tuple(draw(st.integers(4, 7)) for _ in range(2)), F32)
    if op == "ImageScaler":
        return Case(op, 1, [image], attrs={"scale": a, "bias": [float(v) for v in values(draw, image.shape[1:2], F32)]})
    if op == "Crop":
        return Case(op, 1, [image], attrs={"border": [draw(st.integers(0, 1)) for _ in range(4)]})
    if op == "Upsample":
        scales = [1.0, 1.0, draw(one_of((1.0, 2.0, 2.5))), draw(one_of((1.0, 2.0, 3.0)))]
        return Case(op, 9, [image, np.array(scales, F32)], attrs={"mode": draw(one_of(("nearest", "linear")))}, const=some_const(draw, (1,)), tol=TOL)
    assume(x.ndim)
    if op == "DynamicSlice":
        axes = axes_of(draw, x.ndim, 1)
        return Case(op, 1, [x, i64([draw(st.integers(-3, 3)) for _ in axes]), i64([draw(st.integers(-3, 6)) for _ in axes]), i64(axes)], const=some_const(draw, (1, 2, 3)))
    axis = axis_of(draw, x.ndim)
    dims = [min(d, 3) for d in x.shape]
    i = np.argsort(values(draw, x.shape, F32), axis)[tuple(slice(d) for d in dims)]
    return Case(op, 9, [x, i.astype(np.int64), values(draw, i.shape, F32)], attrs={"axis": axis}, const=some_const(draw, (1,)))


@prop
@st.composite
def test_contrib_shapes(draw):
    op = draw(one_of(("GatherND", "Pad", "Trilu", "Range", "Unique", "CenterCropPad", "TensorScatter")))
    x = values(draw, shape(draw, lo=2, hi=4, zeros=False), F32)
    if op == "GatherND":
        deep = draw(st.integers(1, x.ndim))
        return Case(op, 1, [x, tuples(draw, shape(draw, hi=2, most=3), x.shape[:deep])], domain=MS, const=some_const(draw, (1,)))
    if op == "Pad":
        pads = i64([draw(st.integers(0, min(2, d - 1))) for d in x.shape * 2])
        return Case(op, 1, [x, pads], domain=MS, attrs={"mode": draw(one_of(("constant", "edge", "reflect")))}, const=some_const(draw, (1,)))
    if op == "Trilu":
        return Case(op, 1, [x, i64(draw(st.integers(-5, 5)))], domain=MS, attrs={"upper": draw(one_of((0, 1)))}, const=some_const(draw, (1,)))
    if op == "Range":
        return Case(op, 1, [np.array(v, np.int64) for v in (draw(st.integers(-9, 9)), draw(st.integers(-20, 20)), draw(st.integers(1, 4)))], domain=MS, const=(0, 1, 2))
    if op == "Unique":
        return Case(op, 1, [values(draw, (draw(st.integers(1, 12)),), F32, lo=0, hi=3).round()], domain=MS, outs=3)
    if op == "CenterCropPad":
        axes = axes_of(draw, x.ndim, 1)
        return Case(op, 18, [x, i64([draw(st.integers(1, 7)) for _ in axes])], attrs={"axes": axes}, ref="onnx", const=some_const(draw, (1,)))
    batch, rows, size = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    new, circular = draw(st.integers(1, rows)), draw(flags)
    at = i64([draw(st.integers(0, rows - 1 if circular else rows - new)) for _ in range(batch)])
    return Case(op, 24, [values(draw, (batch, 2, rows, size), F32), values(draw, (batch, 2, new, size), F32), at], ref="onnx",
                attrs={"mode": "circular" if circular else "linear"})


# ---- images -------------------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_sampling(draw):
    op = draw(one_of(("GridSample", "ms", "AffineGrid")))
    corners, n = draw(one_of((0, 1))), draw(st.integers(1, 2))
    if op == "AffineGrid":
        sides = [draw(st.integers(2, 5)) for _ in range(draw(st.integers(2, 3)))]
        theta = values(draw, (n, len(sides), len(sides) + 1), F32, scale=1)
        return Case(op, 20, [theta, i64([n, 2, *sides])], attrs={"align_corners": corners}, const=some_const(draw, (1,)), tol=TOL)
    flat = op == "ms" or draw(flags)
    rank = 2 if flat else 3
    mode = draw(one_of(("linear", "nearest", "cubic") if rank == 2 else ("linear", "nearest")))
    x = values(draw, (n, draw(st.integers(1, 3)), *(draw(st.integers(2, 5)) for _ in range(rank))), F32)
    grid = values(draw, (n, *(draw(st.integers(1, 4)) for _ in range(rank)), rank), F32, lo=-1.7, hi=1.7)
    attrs = {"padding_mode": draw(one_of(("zeros", "border", "reflection"))), "align_corners": corners}
    older = op == "ms"
    attrs["mode"] = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode) if older else mode
    return Case("GridSample", 1 if older else 20, [x, grid], domain=MS if older else "", attrs=attrs, tol=(1e-3, 1e-4), const=some_const(draw, (1,)))


@prop
@st.composite
def test_regions(draw):
    op = draw(one_of(("RoiAlign", "MaxRoiPool", "CropAndResize")))
    x = values(draw, (2, draw(st.integers(1, 3)), draw(st.integers(3, 8)), draw(st.integers(3, 8))), F32)
    n = draw(st.integers(1, 4))
    start, length = values(draw, (n, 2), F32, lo=0, hi=3), values(draw, (n, 2), F32, lo=1, hi=5)
    rois, which = np.concatenate([start, start + length], 1), values(draw, (n,), np.int64, lo=0, hi=1)
    out = [draw(st.integers(1, 4)), draw(st.integers(1, 4))]
    if op == "RoiAlign":
        attrs = {"mode": draw(one_of(("avg", "max"))), "sampling_ratio": draw(st.integers(0, 3)), "output_height": out[0], "output_width": out[1],
                 "coordinate_transformation_mode": draw(one_of(("half_pixel", "output_half_pixel"))), "spatial_scale": draw(one_of((1.0, 0.5)))}
        return Case(op, 16, [x, rois, which], attrs=attrs, tol=TOL, const=some_const(draw, (1, 2)))
    if op == "MaxRoiPool":
        rois = np.concatenate([which[:, None], rois.round()], 1).astype(F32)
        return Case(op, 1, [x, rois], attrs={"pooled_shape": out, "spatial_scale": 1.0}, const=some_const(draw, (1,)))
    boxes = values(draw, (n, 4), F32, lo=-0.3, hi=1.4)
    return Case(op, 1, [x, boxes, which.astype(np.int32), np.array(out, np.int32)], domain=MS, tol=(1e-3, 1e-4), const=(3,),
                attrs={"mode": draw(one_of(("bilinear", "nearest"))), "extrapolation_value": 0.5})


@prop
@st.composite
def test_more_convolutions(draw):
    op = draw(one_of("FusedConv NhwcConv NhwcFusedConv ConvTransposeWithDynamicPads DeformConv Col2Im MaxUnpool".split()))
    m = family("conv_more")
    group, each, outs = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    kernel, sides = [draw(st.integers(1, 3)) for _ in range(2)], [draw(st.integers(3, 7)) for _ in range(2)]
    x, w, b = values(draw, (2, group * each, *sides), F32), values(draw, (group * outs, each, *kernel), F32), values(draw, (group * outs,), F32)
    attrs = {"group": group, "strides": [draw(st.integers(1, 2)) for _ in kernel], "pads": [draw(st.integers(0, k - 1)) for k in kernel * 2]}
    if op == "DeformConv":
        offsets = draw(st.integers(1, 1 if each == 1 else 2))
        groups = {k: attrs[k] for k in ("pads", "strides")}
        return built(draw, "deform", lambda d: d.f.case(op, 19, (i := d.deform(2, group * offsets, group * outs, *sides, *kernel, group, offsets, bias=draw(flags),
                                                                                 mask=draw(flags), **groups))[0], attrs=i[1], tol=(5e-4, 1e-4)))
    if op == "ConvTransposeWithDynamicPads":
        pads = i64([draw(st.integers(0, k - 1)) for k in kernel * 2])
        w = values(draw, (group * each, outs, *kernel), F32)
        return Case(op, 1, [x, w, pads, b], domain=MS, attrs={k: attrs[k] for k in ("group", "strides")}, const=some_const(draw, (1, 2)), tol=TOL)
    if op == "Col2Im":
        cells = int(np.prod([s - k + 1 for s, k in zip(sides, kernel)]))
        return Case(op, 18, [values(draw, (2, each * int(np.prod(kernel)), cells), F32), i64(sides), i64(kernel)], const=some_const(draw, (1, 2)), tol=TOL)
    if op == "MaxUnpool":
        x = values(draw, (1, 2, *sides), F32)
        at = np.argsort(values(draw, (1 * 2 * sides[0] * sides[1] * 4,), F32))[:x.size].reshape(x.shape)
        return Case(op, 11, [x, at.astype(np.int64)], attrs={"kernel_shape": [2, 2], "strides": [2, 2]}, const=some_const(draw, (1,)))
    plain = m.conv(x, w, b, **attrs)
    if op == "NhwcConv":
        return Case(op, 1, [m.last(x), w, b], domain=MS, attrs=attrs, want=[m.last(plain)], out_types=[F32], tol=TOL, const=some_const(draw, (1,)))
    name, params, apply = draw(one_of(m.ACTIVATIONS[:-1]))
    attrs |= {"activation": name} | ({"activation_params": params} if params else {})
    z = values(draw, plain.shape, F32) if draw(flags) else None
    want = apply(plain if z is None else plain + z).astype(F32)
    if op == "FusedConv":
        return Case(op, 1, [x, w, b] + ([] if z is None else [z]), domain=MS, attrs=attrs, want=[want], out_types=[F32], tol=TOL)
    return Case(op, 1, [m.last(x), w, b] + ([] if z is None else [m.last(z)]), domain=MS, attrs=attrs, want=[m.last(want)], out_types=[F32], tol=TOL)


# ---- signals and matrices -----------------------------------------------------------------------------------------------------
def pairs(z) -> np.ndarray:
    return np.stack([z.real, z.imag], -1).astype(F32)


@prop
@st.composite
def test_signals(draw):
    op = draw(one_of("DFT STFT HannWindow HammingWindow BlackmanWindow MelWeightMatrix Rfft Irfft".split()))
    if op == "DFT":
        dims = (*shape(draw, lo=1, hi=3, zeros=False), draw(one_of((1, 2))))
        x, axis = values(draw, dims, F32), draw(st.integers(0, len(dims) - 2))
        axis -= len(dims) if draw(flags) else 0
        attrs = {"inverse": draw(one_of((0, 1)))} if draw(flags) else {"onesided": 1} if dims[-1] == 1 else {}
        n = draw(st.integers(1, 9)) if draw(flags) else None
        z = x[..., 0] + (1j * x[..., 1] if dims[-1] == 2 else 0)
        along = axis % len(dims)
        y = (np.fft.ifft if attrs.get("inverse") else np.fft.fft)(z, n, along)
        if "onesided" in attrs:
            y = y.take(range(y.shape[along] // 2 + 1), along)
        return Case(op, 20, [x, None if n is None else i64(n), i64(axis)], attrs=attrs, const=some_const(draw, (2,)), tol=(1e-4, 1e-4), want=[pairs(y)])
    if op == "STFT":
        size, step, length = draw(st.integers(1, 9)), draw(st.integers(1, 5)), draw(st.integers(9, 20))
        x, half = values(draw, (draw(st.integers(1, 2)), length, 1), F32), draw(one_of((0, 1)))
        return Case(op, 17, [x, i64(step), values(draw, (size,), F32)], attrs={"onesided": half}, const=some_const(draw, (1,)), tol=(1e-4, 1e-4))
    if op.endswith("Window"):
        return Case(op, 17, [i64(draw(st.integers(1, 20)))], attrs={"periodic": draw(one_of((0, 1)))}, const=some_const(draw, (0,)), tol=(1e-4, 1e-5))
    if op == "MelWeightMatrix":
        ins = [i64(draw(st.integers(1, 9))), i64(draw(one_of((16, 64, 100)))), i64(draw(one_of((8000, 16000)))), F32(draw(st.integers(0, 500))), F32(draw(st.integers(1000, 4000)))]
        return Case(op, 17, ins, tol=(1e-4, 1e-5), const=draw(one_of(((), (0, 1, 2, 3, 4)))))
    x = values(draw, shape(draw, lo=1, hi=3, zeros=False, most=9), F32)
    attrs = {"signal_ndim": 1, "onesided": 1, "normalized": 0}
    if op == "Rfft":
        return Case(op, 1, [x], domain=MS, attrs=attrs, want=[pairs(np.fft.rfft(x))], tol=(1e-4, 1e-4))
    return Case(op, 1, [pairs(np.fft.rfft(x))], domain=MS, attrs=attrs, want=[x], out_types=[F32], out_shapes=[list(x.shape)], tol=(1e-4, 1e-4))


@prop
@st.composite
def test_matrices(draw):
    op, t = draw(one_of(("Det", "Inverse", "CDist"))), draw(one_of((np.float32, np.float64)))
    if op == "CDist":
        m, n, k = draw(st.integers(0, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
        a, b = values(draw, (m, k), t), values(draw, (n, k), t)
        square = ((a[:, None].astype(np.float64) - b[None]) ** 2).sum(-1)
        metric = draw(one_of(("euclidean", "sqeuclidean")))
        return Case(op, 1, [a, b], domain=MS, attrs={"metric": metric}, out_types=[t], want=[(square if metric[0] == "s" else np.sqrt(square)).astype(t)], tol=(1e-4, 1e-4))
    n, lead = draw(st.integers(1, 5)), shape(draw, hi=2, most=3)
    x = values(draw, (*lead, n, n), t, scale=1)
    if op == "Det":
        return Case(op, draw(one_of((11, 22))), [x], want=[np.asarray(np.linalg.det(x.astype(np.float64))).astype(t)], tol=(1e-4, 1e-4))
    x = x + (3 + n) * np.eye(n, dtype=t)
    return Case(op, 1, [x], domain=MS, want=[np.linalg.inv(x.astype(np.float64)).astype(t)], tol=(1e-3, 1e-4))


# ---- detection and text ---------------------------------------------------------------------------------------------------------
@prop
@st.composite
def test_detection(draw):
    op = draw(one_of(("NonMaxSuppression", "DynamicTimeWarping")))
    if op[0] == "D":
        return Case(op, 1, [values(draw, (draw(st.integers(1, 7)), draw(st.integers(1, 7))), F32, lo=-2, hi=2).round(draw(one_of((0, 3))))], domain=MS)
    batch, classes, n, centers = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 12)), draw(one_of((0, 1)))
    boxes = values(draw, (batch, n, 4), F32, lo=0, hi=10)
    scores = values(draw, (batch, classes, n), F32, lo=0, hi=1).round(draw(one_of((1, 7))))
    ins = [boxes, scores, i64([draw(st.integers(0, 6))]), np.array([draw(one_of((0.0, 0.3, 0.7)))], F32)] + ([np.array([0.35], F32)] if draw(flags) else [])
    return Case(op, draw(one_of((10, 11))), ins, attrs={"center_point_box": centers}, const=some_const(draw, range(2, len(ins))))


@prop
@st.composite
def test_grams(draw):
    op = draw(one_of(("TfIdfVectorizer", "NGramRepeatBlock", "BifurcationDetector", "MurmurHash3", "NGramHashMapping", "VarlenNGramHashMapping")))
    if op == "TfIdfVectorizer":
        m = family("tfidf")
        high = draw(st.integers(1, 2))
        attrs = m.two | {"mode": draw(one_of(("TF", "IDF", "TFIDF"))), "max_skip_count": draw(st.integers(0, 5)), "max_gram_length": high,
                         "min_gram_length": draw(st.integers(1, high)), "weights": m.weights}
        return Case(op, 9, [values(draw, shape(draw, lo=1, hi=2, most=8, zeros=False), draw(one_of((np.int32, np.int64))), lo=1, hi=8)], attrs=attrs)
    if op == "NGramRepeatBlock":
        ids, scores = values(draw, (draw(st.integers(1, 3)), draw(st.integers(1, 12))), np.int64, lo=0, hi=3), None
        scores = values(draw, (ids.shape[0], 6), F32)
        return Case(op, 1, [ids, scores], domain=MS, attrs={"ngram_size": draw(st.integers(1, 5))})
    if op == "MurmurHash3":
        x = values(draw, shape(draw, hi=3), draw(one_of((np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64))), special=True)
        return Case(op, 1, [x], domain=MS, attrs={"seed": draw(st.integers(0, 99)), "positive": draw(one_of((0, 1)))})
    if op == "BifurcationDetector":
        source, now = (values(draw, (draw(st.integers(1, 9)),), np.int64, lo=0, hi=3) for _ in range(2))
        return Case(op, 1, [source, now, i64([0])], domain=MS, outs=2, attrs={"min_ngram_size": 1, "max_ngram_size": draw(st.integers(1, 3))})
    t, grams, heads, batch, length = draw(one_of((np.int32, np.int64))), draw(st.integers(2, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 6))
    factors = 2 * values(draw, (grams,), t, lo=1, hi=2**28) + 1
    sizes = values(draw, ((grams - 1) * heads,), t, lo=3, hi=1000)
    attrs = {"max_ngram_size": grams, "n_head_per_ngram": heads, "pad_id": 7}
    past = [values(draw, (batch, grams - 1), t, lo=0, hi=9)] if draw(flags) else []
    if op[0] == "N":
        return Case(op, 1, [values(draw, (batch, length), t, lo=0, hi=50), factors.astype(t), sizes, *past], domain=MS, outs=2, attrs=attrs)
    starts = np.array([0, *np.sort(values(draw, (batch - 1,), np.int32, lo=0, hi=length)), length], np.int32)
    return Case(op, 1, [values(draw, (length,), t, lo=0, hi=50), factors.astype(t), sizes, starts, *past], domain=MS, outs=2, attrs=attrs)


# ---- control flow and chance ------------------------------------------------------------------------------------------------------
def graph(nodes: list, ins: list, outs: list, inits=()) -> object:
    infos = lambda names: [helper.make_tensor_value_info(n, t, s) for n, t, s in names]  # noqa: E731
    return helper.make_graph(nodes, "body", infos(ins), infos(outs), list(inits))


@prop
@st.composite
def test_control_flow(draw):
    op, x = draw(one_of(("If", "Loop", "Scan"))), values(draw, shape(draw, lo=1, hi=3), F32)
    f, free = TensorProto.FLOAT, [None] * (x.ndim - 1)
    c = numpy_helper.from_array(values(draw, (), F32), "c")
    if op == "If":
        branches = [graph([helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(v))], [], [("y", f, None)]) for v in (x, -x)]
        flag = draw(flags)
        return Case(op, 21, [np.array(flag)], attrs={"then_branch": branches[0], "else_branch": branches[1]}, want=[x if flag else -x], const=some_const(draw, (0,)))
    if op == "Loop":
        trips = draw(st.integers(0, 5))
        nodes = [helper.make_node("Add", ["v", "c"], ["w"]), helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Identity", ["w"], ["z"])]
        body = graph(nodes, [("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("v", f, list(x.shape))],
                     [("on", TensorProto.BOOL, []), ("w", f, list(x.shape)), ("z", f, list(x.shape))], [c])
        assume(trips)
        return Case(op, 21, [i64(trips), np.array(True), x], attrs={"body": body}, outs=2, const=some_const(draw, (0, 1)))
    assume(x.shape[0])
    nodes = [helper.make_node("Add", ["s", "v"], ["t"]), helper.make_node("Mul", ["t", "c"], ["z"])]
    rows = list(x.shape[1:])
    body = graph(nodes, [("s", f, rows), ("v", f, rows)], [("t", f, rows), ("z", f, rows)], [c])
    back = draw(one_of((0, 1)))
    attrs = {"body": body, "num_scan_inputs": 1, "scan_input_directions": [back], "scan_output_directions": [draw(one_of((0, 1)))]}
    return Case(op, 21, [values(draw, x.shape[1:], F32), x], attrs=attrs, outs=2, tol=(1e-4, 1e-4))


@prop
@st.composite
def test_chance(draw):
    """Shapes and types; what is drawn is certain where it is compared."""
    op, t, dims = draw(one_of("RandomNormal RandomUniform RandomNormalLike RandomUniformLike Bernoulli Multinomial".split())), draw(one_of((np.float32, np.float16))), shape(draw)
    if op == "Bernoulli":
        x = values(draw, dims, np.bool_).astype(t)
        return Case(op, 15, [x], attrs={"dtype": numpy_type(np.int32)}, want=[x.astype(np.int32)])
    if op == "Multinomial":
        n, classes, k = draw(st.integers(0, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
        sure = values(draw, (n,), np.int32, lo=0, hi=classes - 1)
        return Case(op, 7, [np.where(np.arange(classes) == sure[:, None], 1, -np.inf).astype(t)], attrs={"sample_size": k}, want=[np.repeat(sure[:, None], k, 1)])
    like, want = op.endswith("Like"), [np.zeros(dims, t)]
    attrs = {"dtype": numpy_type(t)} | ({} if like else {"shape": list(dims)})
    assume(like or dims)
    return Case(op, draw(one_of((1, 22))), [values(draw, dims, F32)] if like else [], attrs=attrs, want=want, any_out=(0,))


# ---- ai.onnx.ml -----------------------------------------------------------------------------------------------------------------
POSTS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")


def numbers(draw, n: int) -> list:
    return [float(v) for v in values(draw, (n,), F32, scale=1)]


@prop
@st.composite
def test_features(draw):
    op = draw(one_of("ArrayFeatureExtractor Binarizer FeatureVectorizer Imputer Scaler Normalizer OneHotEncoder LabelEncoder".split()))
    n, d = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    x, t = values(draw, (n, d), F32), draw(one_of((np.float32, np.float64, np.int32, np.int64)))
    ml = {"domain": ML}
    if op == "ArrayFeatureExtractor":
        return Case(op, 1, [x.astype(t), values(draw, (draw(st.integers(1, 4)),), np.int64, lo=0, hi=d - 1)], const=some_const(draw, (1,)), **ml)
    if op == "Binarizer":
        return Case(op, 1, [x], attrs={"threshold": draw(one_of((0.0, 1.5, -1.5)))}, **ml)
    if op == "FeatureVectorizer":
        return Case(op, 1, [x.astype(t), values(draw, (n, 3), F32).astype(t)], attrs={"inputdimensions": [d, 3]}, **ml)
    if op == "Imputer":
        x = np.where(values(draw, x.shape, np.bool_), F32(np.nan), x)
        return Case(op, 1, [x], attrs={"imputed_value_floats": numbers(draw, draw(one_of((1, d)))), "replaced_value_float": float("nan")}, **ml)
    if op == "Scaler":
        k = draw(one_of((1, d)))
        return Case(op, 1, [x.astype(t)], attrs={"offset": numbers(draw, k), "scale": numbers(draw, k)}, tol=(1e-4, 1e-5), **ml)
    if op == "Normalizer":
        return Case(op, 1, [x.astype(t)], attrs={"norm": draw(one_of(("MAX", "L1", "L2")))}, tol=(1e-4, 1e-5), **ml)
    ids = values(draw, (n, d), np.int64, lo=0, hi=6)
    if op == "OneHotEncoder":
        return Case(op, 1, [ids], attrs={"cats_int64s": [3, 1, 5], "zeros": 1}, **ml)
    return Case(op, draw(one_of((2, 4))), [ids], attrs={"keys_int64s": [3, 1, 5], "values_floats": numbers(draw, 3), "default_float": -3.0}, **ml)


@prop
@st.composite
def test_linear_models(draw):
    op, d, post = draw(one_of("LinearRegressor LinearClassifier SVMRegressor SVMClassifier".split())), draw(st.integers(1, 5)), draw(one_of(POSTS))
    x, k = values(draw, (draw(st.integers(1, 5)), d), F32, scale=1), draw(st.integers(1, 4))
    tol, ml = (1e-3, 1e-4), {"domain": ML}
    if op == "LinearRegressor":
        return Case(op, 1, [x], attrs={"coefficients": numbers(draw, d * k), "intercepts": numbers(draw, k), "targets": k, "post_transform": post}, tol=tol, **ml)
    if op == "LinearClassifier":
        attrs = {"coefficients": numbers(draw, d * (k + 1)), "intercepts": numbers(draw, k + 1), "classlabels_ints": [7 - 3 * i for i in range(k + 1)]}
        return Case(op, 1, [x], outs=2, attrs=attrs | {"post_transform": post}, tol=tol, **ml)
    kernel, params = draw(one_of((("LINEAR", [0.0, 0.0, 0.0]), ("POLY", [0.5, 1.0, 2.0]), ("RBF", [0.3, 0.0, 0.0]), ("SIGMOID", [0.2, 0.1, 0.0]))))
    attrs = {"support_vectors": numbers(draw, d * k), "kernel_type": kernel, "kernel_params": params}
    if op == "SVMRegressor":
        return Case(op, 1, [x], attrs=attrs | {"coefficients": numbers(draw, k), "rho": numbers(draw, 1), "n_supports": k}, tol=tol, **ml)
    attrs |= {"support_vectors": numbers(draw, d * (k + 1)), "coefficients": numbers(draw, k + 1), "rho": numbers(draw, 1), "vectors_per_class": [k, 1]}
    return Case(op, 1, [x], outs=2, attrs=attrs | {"classlabels_ints": [4, 8]}, tol=tol, **ml)


@prop
@st.composite
def test_trees(draw):
    op, missing, how = draw(one_of(("TreeEnsembleRegressor", "TreeEnsembleClassifier", "TreeEnsemble"))), draw(flags), draw(st.integers(0, 3))
    trees, depth, n, targets = draw(st.integers(1, 5)), draw(st.integers(0, 5)), draw(st.integers(1, 6)), tuple(range(draw(st.integers(1, 3))))
    rows = values(draw, (n, 4), F32, lo=-2, hi=2).round()
    rows = np.where(values(draw, rows.shape, np.bool_) & missing, F32(np.nan), rows)

    def build(m):
        kw = {"outs": 1, "tol": (1e-3, 1e-4), "domain": ML}
        if op == "TreeEnsemble":
            m.f.case(op, 5, [rows], attrs=m.new_form(F32, trees, max(depth, 1), targets=len(targets), members=missing) | {"aggregate_function": how}, **kw)
        elif op == "TreeEnsembleRegressor":
            attrs = m.ensemble("target", trees, depth, m.MODES, missing, targets, split=lambda: m.whole(0))
            m.f.case(op, 3, [rows], attrs={**attrs, "n_targets": len(targets), "aggregate_function": ("SUM", "AVERAGE", "MIN", "MAX")[how]}, **kw)
        else:
            attrs = m.ensemble("class", trees, depth, m.MODES, missing, (0, 1, 2), split=lambda: m.whole(0))
            m.f.case(op, 3, [rows], attrs={**attrs, "classlabels_int64s": [7, 3, 5]}, **(kw | {"outs": 2}))

    return built(draw, "ml_tree", build)
