"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from case import Family, compare, run_on_mlx, session

MS = "com.microsoft"
rng = np.random.default_rng(16)
f = Family("quant")
EIGHT, SIXTEEN = (np.uint8, np.int8), (np.uint16, np.int16)
bf16 = ml_dtypes.bfloat16


def normal(*shape, scale=50, dtype=np.float32):
    return (rng.standard_normal(shape) * scale).astype(dtype)


def scales(*shape, dtype=np.float32):
    return rng.uniform(0.2, 1, shape).astype(dtype)


def integers(t, *shape):
    return rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, shape).astype(t)


# ---- QuantizeLinear ---------------------------------------------------------------------------------------------------
Q = "QuantizeLinear"
for opset in (10, 13, 19, 21, 23, 24, 25):
    for t in EIGHT + (SIXTEEN if opset >= 21 else ()):
        f.case(Q, opset, [normal(3, 4), scales(), integers(t)])
        f.case(Q, opset, [normal(3, 4), scales(), integers(t)], const=(1, 2))
        if opset >= 13:
            f.case(Q, opset, [normal(2, 3, 4), scales(3), integers(t, 3)], attrs={"axis": 1})
            f.case(Q, opset, [normal(2, 3, 4), scales(4), integers(t, 4)], attrs={"axis": -1}, const=(1, 2))
        if opset >= 21:
            f.case(Q, opset, [normal(2, 8, 3), scales(2, 2, 3), integers(t, 2, 2, 3)], attrs={"axis": 1, "block_size": 4})
            f.case(Q, opset, [normal(2, 7, 3), scales(2, 2, 3), integers(t, 2, 2, 3)], attrs={"axis": 1, "block_size": 4})
            f.case(Q, opset, [normal(6), scales(2), integers(t, 2)], attrs={"axis": 0, "block_size": 3})
    f.case(Q, opset, [normal(3, 4, scale=3), scales()])
for t, code in ((np.uint8, 2), (np.int8, 3), (np.uint16, 4), (np.int16, 5)):
    f.case(Q, 21, [normal(3, 4), scales()], attrs={"output_dtype": code})
f.case(Q, 13, [np.array([0.5, 1.5, 2.5, -0.5, 1e30, -1e30, np.inf, -np.inf, 254.5, 255.5], np.float32), np.float32(1)], name="ties")
f.case(Q, 13, [normal(), scales(), np.uint8(3)], name="scalar")
f.case(Q, 13, [normal(0, 3), scales(3), integers(np.uint8, 3)], name="empty")
x, s = rng.integers(-500, 500, (3, 4)).astype(np.int32), np.float32(2.5)
f.case(Q, 13, [x, s, np.int8(3)], want=[np.clip(np.rint(x.astype(np.float32) / s) + 3, -128, 127).astype(np.int8)], name="int32")
x, s = normal(3, 40, dtype=np.float16), np.array(0.375, np.float16)
f.case(Q, 21, [x, s, np.int8(-3)])
x, s = normal(3, 40, dtype=bf16), np.array(0.5, bf16)
_q = lambda x, s, z, lo, hi: np.clip(np.rint(x.astype(np.float32) / s.astype(np.float32)) + z, lo, hi)  # noqa: E731
f.case(Q, 21, [x, s, np.int8(5)], want=[_q(x, s, 5, -128, 127).astype(np.int8)])
x, s = normal(3, 40), np.float32(0.3)
half = np.clip(np.rint((x.astype(np.float16) / np.float16(0.3)).astype(np.float32)), 0, 255)
f.case(Q, 23, [x, s, np.uint8(0)], attrs={"precision": 10}, want=[half.astype(np.uint8)], name="precision")
f.case(Q, 1, [normal(3, 4), scales(), integers(np.uint16)], domain=MS)
f.case(Q, 1, [normal(3, 4), scales(4), integers(np.int8, 4)], domain=MS, attrs={"axis": 1})
f.fails(Q, 13, [normal(2, 3), scales(4), integers(np.uint8, 4)], why="along axis 1", attrs={"axis": 1})

# ---- DequantizeLinear -------------------------------------------------------------------------------------------------------
D = "DequantizeLinear"
for opset in (10, 13, 19, 21, 23, 24, 25):
    for t in EIGHT + (SIXTEEN if opset >= 21 else ()):
        f.case(D, opset, [integers(t, 3, 4), scales(), integers(t)])
        f.case(D, opset, [integers(t, 3, 4), scales(), integers(t)], const=(1, 2))
        f.case(D, opset, [integers(t, 3, 4), scales()])
        if opset >= 13:
            f.case(D, opset, [integers(t, 2, 3, 4), scales(3), integers(t, 3)], attrs={"axis": 1})
            f.case(D, opset, [integers(t, 2, 3, 4), scales(2)], attrs={"axis": -3}, const=(1,))
        if opset >= 21:
            f.case(D, opset, [integers(t, 2, 8, 3), scales(2, 2, 3), integers(t, 2, 2, 3)], attrs={"axis": 1, "block_size": 4})
            f.case(D, opset, [integers(t, 2, 3, 7), scales(2, 3, 4)], attrs={"axis": 2, "block_size": 2})
    f.case(D, opset, [integers(np.int32, 3, 4), scales()])
