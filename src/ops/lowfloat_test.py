"""Products with weights of 4- and 8-bit floats against numpy; ONNX Runtime's CPU provider has no such kernels."""
import ml_dtypes
import numpy as np

from case import Family

MS = "com.microsoft"
rng = np.random.default_rng(96)
f = Family("lowfloat")
E4M3, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = np.concatenate([E2M1, -E2M1])


def product(x, w, bias, dtype):
    y = x.astype(np.float64) @ w.astype(dtype).astype(np.float64).T
    return (y if bias is None else y + bias.astype(np.float64)).astype(dtype)


def fp4(shape, n, k, block=16, dtype=np.float16, bias=False, const=(1, 2, 3), **attrs):
    b = rng.integers(0, 256, (n, k // 2), dtype=np.uint8)
    scale = rng.uniform(0.25, 2, (n, -(-k // block))).astype(E4M3)
    second = np.array(0.125, np.float32)
    x, v = rng.standard_normal((*shape, k)).astype(dtype), rng.standard_normal(n).astype(dtype) if bias else None
    codes = np.stack([b & 15, b >> 4], -1).reshape(n, k)
    w = E2M1[codes] * np.repeat(scale.astype(np.float64) * float(second), block, 1)[:, :k]
    f.case("MatMulBlockQuantizedFp4Weight", 1, [x, b, scale.view(np.uint8), second, None, *([v] if bias else [])], domain=MS,
           attrs=attrs, const=const, want=[product(x, w, v, dtype)], tol=(1e-2, 2e-2) if dtype == np.float16 else (4e-2, 8e-2))


def fp8(shape, n, k, block=128, dtype=np.float16, bias=False, a_scale=None, **attrs):
    b = rng.standard_normal((n, k)).astype(E4M3)
    scale = rng.uniform(0.25, 2, (n, -(-k // block))).astype(np.float32)
    x, v = rng.standard_normal((*shape, k)).astype(dtype), rng.standard_normal(n).astype(dtype) if bias else None
    w = b.astype(np.float64) * np.repeat(scale.astype(np.float64), block, 1)[:, :k]
    a = x if a_scale is None else ((x.astype(np.float32) / a_scale).astype(E4M3).astype(np.float32) * a_scale).astype(dtype)
    f.case("MatMulBlockQuantizedFp8Weight", 1, [x, b, scale, a_scale, *([v] if bias else [])], domain=MS, attrs=attrs, const=(1, 2),
           want=[product(a, w, v, dtype)], tol=(1e-2, 4e-2) if dtype == np.float16 else (4e-2, 3e-1))


for dtype in (np.float16, BF16):
    for shape, n, k in (((3,), 8, 64), ((2, 3), 5, 32), ((), 4, 16), ((1, 1), 6, 40), ((0,), 4, 32)):
        fp4(shape, n, k, dtype=dtype)
        fp4(shape, n, k, 32, dtype=dtype, bias=True, block_size=32)
    for shape, n, k in (((3,), 8, 256), ((2, 3), 5, 100), ((), 4, 130), ((0,), 4, 32)):
        fp8(shape, n, k, dtype=dtype)
        fp8(shape, n, k, 32, dtype=dtype, bias=True, block_size=32)
        fp8(shape, n, k, dtype=dtype, a_scale=np.float32(0.05))
fp4((2,), 4, 32, const=())  # weights that are inputs
every = np.arange(256, dtype=np.uint8).reshape(16, 16)  # each pair of codes
x = np.eye(32, dtype=np.float16)
w = E2M1[np.stack([every & 15, every >> 4], -1).reshape(16, 32)]
ones = np.ones((16, 2), E4M3).view(np.uint8)
f.case("MatMulBlockQuantizedFp4Weight", 1, [x, every, ones, np.float32(1)], domain=MS, const=(1, 2, 3), want=[w.T.astype(np.float16)])

half = rng.standard_normal((3, 32)).astype(np.float16)
byte, scales = np.zeros((4, 16), np.uint8), np.zeros((4, 2), np.uint8)
f.fails("MatMulBlockQuantizedFp4Weight", 1, [half, byte, scales[:, :1], np.float32(1)], domain=MS, why="scales \\[4, 1\\]")
f.declines("MatMulBlockQuantizedFp4Weight", 1, [half, byte, scales, np.float32(1)], domain=MS, attrs={"block_size": 0}, why="block_size 0")


def gemm(a, b, c=None, scales=(None, None), dtype=np.float32, to=1, **attrs):
    x, y = a.astype(np.float64) * (scales[0] or 1), b.astype(np.float64) * (scales[1] or 1)
    x, y = x.T if attrs.get("transA") else x, y.T if attrs.get("transB") else y
    want = attrs.get("alpha", 1) * (x @ y) + (0 if c is None else attrs.get("beta", 0) * c.astype(np.float64))
    want = np.maximum(want, 0) if attrs.get("activation") == "RELU" else want
    f.case("GemmFloat8", 1, [a, b, c, *[None if s is None else np.array([s], np.float32) for s in scales]], domain=MS, want=[want.astype(dtype)],
           attrs=attrs | {"dtype": to}, const=tuple(i for i, t in enumerate((a, b)) if t.dtype == E4M3), tol=(1e-3, 2e-3),
           out_types=[dtype])


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


gemm(normal(3, 4), normal(4, 5), alpha=0.5)
gemm(normal(4, 3), normal(5, 4), normal(3, 5), beta=2.0, transA=1, transB=1, activation="RELU")
gemm(normal(3, 4), normal(5, 4, dtype=E4M3), normal(5), (None, 0.5), beta=1.0, transB=1)
gemm(normal(3, 4, dtype=np.float16), normal(4, 5, dtype=np.float16), (None), dtype=np.float16, to=10, transB=0)
f.fails("GemmFloat8", 1, [normal(3, 4), normal(5, 4)], domain=MS, out_types=[np.float32], why="inner sizes 4 and 5", attrs={"dtype": 1})
f.declines("GemmFloat8", 1, [normal(3, 4), normal(4, 5)], domain=MS, attrs={"activation": "GELU"}, out_types=[np.float32], why="activation 'GELU'")

test_lowfloat = f.pytest()
