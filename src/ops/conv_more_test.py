"""FusedConv, NhwcConv, NhwcFusedConv, NhwcMaxPool, ConvTransposeWithDynamicPads, Col2Im, MaxUnpool."""
import ml_dtypes
import numpy as np

from case import Case, Family, expected, model_of

rng = np.random.default_rng(26)
f = Family("conv_more")
MS = "com.microsoft"
TOL = (1e-4, 2e-5)


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def conv(x, w, b, **attrs):
    """Conv of ONNX Runtime's CPU provider."""
    case = Case("Conv", 22, [x, w, b], attrs=attrs)
    return expected(case, model_of(case, False), {"in0": x, "in1": w, "in2": b})[0]


def last(a):
    return np.ascontiguousarray(np.moveaxis(a, 1, -1))


ACTIVATIONS = [("Relu", [], lambda y: np.maximum(y, 0)), ("Tanh", [], np.tanh), ("Sigmoid", [], lambda y: 1 / (1 + np.exp(-y))),
               ("LeakyRelu", [0.1], lambda y: np.where(y < 0, np.float32(0.1) * y, y)),
               ("HardSigmoid", [0.2, 0.5], lambda y: np.clip(np.float32(0.2) * y + np.float32(0.5), 0, 1)),
               ("Clip", [-0.5, 1.5], lambda y: np.clip(y, -0.5, 1.5)), ("", [], lambda y: y)]
x, w, b = normal(2, 4, 7, 6), normal(6, 2, 3, 3), normal(6)
WINDOWS = {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}
plain = conv(x, w, b, **WINDOWS)
z = normal(*plain.shape)
for name, params, apply in ACTIVATIONS:
    attrs = {**WINDOWS, **({"activation": name} if name else {}), **({"activation_params": params} if params else {})}
    f.case("FusedConv", 1, [x, w, b], attrs=attrs, domain=MS, const=(1, 2), tol=TOL, name=name)
    f.case("FusedConv", 1, [x, w, b, z], attrs=attrs, domain=MS, tol=TOL, name=name, want=[apply(plain + z)], out_types=[np.float32])
    f.case("NhwcFusedConv", 1, [last(x), w, b], attrs=attrs, domain=MS, const=(1,), tol=TOL, want=[last(apply(plain))], out_types=[np.float32])
    f.case("NhwcFusedConv", 1, [last(x), w, b, last(z)], attrs=attrs, domain=MS, tol=TOL, want=[last(apply(plain + z))], out_types=[np.float32])
f.case("FusedConv", 1, [x, w], attrs={**WINDOWS, "activation": "Relu"}, domain=MS, const=(1,), tol=TOL)
f.case("NhwcConv", 1, [last(x), w, b], attrs=WINDOWS, domain=MS, const=(1,), tol=TOL, want=[last(plain)], out_types=[np.float32])
f.case("NhwcConv", 1, [last(x), w, b], attrs=WINDOWS, domain=MS, tol=TOL, want=[last(plain)], out_types=[np.float32])
f.case("NhwcConv", 1, [a.astype(np.float16) for a in (last(x), w, b)], attrs=WINDOWS, domain=MS, tol=(2e-2, 2e-2), want=[last(plain).astype(np.float16)],
       out_types=[np.float16])
f.declines("FusedConv", 1, [x, w], attrs={**WINDOWS, "activation": "Mish"}, domain=MS, why="activation 'Mish'")
f.declines("FusedConv", 1, [x, w], attrs={**WINDOWS, "activation": "Clip"}, domain=MS, why="parameters")
f.fails("FusedConv", 1, [x, w, b, z[:, :, 1:]], attrs=WINDOWS, domain=MS, why="Z does not")

for dtype in (np.int8, np.uint8):
    lo = np.iinfo(dtype).min
    for attrs in ({}, {"pads": [1, 0, 1, 1], "strides": [2, 1]}, {"dilations": [2, 1]}, {"ceil_mode": 1, "strides": [2, 2]}, {"auto_pad": "SAME_UPPER"}):
        f.case("NhwcMaxPool", 1, [rng.integers(lo, lo + 256, (2, 7, 6, 3)).astype(dtype)], attrs={"kernel_shape": [3, 2], **attrs}, domain=MS)
    f.case("NhwcMaxPool", 1, [rng.integers(lo, lo + 256, (2, 7, 3)).astype(dtype)], attrs={"kernel_shape": [3]}, domain=MS)

