"""Resize of every mode and Upsample."""
import ml_dtypes
import numpy as np
import pytest

from case import Case, Family, check_runs, expected, model_of

rng = np.random.default_rng(21)
f = Family("resize")
at_run_time = Family("resize")
TOL = (1e-4, 1e-5)


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def scaled(x, scales, opset=19, const=True, roi=None, ref="ort", **attrs):
    f.case("Resize", opset, [x, roi, np.array(scales, np.float32)], attrs=attrs, const=(1, 2) if const else (), tol=TOL, ref=ref,
           name=" ".join(f"{k}={v}" for k, v in attrs.items()))


def sized(x, sizes, opset=19, const=True, roi=None, ref="ort", **attrs):
    # ONNX's inference refuses sizes of unknown length, which symbolic dimensions make of sizes that are not constant.
    (f if const else at_run_time).case("Resize", opset, [x, roi, None, np.array(sizes, np.int64)], attrs=attrs, const=(1, 3) if const else (), tol=TOL, ref=ref,
           name=" ".join(f"{k}={v}" for k, v in attrs.items()))


COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
x = normal(2, 3, 7, 6)

# ---- nearest ----------------------------------------------------------------------------------------------------------------
for coordinates in COORDINATES:
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        attrs = dict(coordinate_transformation_mode=coordinates, nearest_mode=rounding)
        scaled(x, [1, 1, 0.61, 2.5], **attrs)  # 0.6 would put half_pixel_symmetric on a tie
        sized(x, [2, 3, 14, 4], const=False, **attrs)
scaled(x, [1, 1, 2, 2], opset=11, roi=np.zeros(0, np.float32), coordinate_transformation_mode="tf_half_pixel_for_nn")
scaled(x, [1, 1, 0.7, 2], opset=13, coordinate_transformation_mode="tf_half_pixel_for_nn")
for dtype in (np.uint8, np.int8, np.int32):
    scaled(rng.integers(0, 100, (1, 2, 4, 5)).astype(dtype), [1, 1, 2, 1.5])
for dtype in (np.float64, np.float16, np.int64, np.uint16, np.bool_):
    v = rng.integers(0, 100, (2, 3)).astype(dtype)
    f.case("Resize", 19, [v, None, np.array([2, 3], np.float32)], want=[v.repeat(2, 0).repeat(3, 1)], const=(2,),
           attrs={"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"})
scaled(normal(3, 4, 2, 5, 2), [2, 1.5, 1, 0.5, 3])
scaled(normal(9), [1.7])

# ---- linear -----------------------------------------------------------------------------------------------------------------
for coordinates in COORDINATES:
    scaled(x, [1, 1, 0.6, 2.5], mode="linear", coordinate_transformation_mode=coordinates)
    sized(x, [2, 3, 14, 4], const=False, mode="linear", coordinate_transformation_mode=coordinates)
scaled(normal(2, 1, 3, 4, 5), [1, 1, 2, 1.5, 0.7], mode="linear")
scaled(normal(5, 6), [1.5, 2], mode="linear", const=False)
scaled(normal(5), [2.2], mode="linear", ref="onnx")
scaled(normal(2, 3, 2, 2, 4, 3), [1, 2, 1.5, 1, 0.5, 2], mode="linear", ref="onnx")
sized(x, [2, 3, 1, 1], mode="linear", coordinate_transformation_mode="pytorch_half_pixel")
sized(x, [2, 3, 1, 1], mode="linear", coordinate_transformation_mode="align_corners")
for dtype in (np.uint8, np.int8, np.int32):
    scaled(rng.integers(-100 if dtype != np.uint8 else 0, 100, (1, 2, 4, 5)).astype(dtype), [1, 1, 2, 2], mode="linear")
odd = x.copy()
odd[0, 0, 2, 2], odd[0, 0, 5, 5] = np.nan, np.inf
scaled(odd, [1, 1, 2.3, 1.7], mode="linear")

# ---- cubic ------------------------------------------------------------------------------------------------------------------
for coordinates in COORDINATES:
    scaled(x, [1, 1, 0.6, 2.5], mode="cubic", coordinate_transformation_mode=coordinates)
for attrs in ({"exclude_outside": 1}, {"cubic_coeff_a": -0.5}, {"cubic_coeff_a": -0.5, "exclude_outside": 1}):
    scaled(x, [1, 1, 2.5, 1.3], mode="cubic", **attrs)
    sized(x, [2, 3, 4, 13], mode="cubic", const=False, **attrs)
scaled(normal(5, 6, 4), [1.5, 2, 0.6], mode="cubic", ref="onnx")

