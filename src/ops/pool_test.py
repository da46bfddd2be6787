"""Pools of one to three axes, and the global ones."""
import ml_dtypes
import numpy as np

from case import Family

rng = np.random.default_rng(12)
f = Family("pool")
bf16 = ml_dtypes.bfloat16


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def pool(op, x, opset=22, tol=(1e-5, 1e-6), outs=1, want=None, **attrs):
    f.case(op, opset, [x], attrs=attrs, tol=tol, outs=outs, want=want, name=" ".join(f"{k}={v}" for k, v in attrs.items()))


SHAPES = [((2, 3, 11), [3], [2], [2]), ((2, 3, 9, 8), [3, 2], [2, 3], [2, 1]), ((1, 2, 6, 7, 5), [2, 3, 2], [2, 1, 2], [1, 2, 1])]
for x, kernel, strides, dilations in SHAPES:
    n = len(kernel)
    ones, pads = [1] * n, [k - 1 for k in kernel] + [1] * n
    for s in (ones, strides):
        for d in (ones, dilations):
            for p in ([0] * 2 * n, pads):
                for ceil in (0, 1):
                    kw = {"kernel_shape": kernel, "strides": s, "dilations": d, "pads": p, "ceil_mode": ceil}
                    pool("MaxPool", normal(*x), **kw)
                    pool("MaxPool", normal(*x), outs=2, **kw)
                    pool("LpPool", normal(*x), p=2, **kw)
                    pool("AveragePool", normal(*x), **kw)
                    pool("AveragePool", normal(*x), count_include_pad=1, **kw)
    for auto in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"):
        for s in (ones, strides):
            pool("MaxPool", normal(*x), kernel_shape=kernel, auto_pad=auto, strides=s)
            pool("AveragePool", normal(*x), kernel_shape=kernel, auto_pad=auto, strides=s)
            pool("LpPool", normal(*x), kernel_shape=kernel, auto_pad=auto, strides=s, p=3, tol=(1e-4, 1e-5))
    pool("MaxPool", normal(*x), outs=2, kernel_shape=kernel, storage_order=1)
    pool("MaxPool", np.round(normal(*x)), outs=2, kernel_shape=kernel, pads=pads)  # many equal values
for opset in (1, 8, 10, 11, 12, 22):
    pool("MaxPool", normal(1, 2, 5, 5), opset, kernel_shape=[2, 2])
for opset in (7, 10, 11, 19, 22):
    pool("AveragePool", normal(1, 2, 5, 5), opset, kernel_shape=[2, 2], pads=[1, 1, 1, 1])
for opset in (2, 11, 18, 22):
    for p in (1, 2, 3):
        pool("LpPool", normal(1, 2, 5, 5), opset, kernel_shape=[2, 2], p=p, tol=(1e-4, 1e-5))
