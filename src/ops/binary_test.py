"""Operators of two or more inputs. Results are compared with numpy, floats in float64 rounded to the type under test."""
import ml_dtypes
import numpy as np
from case import Family

f = Family("binary")
BF16 = ml_dtypes.bfloat16
TOL = {np.float32: (1e-5, 1e-6), np.float16: (2e-3, 1e-3), BF16: (1e-2, 1e-2), np.float64: (1e-14, 1e-14)}
SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float32, np.float16, BF16, np.float64]
NAN, INF = np.nan, np.inf

SPECIAL_A = np.array([NAN, 1, INF, INF, -INF, 0.0, -0.0, 3, -2.5, 7])
SPECIAL_B = np.array([1, NAN, INF, -INF, 2, -0.0, 0.0, 3, 1.5, -7])
BROADCASTS = [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((3, 1), (2, 1, 5)), ((), (2, 3)), ((), ()), ((2, 3), ()), ((1,), (1, 1)),
              ((0, 3), (3,)), ((2, 0), (1,)), ((1,) * 10, (2,) + (1,) * 9)]
name_of = lambda t: str(np.dtype(t))  # noqa: E731


def values(shape, t, seed=0):
    v = np.asarray(np.random.default_rng(seed).integers(1, 9, shape))
    return np.asarray(v if np.dtype(t).kind == "u" else v - 4).astype(t)


def wide(ref, *arrays):  # in float64, for floats; as they are, for integers
    with np.errstate(all="ignore"):
        a = [x.astype(np.float64) if np.dtype(x.dtype).name in ("float16", "bfloat16", "float32") else x for x in arrays]
        return np.asarray(ref(*a))


# ---- arithmetic and comparisons ----
ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
COMPARE = {"Equal": np.equal, "Greater": np.greater, "Less": np.less, "GreaterOrEqual": np.greater_equal,
           "LessOrEqual": np.less_equal}
for op, ref in (ARITHMETIC | {"Div": np.divide}).items():
    for version, types in ((7, (np.float32, np.float16, np.float64)), (13, (BF16,)), (14, FLOATS)):
        for t in types:
            a, b = SPECIAL_A.astype(t), SPECIAL_B.astype(t)
            f.case(op, version, [a, b], want=[wide(ref, a, b).astype(t)], tol=TOL[t])
    for sa, sb in BROADCASTS:
        a, b = values(sa, np.float32), values(sb, np.float32, 1) + np.float32(0.5)
        f.case(op, 14, [a, b], want=[wide(ref, a, b).astype(np.float32)], name=f"{sa} {sb}")
for op, ref in ARITHMETIC.items():
    for t in SIGNED + UNSIGNED:
        info = np.iinfo(t)
        a, b = np.array([info.max, info.min, 5, 100], t), np.array([1, 1, 7, 3], t)
        with np.errstate(over="ignore"):
            f.case(op, 14, [a, b], want=[ref(a, b)], name="wraps")
            if info.bits >= 32:
                f.case(op, 7, [a, b], want=[ref(a, b)], name="wraps")
for op, ref in COMPARE.items():
    first = 12 if op.endswith("OrEqual") else 7
    types = [(13, t) for t in FLOATS[:2] + FLOATS[3:] + SIGNED + UNSIGNED] + [(16 if first == 12 else 13, BF16)]
    types += [(first, np.int32 if op == "Equal" else np.float32)]
    for version, t in types:
        if np.dtype(t).kind in "iu":
            hi, lo = np.iinfo(t).max, np.iinfo(t).min
            a, b = np.array([hi, hi, lo, 3], t), np.array([hi - 1, hi, hi, 4], t)
        else:
            a, b = SPECIAL_A.astype(t), SPECIAL_B.astype(t)
        f.case(op, version, [a, b], want=[wide(ref, a, b)])
    for sa, sb in BROADCASTS:
        f.case(op, 13, [values(sa, np.float32), values(sb, np.float32, 1)], name=f"{sa} {sb}")
both = np.array([False, False, True, True]), np.array([False, True, False, True])
for version in (7, 11, 13, 19):
    f.case("Equal", version, list(both), want=[np.equal(*both)])

