"""com.microsoft's operators on quantised elements."""
import numpy as np

from case import Family

MS = "com.microsoft"
rng = np.random.default_rng(63)
f = Family("qlinear_elem")
BOTH = (np.uint8, np.int8)


def q8(t, *shape):
    return rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, shape).astype(t)


def s(lo=0.02, hi=0.05):
    return np.float32(rng.uniform(lo, hi))


def case(op, inputs, **kw):
    f.case(op, 1, inputs, domain=MS, **kw)


def back(y, scale, zero, t):
    r = np.iinfo(t)
    return np.clip(np.rint(y / scale) + zero, r.min, r.max).astype(t)


for t in BOTH:
    z = lambda: q8(t)  # noqa: E731
    x, low = q8(t, 2, 3, 6, 5), q8(t, 2, 3, 6, 5) // 8
    for op, out in (("QLinearAdd", (0.03, 0.08)), ("QLinearMul", (0.05, 0.2))):
        for a, b in (((3, 40), (3, 40)), ((2, 3, 4), (3, 1)), ((), (3,)), ((0, 3), (3,))):
            case(op, [q8(t, *a), s(), z(), q8(t, *b), s(), z(), s(*out), z()])
        case(op, [q8(t, 3, 40), s(), z(), q8(t, 40), s(), z(), s(*out), z()], const=(1, 2, 3, 4, 5, 6, 7), name="constant")
    case("QLinearSigmoid", [x, s(), z(), np.float32(1 / 256), np.array(np.iinfo(t).min, t)])
    sa = s()
    case("QLinearSigmoid", [x, sa, None, np.float32(1 / 200)], want=[back(1 / (1 + np.exp(-(x * sa))), np.float32(1 / 200), 0, t)])
    case("QLinearLeakyRelu", [x, s(), z(), s(), z()])
    case("QLinearLeakyRelu", [x, s(), z(), s(), z()], attrs={"alpha": 0.3}, const=(1, 2, 3, 4))
    for opset, axis in ((13, None), (13, 1), (12, None), (12, -1), (11, 2)):
        attrs = {"opset": opset} | ({} if axis is None else {"axis": axis})
        case("QLinearSoftmax", [x, s(), z(), np.float32(1 / 256), np.array(np.iinfo(t).min, t)], attrs=attrs)
    case("QLinearSoftmax", [low, np.float32(0.31), z(), np.float32(0.009), np.array(-3 if t == np.int8 else 7, t)], attrs={"opset": 13}, const=(1,))
    for attrs in ({}, {"pads": [1, 0, 1, 1], "strides": [2, 2]}, {"ceil_mode": 1, "strides": [2, 2]},
                  {"pads": [1, 1, 1, 1], "count_include_pad": 1}, {"auto_pad": "SAME_LOWER"}):
        case("QLinearAveragePool", [x, s(), z(), s(), z()], attrs={"kernel_shape": [3, 2]} | attrs)
    case("QLinearAveragePool", [x, s(), z(), s(), z()], attrs={"kernel_shape": [2, 2], "channels_last": 1})
    case("QLinearGlobalAveragePool", [x, s(), z(), s(0.01, 0.02), z()])
    case("QLinearGlobalAveragePool", [x, s(), z(), s(0.01, 0.02), z()], attrs={"channels_last": 1})
    case("QLinearGlobalAveragePool", [np.full((1, 2, 80, 90), np.iinfo(t).max, t), s(), z(), s(), z()], name="large")
    case("QLinearConcat", [s(), z(), q8(t, 2, 3), s(), z(), q8(t, 2, 1), s(), z(), q8(t, 2, 4), s(), z()], attrs={"axis": 1})
    same, zero = s(), z()
    case("QLinearConcat", [same, zero, q8(t, 2, 3), same, zero, q8(t, 5, 3), same, zero], attrs={"axis": -2}, const=(0, 1, 3, 4, 6, 7))
    cond = rng.integers(0, 2, (3, 4)).astype(bool)
    case("QLinearWhere", [cond, q8(t, 3, 4), s(), z(), q8(t, 4), s(), z(), s(), z()])
    case("QLinearWhere", [cond, q8(t, 2, 3, 4), s(), z(), q8(t), s(), z(), s(), z()], const=(2, 3, 5, 6, 7, 8))
    for axes, keep in (([1], 1), ([-1, 1], 0), ([0, 1, 2, 3], 0)):
        a, za, b, zb = s(), z(), s(0.01, 0.02), z()
        y = np.mean((x.astype(np.float64) - za) * a, axis=tuple(axes), keepdims=bool(keep))
        case("QLinearReduceMean", [x, a, za, b, zb], attrs={"axes": axes, "keepdims": keep}, want=[back(y, b, zb, t)], out_types=[t])

f.fails("QLinearLeakyRelu", 1, [q8(np.uint8, 2), np.ones(2, np.float32), np.uint8(0), s(), np.uint8(0)], domain=MS, why="one element")
f.fails("QLinearReduceMean", 1, [q8(np.uint8, 0, 2), s(), np.uint8(0), s(), np.uint8(0)], domain=MS, attrs={"axes": [0], "keepdims": 1},
        why="a mean of")

test_qlinear_elem = f.pytest()
