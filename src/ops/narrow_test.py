"""Numbers of 2, 4 and 8 bits that MLX has no type for, at run time: against ml_dtypes, the onnx package and ONNX Runtime."""
import ml_dtypes as md
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from case import record_of_newest, session
from node_suite import RAW, from_ort, to_ort
import onnxruntime as ort
import onnxruntime_ep_mlx as mlx_ep

FP8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
FLOATS = [*FP8, "float4_e2m1fn"]
INTS = ["int4", "uint4", "int2", "uint2"]
NAN, INF = np.nan, np.inf
rng = np.random.default_rng(5)


def onnx_type(name):
    return RAW[name][0] if name in RAW else helper.np_dtype_to_tensor_dtype(np.dtype(name))


def model_of(nodes, inputs, outputs, inits=(), opset=25):
    infos = [[helper.make_tensor_value_info(n, onnx_type(t), shape) for n, t, shape in ends] for ends in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *infos, list(inits))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=13)


def on_mlx(model, feeds):
    """OrtValues of the outputs; every node must have run on MLX."""
    s = session(model, True, {"claim_all": "1"})
    record = record_of_newest()
    assert record["claimed"] == record["nodes"] >= 1, record["declined"]
    values = {}
    for name, v in feeds.items():
        v = to_ort(v)
        values[name] = v if isinstance(v, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(v)
    for _ in range(2):
        outs = s.run_with_ort_values(None, values)
    after = next(r for r in mlx_ep.describe("sessions") if r["id"] == record["id"])
    assert sum(after["routes"].values()) == 2, after
    return outs


def cast(x, to, shape=None, start=None, **attrs):
    """x as an OrtValue of type `to`; start is x's type when x is an OrtValue."""
    shape = list(x.shape) if shape is None else shape
    node = helper.make_node("Cast", ["x"], ["y"], to=onnx_type(to), **attrs)
    return on_mlx(model_of([node], [("x", start or x.dtype.name, shape)], [("y", to, shape)]), {"x": x})[0]


def same(got, want):
    """Equal to the bit, but for what kind of NaN it is."""
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, want.dtype, got.shape, want.shape)
    a, b = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))


def wide_sample(name):
    """Every number of the type, the middles between them and the float32 to both sides of each, and far away."""
    t = getattr(md, name)
    v = np.arange(256 if RAW[name][2] == 1 else 16, dtype=np.uint8).view(t).astype(np.float64)
    v = np.unique(v[np.isfinite(v)])
    v = np.concatenate([v, (v[1:] + v[:-1]) / 2, [2 * v[-1] - v[-2], 1.5 * v[-1] - v[-2] / 2]]).astype(np.float32)
    v = np.concatenate([v, np.nextafter(v, np.float32(INF)), np.nextafter(v, np.float32(-INF)), rng.standard_normal(500).astype(np.float32)])
    return np.concatenate([v, np.array([0.0, -0.0, 1e-45, -1e-45, 1e9, -1e9, 3.4e38], np.float32)])


def to_narrow(x, name, saturate):
    if saturate and name in FP8:
        return numpy_helper.saturate_cast(x, np.dtype(getattr(md, name)))
    return x.astype(getattr(md, name))


@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("name", FLOATS)
def test_rounding(name, saturate):
    x = wide_sample(name)
    if name in FP8:
        x = np.concatenate([x, np.array([NAN, -NAN, INF, -INF], np.float32)])
    same(from_ort(cast(x, name, saturate=saturate)), to_narrow(x, name, saturate))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("source", ["float16", "float64", "int64", "uint8", "bool"])
def test_rounding_of_other_types(name, source):
    x = wide_sample(name)
    if source == "float64":  # what float32 does not see is lost: both oracles go through it
        x = x.astype(np.float64)
        x = np.concatenate([x, x * (1 + 1e-12), x * (1 - 1e-12), np.array([1e300, -1e300])])
    else:
        x = np.clip(x, 0 if source in ("uint8", "bool") else -60000, 255 if source in ("uint8", "bool") else 60000).astype(source)
    with np.errstate(over="ignore"):
        same(from_ort(cast(x, name)), to_narrow(x.astype(np.uint8) if source == "bool" else x, name, True))


