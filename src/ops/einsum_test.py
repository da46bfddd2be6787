"""Einsum of integers against ONNX Runtime's CPU kernel, and numpy where that has none. Floats: matmul_test.py."""
import numpy as np

from case import Family

rng = np.random.default_rng(95)
f = Family("einsum")
EQUATIONS = {
    "ij,jk->ik": [(3, 4), (4, 5)], "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)], "ij->ji": [(3, 4)], "ij->": [(3, 4)], "ij->j": [(3, 4)],
    "i,j->ij": [(3,), (4,)], "i,i->": [(3,), (3,)], "ii->i": [(4, 4)], "ii->": [(4, 4)], "ij,ij->ij": [(3, 4), (3, 4)],
    "bhqd,bhkd->bhqk": [(2, 2, 3, 4), (2, 2, 5, 4)], "...ij,...jk->...ik": [(2, 5, 3, 4), (2, 5, 4, 2)], "ij,jk": [(3, 4), (4, 5)],
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 5)], "...ij->...ji": [(2, 3, 4)], "ab,cd->": [(2, 3), (4, 5)], "ij,k->ijk": [(2, 3), (4,)],
    "iij,j->ij": [(3, 3, 4), (4,)], "Ab,bC->AC": [(2, 3), (3, 4)], " i j , j k -> k i ": [(3, 4), (4, 5)], ",ij->ij": [(), (2, 3)],
    "ij,jk->ik ": [(0, 4), (4, 5)], "ij,jk-> ik": [(3, 0), (0, 5)],
}


def ints(shape, dtype, wide=False):
    lo, hi = (np.iinfo(dtype).min, np.iinfo(dtype).max) if wide else (-50 if np.iinfo(dtype).min else 0, 50)
    return rng.integers(lo, hi, shape, dtype=dtype, endpoint=True)


for equation, shapes in EQUATIONS.items():
    for dtype in (np.int32, np.int64):
        f.case("Einsum", 12, [ints(s, dtype) for s in shapes], attrs={"equation": equation}, name=equation)
for dtype in (np.int32, np.int64, np.uint32, np.uint64):
    a, b = ints((3, 4), dtype, True), ints((4, 5), dtype, True)
    f.case("Einsum", 12, [a, b], attrs={"equation": "ij,jk->ik"}, want=[np.einsum("ij,jk->ik", a, b)], name="wraps")
a, b = ints((2, 1), np.int64), ints((3, 5), np.int64)
f.case("Einsum", 12, [a, b], attrs={"equation": "ij,jk->ik"}, want=[np.einsum("ij,jk->ik", np.repeat(a, 3, 1), b)], name="size 1")
a, b = ints((2, 1, 3, 4), np.int64), ints((5, 4, 2), np.int64)
f.case("Einsum", 12, [a, b], attrs={"equation": "abij,bjk->abik"}, want=[a @ b], name="a letter of size 1")
f.fails("Einsum", 12, [ints((2, 3), np.int64), ints((4, 5), np.int64)], attrs={"equation": "ij,jk->ik"}, why="sizes 3 and 4",
        out_types=[np.int64])
f.declines("Einsum", 12, [ints((2, 3), np.int16)], attrs={"equation": "ij->ji"}, why="type int16")

test_einsum = f.pytest()