# ---- antialias --------------------------------------------------------------------------------------------------------------
for mode in ("linear", "cubic"):
    for exclude in (0, 1):
        scaled(normal(1, 2, 13, 17), [1, 1, 0.3, 0.6], mode=mode, antialias=1, exclude_outside=exclude)
        sized(normal(1, 2, 13, 17), [1, 2, 20, 3], mode=mode, antialias=1, exclude_outside=exclude)
    scaled(normal(1, 1, 13, 17), [1, 1, 0.5, 0.6], mode=mode, antialias=1, coordinate_transformation_mode="align_corners")
    for dtype in (np.uint8, np.int32):
        scaled(rng.integers(0, 250, (1, 1, 9, 12)).astype(dtype), [1, 1, 0.5, 0.4], mode=mode, antialias=1)

# ---- a region, axes, aspect -------------------------------------------------------------------------------------------------
ROI = np.array([0, 0, 0.4, 0.6, 1, 1, 0.8, 1.3], np.float32)
for mode in ("nearest", "linear", "cubic"):
    attrs = dict(mode=mode, coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.5)
    sized(x, [2, 3, 5, 8], roi=ROI, **attrs)
    sized(x, [2, 3, 1, 8], roi=ROI, const=False, **attrs)
    sized(x, [8, 5], roi=np.array([0.6, 0.4, 1.2, 0.8], np.float32), axes=[3, 2], **attrs)
    scaled(x, [1, 1, 2, 3], roi=ROI, **attrs)
    for policy in ("not_larger", "not_smaller"):
        sized(x, [12, 7], axes=[2, 3], mode=mode, keep_aspect_ratio_policy=policy)
        # ONNX Runtime's CPU provider ignores axes below zero: it is asked for the same axes above.
        attrs = dict(mode=mode, keep_aspect_ratio_policy=policy)
        above = Case("Resize", 19, [x, None, None, np.array([15, 7])], attrs={"axes": [2, 3], **attrs}, const=(3,))
        f.case("Resize", 19, [x, None, None, np.array([7, 15])], attrs={"axes": [-1, -2], **attrs}, const=(3,), tol=TOL,
               want=expected(above, model_of(above, False), {"in0": x}))
    scaled(x, [2, 1.5], axes=[3, 2], mode=mode)
    scaled(x, [1.5], axes=[2], mode=mode, ref="onnx")

# ---- other types, sizes of zero ---------------------------------------------------------------------------------------------
ramp = np.arange(12).reshape(1, 1, 3, 4)
for dtype in (np.float64, np.float16, ml_dtypes.bfloat16, np.int16, np.uint16):
    want = np.repeat(np.array([[0, 1, 2, 3, 3], [4, 5, 6, 7, 7], [8, 9, 10, 11, 11]])[None, None], 1, 0)
    half = np.array([[0, .5, 1, 1.5, 2, 2.5, 3, 3], [4, 4.5, 5, 5.5, 6, 6.5, 7, 7], [8, 8.5, 9, 9.5, 10, 10.5, 11, 11]])
    f.case("Resize", 19, [ramp.astype(dtype), None, np.array([1, 1, 1, 2], np.float32)], const=(2,),
           attrs={"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, want=[half[None, None].astype(dtype)])
sized(np.zeros((0, 3, 4, 4), np.float32), [0, 3, 8, 8], mode="linear")
scaled(x, [1, 1, 0.1, 1], ref="onnx", mode="linear")

# ---- older forms ------------------------------------------------------------------------------------------------------------
for mode in ("nearest", "linear"):
    for scales in ([1, 1, 2, 3], [1, 1, 0.6, 0.5]):
        f.case("Resize", 10, [x, np.array(scales, np.float32)], attrs={"mode": mode}, const=(1,), tol=TOL)
    f.case("Upsample", 9, [x, np.array([1, 1, 2, 3.5], np.float32)], attrs={"mode": mode}, const=(1,), tol=TOL)
    f.case("Upsample", 9, [x, np.array([1, 1, 2, 2], np.float32)], attrs={"mode": mode}, tol=TOL)
    f.case("Upsample", 7, [x], attrs={"mode": mode, "scales": [1.0, 1.0, 2.0, 3.0]}, tol=TOL)
f.case("Upsample", 9, [rng.integers(0, 9, (1, 1, 3, 4)).astype(np.int32), np.array([1, 1, 2, 3], np.float32)], const=(1,))

f.declines("Resize", 19, [ramp, None, np.array([1, 1, 2, 2], np.float32)], attrs={"mode": "linear"}, why="type int64")
f.declines("Resize", 19, [x, None, np.array([1, 1, 2, 2], np.float32)], attrs={"mode": "best"}, why="mode 'best'")
f.declines("Resize", 19, [x, None, np.array([1, 1, 2, 2], np.float32)], attrs={"nearest_mode": "up"}, why="nearest_mode 'up'")
f.fails("Resize", 19, [x, None, np.array([1, 1, 2], np.float32)], why="scales|dimension", out_types=[np.float32])
f.fails("Resize", 19, [x, None, np.array([1, 1, 2, -1], np.float32)], why="scale -1", out_types=[np.float32])

test_resize = f.pytest()


@pytest.mark.parametrize("case", at_run_time.cases, ids=lambda c: c.name)
def test_sizes_at_run_time(case):
    check_runs(case, symbolic=False)