@pytest.mark.parametrize("name", [*FLOATS, "float8_e8m0fnu"])
@pytest.mark.parametrize("to", ["float32", "float16", "bfloat16", "float64", "bool"])
def test_every_code_as_a_number(name, to):
    """Codes come as packed constants, which pass an Identity."""
    x = np.arange(256 if RAW[name][2] == 1 else 16, dtype=np.uint8).view(getattr(md, name))
    nodes = [helper.make_node("Identity", ["x"], ["i"]), helper.make_node("Cast", ["i"], ["y"], to=onnx_type(to))]
    model = model_of(nodes, [], [("y", to, [x.size])], [numpy_helper.from_array(x, "x")])
    want = x.astype(np.float32)
    with np.errstate(over="ignore"):
        want = want != 0 if to == "bool" else want.astype(to if to != "bfloat16" else md.bfloat16)
    got = from_ort(on_mlx(model, {})[0])
    same(got, want) if to != "bool" else np.testing.assert_array_equal(got, want)


# The table in ONNX's text, and what lies between: code 0 is 2^-127, 254 is 2^127, 255 is not a number.
E8M0 = np.array([1, 1.25, 1.5, 1.75, 3, 2.0**-126 * 1.5, 2.0**-126, 2.0**-127, 2.0**-127 * 1.25, 2.0**-127 * 1.5, 2.0**-128, 0, 2.0**127, 3.4e38,
                 INF, NAN], np.float32)
E8M0_WANT = {("up", 1): [127, 128, 128, 128, 129, 2, 1, 0, 1, 1, 0, 0, 254, 254, 254, 255],
             ("nearest", 1): [127, 127, 128, 128, 129, 2, 1, 0, 0, 1, 0, 0, 254, 254, 254, 255],
             ("down", 1): [127, 127, 127, 127, 128, 1, 1, 0, 0, 0, 0, 0, 254, 254, 254, 255],
             ("up", 0): [127, 128, 128, 128, 129, 2, 1, 0, 1, 1, 255, 255, 254, 255, 255, 255],
             ("nearest", 0): [127, 127, 128, 128, 129, 2, 1, 0, 0, 1, 255, 255, 254, 255, 255, 255],
             ("down", 0): [127, 127, 127, 127, 128, 1, 1, 0, 0, 0, 255, 255, 254, 255, 255, 255]}


@pytest.mark.parametrize("mode, saturate", E8M0_WANT)
def test_powers_of_two(mode, saturate):
    got = from_ort(cast(E8M0, "float8_e8m0fnu", round_mode=mode, saturate=saturate)).view(np.uint8)
    np.testing.assert_array_equal(got, np.array(E8M0_WANT[mode, saturate], np.uint8))


@pytest.mark.parametrize("name", INTS)
@pytest.mark.parametrize("source", ["float32", "float16", "float64", "int32", "int64", "uint8", "int8", "bool"])
def test_integers(name, source):
    """As ONNX Runtime: to nearest, ties away from zero, and then the lowest bits. The odd count leaves a byte half used."""
    x = np.array([0, 1, 2, 3, 7, 8, 9, 15, 16, 100, 0.5, 1.5, 2.5, 2.49, 6.6, -1, -2, -7, -8, -9, -0.5, -1.5, -2.4, 0.49999997, 5])
    x = (np.clip(x, 0, 200) if source in ("uint8", "bool") else x).astype(source)
    bits, signed = 8 // RAW[name][2], name[0] == "i"
    v = x.astype(np.float64)
    v = (np.sign(v) * np.where(np.abs(v) % 1 >= 0.5, np.ceil(np.abs(v)), np.floor(np.abs(v)))).astype(np.int64) & (2**bits - 1)
    v = np.where(v >= 2 ** (bits - 1), v - 2**bits, v) if signed else v
    got = from_ort(cast(x, name))
    np.testing.assert_array_equal(got.astype(np.int64), v)


@pytest.mark.parametrize("name", [*INTS, "float4_e2m1fn", *FP8, "float8_e8m0fnu"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (3, 5), (2, 0, 3)])
def test_border(name, shape):
    """One session's output, packed, is the next one's input."""
    codes = np.asarray(rng.integers(0, 2, shape), np.float32)
    codes = np.asarray(np.maximum(codes, name == "float8_e8m0fnu"), np.float32)
    value = cast(codes, name)
    assert value.data_type() == f"tensor({next(k for k, v in NAMES.items() if v == name)})"
    back = cast(value, "float32", list(shape), name)
    want = from_ort(value).astype(np.float32)
    if name != "int2":
        np.testing.assert_array_equal(want, codes)
    same(from_ort(back), want)


NAMES = {T.DataType.Name(onnx).lower(): name for name, (onnx, _, _) in RAW.items()}
MOVES = [("Reshape", [np.array([5, -1])], {}, lambda x: x.reshape(5, -1)), ("Transpose", [], {}, lambda x: x.T),
         ("Flatten", [], {"axis": 0}, lambda x: x.reshape(1, -1)), ("Unsqueeze", [np.array([0])], {}, lambda x: x[None]),
         ("Identity", [], {}, lambda x: x)]


