"""NonMaxSuppression, DynamicTimeWarping, UnfoldTensor, ExpandDims, TorchEmbedding."""
import ml_dtypes
import numpy as np

from case import Family

rng = np.random.default_rng(24)
f = Family("detect")
MS = "com.microsoft"


def boxes(batches, n, centers):
    b = rng.uniform(0, 10, (batches, n, 4)).astype(np.float32)
    if centers:
        b[..., 2:] /= 2
    return b


def limit(v, dtype=np.float32):
    return np.array([v], dtype)


for centers in (0, 1):
    for opset in (10, 11):
        for overlap in (0.0, 0.2, 0.5, 1.0):
            b, s = boxes(2, 40, centers), rng.uniform(0, 1, (2, 3, 40)).astype(np.float32)
            ins = [b, s, limit(7, np.int64), limit(overlap), limit(0.3)]
            f.case("NonMaxSuppression", opset, ins, attrs={"center_point_box": centers}, const=(2, 3, 4))
            f.case("NonMaxSuppression", opset, ins, attrs={"center_point_box": centers})
b, s = boxes(1, 30, 0), rng.integers(0, 3, (1, 2, 30)).astype(np.float32)
f.case("NonMaxSuppression", 11, [b, s, limit(50, np.int64), limit(0.4)], name="ties, no score")
f.case("NonMaxSuppression", 11, [b, s, limit(50, np.int64)], name="any overlap")
f.case("NonMaxSuppression", 11, [b, s], name="none kept")
f.case("NonMaxSuppression", 11, [b, s, limit(0, np.int64), limit(0.4)], name="none asked for")
f.case("NonMaxSuppression", 11, [b, s, limit(5, np.int64), limit(0.4), limit(9)], name="none good enough")
f.case("NonMaxSuppression", 11, [b, -s, None, limit(0.4), limit(-1)], want=[np.zeros((0, 3), np.int64)])
f.case("NonMaxSuppression", 11, [b[:, :, ::-1].copy(), s, limit(9, np.int64), limit(0.1), limit(0.5)], name="corners swapped")
f.case("NonMaxSuppression", 11, [b[:, :0], s[:, :, :0], limit(5, np.int64)], want=[np.zeros((0, 3), np.int64)])
f.fails("NonMaxSuppression", 11, [b, s, limit(5, np.int64), limit(1.5)], why="iou_threshold")
f.fails("NonMaxSuppression", 11, [b, s[:, :, :4], limit(5, np.int64)], why="fit each other")

for shape in ((5, 7), (1, 1), (1, 6), (6, 1), (1, 9, 4)):
    f.case("DynamicTimeWarping", 1, [rng.uniform(0, 1, shape).astype(np.float32)], domain=MS)
f.case("DynamicTimeWarping", 1, [np.ones((4, 6), np.float32)], domain=MS, name="ties")
f.case("DynamicTimeWarping", 1, [rng.integers(-2, 3, (9, 12)).astype(np.float32)], domain=MS, name="ties")

for dtype in (np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8):
    x = rng.integers(0, 99, (2, 9, 3)).astype(dtype)
    for dim, size, step in ((1, 4, 2), (-1, 3, 1), (0, 1, 1), (-2, 9, 5)):
        want = np.lib.stride_tricks.sliding_window_view(x, size, dim)
        want = want[tuple(slice(None, None, step if a == dim % 3 else 1) for a in range(4))]
        f.case("UnfoldTensor", 1, [x], attrs={"dim": dim, "size": size, "step": step}, domain=MS, want=[want], out_types=[dtype])

for axis in (0, 1, 2, -1, -3):
    for dtype in (np.float32, np.int64, np.bool_):
        x = rng.integers(0, 2, (2, 3)).astype(dtype)
        f.case("ExpandDims", 1, [x, np.array(axis, np.int32)], domain=MS, want=[np.expand_dims(x, axis)], out_types=[dtype], const=(1,) if axis < 1 else ())

w = rng.standard_normal((6, 4)).astype(np.float32)
for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.int32):
    for at in (np.array([[0, 5], [3, 3]]), np.array(2), np.zeros((0, 2), np.int64)):
        f.case("TorchEmbedding", 1, [w.astype(dtype), at], domain=MS, want=[w.astype(dtype)[at]], out_types=[dtype], const=(0,) if dtype == np.float32 else ())
f.fails("TorchEmbedding", 1, [w, np.array([6])], domain=MS, why="out of range", out_types=[np.float32])

test_detect = f.pytest()
