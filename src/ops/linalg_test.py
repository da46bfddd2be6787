"""Det, Inverse, CDist."""
import ml_dtypes
import numpy as np

from case import Family

rng = np.random.default_rng(25)
f = Family("linalg")
MS = "com.microsoft"


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


for opset in (11, 22):
    for shape in ((3, 3), (2, 4, 4), (2, 3, 5, 5), (1, 1), (0, 3, 3)):
        x = normal(*shape)
        f.case("Det", opset, [x], want=[np.linalg.det(x.astype(np.float64)).astype(np.float32)], tol=(1e-5, 1e-6))
f.case("Det", 11, [normal(2, 4, 4)], tol=(1e-4, 1e-5))
f.case("Det", 11, [np.array([[1, 2], [2, 4]], np.float32)])
f.case("Det", 11, [np.array([[0, 1, 0], [1, 0, 0], [0, 0, 3]], np.float32)])
f.case("Det", 22, [np.array([[1, np.nan], [2, 4]], np.float32)], want=[np.array(np.nan, np.float32)])
x = normal(2, 6, 6, dtype=np.float64)
f.case("Det", 22, [x], want=[np.linalg.det(x)])
for dtype in (np.float16, ml_dtypes.bfloat16):
    f.case("Det", 22, [np.array([[2, 3], [1, 4]]).astype(dtype)], want=[np.array(5).astype(dtype)])

for dtype, tol in ((np.float32, (1e-4, 1e-5)), (np.float64, (1e-9, 1e-10))):
    for shape in ((3, 3), (2, 4, 4), (2, 3, 5, 5), (1, 1)):
        x = normal(*shape, dtype=dtype) + 3 * np.eye(shape[-1], dtype=dtype)
        f.case("Inverse", 1, [x], domain=MS, tol=tol, want=[np.linalg.inv(x.astype(np.float64)).astype(dtype)])
f.case("Inverse", 1, [normal(2, 4, 4) + 3 * np.eye(4, dtype=np.float32)], domain=MS, tol=(1e-3, 1e-4))
f.case("Inverse", 1, [np.array([[0, 2], [4, 0]], np.float16)], domain=MS, want=[np.array([[0, 0.25], [0.5, 0]], np.float16)])

for metric in ("euclidean", "sqeuclidean"):
    for dtype in (np.float32, np.float64):
        f.case("CDist", 1, [normal(5, 7, dtype=dtype), normal(4, 7, dtype=dtype)], attrs={"metric": metric}, domain=MS, out_types=[dtype],
               tol=(1e-4, 1e-5) if dtype == np.float32 else (1e-8, 1e-9))
    p = normal(3, 4)
    f.case("CDist", 1, [p, p], attrs={"metric": metric}, domain=MS, out_types=[np.float32], tol=(1e-5, 1e-6),
           want=[(((p[:, None].astype(np.float64) - p[None]) ** 2).sum(-1) ** (0.5 if metric == "euclidean" else 1)).astype(np.float32)])
f.case("CDist", 1, [normal(0, 4), normal(3, 4)], attrs={"metric": "euclidean"}, domain=MS, out_types=[np.float32], want=[np.zeros((0, 3), np.float32)])
f.declines("CDist", 1, [normal(2, 4), normal(3, 4)], attrs={"metric": "cosine"}, domain=MS, out_types=[np.float32], why="metric 'cosine'")
f.fails("CDist", 1, [normal(2, 4), normal(3, 5)], attrs={"metric": "euclidean"}, domain=MS, out_types=[np.float32], why="coordinates")

test_linalg = f.pytest()
