import ml_dtypes
import numpy as np
from case import Family

f = Family("sort")
rng = np.random.default_rng(3)
F32, F16, F64, BF16 = np.float32, np.float16, np.float64, ml_dtypes.bfloat16
INTS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)


# ---- TopK ------------------------------------------------------------------------------------------------------------
def top_k(x, k, axis=-1, largest=True):
    """Stable: of equal values the lower index first."""
    key = x.astype(F64) if x.dtype.kind not in "iu" else x.astype(object)
    order = np.argsort(-key if largest else key, axis=axis, kind="stable").take(range(k), axis)
    return [np.take_along_axis(x, order, axis), order.astype(np.int64)]


x = rng.standard_normal((3, 4, 6)).astype(F32)
f.case("TopK", 1, [x], attrs={"k": 3}, outs=2, want=top_k(x, 3))
f.case("TopK", 1, [x], attrs={"k": 2, "axis": 1}, outs=2, want=top_k(x, 2, 1))
f.case("TopK", 10, [x, np.array([4])], const=(1,), outs=2)
f.case("TopK", 10, [x, np.array([2])], attrs={"axis": 0}, outs=2, name="k at run time")
for opset in (11, 24):
    for largest in (0, 1):
        for axis, k in ((0, 1), (1, 1), (-1, 6), (-2, 3)):
            f.case("TopK", opset, [x, np.array([k])], const=(1,), outs=2, attrs={"axis": axis, "largest": largest},
                   want=top_k(x, k, axis, largest), out_types=[F32, np.int64])
        for dtype in (F16, F64) + INTS + ((BF16,) if opset == 24 else ()):
            v = rng.integers(0, 9, (3, 20)).astype(dtype)
            for k in (1, 7, 20):
                f.case("TopK", opset, [v, np.array([k])], const=(1,), outs=2, attrs={"largest": largest},
                       want=top_k(v, k, -1, largest), out_types=[dtype, np.int64], name=np.dtype(dtype).name)
ties = np.array([[1, 2, 2, 1, 2, 0, 0, 1]], F32)
for largest in (0, 1):
    f.case("TopK", 11, [ties, np.array([5])], outs=2, attrs={"largest": largest}, name="ties")
    ends = np.array([np.iinfo(np.int64).min, 0, np.iinfo(np.int64).max, -1, 1])
    f.case("TopK", 11, [ends, np.array([5])], outs=2, attrs={"largest": largest})
    top = np.array([2**64 - 1, 0, 2**63, 2**63 - 1], np.uint64)
    f.case("TopK", 11, [top, np.array([4])], outs=2, attrs={"largest": largest}, want=top_k(top, 4, -1, largest),
           out_types=[np.uint64, np.int64])
    infs = np.array([0, -np.inf, np.inf, 1, -1], F32)
    f.case("TopK", 11, [infs, np.array([4])], outs=2, attrs={"largest": largest})
f.case("TopK", 11, [x, np.array([3])], const=(1,), outs=2, attrs={"sorted": 0}, want=top_k(x, 3))
# Few of many take another way. Many ties, both zeros, infinities; also along an inner axis.
wide = rng.integers(-150, 150, (2, 5000)) / 4
wide[0, :3] = 0, -0.0, np.inf
wide[1, 7:9] = -np.inf
for largest in (0, 1):
    for dtype in (F32, F16, F64, np.int32, np.uint32, np.int8, np.int64):
        v = (wide if dtype in (F32, F16, F64) else np.nan_to_num(wide + 40, posinf=3, neginf=-3)).astype(dtype)
        for k in (1, 40):
            f.case("TopK", 11, [v, np.array([k])], const=(1,), outs=2, attrs={"largest": largest},
                   want=top_k(v, k, -1, largest), out_types=[dtype, np.int64], name="few of many")
    v = wide.astype(F32).reshape(1, 5000, 2)
    f.case("TopK", 11, [v, np.array([300])], const=(1,), outs=2, attrs={"largest": largest, "axis": 1},
           want=top_k(v, 300, 1, largest), name="few of many")
nans = np.ones((2048,), F32)
nans[::3] = np.nan
for largest in (0, 1):
    f.case("TopK", 11, [nans, np.array([5])], outs=2, attrs={"largest": largest},
           want=[np.ones(5, F32), np.array([1, 2, 4, 5, 7])], name="NaN last")
    f.case("TopK", 11, [nans[:100], np.array([5])], outs=2, attrs={"largest": largest},
           want=[np.ones(5, F32), np.array([1, 2, 4, 5, 7])], name="NaN last")
f.case("TopK", 11, [x, np.array([0])], const=(1,), outs=2)
f.case("TopK", 11, [np.zeros((0, 3), F32), np.array([2])], const=(1,), outs=2)
f.fails("TopK", 11, [x, np.array([7])], outs=2, why="k is 7, but axis 2 has 6 entries", out_types=[F32, np.int64])
f.fails("TopK", 11, [x, np.array([-1])], outs=2, why="k is -1", out_types=[F32, np.int64])

