"""n-grams and hashes against ONNX Runtime's CPU kernels."""
import numpy as np

from case import Family

MS = "com.microsoft"
rng = np.random.default_rng(93)
f = Family("ngram")


def ms(op, inputs, **kw):
    f.case(op, 1, inputs, domain=MS, **kw)


def i64(*v):
    return np.array(v, np.int64)


for n in (1, 2, 3, 6):
    for batch, length in ((3, 12), (1, 5), (2, 1)):
        ids = rng.integers(0, 4, (batch, length))
        ms("NGramRepeatBlock", [ids, rng.standard_normal((batch, 7)).astype(np.float32)], attrs={"ngram_size": n})
f.fails("NGramRepeatBlock", 1, [i64([1, 9, 1]).reshape(1, 3), np.zeros((1, 5), np.float32)], domain=MS, attrs={"ngram_size": 2},
        why="token 9 is out of range")
f.declines("NGramRepeatBlock", 1, [i64([1, 9]).reshape(1, 2), np.zeros((1, 5), np.float32)], domain=MS, attrs={"ngram_size": 0},
           why="ngram_size 0")

attrs = {"min_ngram_size": 1, "max_ngram_size": 3}
source = i64(2, 3, 4, 5, 6, 3, 4, 7)
ms("BifurcationDetector", [source, i64(9, 3, 4, 5), i64(0)], outs=2, attrs=attrs)
ms("BifurcationDetector", [source, i64(9, 3, 4), i64(0)], outs=2, attrs=attrs)
ms("BifurcationDetector", [source, i64(9), i64(0)], outs=2, attrs=attrs)
ms("BifurcationDetector", [source, i64(9, 7), i64(0)], outs=2, attrs=attrs)
ms("BifurcationDetector", [source, i64(2), i64(3), i64(5, 6, 1, 1, 1, 1)], outs=2, attrs=attrs)
ms("BifurcationDetector", [source, i64(2), i64(3), i64(5, 6, 3, 4, 7, 8)], outs=2, attrs=attrs)
ms("BifurcationDetector", [source, i64(2), i64(8), i64(6)], outs=2, attrs=attrs | {"max_ngram_size": 1})
f.fails("BifurcationDetector", 1, [source, i64(2), i64(9), i64(6)], domain=MS, outs=2, attrs=attrs, why="predicted tokens from place 9")

for dtype in (np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64):
    for shape in ((2, 5), (), (0,)):
        x = rng.integers(0, 2**31 - 1, shape).astype(dtype)
        for positive in (0, 1):
            ms("MurmurHash3", [x], attrs={"seed": 42, "positive": positive})
ms("MurmurHash3", [np.array([-(2**63), -1, 2**62 + 12345])])
ms("MurmurHash3", [rng.standard_normal((3, 4))], attrs={"seed": 2**31 - 1})

for dtype in (np.int32, np.int64):
    for grams, heads, batch, length in ((3, 2, 2, 6), (2, 1, 1, 1), (4, 3, 2, 2), (3, 1, 2, 0)):
        ids = rng.integers(0, 50, (batch, length)).astype(dtype)
        ids[rng.random((batch, length)) < 0.25] = 2
        factors = (2 * rng.integers(1, 2**29, grams) + 1).astype(dtype)
        sizes = rng.integers(3, 1000, (grams - 1) * heads).astype(dtype)
        past = rng.integers(0, 50, (batch, grams - 1)).astype(dtype)
        past[rng.random(past.shape) < 0.25] = 2
        offsets, eos = rng.integers(0, 9999, sizes.shape).astype(dtype), np.array(2, dtype)
        segments = np.sort(rng.integers(0, 3, (batch, length)).astype(np.int32), 1)
        attrs = {"max_ngram_size": grams, "n_head_per_ngram": heads, "pad_id": 7}
        for more in ([], [past], [None, offsets], [past, offsets, eos], [past, None, eos, segments], [None, None, None, segments]):
            ms("NGramHashMapping", [ids, factors, sizes, *more], outs=2, attrs=attrs)
            if len(more) > 2 and more[2] is not None:
                ms("NGramHashMapping", [ids, factors, sizes, *more], outs=2, attrs=attrs | {"reset_on_eos": 1})
        # the same over packed sequences
        lengths = [3, 1, 4][: batch + 1]
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        ids = rng.integers(0, 50, starts[-1]).astype(dtype)
        ids[rng.random(ids.shape) < 0.25] = 2
        past, old = (rng.integers(0, high, (len(lengths), grams - 1)).astype(t) for high, t in ((50, dtype), (3, np.int32)))
        segments, counts = np.sort(rng.integers(0, 3, len(ids)).astype(np.int32)), np.array([2, 0, 9][: len(lengths)], np.int32)
        packed = [ids, factors, sizes, starts]
        for more in ([], [past], [past, offsets, eos]):
            ms("VarlenNGramHashMapping", [*packed, *more], outs=2, attrs=attrs)
        reset = attrs | {"reset_on_eos": 1}
        ms("VarlenNGramHashMapping", [*packed, past, offsets, eos], outs=2, attrs=reset)
        ms("VarlenNGramHashMapping", [*packed, past, offsets, eos, segments, old], outs=3, attrs=reset)
        ms("VarlenNGramHashMapping", [*packed, past, None, None, segments, old], outs=3, attrs=attrs)
        ms("VarlenNGramHashMapping", [*packed, None, None, eos, segments], outs=2, attrs=attrs)
        ms("VarlenNGramHashMapping", [*packed, past, None, eos, None, None, counts], outs=4, skip_outs=(2,), attrs=attrs | {"state_update_capacity": 3})
f.fails("VarlenNGramHashMapping", 1, [i64(1, 2), i64(1, 3), i64(5), np.array([0, 3], np.int32)], domain=MS, why="does not rise",
        attrs={"max_ngram_size": 2, "n_head_per_ngram": 1, "pad_id": 0})
f.declines("NGramHashMapping", 1, [np.zeros((1, 2), int), np.ones(65, int), np.ones(64, int)], domain=MS, why="max_ngram_size 65",
           attrs={"max_ngram_size": 65, "n_head_per_ngram": 1, "pad_id": 0})

test_ngram = f.pytest()