f.case(D, 13, [np.array([2**31 - 1, -2**31, 16777217], np.int32), np.float32(1)], name="large")
f.case(D, 13, [np.uint8(7), scales(), np.uint8(3)], name="scalar")
f.case(D, 13, [integers(np.uint8, 0, 3), scales()], name="empty")
f.case(D, 21, [integers(np.int8, 3, 4), scales(dtype=np.float16), np.int8(4)])
x, s = integers(np.uint8, 3, 4), scales(4, dtype=bf16)
f.case(D, 21, [x, s], attrs={"axis": 1}, want=[(x.astype(np.float32) * s.astype(np.float32)).astype(bf16)])
f.case(D, 1, [integers(np.int16, 3, 4), scales(), integers(np.int16)], domain=MS)
x, s = integers(np.uint8, 3, 4), scales()
f.case(D, 23, [x, s], attrs={"output_dtype": 10}, want=[(x.astype(np.float32) * s).astype(np.float16)], name="output_dtype")

# ---- DynamicQuantizeLinear ------------------------------------------------------------------------------------------------------
for x in (normal(3, 4), normal(5), np.abs(normal(3, 4)), -np.abs(normal(3, 4)), np.zeros((2, 2), np.float32), normal(),
          np.array([0.5, 1.5, 127.5, 255], np.float32)):
    f.case("DynamicQuantizeLinear", 11, [x], outs=3)
f.case("DynamicQuantizeLinear", 11, [normal(0, 3)], outs=3, want=[np.zeros((0, 3), np.uint8), np.float32(1), np.uint8(0)])

test_quant = f.pytest()


@pytest.mark.parametrize("kind", [TensorProto.UINT4, TensorProto.INT4])
@pytest.mark.parametrize("shape, scale_shape, attrs", [((3, 5), (), {}), ((2, 3, 5), (3,), {"axis": 1}),
                                                       ((2, 8, 3), (2, 2, 3), {"axis": 1, "block_size": 4})])
@pytest.mark.parametrize("zeros", [False, True])
def test_four_bit_constants(kind, shape, scale_shape, attrs, zeros):
    """Weights of ONNX's own 4-bit types; the scale is computed, so that nothing folds the node away."""
    lo, hi = (0, 16) if kind == TensorProto.UINT4 else (-8, 8)
    inits = [helper.make_tensor("x", kind, shape, rng.integers(lo, hi, shape).flatten())]
    if zeros:
        inits.append(helper.make_tensor("z", kind, scale_shape, np.atleast_1d(rng.integers(lo, hi, scale_shape)).flatten()))
    node = helper.make_node("DequantizeLinear", ["x", "s"] + ["z"] * zeros, ["y"], **attrs)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("s", TensorProto.FLOAT, scale_shape)],
                              [onnx.ValueInfoProto(name="y")], inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds = {"s": scales(*scale_shape)}
    want = session(model, False).run(None, feeds)
    compare(run_on_mlx(model, feeds)[0], want[0], None, "y")


@pytest.mark.parametrize("kind, opset", [(TensorProto.FLOAT8E4M3FN, 19), (TensorProto.FLOAT8E4M3FNUZ, 19), (TensorProto.FLOAT8E5M2, 19),
                                         (TensorProto.FLOAT8E5M2FNUZ, 21), (TensorProto.FLOAT4E2M1, 23), (TensorProto.UINT2, 25),
                                         (TensorProto.INT2, 25)])
def test_narrow_constants(kind, opset):
    """Every bit pattern of ONNX's small types, against what the onnx package says it is."""
    bits = {TensorProto.FLOAT4E2M1: 4, TensorProto.UINT2: 2, TensorProto.INT2: 2}.get(kind, 8)
    raw = np.arange(1 << bits, dtype=np.uint8)
    each = 8 // bits
    packed = (raw.reshape(-1, each) << (np.arange(each, dtype=np.uint8) * bits)).sum(-1).astype(np.uint8)
    x = onnx.TensorProto(data_type=kind, dims=[1 << bits], raw_data=packed.tobytes(), name="x")
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"])
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("s", TensorProto.FLOAT, [])], [onnx.ValueInfoProto(name="y")], [x])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=13 if opset >= 25 else 10)
    want = onnx.numpy_helper.to_array(x).astype(np.float32) * np.float32(0.5)
    compare(run_on_mlx(model, {"s": np.array(0.5, np.float32)})[0], want, None, "y")
