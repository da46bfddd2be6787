"""MatMul, Gemm, MatMulInteger, Einsum and the fused products."""
import ml_dtypes
import numpy as np

from case import Family

MS = "com.microsoft"
bf16 = ml_dtypes.bfloat16
rng = np.random.default_rng(8)
f = Family("matmul")


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def wide(x):
    return x.astype(np.float64)


# ---- MatMul: every rank, every type -----------------------------------------------------------------------------------
SHAPES = [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
          ((2, 1, 3, 4), (6, 4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)), ((3, 0), (0, 5)), ((0, 4), (4, 5)), ((1, 1), (1, 1)),
          ((2, 0, 3, 4), (4, 5)), ((1, 300), (300, 7))]
for a, b in SHAPES:
    f.case("MatMul", 13, [normal(*a), normal(*b)], tol=(1e-4, 1e-5), want=[normal(*a) * 0 @ normal(*b)] if 0 in a + b else None)
    for t in (np.int32, np.int64, np.uint32, np.uint64):
        x, y = rng.integers(0, 2**31 - 1, a).astype(t), rng.integers(0, 2**31 - 1, b).astype(t)
        with np.errstate(over="ignore"):
            f.case("MatMul", 13, [x, y], want=[x @ y])
for opset in (1, 9, 13):
    f.case("MatMul", opset, [normal(3, 4), normal(4, 5)], tol=(1e-5, 1e-5))
    f.case("MatMul", opset, [normal(3, 4), normal(4, 5)], const=(1,), tol=(1e-5, 1e-5))
x, y = normal(3, 70, dtype=np.float64), normal(70, 2, dtype=np.float64)
f.case("MatMul", 13, [x, y])
x, y = normal(3, 70, dtype=np.float16), normal(70, 2, dtype=np.float16)
f.case("MatMul", 13, [x, y], want=[(wide(x) @ wide(y)).astype(np.float16)])
ones = np.ones((2, 4000), np.float16)
f.case("MatMul", 13, [ones, ones.T.copy()], want=[np.full((2, 2), 4000, np.float16)], name="long-sum")
x, y = normal(3, 70, dtype=bf16), normal(70, 2, dtype=bf16)
f.case("MatMul", 13, [x, y], want=[(wide(x) @ wide(y)).astype(bf16)])
big = rng.integers(-2**31, 2**31 - 1, (40, 300)).astype(np.int32)
f.case("MatMul", 13, [big, big.T.copy()], want=[(big.astype(np.int64) @ big.T.astype(np.int64)).astype(np.int32)], name="wraps")
f.case("MatMul", 13, [np.array([[np.inf, 1], [np.nan, 2]], np.float32), np.eye(2, dtype=np.float32)], name="nan")

# ---- FusedMatMul ------------------------------------------------------------------------------------------------------
for ta in (0, 1):
    for tb in (0, 1):
        a, b = normal(*((4, 3) if ta else (3, 4))), normal(*((5, 4) if tb else (4, 5)))
        f.case("FusedMatMul", 1, [a, b], domain=MS, attrs={"transA": ta, "transB": tb, "alpha": 0.5})
        a, b = normal(*((2, 4, 3) if ta else (2, 3, 4))), normal(*((2, 5, 4) if tb else (2, 4, 5)))
        f.case("FusedMatMul", 1, [a, b], domain=MS, attrs={"transA": ta, "transB": tb})
        a, b = normal(*((4, 2, 3) if ta else (3, 2, 4))), normal(*((5, 2, 4) if tb else (4, 2, 5)))
        f.case("FusedMatMul", 1, [a, b], domain=MS, attrs={"transA": ta, "transB": tb, "transBatchA": 1, "transBatchB": 1},
               tol=(1e-5, 1e-5))
a, b = normal(3, 4, dtype=np.float16), normal(4, 5, dtype=np.float16)
f.case("FusedMatMul", 1, [a, b], domain=MS, attrs={"alpha": 0.25}, want=[(wide(a) @ wide(b) / 4).astype(np.float16)])
f.case("FusedMatMul", 1, [normal(3, 4, dtype=np.float64), normal(4, 2, dtype=np.float64)], domain=MS, attrs={"alpha": 3.0})

# ---- Gemm ---------------------------------------------------------------------------------------------------------------
for ta in (0, 1):
    for tb in (0, 1):
        for c in (None, (5,), (3, 1), (1, 5), (3, 5), (1,), ()):
            a, b = normal(*((4, 3) if ta else (3, 4))), normal(*((5, 4) if tb else (4, 5)))
            ins = [a, b] + ([] if c is None else [normal(*c)])
            f.case("Gemm", 13, ins, attrs={"transA": ta, "transB": tb}, tol=(1e-5, 1e-5))
            f.case("Gemm", 13, ins, attrs={"transA": ta, "transB": tb, "alpha": 0.5, "beta": 2.0}, const=(1, 2), tol=(1e-5, 1e-5))
