"""Quantised products: MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv and com.microsoft's forms."""
import numpy as np

from case import Family

MS = "com.microsoft"
rng = np.random.default_rng(61)
f = Family("qlinear")
BOTH = (np.uint8, np.int8)


def q8(t, *shape):
    return rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, shape).astype(t)


def scale(*shape, lo=0.01, hi=0.05):
    return rng.uniform(lo, hi, shape).astype(np.float32)


def i(x):
    return x.astype(np.int64)


# ---- MatMulInteger --------------------------------------------------------------------------------------------------------
for ta in (np.uint8, np.int8):
    for tb in (np.uint8, np.int8):
        for k in (5, 300, 1100):
            a = rng.integers(np.iinfo(ta).min, np.iinfo(ta).max + 1, (3, k)).astype(ta)
            b = rng.integers(np.iinfo(tb).min, np.iinfo(tb).max + 1, (k, 4)).astype(tb)
            want = [a.astype(np.int32) @ b.astype(np.int32)]
            f.case("MatMulInteger", 10, [a, b], want=want)
            f.case("MatMulInteger", 10, [a, b, np.array(3, ta), np.array(7, tb)], const=(1, 3),
                   want=[(a.astype(np.int32) - 3) @ (b.astype(np.int32) - 7)])
full = np.full((2, 5000), 255, np.uint8)
f.case("MatMulInteger", 10, [full, full.T.copy()], want=[np.full((2, 2), 5000 * 255 * 255, np.int32)], name="largest")
a, b = rng.integers(0, 256, (2, 3, 8), dtype=np.uint8), rng.integers(0, 256, (2, 8, 4), dtype=np.uint8)
za, zb = np.array([1, 2, 3], np.uint8), np.array([9, 8, 7, 6], np.uint8)
i = lambda x: x.astype(np.int32)  # noqa: E731
f.case("MatMulInteger", 10, [a, b, None, zb], want=[i(a) @ (i(b) - i(zb))])
f.case("MatMulInteger", 10, [a, b, za, zb], want=[(i(a) - i(za)[:, None]) @ (i(b) - i(zb))])
f.case("MatMulInteger", 10, [a, b, za.reshape(1, 3, 1), zb.reshape(1, 1, 4)], want=[(i(a) - i(za)[:, None]) @ (i(b) - i(zb))])
f.case("MatMulInteger", 10, [a[0, 0], b[0]], want=[i(a[0, 0]) @ i(b[0])], name="vector")
f.case("MatMulInteger", 10, [np.zeros((2, 0), np.uint8), np.zeros((0, 3), np.uint8)], want=[np.zeros((2, 3), np.int32)], name="empty")

# ---- QLinearMatMul ----------------------------------------------------------------------------------------------------
for ta, tb in ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)):
    zb = np.array(0, tb) if tb == np.int8 else q8(tb)
    for opset in (10, 21):
        f.case("QLinearMatMul", opset, [q8(ta, 3, 40), scale(), q8(ta), q8(tb, 40, 5), scale(), zb, scale(lo=5, hi=9), q8(ta)],
               const=(1, 2, 3, 4, 5, 6, 7))
    f.case("QLinearMatMul", 10, [q8(ta, 2, 3, 8), scale(), q8(ta), q8(tb, 2, 8, 5), scale(), zb, scale(lo=2, hi=3), q8(ta)])
f.case("QLinearMatMul", 10, [q8(np.uint8, 3, 700), scale(), q8(np.uint8), q8(np.uint8, 700, 5), scale(5), q8(np.uint8, 5),
                             scale(lo=25, hi=30), q8(np.uint8)], const=(3, 4, 5), name="columns")
a, b = q8(np.uint8, 3, 8), q8(np.uint8, 8, 5)
sa, za, sb, sy = scale(3), q8(np.uint8, 3), scale(), np.float32(0.7)
y = ((i(a) - i(za)[:, None]) @ i(b)).astype(np.float32) * (sa[:, None] * sb / sy)
f.case("QLinearMatMul", 10, [a, sa, za, b, sb, np.uint8(0), sy, np.uint8(9)], name="rows",
       want=[np.clip(np.rint(y) + 9, 0, 255).astype(np.uint8)])
f.fails("QLinearMatMul", 10, [a, scale(), np.uint8(1), b, scale(4), q8(np.uint8, 4), scale(), np.uint8(0)], why="does not fit|broadcast")

# ---- com.microsoft's matrices --------------------------------------------------------------------------------------------
for tb in BOTH:
    for const in ((), (1, 3, 5)):
        f.case("MatMulIntegerToFloat", 1, [q8(np.uint8, 2, 3, 600), q8(tb, 600, 5), scale(), scale(5), q8(np.uint8), q8(tb, 5), scale(5)],
               domain=MS, const=const)
    f.case("MatMulIntegerToFloat", 1, [q8(np.uint8, 3, 6), q8(tb, 6, 5), scale(), scale()], domain=MS)
    x = rng.standard_normal((2, 3, 64)).astype(np.float32)
    for const in ((), (1, 2, 3, 4)):
        f.case("DynamicQuantizeMatMul", 1, [x, q8(tb, 64, 5), scale(5), q8(tb, 5), scale(5)], domain=MS, const=const, tol=(1e-4, 1e-4))
    f.case("DynamicQuantizeMatMul", 1, [x, q8(tb, 64, 5), scale()], domain=MS, tol=(1e-4, 1e-4))
