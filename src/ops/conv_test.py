"""Conv and ConvTranspose of one to three axes."""
import ml_dtypes
import numpy as np

from case import Family

rng = np.random.default_rng(10)
f = Family("conv")
TOL = (1e-4, 2e-5)


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def both(op, x, w, b=None, opset=22, const=True, tol=TOL, **attrs):
    """With a constant weight and with a computed one."""
    ins = [x, w] + ([] if b is None else [b])
    label = " ".join(f"{k}={v}" for k, v in attrs.items())
    f.case(op, opset, ins, attrs=attrs, const=(1,), tol=tol, name=label)
    if const:
        f.case(op, opset, ins, attrs=attrs, tol=tol, name=label)


# ---- Conv -----------------------------------------------------------------------------------------------------------------
for opset in (1, 11, 22):
    both("Conv", normal(2, 3, 9, 8), normal(4, 3, 3, 2), normal(4), opset)
both("Conv", normal(2, 3, 11), normal(4, 3, 3), normal(4), pads=[1, 2], strides=[2], dilations=[2])
both("Conv", normal(1, 2, 6, 7, 5), normal(3, 2, 2, 3, 2), normal(3), pads=[1, 0, 1, 0, 2, 1], strides=[2, 1, 1])
both("Conv", normal(1, 4, 6, 7, 5), normal(6, 2, 2, 3, 2), normal(6), group=2, dilations=[2, 1, 2])
for pads in ([0, 0, 0, 0], [1, 2, 3, 0]):
    for strides in ([1, 1], [2, 3]):
        for dilations in ([1, 1], [2, 1]):
            both("Conv", normal(1, 4, 10, 9), normal(6, 2, 3, 3), normal(6), group=2, pads=pads, strides=strides, dilations=dilations)
both("Conv", normal(2, 6, 8, 8), normal(6, 1, 3, 3), normal(6), group=6, pads=[1, 1, 1, 1])
both("Conv", normal(2, 6, 8, 8), normal(12, 1, 3, 3), group=6)
both("Conv", normal(1, 3, 5, 5), normal(8, 3, 1, 1), normal(8))
for auto in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"):
    for strides in ([1, 1], [2, 2], [3, 2]):
        both("Conv", normal(1, 2, 7, 6), normal(3, 2, 3, 4), auto_pad=auto, strides=strides, const=False)
    both("Conv", normal(1, 2, 9), normal(3, 2, 3), auto_pad=auto, const=False)
both("Conv", normal(1, 2, 9, 9), normal(3, 2, 3, 3), kernel_shape=[3, 3], const=False)
both("Conv", normal(0, 2, 9, 9), normal(3, 2, 3, 3), const=False)
f.case("Conv", 22, [normal(1, 0, 4, 4), normal(2, 0, 3, 3), np.array([1, 2], np.float32)],
       want=[np.array([1, 2], np.float32).reshape(1, 2, 1, 1) * np.ones((1, 2, 2, 2), np.float32)], name="no-channel")


