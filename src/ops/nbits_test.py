"""MatMulNBits and GatherBlockQuantized against ONNX Runtime's CPU kernels, or against the definition in NumPy."""
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from case import Family, compare, run_on_mlx, session

MS = "com.microsoft"
rng = np.random.default_rng(4)
f = Family("nbits")


def unpack(q, bits):
    return np.stack([q >> i & (1 << bits) - 1 for i in range(0, 8, bits)], -1).reshape(*q.shape[:-1], -1)


def weights(n, k, bits, block, zeros, dtype=np.float32):
    blocks = -(-k // block)
    q = rng.integers(0, 256, (n, blocks, block * bits // 8), dtype=np.uint8)
    scales = rng.uniform(0.01, 0.1, (n, blocks)).astype(dtype)
    zp = None
    if zeros == "packed":
        zp = rng.integers(0, 256, (n, -(-blocks * bits // 8)), dtype=np.uint8)
    elif zeros == "float":
        zp = rng.uniform(0, 2**bits - 1, (n, blocks)).astype(dtype)
    return q, scales, zp


def product(x, q, scales, zp, bits, k, bias=None):
    n, blocks = scales.shape
    w = unpack(q, bits).astype(np.float64)
    if zp is None:
        z = np.full((n, blocks), 2.0 ** (bits - 1))
    elif zp.dtype == np.uint8:
        z = unpack(zp, bits)[:, :blocks].astype(np.float64)
    else:
        z = zp.astype(np.float64)
    w = ((w - z[..., None]) * scales.astype(np.float64)[..., None]).reshape(n, -1)[:, :k]
    y = x.astype(np.float64) @ w.T
    return (y if bias is None else y + bias.astype(np.float64)).astype(x.dtype)


def nbits(shape, n, k, bits, block, zeros=None, dtype=np.float32, bias=False, level=0, own=True, tol=None):
    x = rng.standard_normal((*shape, k)).astype(dtype)
    q, scales, zp = weights(n, k, bits, block, zeros, dtype)
    b = rng.standard_normal(n).astype(dtype) if bias else None
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
    inputs = [x, q, scales, zp] + ([None, b] if bias else [])
    while inputs[-1] is None:
        inputs.pop()
    const = tuple(i for i in range(1, len(inputs)) if inputs[i] is not None)
    want = [product(x, q, scales, zp, bits, k, b)] if own else None
    f.case("MatMulNBits", 1, inputs, domain=MS, attrs=attrs, const=const, want=want, tol=tol or (2e-4, 2e-4),
           name=f"{bits}x{block}-{zeros}-{k}x{n}-l{level}")


for bits in (2, 4, 8):
    for zeros in (None, "packed", "float"):
        nbits((2, 3), 20, 96, bits, 32, zeros)
        nbits((1,), 48, 64, bits, 16, zeros)
        nbits((5,), 7, 100, bits, 32, zeros, bias=True)  # K no multiple of the block, odd N
    for block in (64, 128, 256, 512):
        nbits((3,), 16, 300, bits, block, "packed")
    nbits((3,), 9, 1100, bits, 512, "packed")  # longer than a kernel's block, and a part of one left
    nbits((3,), 9, 1100, bits, 1024, None)
nbits((2, 1), 24, 64, 4, 32, "packed", own=False)  # ONNX Runtime's own answer
nbits((2, 1), 24, 64, 8, 32, "packed", own=False)
nbits((2, 1), 24, 64, 2, 32, "packed", own=False)
nbits((64,), 24, 64, 4, 32, None, own=False)
nbits((2, 1), 24, 64, 4, 32, "packed", level=4, tol=(3e-2, 3e-2))  # int8 activations
nbits((), 24, 64, 4, 32)
nbits((0, 3), 24, 64, 4, 32)
nbits((2, 3), 16, 64, 4, 32, "packed", np.float16, tol=(4e-3, 4e-3))
nbits((2, 3), 16, 64, 4, 32, "float", np.float16, bias=True, tol=(4e-3, 4e-3))
nbits((2, 3), 16, 64, 4, 32, "packed", ml_dtypes.bfloat16, tol=(2e-2, 2e-2))
nbits((2, 3), 16, 64, 8, 32, None, ml_dtypes.bfloat16, bias=True, tol=(2e-2, 2e-2))

_x = np.ones((2, 64), np.float32)
_q, _s, _z = weights(8, 64, 4, 32, "packed")
_a = {"K": 64, "N": 8, "bits": 4, "block_size": 32}
f.declines("MatMulNBits", 1, [_x, _q, _s], why="must be constant", domain=MS, attrs=_a, const=(2,))
f.declines("MatMulNBits", 1, [_x, _q, _s], why="must be constant", domain=MS, attrs=_a, const=(1,))
f.declines("MatMulNBits", 1, [_x, _q, _s, _z, np.full(64, 2, np.int32)], why="names block 2", domain=MS, attrs=_a, const=(1, 2, 3, 4))
f.declines("MatMulNBits", 1, [_x, _q, _s, _z, np.zeros(64, np.int32)], why="must be constant", domain=MS, attrs=_a, const=(1, 2, 3))
f.declines("MatMulNBits", 1, [_x, _q[:, :, :12], _s], why="weights of 3 bits", domain=MS, attrs={**_a, "bits": 3}, const=(1, 2))


def grouped(k, bits, zeros, bias, dtype=np.float32, tol=(2e-4, 2e-4)):
    q, s, z = weights(10, k, bits, 32, zeros, dtype)
    g = rng.integers(0, s.shape[1], k).astype(np.int32)
    w = unpack(q, bits).reshape(10, -1)[:, :k].astype(np.float64)
    full = np.full(s.shape, 2.0 ** (bits - 1)) if z is None else unpack(z, bits)[:, : s.shape[1]] if zeros == "packed" else z
    w = (w - full.astype(np.float64)[:, g]) * s.astype(np.float64)[:, g]
    x, b = rng.standard_normal((3, k)).astype(dtype), rng.standard_normal(10).astype(dtype) if bias else None
    y = x.astype(np.float64) @ w.T + (b if bias else 0)
    inputs = [x, q, s, z, g] + ([b] if bias else [])
    f.case("MatMulNBits", 1, inputs, domain=MS, attrs={"K": k, "N": 10, "bits": bits, "block_size": 32}, name="groups", tol=tol,
           const=tuple(i for i in range(1, len(inputs)) if inputs[i] is not None), want=[y.astype(dtype)])


for bits in (2, 4, 8):
    grouped(96, bits, "packed", False)
    grouped(70, bits, None, True)
grouped(96, 4, "float", True)
grouped(96, 4, "packed", True, np.float16, (4e-3, 4e-3))


# ---- GatherBlockQuantized ---------------------------------------------------------------------------------------------
def lookup(data, indices, scales, zp=None, bits=4, block=16, gather=0, axis=1, **kw):
    inputs = [data, indices, scales] + ([zp] if zp is not None else [])
    attrs = {"bits": bits, "block_size": block, "gather_axis": gather, "quantize_axis": axis}
    f.case("GatherBlockQuantized", 1, inputs, domain=MS, attrs=attrs, const=(0, 2, 3)[: 3 if zp is not None else 2],
           name=f"{bits}bits", **kw)


def table(rows, k, bits, block, dtype=np.float32):
    data = rng.integers(0, 256, (rows, k * bits // 8), dtype=np.uint8)
    blocks = -(-k // block)
    scales = rng.uniform(0.01, 0.1, (rows, blocks)).astype(dtype)
    return data, scales, rng.integers(0, 256, (rows, -(-blocks * bits // 8)), dtype=np.uint8)


for bits in (4, 8):
    for itype in (np.int32, np.int64):
        d, s, z = table(11, 64, bits, 16)
        lookup(d, np.array([[0, 3, 10], [-1, 5, -11]], itype), s, z, bits)
        lookup(d, np.array([[0, 3, 10], [-1, 5, -11]], itype), s, None, bits)
    d, s, z = table(11, 64, bits, 32, np.float16)
    lookup(d, np.array(7, np.int64), s, z, bits, 32)
    d, s, z = table(5, 72, bits, 32)  # the last block is not full
    lookup(d, np.array([4, 0], np.int64), s, z, bits, 32)
    lookup(d, np.zeros((0,), np.int64), s, z, bits, 32)
    lookup(d, np.array([4, 5, -6, 1 << 40], np.int64), s, z, bits, 32)  # out of range: zeros
d, s, z = table(5, 64, 4, 32)
f.case("GatherBlockQuantized", 1, [d, np.array([4, 0]), s, z], domain=MS, attrs={"bits": 4, "block_size": 32, "quantize_axis": 1}, const=(2, 3),
       name="computed table")
d, s, z = table(9, 64, 4, 16, ml_dtypes.bfloat16)
_bf = ((unpack(d, 4).reshape(9, 4, 16).astype(np.float32) - 8) * s.astype(np.float32)[..., None]).reshape(9, 64)
lookup(d, np.array([2, 8], np.int64), s, want=[_bf[[2, 8]].astype(ml_dtypes.bfloat16)])
f.declines("GatherBlockQuantized", 1, [d, np.array([0]), np.ones((9, 8), np.float32)], why="data of 2 bits", domain=MS,
           attrs={"bits": 2, "block_size": 16, "quantize_axis": 1}, const=(0, 2))

test_nbits = f.pytest()


@pytest.mark.parametrize("kind", [TensorProto.UINT4, TensorProto.INT4])
@pytest.mark.parametrize("gather", [0, 1])
@pytest.mark.parametrize("zeros", [False, True])
def test_four_bit_tensors(kind, gather, zeros):
    """Tables of ONNX's own 4-bit types, gathered along either axis."""
    lo, hi = (0, 16) if kind == TensorProto.UINT4 else (-8, 8)
    data = rng.integers(lo, hi, (3, 6, 32))
    scales = rng.uniform(0.1, 1, (3, 6, 2)).astype(np.float32)
    inits = [helper.make_tensor("data", kind, data.shape, data.flatten()),
             helper.make_tensor("scales", TensorProto.FLOAT, scales.shape, scales.flatten())]
    if zeros:
        inits.append(helper.make_tensor("zeros", kind, scales.shape, rng.integers(lo, hi, scales.shape).flatten()))
    node = helper.make_node("GatherBlockQuantized", ["data", "i", "scales"] + ["zeros"] * zeros, ["y"], domain=MS,
                            block_size=16, gather_axis=gather, quantize_axis=2)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("i", TensorProto.INT64, ["a", 2])],
                              [onnx.ValueInfoProto(name="y")], inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)], ir_version=10)
    feeds = {"i": np.array([[1, 0], [-1, 2], [2, 2]], np.int64)}
    want = session(model, False).run(None, feeds)
    compare(run_on_mlx(model, feeds)[0], want[0], None, "y")