for opset in (7, 9, 11, 13):
    f.case("Gemm", opset, [normal(3, 4), normal(4, 5), normal(5)], tol=(1e-5, 1e-5))
a, b, c = normal(3, 4), normal(4, 5), normal(5)
for opset in (1, 6):
    f.case("Gemm", opset, [a, b, c], attrs={"broadcast": 1}, want=[a @ b + c], tol=(1e-5, 1e-5))
f.case("Gemm", 13, [a, b, np.full(5, np.nan, np.float32)], attrs={"beta": 0.0}, want=[a @ b], name="beta-0")
f.case("Gemm", 13, [normal(0, 4), b, c])
f.case("Gemm", 13, [normal(3, 0), normal(0, 5), c], name="no-k")
a, b, c = (normal(*s, dtype=np.float64) for s in ((3, 4), (4, 5), (3, 5)))
f.case("Gemm", 13, [a, b, c], attrs={"alpha": 0.5, "beta": 0.25})
for t in (np.float16, bf16):
    a, b, c = normal(3, 40, dtype=t), normal(40, 5, dtype=t), normal(5, dtype=t)
    f.case("Gemm", 13, [a, b, c], want=[(wide(a) @ wide(b) + wide(c)).astype(t)], tol=(2e-2, 2e-2))
    f.case("Gemm", 13, [a, b, c], attrs={"alpha": 0.5, "beta": 3.0}, want=[(wide(a) @ wide(b) / 2 + 3 * wide(c)).astype(t)])
a, b = rng.integers(-9, 9, (3, 4)).astype(np.int32), rng.integers(-9, 9, (4, 5)).astype(np.int32)
f.case("Gemm", 13, [a, b, np.arange(5, dtype=np.int32)], want=[a @ b + np.arange(5, dtype=np.int32)])
f.declines("Gemm", 13, [a, b], why="alpha or beta", attrs={"alpha": 2.0})

for act, extra in (("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("LeakyRelu", {"activation_alpha": 0.2}),
                   ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4})):
    f.case("FusedGemm", 1, [normal(3, 4), normal(4, 5), normal(5)], domain=MS, attrs={"activation": act, **extra}, tol=(1e-5, 1e-5))
f.declines("FusedGemm", 1, [normal(3, 4), normal(4, 5)], why="activation 'Softsign'", domain=MS, attrs={"activation": "Softsign"})

# ---- MatMulInteger16 ------------------------------------------------------------------------------------------------------
a16, b16 = rng.integers(-32768, 32768, (3, 5)).astype(np.int16), rng.integers(-32768, 32768, (5, 4)).astype(np.int16)
f.case("MatMulInteger16", 1, [a16, b16], domain="com.microsoft", want=[(a16.astype(np.int64) @ b16.astype(np.int64)).astype(np.int32)])

# ---- Einsum -----------------------------------------------------------------------------------------------------------------
for eq, *shapes in [("ij,jk->ik", (3, 4), (4, 5)), ("ij, jk -> ki", (3, 4), (4, 5)), ("ij->ji", (3, 4)), ("ij->", (3, 4)),
                    ("ii->i", (3, 3)), ("ii", (3, 3)), ("i,j", (3,), (4,)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
                    ("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)), ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)), ("...ij,jk->...ik", (2, 3, 4), (4, 5)), ("ij,ij->i", (3, 4), (3, 4)),
                    ("...i->...", (2, 3, 4)), ("i,i,i->", (3,), (3,), (3,)), ("bnqd,bnkd->bnqk", (1, 2, 3, 4), (1, 2, 5, 4)),
                    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), (",i->i", (), (3,)), ("Ab,b->A", (3, 4), (4,)), ("ij,jk", (0, 4), (4, 5))]:
    arrays = [normal(*s) for s in shapes]
    f.case("Einsum", 12, arrays, attrs={"equation": eq}, want=[np.asarray(np.einsum(eq, *arrays), np.float32)], tol=(1e-5, 1e-5), name=eq)
a, b = normal(3, 40, dtype=np.float64), normal(40, 2, dtype=np.float64)
f.case("Einsum", 12, [a, b], attrs={"equation": "ij,jk->ik"})
for t in (np.float16,):
    a, b = normal(3, 40, dtype=t), normal(40, 2, dtype=t)
    f.case("Einsum", 12, [a, b], attrs={"equation": "ij,jk->ik"}, want=[(wide(a) @ wide(b)).astype(t)])
one = np.ones((1, 4000), np.float16)
f.case("Einsum", 12, [one], attrs={"equation": "ij->i"}, want=[np.full(1, 4000, np.float16)], name="long-sum")
f.fails("Einsum", 12, [normal(2, 3), normal(4, 5)], why="einsum", attrs={"equation": "ij,jk->ik"}, out_types=[np.float32])

test_matmul = f.pytest()