def conv2(x, w, b, pad):
    """The definition, in float64."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    win = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchwij,ocij->nohw", win, w.astype(np.float64)) + b.astype(np.float64).reshape(1, -1, 1, 1)


for t in (np.float16, ml_dtypes.bfloat16):
    x, w, b = normal(1, 20, 6, 6, dtype=t), normal(4, 20, 3, 3, dtype=t), normal(4, dtype=t)
    f.case("Conv", 22, [x, w, b], attrs={"pads": [1, 1, 1, 1]}, want=[conv2(x, w, b, 1).astype(t)], const=(1, 2),
           tol=(1e-2, 2e-2) if t == np.float16 else (3e-2, 0.15))
f.declines("Conv", 22, [normal(1, 3, 6, 6, dtype=np.float64), normal(4, 3, 3, 3, dtype=np.float64)], why="type float64")
f.fails("Conv", 22, [normal(1, 3, 2, 2), normal(4, 3, 3, 3)], why="window", out_types=[np.float32])

# ---- ConvTranspose ------------------------------------------------------------------------------------------------------------
T = "ConvTranspose"
for opset in (1, 11, 22):
    both(T, normal(2, 3, 5, 4), normal(3, 4, 3, 2), normal(4), opset)
both(T, normal(2, 3, 7), normal(3, 4, 3), normal(4), strides=[2], pads=[1, 0], dilations=[2])
both(T, normal(1, 2, 3, 4, 2), normal(2, 3, 2, 3, 2), normal(3), strides=[2, 1, 2], pads=[1, 0, 0, 0, 1, 0])
both(T, normal(1, 4, 3, 4, 2), normal(4, 3, 2, 3, 2), group=2, strides=[2, 1, 2])
for group in (1, 2):
    for strides in ([1, 1], [2, 3]):
        for dilations in ([1, 1], [2, 1]):
            for pads in ([0, 0, 0, 0], [1, 0, 2, 1]):
                both(T, normal(2, 4, 5, 4), normal(4, 3, 3, 3), normal(3 * group), group=group, strides=strides,
                     dilations=dilations, pads=pads, const=False)
both(T, normal(1, 2, 4, 4), normal(2, 3, 3, 3), strides=[3, 2], output_padding=[2, 1])
both(T, normal(1, 2, 4, 4), normal(2, 3, 3, 3), strides=[3, 2], output_padding=[1, 1], pads=[1, 1, 1, 1], const=False)
both(T, normal(1, 2, 4, 4), normal(2, 3, 1, 1), strides=[2, 2], pads=[1, 0, 0, 1], const=False)  # pads beyond the kernel
for auto in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    both(T, normal(1, 2, 4, 5), normal(2, 3, 3, 4), strides=[2, 3], auto_pad=auto, const=False)
for auto in ("SAME_UPPER", "SAME_LOWER", "NOTSET"):
    both(T, normal(1, 1, 3, 3), normal(1, 2, 3, 3), strides=[3, 2], output_shape=[10, 8], auto_pad=auto, const=False)
    both(T, normal(1, 1, 3, 3), normal(1, 2, 3, 3), strides=[3, 2], output_shape=[8, 6], auto_pad=auto, const=False)
both(T, normal(1, 1, 3, 3), normal(1, 2, 3, 3), strides=[3, 2], output_shape=[10, 8], output_padding=[1, 1], const=False)
both(T, normal(0, 2, 4, 4), normal(2, 3, 3, 3), const=False)
x, w = normal(1, 6, 4, 4, dtype=np.float16), normal(6, 3, 2, 2, dtype=np.float16)
_t = np.einsum("nchw,coij->nohiwj", x.astype(np.float64), w.astype(np.float64)).reshape(1, 3, 8, 8)
f.case(T, 22, [x, w], attrs={"strides": [2, 2]}, want=[_t.astype(np.float16)], const=(1,), tol=(6e-3, 6e-3))
f.case(T, 22, [x.astype(ml_dtypes.bfloat16), w.astype(ml_dtypes.bfloat16)], attrs={"strides": [2, 2]},
       want=[_t.astype(ml_dtypes.bfloat16)], const=(1,), tol=(5e-2, 8e-2))
# auto_pad adds nothing to the result where the stride passes the kernel; output_shape may, by less than a stride.
for auto in ("SAME_UPPER", "SAME_LOWER"):
    for kernel, stride, dilation in ((1, 2, 1), (1, 4, 2), (2, 3, 1), (2, 5, 2), (3, 5, 1)):
        a, b = normal(1, 2, 4), normal(2, 3, kernel)
        both(T, a, b, strides=[stride], dilations=[dilation], auto_pad=auto)
        both(T, a, b, strides=[stride], dilations=[dilation], auto_pad=auto, output_padding=[1])
        if dilation == 1:
            both(T, a, b, strides=[stride], auto_pad=auto, output_shape=[3 * stride + kernel + stride - 1])
f.fails(T, 11, [normal(1, 2, 4), normal(2, 3, 1)], attrs={"strides": [2], "output_shape": [9]}, why="an output of 9 elements from 4")
f.declines(T, 22, [x.astype(np.float64), w.astype(np.float64)], why="type float64")

test_conv = f.pytest()
