"""GridSample and AffineGrid."""
import ml_dtypes
import numpy as np

from case import Family

rng = np.random.default_rng(22)
f = Family("sample")
TOL = (2e-4, 2e-5)
MS = "com.microsoft"


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def grid(*shape, reach=1.6):
    return rng.uniform(-reach, reach, shape).astype(np.float32)


for padding in ("zeros", "border", "reflection"):
    for corners in (0, 1):
        for new, old, mode in (("linear", "bilinear", "linear"), ("nearest", "nearest", "nearest"), ("cubic", "bicubic", "cubic")):
            label = f"{mode} {padding} {corners}"
            attrs = {"padding_mode": padding, "align_corners": corners}
            x, g = normal(2, 3, 5, 4), grid(2, 3, 6, 2)
            f.case("GridSample", 16, [x, g], attrs={"mode": old, **attrs}, tol=TOL, name=label)
            f.case("GridSample", 20, [x, g], attrs={"mode": new, **attrs}, tol=TOL, name=label)
            f.case("GridSample", 22, [x, g * 4], attrs={"mode": new, **attrs}, tol=TOL, const=(1,), name=label)
            f.case("GridSample", 1, [x, g], attrs={"mode": old, **attrs}, tol=TOL, domain=MS, name=label)
            if mode != "cubic":
                f.case("GridSample", 20, [normal(2, 3, 4, 5, 6), grid(2, 3, 2, 4, 3)], attrs={"mode": new, **attrs}, tol=TOL, name=label)
f.case("GridSample", 20, [normal(1, 2, 1, 1), grid(1, 2, 2, 2)], attrs={"align_corners": 1, "padding_mode": "border"}, tol=TOL)
f.case("GridSample", 16, [normal(2, 3, 5, 4), grid(2, 3, 6, 2)], tol=TOL)
f.case("GridSample", 20, [normal(2, 0, 5, 4), grid(2, 3, 6, 2)])
f.case("GridSample", 20, [normal(2, 1, 5, 4), np.zeros((2, 0, 6, 2), np.float32)])
odd = normal(1, 2, 4, 4)
odd[0, 0, 0, 0] = np.nan
f.case("GridSample", 20, [odd, grid(1, 5, 5, 2)], tol=TOL, name="nan")
ramp = np.arange(16).reshape(1, 1, 4, 4)
at = np.array([[[[-1, -1], [1, 1], [0, 0], [1 / 3, -1]]]])
for dtype in (np.float64, np.float16, ml_dtypes.bfloat16):
    f.case("GridSample", 22, [ramp.astype(dtype), at.astype(np.float32)], attrs={"align_corners": 1},
           want=[np.array([[[[0, 15, 7.5, 2]]]]).astype(dtype)], out_types=[dtype], tol=(1e-2, 1e-2) if dtype != np.float64 else (1e-6, 1e-6))
f.declines("GridSample", 20, [normal(1, 1, 2, 2), grid(1, 2, 2, 2)], attrs={"mode": "best"}, why="mode 'best'")
f.declines("GridSample", 20, [np.zeros((1, 1, 2, 2), np.int32), grid(1, 2, 2, 2)], why="type int32")

for corners in (0, 1):
    for opset in (20,):
        f.case("AffineGrid", opset, [normal(2, 2, 3), np.array([2, 3, 4, 5])], attrs={"align_corners": corners}, const=(1,), tol=TOL)
        f.case("AffineGrid", opset, [normal(2, 3, 4), np.array([2, 3, 4, 5, 6])], attrs={"align_corners": corners}, tol=TOL)
        f.case("AffineGrid", opset, [normal(1, 2, 3), np.array([1, 3, 1, 5])], attrs={"align_corners": corners}, tol=TOL, ref="onnx")
        f.case("AffineGrid", opset, [normal(2, 2, 3, dtype=np.float64), np.array([2, 1, 4, 5])], attrs={"align_corners": corners}, const=(1,))
f.fails("AffineGrid", 20, [normal(2, 2, 3), np.array([2, 3, 4, 5, 6])], why="theta")

test_sample = f.pytest()