# ---- integer division ----
for t in SIGNED + UNSIGNED:
    info = np.iinfo(t)
    a = np.array([7, -7, 7, -7, 1, 0, info.max, info.min, info.max] if t in SIGNED else [7, 200, 1, 0, info.max, info.max], np.int64
                 if t is not np.uint64 else t).astype(t)
    b = np.array([2, 2, -2, -2, 5, 3, 10, 3, info.min] if t in SIGNED else [2, 7, 5, 3, 1, info.max - 1], np.int64
                 if t is not np.uint64 else t).astype(t)
    exact = [int(x) // int(y) if (int(x) < 0) == (int(y) < 0) else -(-int(x) // int(y)) for x, y in zip(a, b)]
    rest = [int(x) - int(y) * q for x, y, q in zip(a, b, exact)]
    f.case("Div", 14, [a, b], want=[np.array(exact, t)], name="toward zero")
    f.case("Mod", 13, [a, b], want=[np.array([int(x) % int(y) for x, y in zip(a, b)], t)], name="fmod=0")
    f.case("Mod", 10, [a, b], attrs={"fmod": 1}, want=[np.array(rest, t)], name="fmod=1")
    if info.bits >= 32:
        f.case("Div", 7, [a, b], want=[np.array(exact, t)], name="toward zero")
    # What C leaves undefined must not stop the process.
    zero = np.zeros_like(a)
    f.case("Div", 14, [a, zero], want=[zero], name="by zero")
    f.case("Mod", 13, [a, zero], want=[zero], name="by zero")
    f.case("Mod", 13, [a, zero], attrs={"fmod": 1}, want=[zero], name="by zero")
    if t in SIGNED:
        least, minus = np.array([info.min], t), np.array([-1], t)
        f.case("Div", 14, [least, minus], want=[least], name="least by -1")
        f.case("Mod", 13, [least, minus], want=[np.zeros(1, t)], name="least by -1")
        f.case("Mod", 13, [least, minus], attrs={"fmod": 1}, want=[np.zeros(1, t)], name="least by -1")
    for sa, sb in BROADCASTS:
        x, y = values(sa, t), values(sb, t, 1)
        y = np.where(y == 0, t(3), y)
        q = np.sign(x.astype(np.int64)) * np.sign(y.astype(np.int64)) * (abs(x.astype(np.int64)) // abs(y.astype(np.int64)))
        if t in (np.int32, np.int64, np.uint8):
            f.case("Div", 14, [x, y], want=[q.astype(t)], name=f"{sa} {sb}")

# ---- Mod of floats ----
for t in FLOATS:
    for version in (10, 13):
        if t is BF16 and version == 10:
            continue
        a = np.array([5.5, -5.5, 5.5, -5.5, 1000, 0.75, NAN, INF, 5, -5, 3]).astype(t)
        b = np.array([2, 2, -2, -2, 7, 0.5, 1, 2, INF, INF, 0]).astype(t)
        f.case("Mod", version, [a, b], attrs={"fmod": 1}, want=[wide(np.fmod, a, b).astype(t)], tol=(0, 0))
        f.case("Mod", version, [a, b], want=[wide(np.mod, a, b).astype(t)], tol=(0, 0), name="fmod=0")
f.case("Mod", 13, [np.array([1e10, 1e30, 16777216.0]).astype(np.float32), np.array([3, 7, 5]).astype(np.float32)],
       attrs={"fmod": 1}, tol=(0, 0), name="large quotients")
f.declines("Mod", 13, [np.ones(2, np.int32), np.ones(2, np.int32)], attrs={"fmod": 2}, why="attribute fmod is 2")

# ---- Pow ----
base = np.array([2, -2, 0.5, 9, 0, -0.0, 1, NAN, INF, -3])
exponent = np.array([3, 2, -2, 0.5, 0, 3, NAN, 0, -1, 3])
for version, types in ((7, (np.float32, np.float16, np.float64)), (13, (np.float32, np.float64)), (15, FLOATS)):
    for t in types:
        a, b = base.astype(t), exponent.astype(t)
        f.case("Pow", version, [a, b], want=[wide(np.power, a, b).astype(t)], tol=TOL[t])
for t in FLOATS:
    for u in FLOATS + SIGNED + UNSIGNED:
        a = np.array([2, -2, 0.5, 9, 0, 1.5]).astype(t)
        b = np.array([3, 2, 1, 2, 0, 4]).astype(u)
        want = np.power(a.astype(np.float64), b.astype(np.float64)).astype(t)
        f.case("Pow", 15, [a, b], want=[want], tol=TOL[t], name=f"by {name_of(u)}")
for t in (np.int32, np.int64):
    a, e = np.array([3, -2, 0, 1, -1, 7, -3], t), np.array([19, 5, 0, 9, 3, 2, 3])
    want = np.array([int(x) ** int(y) for x, y in zip(a, e)], t)
    for u in SIGNED + UNSIGNED:
        f.case("Pow", 12, [a, e.astype(u)], want=[want], name=f"by {name_of(u)}")
    for u in FLOATS[:2] + FLOATS[3:]:
        f.case("Pow", 15, [a, e.astype(u)], want=[want], name=f"by {name_of(u)}")
    f.case("Pow", 13, [np.array([4, 9, 10], t), np.array([0.5, 1.5, 0.25], np.float32)], name="by a fraction")
    f.case("Pow", 13, [np.array([3, 2, 1, -1, -1, 1], t), np.array([-1, -2, -3, -3, -2, -1])], name="negative exponents")
f.case("Pow", 13, [np.array([3], np.int64), np.array([39], np.int64)], want=[np.array([3**39])], name="all 64 bits")
for e in (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0):
    for t in (np.float32, np.float16, np.float64):
        a = base.astype(t)
        f.case("Pow", 13, [a, np.array(e).astype(t)], const=(1,), want=[wide(lambda x: x**e, a).astype(t)], tol=TOL[t], name=f"const {e}")
f.case("Pow", 13, [base.astype(np.float32), np.array([[2]], np.int64)], const=(1,), name="const of a higher rank")
f.case("Pow", 13, [base.astype(np.float32), np.array([2], np.int32)], const=(1,), name="const of rank 1")
f.case("Pow", 13, [np.zeros((0, 2), np.float32), np.array(2, np.float32)], const=(1,), name="empty")
for sa, sb in BROADCASTS:
    f.case("Pow", 13, [values(sa, np.float32), values(sb, np.float32, 1)], name=f"{sa} {sb}")

# ---- bools and bits ----
LOGIC = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}
for op, ref in LOGIC.items():
    f.case(op, 7, list(both))
    for sa, sb in BROADCASTS:
        f.case(op, 7, [values(sa, np.int32) > 0, values(sb, np.int32, 1) > 0], name=f"{sa} {sb}")
for op, ref in {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}.items():
    for t in SIGNED + UNSIGNED:
        a, b = np.array([np.iinfo(t).max, np.iinfo(t).min, 12, 5], t), np.array([3, 85, 10, np.iinfo(t).max], t)
        f.case(op, 18, [a, b], want=[ref(a, b)])
    for sa, sb in BROADCASTS:
        f.case(op, 18, [values(sa, np.int32), values(sb, np.int32, 1)], name=f"{sa} {sb}")
for t in UNSIGNED:
    bits = np.iinfo(t).bits
    a, n = np.array([1, 1, 255, 129, 3, 1], t), np.array([0, bits - 1, bits, bits + 1, 2, 200], t)
    left = np.array([(int(x) << int(k)) % 2**bits for x, k in zip(a, n)], t)
    right = np.array([int(x) >> int(k) for x, k in zip(a, n)], t)
    f.case("BitShift", 11, [a, n], attrs={"direction": "LEFT"}, want=[left], name="LEFT")
    f.case("BitShift", 11, [a, n], attrs={"direction": "RIGHT"}, want=[right], name="RIGHT")
for sa, sb in BROADCASTS:
    f.case("BitShift", 11, [values(sa, np.uint32), values(sb, np.uint32, 1)], attrs={"direction": "LEFT"}, name=f"{sa} {sb}")
f.declines("BitShift", 11, [np.ones(2, np.uint8)] * 2, attrs={"direction": "UP"}, why="direction is 'UP'")

# ---- Max, Min, Sum, Mean ----
FOLDS = {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}
for op, ref in FOLDS.items():
    for version, types in ((8, (np.float32, np.float16, np.float64)), (13, FLOATS)):
        for t in types:
            a, b, c = SPECIAL_A.astype(t), SPECIAL_B.astype(t), np.array(0.5).astype(t)
            f.case(op, version, [a, b, c], want=[wide(lambda a, b, c: ref(ref(a, b), c), a, b, c).astype(t)], tol=TOL[t])
    for sa, sb in BROADCASTS:
        f.case(op, 13, [values(sa, np.float32), values(sb, np.float32, 1)], name=f"{sa} {sb}")
    if op != "Sum":
        for t in SIGNED + UNSIGNED:
            a, b = np.array([np.iinfo(t).max, np.iinfo(t).min, 3], t), np.array([np.iinfo(t).max - 1, 1, 4], t)
            for version in (12, 13):
                f.case(op, version, [a, b], want=[ref(a, b)])
for op in ("Max", "Min", "Sum", "Mean"):
    one = values((2, 3), np.float32)
    for version in (1, 6, 8, 13):
        f.case(op, version, [one], want=[one], name="one input")
        same = [values((2, 3), np.float32, s) for s in range(4)]
        want = {"Max": np.max, "Min": np.min, "Sum": np.sum, "Mean": np.mean}[op](np.stack(same), axis=0)
        f.case(op, version, same, want=[want], name="four inputs")
for t in FLOATS:
    parts = [values((2, 3), t), values((3,), t, 1), values((), t, 2)]
    f.case("Mean", 13, parts, want=[wide(lambda a, b, c: (a + b + c) / 3, *parts).astype(t)], tol=TOL[t])
full = np.array([60000, -60000], np.float16)
f.case("Mean", 13, [full, full, full], want=[full], name="no overflow on the way")
f.case("Mean", 13, [np.zeros((0, 2), np.float32), np.zeros(2, np.float32)], name="empty")

# ---- Where ----
pick = np.array([[True], [False], [True]])
for version, types in ((9, [np.float32, np.float16, np.float64, np.bool_] + SIGNED + UNSIGNED), (16, FLOATS + [np.bool_, np.int64])):
    for t in types:
        a, b = values((3, 4), t if t is not np.bool_ else np.int32), values((4,), t if t is not np.bool_ else np.int32, 1)
        a, b = a.astype(t), b.astype(t)
        f.case("Where", version, [pick, a, b], want=[np.where(pick, a, b)])
f.case("Where", 16, [np.array([True, False]), np.array([NAN, 1], np.float32), np.array([2, NAN], np.float32)], name="nan")
f.case("Where", 16, [np.array(True), np.array(1, np.int64), np.array(2, np.int64)], name="rank 0")
f.case("Where", 16, [np.zeros((0, 1), bool), np.ones(3, np.float32), np.ones((1, 3), np.float32)], name="empty")
f.case("Where", 16, [np.array([[True, False]]), values((3, 1), np.float32), np.float32(9)], name="three shapes")

# ---- broadcast and axis of versions 1 and 6 ----
left = values((2, 3, 4, 5), np.float32) + np.float32(0.5)
OLD = [((2, 3, 4, 5), {}), ((5,), {"broadcast": 1}), ((4, 5), {"broadcast": 1}), ((3, 4), {"broadcast": 1, "axis": 1}),
       ((2,), {"broadcast": 1, "axis": 0}), ((3,), {"broadcast": 1, "axis": -3}), ((), {"broadcast": 1}),
       ((1, 1, 1, 1), {"broadcast": 1}), ((1,), {"broadcast": 1})]


def old_shape(b, attrs):
    axis = attrs.get("axis", 4 - b.ndim)
    return b.reshape(b.shape + (1,) * (4 - axis % 4 - b.ndim)) if b.ndim and b.ndim < 4 else b


for op, ref in (ARITHMETIC | {"Div": np.divide, "Pow": np.power}).items():
    for version in (1, 6) if op != "Pow" else (1,):
        for shape, attrs in OLD:
            b = np.abs(values(shape, np.float32, 1)) + np.float32(1)
            a = np.abs(left) if op == "Pow" else left
            f.case(op, version, [a, b], attrs=attrs, want=[ref(a, old_shape(b, attrs))], name=f"{shape} {attrs}",
                   out_types=[np.float32])
for op, ref in (LOGIC | {"Equal": np.equal, "Greater": np.greater, "Less": np.less}).items():
    t = np.bool_ if op in LOGIC else np.int32 if op == "Equal" else np.float32
    for shape, attrs in OLD:
        a, b = (left > 0 if t is np.bool_ else left).astype(t), (values(shape, np.float32, 1) > 0).astype(t)
        f.case(op, 1, [a, b], attrs=attrs, want=[ref(a, old_shape(b, attrs))], name=f"{shape} {attrs}", out_types=[np.bool_])
f.case("Add", 6, [np.arange(4, dtype=np.int64), np.arange(4, dtype=np.int64)], want=[2 * np.arange(4)], name="int64")
f.fails("Add", 6, [left, np.ones(5, np.float32)], why="attribute broadcast is 0", out_types=[np.float32])
f.fails("Mul", 6, [left, np.ones((4, 5), np.float32)], attrs={"broadcast": 1, "axis": 3}, why="does not fit rank 4 at axis 3",
        out_types=[np.float32])

test_binary = f.pytest()
