import ml_dtypes
import numpy as np
from case import Family

f = Family("signal")
rng = np.random.default_rng(0)
TOL = (1e-4, 1e-4)
HALF = (1e-2, 2e-2)


def real(*shape, t=np.float32):
    return rng.standard_normal(shape).astype(t)


def pairs(z):
    return np.stack([z.real, z.imag], -1)


i64 = np.int64
# DFT: version 17 has the axis as an attribute, version 20 as an input
for shape in [(2, 8, 1), (2, 7, 2), (1, 1, 1), (3, 5, 4, 2), (2, 12, 1)]:
    f.case("DFT", 17, [real(*shape)], tol=TOL)
    f.case("DFT", 20, [real(*shape)], tol=TOL)
    f.case("DFT", 20, [real(*shape)], attrs={"inverse": 1}, tol=TOL)
for axis in (0, 1, 2, -2, -4):
    f.case("DFT", 20, [real(3, 4, 6, 1), None, i64(axis)], const=(2,), tol=TOL, name=f"axis{axis}")
    if axis >= 0:
        f.case("DFT", 17, [real(3, 4, 6, 2)], attrs={"axis": axis}, tol=TOL, name=f"axis{axis}")
for n in (1, 4, 5, 11, 16):
    f.case("DFT", 20, [real(2, 8, 1), i64(n)], const=(1,), tol=TOL, name=f"length{n}")
    f.case("DFT", 17, [real(2, 8, 2), i64(n)], attrs={"inverse": 1}, const=(1,), tol=TOL, name=f"length{n}")
    f.case("DFT", 20, [real(2, 8, 1), i64(n)], attrs={"onesided": 1}, const=(1,), tol=TOL, name=f"half{n}")
    f.case("DFT", 20, [real(2, n // 2 + 1, 2), i64(n)], attrs={"onesided": 1, "inverse": 1}, const=(1,), tol=TOL, ref="onnx", name=f"back{n}")
f.case("DFT", 20, [real(2, 8, 1), np.int32(6), i64(1)], tol=TOL, name="all inputs at run time", ref="onnx")
f.case("DFT", 20, [real(2, 5, 2)], attrs={"onesided": 1, "inverse": 1}, tol=TOL, ref="onnx")
f.case("DFT", 17, [real(2, 5, 2)], attrs={"onesided": 1, "inverse": 1}, tol=TOL, ref="onnx")
f.case("DFT", 20, [real(0, 8, 1)], want=[np.zeros((0, 8, 2), np.float32)])
f.case("DFT", 20, [real(2, 0, 1), i64(4)], const=(1,), want=[np.zeros((2, 4, 2), np.float32)], name="zeros only")
x = real(2, 8, 1)
for t in (np.float16, ml_dtypes.bfloat16):
    f.case("DFT", 20, [x.astype(t)], tol=(2e-2, 6e-2), want=[pairs(np.fft.fft(x.astype(t).astype(np.float32)[..., 0])).astype(t)])
f.declines("DFT", 17, [real(2, 8, 1, t=np.float64)], why="type float64")
f.fails("DFT", 20, [real(2, 8, 1), i64(0)], why="length 0")

# STFT
signal, window = real(2, 40, 1), np.hanning(16).astype(np.float32)
for half in (0, 1):
    for step in (4, 7, 50):
        f.case("STFT", 17, [signal, i64(step), window], attrs={"onesided": half}, const=(1,), tol=TOL, name=f"step{step}")
    f.case("STFT", 17, [signal, i64(5), None, i64(9)], attrs={"onesided": half}, const=(1, 3), tol=TOL)
f.case("STFT", 17, [real(1, 40, 2), i64(4), window], attrs={"onesided": 0}, const=(1,), tol=TOL, name="complex")
f.case("STFT", 17, [signal, i64(4), window, i64(16)], tol=TOL, name="at run time")
f.case("STFT", 17, [signal, np.int32(4), None, np.int32(8)], const=(1, 3), tol=TOL, ref="onnx", name="int32")
f.case("STFT", 17, [real(0, 40, 1), i64(4), window], const=(1,), want=[np.zeros((0, 7, 9, 2), np.float32)])
half_signal, half_window = signal.astype(np.float16), window.astype(np.float16)
frames = np.stack([half_signal[:, i:i + 16, 0].astype(np.float32) * half_window.astype(np.float32) for i in range(0, 25, 4)], 1)
f.case("STFT", 17, [half_signal, i64(4), half_window], const=(1,), tol=HALF, want=[pairs(np.fft.rfft(frames)).astype(np.float16)])
f.declines("STFT", 17, [real(2, 40, 1, t=np.float64), i64(4), window.astype(np.float64)], const=(1,), why="type float64")
f.declines("STFT", 17, [signal, i64(4)], const=(1,), why="neither a window nor a frame length")
f.fails("STFT", 17, [signal, i64(0), window], why="frame step of 0")
f.fails("STFT", 17, [real(1, 8, 1), i64(1), window], why="frames of 16 in a signal of 8")
f.fails("STFT", 17, [signal, i64(1), window, i64(8)], why="window of 16 for frames of 8")

# windows
for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
    for n in (1, 2, 9, 16):
        f.case(op, 17, [i64(n)], const=(0,), tol=(1e-5, 1e-6))
    f.case(op, 17, [i64(0)], want=[np.zeros(0, np.float32)])
    f.case(op, 17, [np.int32(11)], attrs={"periodic": 0})
    f.case(op, 17, [i64(8)], attrs={"output_datatype": 11}, const=(0,), tol=(1e-6, 1e-7))
    f.case(op, 17, [i64(8)], attrs={"output_datatype": 7}, const=(0,))
    f.case(op, 17, [i64(8)], attrs={"output_datatype": 2}, const=(0,))
    f.case(op, 17, [i64(8)], attrs={"output_datatype": 10}, const=(0,), ref="onnx")
    f.fails(op, 17, [i64(-1)], why="size -1")

# MelWeightMatrix
f32 = np.float32
for bins, length, rate, low, high in [(8, 16, 8192, 0, 4096), (4, 64, 16000, 100, 7000), (40, 512, 16000, 20, 8000), (3, 9, 100, 1, 40)]:
    args = [i64(bins), i64(length), i64(rate), f32(low), f32(high)]
    f.case("MelWeightMatrix", 17, args, const=(0, 1, 2, 3, 4), tol=(1e-5, 1e-6))
    f.case("MelWeightMatrix", 17, args, tol=(1e-5, 1e-6))
args = [i64(8), i64(64), i64(16000), f32(0), f32(8000)]
f.case("MelWeightMatrix", 17, args, attrs={"output_datatype": 10}, const=(0, 1, 2, 3, 4), ref="onnx")
f.case("MelWeightMatrix", 17, args, attrs={"output_datatype": 11}, const=(0, 1, 2, 3, 4), tol=(1e-6, 1e-9))
f.fails("MelWeightMatrix", 17, [i64(8), i64(64), i64(16000), f32(0), f32(9000)], why="out of range")
f.fails("MelWeightMatrix", 17, [i64(8), i64(64), i64(0), f32(0), f32(9000)], why="rate 0")

# com.microsoft
MS = {"domain": "com.microsoft"}
one_d = {"signal_ndim": 1, "onesided": 1, "normalized": 0}
for shape in [(8,), (2, 6), (2, 3, 5), (0, 4)]:
    x = real(*shape)
    f.case("Rfft", 1, [x], attrs=one_d, tol=TOL, want=[pairs(np.fft.rfft(x)).astype(f32)], **MS)
x = real(2, 4, 6)
f.case("Rfft", 1, [x], attrs={**one_d, "signal_ndim": 2}, tol=TOL, want=[pairs(np.fft.rfft2(x)).astype(f32)], **MS)
f.case("Rfft", 1, [x.astype(np.float16)], attrs=one_d, tol=HALF, want=[pairs(np.fft.rfft(x)).astype(np.float16)], **MS)
f.declines("Rfft", 1, [x], attrs={**one_d, "onesided": 0}, why="onesided is not 1", **MS)
f.declines("Rfft", 1, [x], attrs={**one_d, "normalized": 1}, why="normalized is not 0", **MS)
f.declines("Rfft", 1, [x.astype(np.float64)], attrs=one_d, why="type float64", **MS)
for n in (5, 6, 7, 8):
    z = np.fft.rfft(real(2, 3, n))
    f.case("Irfft", 1, [pairs(z).astype(f32)], attrs=one_d, tol=TOL, want=[np.fft.irfft(z, n).astype(f32)], out_types=[f32], out_shapes=[[2, 3, n]], **MS)
z = np.fft.rfft2(real(2, 4, 6))
f.case("Irfft", 1, [pairs(z).astype(f32)], attrs={**one_d, "signal_ndim": 2}, tol=TOL, want=[np.fft.irfft2(z, (4, 6)).astype(f32)], out_types=[f32],
       out_shapes=[["a", "b", 6]], **MS)
f.case("Irfft", 1, [np.zeros((0, 4, 2), f32)], attrs=one_d, want=[np.zeros((0, 6), f32)], out_types=[f32], out_shapes=[["a", 6]], **MS)
f.declines("Irfft", 1, [pairs(z).astype(f32)], attrs=one_d, why="length of the output is not declared", **MS)
f.fails("Irfft", 1, [np.zeros((2, 4, 2), f32)], attrs=one_d, why="4 numbers for a signal of 9", out_types=[f32], out_shapes=[["a", 9]], **MS)
for sa, sb in [((2, 3, 2), (2, 3, 2)), ((2, 3, 2), (2,)), ((1, 2), (4, 1, 2)), ((0, 2), (1, 2))]:
    for t in (np.float32, np.float64, np.float16):
        a, b = real(*sa, t=t), real(*sb, t=t)
        za, zb = (v[..., 0].astype(np.complex128) + 1j * v[..., 1].astype(np.complex128) for v in (a, b))
        f.case("ComplexMul", 1, [a, b], want=[pairs(za * zb).astype(t)], **MS)
        f.case("ComplexMulConj", 1, [a, b], want=[pairs(za * zb.conj()).astype(t)], **MS)
f.fails("ComplexMul", 1, [real(2, 3), real(2, 3)], why="two numbers", **MS)
test_signal = f.pytest()