pads = np.array([1, 0, 2, 1])
for const in ((), (1, 2)):
    f.case("ConvTransposeWithDynamicPads", 1, [normal(1, 2, 4, 5), normal(2, 3, 3, 3), pads, normal(3)], attrs={"strides": [2, 2]}, domain=MS,
           const=const, tol=TOL)
    f.case("ConvTransposeWithDynamicPads", 1, [normal(1, 4, 4, 5), normal(4, 3, 3, 3), pads], domain=MS, const=const, tol=TOL,
           attrs={"strides": [3, 2], "group": 2, "output_padding": [1, 1], "dilations": [1, 2]})
f.fails("ConvTransposeWithDynamicPads", 1, [normal(1, 2, 4, 5), normal(2, 3, 3, 3), pads[:2]], domain=MS, why="2 pads|pads")

# ---- Col2Im -----------------------------------------------------------------------------------------------------------------
for const in ((), (1, 2)):
    f.case("Col2Im", 18, [normal(2, 3 * 4, 9), np.array([4, 4]), np.array([2, 2])], const=const, tol=TOL)
    f.case("Col2Im", 18, [normal(1, 5, 5), np.array([5, 5]), np.array([1, 5])], const=const, tol=TOL)
    f.case("Col2Im", 18, [normal(1, 9, 4), np.array([5, 5]), np.array([3, 3])], attrs={"strides": [2, 2]}, const=const, tol=TOL)
    f.case("Col2Im", 18, [normal(1, 8, 4), np.array([6, 6]), np.array([2, 2])], attrs={"dilations": [1, 5], "strides": [2, 1], "pads": [1, 0, 1, 0]},
           const=const, tol=TOL)
    f.case("Col2Im", 18, [normal(2, 2 * 8, 27), np.array([4, 4, 4]), np.array([2, 2, 2])], const=const, tol=TOL)
    f.case("Col2Im", 18, [normal(2, 6, 8), np.array([10]), np.array([3])], const=const, tol=TOL)
ones = np.ones((1, 4, 9))
overlap = np.outer([1, 2, 2, 1], [1, 2, 2, 1])[None, None]
for dtype in (np.float64, np.float16, ml_dtypes.bfloat16):
    f.case("Col2Im", 18, [ones.astype(dtype), np.array([4, 4]), np.array([2, 2])], const=(1, 2), want=[overlap.astype(dtype)], out_types=[dtype])
f.fails("Col2Im", 18, [normal(1, 4, 8), np.array([4, 4]), np.array([2, 2])], why="do not fit", out_types=[np.float32])

# ---- MaxUnpool --------------------------------------------------------------------------------------------------------------
ramp = np.arange(1, 9, dtype=np.float32).reshape(1, 2, 2, 2)
at = np.array([5, 7, 13, 15, 16, 19, 24, 31]).reshape(1, 2, 2, 2)
for opset in (9, 11):
    f.case("MaxUnpool", opset, [ramp, at], attrs={"kernel_shape": [2, 2], "strides": [2, 2]})
    f.case("MaxUnpool", opset, [ramp, at], attrs={"kernel_shape": [2, 2], "strides": [2, 2]}, const=(1,))
f.case("MaxUnpool", 22, [ramp, at], attrs={"kernel_shape": [2, 2], "strides": [2, 2]}, ref="onnx")
f.case("MaxUnpool", 22, [ramp, at, np.array([1, 2, 5, 6])], attrs={"kernel_shape": [2, 2], "strides": [2, 2]}, ref="onnx", const=(2,))
f.case("MaxUnpool", 11, [normal(1, 1, 3), np.array([[[0, 2, 4]]])], attrs={"kernel_shape": [2], "strides": [2]})
f.case("MaxUnpool", 11, [normal(1, 1, 2, 2, 2), rng.permutation(64)[:8].reshape(1, 1, 2, 2, 2)], attrs={"kernel_shape": [2] * 3, "strides": [2] * 3})
f.case("MaxUnpool", 11, [normal(1, 1, 3, 3), rng.permutation(25)[:9].reshape(1, 1, 3, 3)], attrs={"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]})
for dtype in (np.float64, np.float16, ml_dtypes.bfloat16):
    want = np.zeros(32, np.float32)
    want[at.ravel()] = ramp.ravel()
    f.case("MaxUnpool", 22, [ramp.astype(dtype), at], attrs={"kernel_shape": [2, 2], "strides": [2, 2]}, want=[want.reshape(1, 2, 4, 4).astype(dtype)],
           out_types=[dtype])
f.fails("MaxUnpool", 11, [ramp, at + 1], attrs={"kernel_shape": [2, 2], "strides": [2, 2]}, why="out of range")

test_conv_more = f.pytest()