f.case("DynamicQuantizeMatMul", 1, [np.zeros((0, 64), np.float32), q8(np.int8, 64, 5), scale()], domain=MS, name="empty")
for tb, zb in ((np.uint8, q8(np.uint8)), (np.int8, np.int8(0))):
    for attrs in ({}, {"transB": 1, "alpha": 1.5}, {"transA": 1, "transB": 1}, {"transA": 1}):
        a = q8(np.uint8, 7, 4).T.copy() if attrs.get("transA") is None else q8(np.uint8, 7, 4)
        b = q8(tb, 5, 7) if attrs.get("transB") else q8(tb, 7, 5)
        inputs = [a, scale(), q8(np.uint8), b, scale(5), np.full(5, zb), rng.integers(-999, 999, 5).astype(np.int32)]
        f.case("QGemm", 1, inputs + [scale(lo=1, hi=2), q8(np.uint8)], domain=MS, attrs=attrs, const=(3, 4, 5))
        f.case("QGemm", 1, inputs, domain=MS, attrs=attrs)
f.case("QGemm", 1, [q8(np.uint8, 4, 7), scale(), q8(np.uint8), q8(np.int8, 7, 5), scale(), np.int8(0)], domain=MS, out_types=[np.float32])

# ---- ConvInteger -----------------------------------------------------------------------------------------------------------
C = "ConvInteger"
for tx, tw in ((np.uint8, np.uint8), (np.uint8, np.int8)):
    for attrs in ({}, {"pads": [1, 0, 2, 1], "strides": [2, 1]}, {"dilations": [2, 2]}, {"auto_pad": "SAME_UPPER"}):
        f.case(C, 10, [q8(tx, 2, 3, 9, 8), q8(tw, 4, 3, 3, 2), q8(tx), q8(tw)], attrs=attrs, const=(1, 3))
    f.case(C, 10, [q8(tx, 1, 4, 6, 6), q8(tw, 6, 2, 3, 3), q8(tx)], attrs={"group": 2})
    f.case(C, 10, [q8(tx, 1, 4, 11), q8(tw, 3, 4, 3)])
    f.case(C, 10, [q8(tx, 1, 200, 5, 5), q8(tw, 3, 200, 3, 3), q8(tx), q8(tw)], name="deep")
    f.case(C, 10, [q8(tx, 1, 200, 5, 5), q8(tw, 3, 200, 3, 3), q8(tx), q8(tw)], const=(1, 2, 3), name="deep-constant")
    f.case(C, 10, [q8(tx, 1, 200, 5, 5), q8(tw, 6, 100, 3, 3), q8(tx), q8(tw)], attrs={"group": 2}, name="deep-groups")
x, w = np.full((1, 1, 20, 20), 255, np.uint8), np.full((1, 1, 20, 20), 255, np.uint8)
f.case(C, 10, [x, w], want=[np.full((1, 1, 1, 1), 400 * 255 * 255, np.int32)], name="window")
x, w = q8(np.uint8, 1, 1, 20, 20), q8(np.uint8, 1, 1, 20, 20)
f.case(C, 10, [x, w, np.uint8(200), np.uint8(3)], want=[np.array(np.sum((i(x) - 200) * (i(w) - 3)), np.int32).reshape(1, 1, 1, 1)], name="window-signed")
f.case(C, 10, [q8(np.uint8, 0, 3, 5, 5), q8(np.uint8, 4, 3, 3, 3)], want=[np.zeros((0, 4, 3, 3), np.int32)], name="empty")
f.case(C, 10, [q8(np.uint8, 1, 1, 4, 5, 6), q8(np.int8, 2, 1, 2, 3, 2), q8(np.uint8)], name="three axes")
x, w, zw = q8(np.int8, 1, 2, 5, 5), q8(np.int8, 3, 2, 5, 5), q8(np.int8, 3)
f.case(C, 10, [x, w, None, zw], name="zero points of outputs",
       want=[np.einsum("ncij,ocij->no", i(x), i(w) - i(zw)[:, None, None, None]).astype(np.int32).reshape(1, 3, 1, 1)])
f.fails(C, 10, [q8(np.uint8, 1, 3, 5, 5), q8(np.uint8, 4, 2, 3, 3)], why="channels")

# ---- QLinearConv -------------------------------------------------------------------------------------------------------------
Q = "QLinearConv"
for tx, tw in ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)):
    zw = np.array(0, tw) if tw == np.int8 else q8(tw)
    for attrs in ({}, {"pads": [1, 1, 1, 1], "strides": [2, 2]}):
        for bias in ([], [rng.integers(-5000, 5000, 4).astype(np.int32)]):
            f.case(Q, 10, [q8(tx, 2, 3, 8, 8), scale(), q8(tx), q8(tw, 4, 3, 3, 3), scale(4), np.full(4, zw), scale(lo=1, hi=2), q8(tx), *bias],
                   attrs=attrs, const=(1, 2, 3, 4, 5, 6, 7, 8)[: 7 + len(bias)])
    f.case(Q, 10, [q8(tx, 2, 3, 8, 8), scale(), q8(tx), q8(tw, 4, 3, 3, 3), scale(), zw, scale(lo=1, hi=2), q8(tx)])
    f.case(Q, 10, [q8(tx, 1, 6, 8, 8), scale(), q8(tx), q8(tw, 6, 1, 3, 3), scale(), zw, scale(lo=1, hi=2), q8(tx)],
           attrs={"group": 6, "pads": [1, 1, 1, 1]}, name="depthwise")
    f.case(Q, 1, [q8(tx, 2, 8, 8, 3), scale(), q8(tx), q8(tw, 4, 3, 3, 3), scale(), zw, scale(lo=1, hi=2), q8(tx)], domain=MS,
           attrs={"channels_last": 1, "pads": [1, 1, 1, 1]})
f.declines(C, 10, [q8(np.uint8, 1, 1, 2, 2, 2, 2), q8(np.uint8, 1, 1, 1, 1, 1, 1)], why="rank 6")

test_qlinear = f.pytest()
