"""DeformConv."""
import ml_dtypes
import numpy as np

from case import Family

rng = np.random.default_rng(27)
f = Family("deform")
TOL = (2e-4, 5e-5)


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def deform(n, c, m, h, w, kh, kw, group=1, offset_group=1, pads=(0, 0, 0, 0), strides=(1, 1), dilations=(1, 1), bias=True, mask=True, reach=2.0):
    oh = (h + pads[0] + pads[2] - dilations[0] * (kh - 1) - 1) // strides[0] + 1
    ow = (w + pads[1] + pads[3] - dilations[1] * (kw - 1) - 1) // strides[1] + 1
    ins = [normal(n, c, h, w), normal(m, c // group, kh, kw), normal(n, offset_group * kh * kw * 2, oh, ow) * np.float32(reach),
           normal(m) if bias else None, rng.uniform(0, 1, (n, offset_group * kh * kw, oh, ow)).astype(np.float32) if mask else None]
    while ins[-1] is None:
        ins.pop()
    attrs = {"group": group, "offset_group": offset_group, "pads": list(pads), "strides": list(strides), "dilations": list(dilations),
             "kernel_shape": [kh, kw]}
    return ins, attrs


for kw in ({}, {"mask": False}, {"bias": False}, {"bias": False, "mask": False}, {"group": 2}, {"offset_group": 2}, {"group": 2, "offset_group": 4},
           {"pads": (1, 0, 2, 1)}, {"strides": (2, 3)}, {"dilations": (2, 1)}, {"reach": 20.0}, {"reach": 0.0}):
    ins, attrs = deform(2, 4, 6, 7, 8, 3, 2, **kw)
    f.case("DeformConv", 19, ins, attrs=attrs, tol=TOL, ref="ort", name=str(kw))
    f.case("DeformConv", 22, ins, attrs=attrs, tol=TOL, const=(1,), name=str(kw))
# No offsets: a convolution.
x, w = normal(1, 2, 5, 5), normal(3, 2, 3, 3)
win = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))
want = np.einsum("nchwij,ocij->nohw", win, w.astype(np.float64))
for dtype, tol in ((np.float64, (1e-5, 1e-5)), (np.float16, (1e-2, 2e-2)), (ml_dtypes.bfloat16, (5e-2, 0.15))):
    f.case("DeformConv", 22, [x.astype(dtype), w.astype(dtype), np.zeros((1, 18, 3, 3), dtype)], attrs={"kernel_shape": [3, 3]}, want=[want.astype(dtype)],
           tol=tol, out_types=[dtype])
f.case("DeformConv", 22, [np.zeros((0, 2, 5, 5), np.float32), w, np.zeros((0, 18, 3, 3), np.float32)], want=[np.zeros((0, 3, 3, 3), np.float32)])
f.declines("DeformConv", 22, [normal(1, 2, 5), normal(3, 2, 3), np.zeros((1, 6, 3), np.float32)], why="rank 3")
f.fails("DeformConv", 22, [x, w, np.zeros((1, 18, 4, 3), np.float32)], why="offset|Offset", out_types=[np.float32])

test_deform = f.pytest()