# ---- NonZero ---------------------------------------------------------------------------------------------------------
for opset in (9, 13):
    for dtype in (F32, np.int32, np.int64, np.uint8, bool):
        f.case("NonZero", opset, [(rng.random((3, 4, 2)) < 0.5).astype(dtype)])
for dtype in (F16, F64, BF16) + INTS:
    v = rng.integers(0, 2, (4, 5)).astype(dtype)
    f.case("NonZero", 13, [v], want=[np.array(np.nonzero(v.astype(F32)))], out_types=[np.int64])
f.case("NonZero", 13, [np.array([0.0, -0.0, np.nan, np.inf, -1], F32)])
f.case("NonZero", 13, [np.array(3, F32)])
f.case("NonZero", 13, [np.array(0, F32)])
f.case("NonZero", 13, [np.zeros((2, 3), F32)])
f.case("NonZero", 13, [np.zeros((2, 0), F32)])
f.case("NonZero", 13, [np.ones((1, 1, 1, 1), F32)])

# ---- Compress --------------------------------------------------------------------------------------------------------
keep = np.array([False, True, True, False])
for opset in (9, 11):
    for const in ((), (1,)):
        f.case("Compress", opset, [x, keep], const=const)
        f.case("Compress", opset, [x, keep], const=const, attrs={"axis": 1})
        f.case("Compress", opset, [x, keep[:2]], const=const, attrs={"axis": 0})
f.case("Compress", 11, [x, keep], attrs={"axis": -2})
f.case("Compress", 11, [x, np.ones(9, bool)], attrs={"axis": 2}, name="condition too long")
f.case("Compress", 11, [x, np.zeros(4, bool)], attrs={"axis": 1}, name="nothing")
f.case("Compress", 11, [x, np.zeros(0, bool)], name="no condition")
f.case("Compress", 11, [np.zeros((2, 0), F32), np.ones(2, bool)], attrs={"axis": 0}, want=[np.zeros((2, 0), F32)])
for dtype in (F16, F64, bool) + INTS:
    v = rng.integers(0, 9, (3, 4)).astype(dtype)
    f.case("Compress", 11, [v, keep], attrs={"axis": 1}, want=[v[:, keep]], out_types=[dtype])


# ---- Unique ----------------------------------------------------------------------------------------------------------
def unique(v, axis=None, in_order=True):
    y, first, inverse, counts = np.unique(v, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not in_order:
        order = np.argsort(first)
        number = np.empty_like(order)
        number[order] = np.arange(len(order))
        y, first, counts, inverse = y.take(order, axis or 0), first[order], counts[order], number[inverse]
    return [y, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)]


for dtype in (F32, F64, np.int64, np.int8):
    v = rng.integers(-3, 4, (4, 5)).astype(dtype)
    for attrs in ({}, {"sorted": 0}):
        f.case("Unique", 11, [v], outs=4, attrs=attrs)
        f.case("Unique", 11, [v[:, :2]], outs=4, attrs=dict(attrs, axis=0))
        f.case("Unique", 11, [np.repeat(v, 2, axis=1)], outs=4, attrs=dict(attrs, axis=-1))
for dtype in (F16,) + INTS + (bool,):
    v = rng.integers(0, 5, 30).astype(dtype)
    for in_order in (0, 1):
        f.case("Unique", 11, [v], outs=4, attrs={"sorted": in_order}, want=unique(v, None, in_order),
               out_types=[dtype] + [np.int64] * 3, name=np.dtype(dtype).name)
v = rng.integers(0, 2, (2, 7, 2)).astype(F32)
for in_order in (0, 1):
    f.case("Unique", 11, [v], outs=4, attrs={"axis": 1, "sorted": in_order}, want=unique(v, 1, in_order))
f.case("Unique", 11, [np.array([[1, 1], [2, 3]], F32)])
f.case("Unique", 11, [np.array(5, F32)], outs=4)
f.case("Unique", 11, [np.zeros((0,), F32)], outs=4)
ends = np.array([2**64 - 1, 0, 2**63, 2**64 - 1, 2**53 + 1, 2**53], np.uint64)
f.case("Unique", 11, [ends], outs=4, want=unique(ends), out_types=[np.uint64] + [np.int64] * 3)
nans = np.array([np.nan, 1, -np.inf, np.nan, np.inf, 1], F32)
f.case("Unique", 11, [nans], outs=4, want=unique(nans), name="NaNs are one value, the last")
f.case("Unique", 11, [rng.integers(0, 700, 3000).astype(np.int64)], outs=4, name="many")
for dtype in (np.float32, np.int64, np.uint8):
    x = np.array([2, 1, 1, 3, 4, 3], dtype)
    f.case("Unique", 1, [x], outs=3, domain="com.microsoft", out_types=[dtype, np.int64, np.int64],
           want=[x[[0, 1, 3, 4]], np.array([0, 1, 1, 2, 3, 2]), np.array([1, 2, 2, 1])])
f.case("Unique", 1, [rng.integers(0, 70, 300).astype(np.float32)], outs=3, domain="com.microsoft", name="many")
f.case("Unique", 1, [np.zeros(0, np.float32)], outs=3, domain="com.microsoft")

test_sort = f.pytest()
