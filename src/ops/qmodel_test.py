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

test_qmodel = f.pytest()