@pytest.mark.parametrize("op_type, more, attrs, move", MOVES, ids=lambda m: m if isinstance(m, str) else "")
@pytest.mark.parametrize("name", ["int4", "uint2", "float4_e2m1fn", "float8_e4m3fn"])
def test_moves(op_type, more, attrs, move, name):
    x = rng.integers(0, 2, (3, 5)).astype(np.float32)
    inits = [numpy_helper.from_array(a, f"c{i}") for i, a in enumerate(more)]
    nodes = [helper.make_node(op_type, ["x", *(i.name for i in inits)], ["y"], **attrs)]
    model = model_of(nodes, [("x", name, [3, 5])], [("y", name, None)], inits, opset=23 if name != "uint2" else 25)
    got = from_ort(on_mlx(model, {"x": cast(x, name)})[0])
    same(got.astype(np.float32), move(x))


@pytest.mark.parametrize("name", [*INTS, *FLOATS])
@pytest.mark.parametrize("like, attrs", [((), {}), ((4,), {"axis": 1}), ((3, 2), {"axis": 1, "block_size": 2})])
@pytest.mark.parametrize("zeros", [False, True])
def test_quantize_and_back(name, like, attrs, zeros):
    """The codes, as an intermediate and as an output, and the numbers they stand for."""
    x, scale = (rng.standard_normal((3, 4)) * 4).astype(np.float32), rng.uniform(0.3, 1, like).astype(np.float32)
    t = getattr(md, name)
    zero = rng.integers(0, 2, like).astype(np.float32).astype(t)
    inits = [numpy_helper.from_array(zero, "z")] if zeros else []
    more = ["z"] if zeros else []
    q = helper.make_node("QuantizeLinear", ["x", "s", *more], ["q"], **attrs, **({} if zeros else {"output_dtype": onnx_type(name)}))
    nodes = [q, helper.make_node("DequantizeLinear", ["q", "s", *more], ["y"], **attrs)]
    model = model_of(nodes, [("x", "float32", [3, 4]), ("s", "float32", list(like))], [("q", name, [3, 4]), ("y", "float32", [3, 4])], inits)
    codes, back = (from_ort(v) for v in on_mlx(model, {"x": x, "s": scale}))
    spread = [np.repeat(a, 2, 1) if len(like) == 2 else a for a in (scale, zero.astype(np.float32) * np.float32(zeros))]
    if name in INTS:
        info = md.iinfo(t)
        want = np.clip(np.rint(x / spread[0]) + spread[1], int(info.min), int(info.max)).astype(t)
    else:
        want = to_narrow(x / spread[0] + spread[1], name, True)
    np.testing.assert_array_equal(codes.astype(np.float32), want.astype(np.float32))
    np.testing.assert_allclose(back, (want.astype(np.float32) - spread[1]) * spread[0], rtol=1e-6, atol=1e-7)


def test_scales_that_are_powers_of_two():
    """The microscaling form: blocks of float4 with scales of float8e8m0."""
    x = np.arange(16, dtype=np.uint8).reshape(2, 8).view(md.float4_e2m1fn)
    scale = np.array([[126, 127], [128, 130]], np.uint8).view(md.float8_e8m0fnu)
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"], axis=1, block_size=4, output_dtype=T.FLOAT)
    model = model_of([node], [("x", "float4_e2m1fn", [2, 8])], [("y", "float32", [2, 8])], [numpy_helper.from_array(scale, "s")])
    got = on_mlx(model, {"x": cast(x.astype(np.float32), "float4_e2m1fn")})[0].numpy()
    np.testing.assert_array_equal(got, x.astype(np.float32) * np.repeat(scale.astype(np.float32), 4, 1))


@pytest.mark.parametrize("node, ends, why", [
    (helper.make_node("Cast", ["x"], ["y"], to=T.FLOAT8E8M0, round_mode="odd"), ("float32", "float8_e8m0fnu"), "round_mode"),
    (helper.make_node("Shape", ["x"], ["y"]), ("int4", "int64"), "MLX does not have")])
def test_declined(node, ends, why):
    before = {r["id"] for r in mlx_ep.describe("sessions")}
    model = model_of([node], [("x", ends[0], [2])], [("y", ends[1], None)])
    try:
        session(model, True, {"claim_all": "1"})
    except Exception:  # ONNX Runtime's CPU provider may have no kernel either; what counts is our reason
        pass
    record = record_of_newest()
    assert record["id"] not in before, "no session was made"
    assert record["claimed"] == 0 and why in record["declined"][0]["reason"], record