for t in (np.int8, np.uint8):
    x = rng.integers(np.iinfo(t).min, np.iinfo(t).max, (2, 3, 6, 6)).astype(t)
    pool("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    pool("MaxPool", np.full((1, 1, 3, 3), np.iinfo(t).min, t), kernel_shape=[2, 2], pads=[1, 1, 1, 1], outs=2)
_inf = np.full((1, 1, 3, 3), -np.inf, np.float32)
pool("MaxPool", _inf, kernel_shape=[2, 2], pads=[1, 1, 0, 0], want=[_inf])
f.case("MaxPool", 22, [_inf], attrs={"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}, outs=2,
       want=[_inf, np.array([[0, 0, 1], [0, 0, 1], [3, 3, 4]]).reshape(1, 1, 3, 3)], name="all -inf")
pool("MaxPool", normal(0, 2, 5, 5), kernel_shape=[2, 2], want=[normal(0, 2, 4, 4)])
pool("AveragePool", normal(0, 2, 5, 5), kernel_shape=[2, 2], want=[normal(0, 2, 4, 4)])
pool("MaxPool", normal(2, 3, 6, 5, dtype=np.float64), kernel_shape=[2, 2])
for t in (np.float16, bf16):
    x = normal(1, 2, 4, 4, dtype=t)
    w = x.astype(np.float64).reshape(1, 2, 2, 2, 2, 2)
    kw = {"kernel_shape": [2, 2], "strides": [2, 2]}
    pool("MaxPool", x, want=[w.max((3, 5)).astype(t)], **kw)
    pool("AveragePool", x, want=[w.mean((3, 5)).astype(t)], tol=None, **kw)
    pool("LpPool", x, want=[np.sqrt((w**2).sum((3, 5))).astype(t)], tol=None, **kw)
    v = x.astype(np.float64)
    f.case("GlobalAveragePool", 22, [x], want=[v.mean((2, 3), keepdims=True).astype(t)])
    f.case("GlobalMaxPool", 22, [x], want=[v.max((2, 3), keepdims=True).astype(t)])
    f.case("GlobalLpPool", 22, [x], want=[np.sqrt((v**2).sum((2, 3), keepdims=True)).astype(t)])
pool("AveragePool", np.full((1, 1, 64, 64), 30000, np.float16), kernel_shape=[64, 64], want=[np.full((1, 1, 1, 1), 30000, np.float16)])

for x in ((2, 3, 5), (2, 3, 5, 4), (2, 3, 5, 4, 3), (1, 1, 1, 1)):
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        for opset in (1, 22):
            f.case(op, opset, [normal(*x)])
    for opset in (2, 22):  # ONNX Runtime's CPU provider has no kernel of version 22
        for p in (2, 3):
            a = normal(*x)
            want = (np.abs(a.astype(np.float64)) ** p).sum(tuple(range(2, a.ndim)), keepdims=True) ** (1 / p)
            f.case("GlobalLpPool", opset, [a], attrs={"p": p}, want=None if opset == 2 else [want.astype(np.float32)], tol=(1e-4, 1e-5))
f.case("GlobalAveragePool", 22, [np.full((1, 2, 100, 100), 60000, np.float16)], want=[np.full((1, 2, 1, 1), 60000, np.float16)])
f.case("GlobalMaxPool", 22, [np.array([[[1, np.nan, 2]]], np.float32)], want=[np.array([[[np.nan]]], np.float32)], name="nan")

# first versions and float64, for which ONNX Runtime has no kernels
x = normal(1, 2, 4, 4)
w = np.abs(x.astype(np.float64)).reshape(1, 2, 2, 2, 2, 2)
kw = {"kernel_shape": [2, 2], "strides": [2, 2]}
pool("LpPool", x, 1, want=[((w**3).sum((3, 5)) ** (1 / 3)).astype(np.float32)], tol=(1e-4, 1e-5), p=3.0, **kw)
pool("LpPool", x, 1, want=[np.sqrt((w**2).sum((3, 5))).astype(np.float32)], **kw)
pool("AveragePool", x, 1, want=[x.reshape(1, 2, 2, 2, 2, 2).mean((3, 5))], tol=(1e-5, 1e-6), **kw)
f.case("GlobalLpPool", 1, [x], attrs={"p": 3.0}, want=[((w**3).sum((2, 3, 4, 5)) ** (1 / 3)).astype(np.float32).reshape(1, 2, 1, 1)], tol=(1e-4, 1e-5))
v = x.astype(np.float64)
w = v.reshape(1, 2, 2, 2, 2, 2)
pool("AveragePool", v, want=[w.mean((3, 5))], tol=None, **kw)
pool("LpPool", v, want=[(np.abs(w) ** 3).sum((3, 5)) ** (1 / 3)], tol=None, p=3, **kw)
f.case("GlobalAveragePool", 22, [v], want=[v.mean((2, 3), keepdims=True)])
f.case("GlobalMaxPool", 22, [v], want=[v.max((2, 3), keepdims=True)])
f.case("GlobalLpPool", 22, [v], want=[np.sqrt((v**2).sum((2, 3), keepdims=True))])

f.declines("MaxPool", 22, [normal(1, 1, 2, 2, 2, 2)], why="rank 6", attrs={"kernel_shape": [1, 1, 1, 1]})
f.fails("AveragePool", 22, [normal(1, 1, 2, 2)], why="window of 4 over 2", attrs={"kernel_shape": [4, 4]}, out_types=[np.float32])
f.fails("LpPool", 18, [normal(1, 1, 2)], why="window of 4 over 2", attrs={"kernel_shape": [4]}, out_types=[np.float32])

# Windows larger than the input, as ONNX Runtime counts them: with an output of no element, or hanging over the end.
for op, opset in (("MaxPool", 12), ("AveragePool", 19), ("LpPool", 18)):
    for kernel, stride in ((4, 1), (4, 2), (5, 2), (6, 2), (5, 3)):
        pool(op, normal(2, 2, 3), opset, kernel_shape=[kernel], strides=[stride])
        pool(op, normal(2, 2, 3), opset, kernel_shape=[kernel], strides=[stride], ceil_mode=1)
        pool(op, normal(2, 2, 3), opset, kernel_shape=[kernel], strides=[stride], ceil_mode=1, pads=[1, 0])
        pool(op, normal(2, 2, 3), opset, kernel_shape=[kernel], strides=[stride], auto_pad="VALID")
    pool(op, normal(1, 2, 4, 3), opset, kernel_shape=[2, 4])
    # SAME pads, which leave dilations out of account and may be negative.
    for auto in ("SAME_UPPER", "SAME_LOWER"):
        for dilations in ([2, 2], [3, 2]):
            for strides in ([1, 1], [2, 2], [3, 3], [1, 4]):
                pool(op, normal(1, 2, 7, 6), opset, kernel_shape=[3, 2], auto_pad=auto, dilations=dilations, strides=strides)
        for size in (4, 6, 7, 8):
            for stride in (3, 4, 5):
                pool(op, normal(1, 2, size), opset, kernel_shape=[2], auto_pad=auto, dilations=[2], strides=[stride])
pool("MaxPool", normal(1, 2, 3), 12, outs=2, kernel_shape=[4], strides=[2])
pool("MaxPool", normal(1, 2, 3), 12, outs=2, kernel_shape=[4])

test_pool = f.pytest()
