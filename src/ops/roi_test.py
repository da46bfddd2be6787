"""RoiAlign, MaxRoiPool, CropAndResize."""
import ml_dtypes
import numpy as np

from case import Family

rng = np.random.default_rng(23)
f = Family("roi")
TOL = (2e-4, 2e-5)
MS = "com.microsoft"


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


X = normal(2, 3, 9, 8)
ROIS = np.array([[0, 0, 6, 7], [1.5, 2.25, 5, 4], [-3, -2, 4, 12], [3, 3, 3, 3], [5, 6, 2, 1], [20, 20, 30, 30]], np.float32)
WHICH = np.array([0, 1, 1, 0, 1, 0])

# ---- RoiAlign ---------------------------------------------------------------------------------------------------------------
for mode in ("avg", "max"):
    for ratio in (0, 1, 2, 3):
        for where in ("half_pixel", "output_half_pixel"):
            attrs = {"mode": mode, "sampling_ratio": ratio, "coordinate_transformation_mode": where, "output_height": 3, "output_width": 2}
            for scale in (1.0, 0.5):
                f.case("RoiAlign", 16, [X, ROIS[:4], WHICH[:4]], attrs={**attrs, "spatial_scale": scale}, tol=TOL, name=f"{mode} {ratio} {where}")
    f.case("RoiAlign", 10, [X, ROIS[:4], WHICH[:4]], attrs={"mode": mode, "output_height": 2, "output_width": 4}, tol=TOL, const=(1, 2))
    f.case("RoiAlign", 16, [X, ROIS, WHICH], attrs={"mode": mode, "sampling_ratio": 2}, tol=TOL, const=(2,))
    f.case("RoiAlign", 22, [X, ROIS[:0], WHICH[:0]], attrs={"mode": mode, "sampling_ratio": 2}, want=[np.zeros((0, 3, 1, 1), np.float32)])
f.case("RoiAlign", 16, [normal(1, 2, 6, 6, dtype=np.float64), ROIS[:2].astype(np.float64), WHICH[:1].repeat(2)],
       attrs={"sampling_ratio": 2, "output_height": 2, "output_width": 2}, tol=(1e-6, 1e-6))
flat = np.tile(np.arange(8.0), (8, 1))[None, None]
for dtype in (np.float16, ml_dtypes.bfloat16):  # a ramp along x: a bin's mean is the ramp at its centre
    f.case("RoiAlign", 22, [flat.astype(dtype), np.array([[1, 1, 5, 5]]).astype(dtype), np.array([0])], out_types=[dtype],
           attrs={"output_height": 1, "output_width": 2, "sampling_ratio": 2}, want=[np.array([[[[1.5, 3.5]]]]).astype(dtype)])
f.declines("RoiAlign", 16, [X, ROIS, WHICH], attrs={"mode": "sum"}, why="mode 'sum'")
f.fails("RoiAlign", 16, [X, ROIS, WHICH + 2], why="out of range|index")

# ---- MaxRoiPool -------------------------------------------------------------------------------------------------------------
WITH_BATCH = np.concatenate([WHICH[:, None], ROIS], 1).astype(np.float32)
for const in ((), (1,)):
    for shape in ([1, 1], [3, 2], [7, 7]):
        for scale in (1.0, 0.6):
            f.case("MaxRoiPool", 1, [X, WITH_BATCH], attrs={"pooled_shape": shape, "spatial_scale": scale}, const=const)
f.case("MaxRoiPool", 1, [X, WITH_BATCH[:0]], attrs={"pooled_shape": [2, 2]})
f.case("MaxRoiPool", 22, [flat.astype(np.float16), np.array([[0, 1, 1, 4, 4]], np.float16)], attrs={"pooled_shape": [1, 2]},
       want=[np.array([[[[2, 4]]]], np.float16)])
f.fails("MaxRoiPool", 22, [X, np.array([[2, 1, 1, 4, 4]], np.float32)], attrs={"pooled_shape": [1, 2]}, why="out of range")

# ---- CropAndResize ----------------------------------------------------------------------------------------------------------
BOXES = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9], [-0.3, 0.5, 0.4, 1.6], [0.8, 0.9, 0.1, 0.2], [0.5, 0.5, 0.5, 0.5]], np.float32)
for mode in ("bilinear", "nearest"):
    for size in ([4, 5], [1, 1], [9, 8]):
        f.case("CropAndResize", 1, [X, BOXES, WHICH[:5].astype(np.int32), np.array(size, np.int32)], domain=MS,
               attrs={"mode": mode, "extrapolation_value": 2.5}, tol=TOL, const=(3,) if size[0] == 4 else ())
f.case("CropAndResize", 1, [X, BOXES[:0], WHICH[:0].astype(np.int32), np.array([2, 2], np.int32)], domain=MS, const=(3,))
f.fails("CropAndResize", 1, [X, BOXES, WHICH[:5].astype(np.int32) + 5, np.array([2, 2], np.int32)], domain=MS, const=(3,), why="out of range|index")

test_roi = f.pytest()
