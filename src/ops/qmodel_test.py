"""Quantised parts of models: DynamicQuantizeLSTM, QAttention and QEmbedLayerNormalization."""
import numpy as np

from case import Family

MS = "com.microsoft"
rng = np.random.default_rng(62)
f = Family("qmodel")
BOTH = (np.uint8, np.int8)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def q8(t, *shape):
    return rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, shape).astype(t)


def scale(*shape, lo=0.002, hi=0.01):
    return rng.uniform(lo, hi, shape).astype(np.float32)


# ---- DynamicQuantizeLSTM: steps of the quantised state may fall on either side, hence the tolerance --------------------------
L, TOL = "DynamicQuantizeLSTM", (0.02, 0.02)


def lstm(t, dirs, steps, batch, size, hidden, columns, bias=True, start=False, lens=None):
    n = 4 * hidden
    zero = (lambda: np.zeros((dirs, n) if columns else (dirs,), t)) if t == np.int8 else (lambda: np.full((dirs, n), 128) if columns else q8(t, dirs) // 4 + 96)
    s = lambda: scale(*((dirs, n) if columns else (dirs,)))  # noqa: E731
    return [normal(steps, batch, size), q8(t, dirs, size, n), q8(t, dirs, hidden, n), normal(dirs, 2 * n) if bias else None, lens,
            normal(dirs, batch, hidden) * 0.5 if start else None, normal(dirs, batch, hidden) * 0.5 if start else None, None,
            s(), zero().astype(t), s(), zero().astype(t)]


for t in BOTH:
    for direction, dirs in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        for columns in (False, True):
            f.case(L, 1, lstm(t, dirs, 5, 1, 6, 8, columns), outs=3, domain=MS, attrs={"hidden_size": 8, "direction": direction}, tol=TOL,
                   const=(1, 2, 3, 8, 9, 10, 11))
    f.case(L, 1, lstm(t, 2, 4, 3, 6, 8, False, bias=False, start=True), outs=3, domain=MS, tol=TOL,
           attrs={"hidden_size": 8, "direction": "bidirectional"}, const=(1, 2, 8, 9, 10, 11))
    f.case(L, 1, lstm(t, 1, 4, 2, 6, 8, False, start=True, lens=np.array([4, 2], np.int32)), outs=3, domain=MS, tol=TOL,
           attrs={"hidden_size": 8}, const=(1, 2, 8, 9, 10, 11))


# ---- QAttention -------------------------------------------------------------------------------------------------------
def attention(tw, b, t, heads, size, width, mask=None, past=0, columns=False, const=(1, 2, 3, 4, 6, 7), tol=(1e-4, 1e-4), tx=np.uint8,
              want=None, **attrs):
    n = 3 * heads * size
    zero = q8(tw, n) if columns else q8(tw)
    inputs = [q8(tx, b, t, width), q8(tw, width, n), normal(n), np.float32(0.01), scale(n) if columns else scale(), mask, q8(tx), zero]
    if past:
        inputs.append(normal(2, b, heads, past, size))
    f.case("QAttention", 1, inputs, domain=MS, outs=2 if past else 1, attrs={"num_heads": heads, **attrs}, const=const, tol=tol)


i32 = lambda *v: np.array(v, np.int32)  # noqa: E731
for tw in BOTH:
    for columns in (False, True):
        attention(tw, 2, 5, 2, 4, 16, columns=columns)
    attention(tw, 2, 5, 2, 4, 16, const=())
    attention(tw, 2, 5, 2, 4, 16, mask=i32(3, 5))
    attention(tw, 2, 5, 2, 4, 16, mask=i32(3, 5, 1, 0))
    attention(tw, 2, 5, 2, 4, 16, mask=rng.integers(0, 2, (2, 5)).astype(np.int32))
    attention(tw, 2, 5, 2, 4, 16, mask=np.zeros((2, 5), np.int32))
    attention(tw, 2, 5, 2, 4, 16, unidirectional=1)
    attention(tw, 2, 3, 2, 4, 700, past=4, unidirectional=1, scale=0.3)
    attention(tw, 2, 1, 2, 4, 16, past=4, mask=rng.integers(0, 2, (2, 5)).astype(np.int32), mask_filter_value=-1000.0)
attention(np.int8, 2, 3, 2, 4, 16, mask=rng.integers(0, 2, (2, 3, 3)).astype(np.int32))
f.fails("QAttention", 1, [q8(np.uint8, 1, 3, 16), q8(np.int8, 16, 24), normal(24), np.float32(0.01), scale(), i32(1, 2, 3, 4)],
        domain=MS, attrs={"num_heads": 2}, why="a mask of rank 1")
f.declines("QAttention", 1, [q8(np.uint8, 1, 3, 16), q8(np.int8, 16, 24), normal(24), np.float32(0.01), scale()],
           domain=MS, attrs={"num_heads": 2, "do_rotary": 1}, why="do_rotary")

# ---- QEmbedLayerNormalization -----------------------------------------------------------------------------------------
E = "QEmbedLayerNormalization"


def embed(t, segments=True, mask=None, **attrs):
    inputs = [rng.integers(0, 9, (2, 4)).astype(np.int32), rng.integers(0, 2, (2, 4)).astype(np.int32) if segments else None,
              q8(t, 9, 8), q8(t, 6, 8), q8(t, 2, 8) if segments else None, q8(t, 8), q8(t, 8), mask]
    inputs += [scale(lo=0.01, hi=0.1) if segments or i != 2 else None for i in range(5)]
    inputs += [q8(t) if segments or i != 2 else None for i in range(5)]
    return dict(op_type=E, opset=1, inputs=inputs, domain=MS, outs=2, attrs=attrs, tol=(1e-4, 1e-4),
                const=(2, 3, 4, 5, 6) if segments else (2, 3, 5, 6))


for t in BOTH:
    f.case(**embed(t, mask=rng.integers(0, 2, (2, 4)).astype(np.int32)))
    f.case(**embed(t, epsilon=0.01))
    f.case(**embed(t, segments=False))
bad = embed(np.uint8)
bad["inputs"][0][1, 2] = -1
f.fails(**{k: v for k, v in bad.items() if k != "tol"}, why="out of range")

test_qmodel = f.pytest()
