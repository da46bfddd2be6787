"""MatMulBnb4 against ONNX Runtime's CPU kernel."""
import ml_dtypes
import numpy as np

from case import Family

MS = "com.microsoft"
rng = np.random.default_rng(65)
f = Family("lowbit")


def bnb(shape, n, k, block, kind, trans=1, dtype=np.float32, tol=(2e-4, 2e-4), want=None, **attrs):
    q = rng.integers(0, 256, (n * k + 1) // 2, dtype=np.uint8)
    absmax = rng.uniform(0.5, 2, -(-n * k // block)).astype(dtype)
    x = rng.standard_normal((*shape, k if trans else n)).astype(dtype)
    attrs = {"K": k, "N": n, "block_size": block, "quant_type": kind, "transB": trans, **attrs}
    if want == "nf4":
        table = np.array([-1, -0.69619280, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0, 0.07958030, 0.16093020,
                          0.24611230, 0.33791524, 0.44070983, 0.56261700, 0.72295684, 1])
        w = table[np.stack([q >> 4, q & 15], -1).reshape(-1)[: n * k]] * np.repeat(absmax.astype(np.float64), block)[: n * k]
        want = [(x.astype(np.float64) @ (w.reshape(n, k).T if trans else w.reshape(n, k))).astype(dtype)]
    f.case("MatMulBnb4", 1, [x, q, absmax], domain=MS, attrs=attrs, const=(1, 2), tol=tol, want=want)


for kind in (0, 1):
    for shape in ((3,), (2, 3), (1,)):
        bnb(shape, 24, 64, 32, kind)
    bnb((4,), 7, 32, 64, kind)
bnb((3,), 24, 64, 32, 1, trans=0, want="nf4")  # ONNX Runtime's kernel reads it as transposed
bnb((0,), 24, 64, 16, 1)
bnb((), 24, 64, 16, 1, want="nf4")
bnb((3,), 24, 64, 16, 1, dtype=np.float16, tol=(1e-2, 1e-2), want="nf4")
bnb((3,), 24, 64, 16, 1, dtype=ml_dtypes.bfloat16, tol=(6e-2, 6e-2), want="nf4")
x, q, s = np.ones((2, 64), np.float32), np.zeros(24 * 32, np.uint8), np.ones(48, np.float32)
a = {"K": 64, "N": 24, "block_size": 32, "quant_type": 1}
f.declines("MatMulBnb4", 1, [x, q, s], domain=MS, attrs=a, const=(1,), why="must be constant")
f.declines("MatMulBnb4", 1, [x, q, s[1:]], domain=MS, attrs=a, const=(1, 2), why="47 scales")
f.declines("MatMulBnb4", 1, [x, q, s], domain=MS, attrs=a | {"quant_type": 2}, const=(1, 2), why="quant_type 2")

test_lowbit = f.pytest()
