"""Products with block-quantised weights that share a normalised input, against numpy."""
import ml_dtypes
import numpy as np

from case import Family

MS = "com.microsoft"
rng = np.random.default_rng(97)
f = Family("nbits_fused")


def weights(n, k, bits, block, dtype):
    """Packed weights, their scales, and the numbers."""
    blocks = -(-k // block)
    q = rng.integers(0, 1 << bits, (n, blocks * block)).astype(np.uint8)
    scales = rng.uniform(0.05, 0.2, (n, blocks)).astype(dtype)
    w = (q.astype(np.float64) - (1 << (bits - 1))) * np.repeat(scales.astype(np.float64), block, 1)
    each = 8 // bits
    packed = sum(q[:, i::each].astype(np.uint16) << (bits * i) for i in range(each)).astype(np.uint8)
    return packed.reshape(n, blocks, block * bits // 8), scales, w[:, :k]


def case(op, shape, k, widths, bits=4, block=32, dtype=np.float32, bias=False, norm=False, skip=False, total=False):
    x = rng.standard_normal((*shape, k)).astype(dtype)
    r = rng.standard_normal((*shape, k)).astype(dtype) if skip else None
    g = rng.uniform(0.5, 2, k).astype(dtype) if norm else None
    a = x.astype(np.float64) + (0 if r is None else r.astype(np.float64))
    summed, eps = a.astype(dtype), 1e-5 if op.endswith("Mlp") else 1e-6
    if norm:
        a = (a / np.sqrt((a**2).mean(-1, keepdims=True) + eps) * g.astype(np.float64)).astype(dtype).astype(np.float64)
    inputs, ys = [x, r, g], []
    for n in widths:
        q, s, w = weights(n, k, bits, block, dtype)
        b = rng.standard_normal(n).astype(dtype) if bias else None
        inputs += [q, s, b]
        ys.append(a @ w.T + (0 if b is None else b.astype(np.float64)))
    want = [y.astype(dtype) for y in ys]
    attrs = {"K": k, "block_size": block, "bits": bits}
    if op.endswith("Mlp"):
        want = [(ys[0] / (1 + np.exp(-ys[0])) * ys[1]).astype(dtype)]
        attrs |= {"N": widths[0], "activation": "silu"}
    else:
        attrs |= {"Nq": widths[0], "Nkv": widths[1]}
    if total:
        want.append(summed)
    while inputs[-1] is None:
        inputs.pop()
    tol = {np.float32: (2e-4, 2e-4), np.float16: (2e-2, 4e-2)}.get(dtype, (1e-1, 3e-1))
    f.case(op, 1, inputs, domain=MS, attrs=attrs, outs=len(want), want=want, tol=tol, out_types=[dtype] * len(want),
           const=tuple(range(2, len(inputs))), name=f"{bits} bits")


for op, widths in (("MatMulNBitsMlp", (24, 24)), ("MatMulNBitsQkv", (24, 8, 8))):
    qkv = op.endswith("Qkv")
    for shape in ((2, 3), (1,), (0, 2)):
        case(op, shape, 64, widths, norm=qkv)
        case(op, shape, 64, widths, norm=True, bias=True)
        case(op, shape, 64, widths, norm=True, skip=True, total=True)
    for bits in (2, 8):
        case(op, (3,), 48, widths, bits=bits, block=16, norm=True, skip=True)
    case(op, (3,), 64, widths, norm=True, skip=True, total=True, dtype=np.float16)
    case(op, (3,), 64, widths, norm=True, skip=True, total=True, dtype=ml_dtypes.bfloat16)

x, q, s = np.ones((2, 32), np.float32), np.zeros((8, 1, 16), np.uint8), np.ones((8, 1), np.float32)
attrs = {"K": 32, "N": 8, "block_size": 32, "activation": "silu"}
mlp = [x, None, None, q, s, None, q, s]
f.declines("MatMulNBitsMlp", 1, mlp, domain=MS, attrs=attrs, out_types=[np.float32], why="input 3 must be constant")
f.declines("MatMulNBitsMlp", 1, mlp, domain=MS, attrs=attrs | {"activation": "gelu"}, out_types=[np.float32], const=(3, 4, 6, 7), why="activation 'gelu'")
f.declines("MatMulNBitsMlp", 1, mlp, domain=MS, attrs=attrs | {"N": 9}, out_types=[np.float32], const=(3, 4, 6, 7), why="must have 144 elements")

test_nbits_fused = f.pytest()
