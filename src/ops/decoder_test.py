"""DecoderAttention and LongformerAttention against numpy; ONNX Runtime's CPU provider has neither."""
import numpy as np

from case import Family

MS = "com.microsoft"
rng = np.random.default_rng(98)
f = Family("decoder")
TOL = {np.float32: (2e-5, 2e-5), np.float16: (1e-2, 1e-2)}


def normal(*shape, dtype=np.float32, scale=0.5):
    return (scale * rng.standard_normal(shape)).astype(dtype)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def heads(x, n):
    """[B, S, W] as [B, n, S, W / n]"""
    b, s, w = x.shape
    return x.reshape(b, s, n, w // n).transpose(0, 2, 1, 3)


def joined(x):
    b, n, s, d = x.shape
    return x.transpose(0, 2, 1, 3).reshape(b, s, n * d)


def decoder(rows, keys, batch=2, n=2, size=4, static=False, past=0, mask=False, dtype=np.float32, use_past=True, state=True, const=(8, 9, 10, 11)):
    w = n * size
    q, k = normal(rows, batch, w, dtype=dtype), normal(keys, batch, w, dtype=dtype)
    wq, wkv, bias = normal(w, w, dtype=dtype), normal(w, 2 * w, dtype=dtype), normal(3 * w, dtype=dtype)
    caches = [normal(batch, n, past, size, dtype=dtype) for _ in range(2)] if past else [None, None]
    wide = [None if a is None else a.astype(np.float64) for a in (q, k, wq, wkv, bias, *caches)]
    fq, fk, fwq, fwkv, fb, ck, cv = wide
    cached = bool(past) and use_past and state
    source = fk if static else fq
    kv = heads((source @ fwkv + fb[w:]).transpose(1, 0, 2), 2 * n)
    key, value = kv[:, :n], kv[:, n:]
    if cached:
        key, value = (ck, cv) if static else (np.concatenate([ck, key], 2), np.concatenate([cv, value], 2))
    query = heads((fq @ fwq + fb[:w]).transpose(1, 0, 2), n)
    scores = query @ key.swapaxes(2, 3) / np.sqrt(size)
    padding = None
    if mask:
        padding = rng.random((batch, key.shape[2])) < 0.4
        padding[:, 0] = False
        scores = np.where(padding[:, None, None], -np.inf, scores)
    y = joined(softmax(scores) @ value).transpose(1, 0, 2)
    flags = [np.array([v]) for v in (static, use_past and past > 0, state, mask)]
    f.case("DecoderAttention", 1, [q, k, wq, wkv, bias, padding, *caches, *flags], domain=MS, attrs={"num_heads": n}, outs=3, const=const,
           want=[a.astype(dtype) for a in (y, key, value)], tol=TOL[dtype], out_types=[dtype] * 3, name=f"static={static} past={past}")


for static in (False, True):
    for past in (0, 3):
        for mask in (False, True):
            decoder(2, 5, static=static, past=past, mask=mask)
            decoder(1, 5, static=static, past=past, mask=mask, const=())
    decoder(2, 4, static=static, past=3, use_past=False)
    decoder(2, 4, static=static, past=3, state=False)
    decoder(2, 5, static=static, past=3, mask=True, dtype=np.float16)  # the operator's schema has no bfloat16
x, no = normal(2, 1, 8), np.array([False])
weights = [normal(8, 8), normal(8, 16), normal(24)]
f.fails("DecoderAttention", 1, [x, x, *weights, None, None, None, no, ~no, ~no, no], domain=MS, attrs={"num_heads": 2},
        out_types=[np.float32], why="use_past without a cache")
f.fails("DecoderAttention", 1, [x, x, *weights, None, None, None, no, no, no, ~no], domain=MS, attrs={"num_heads": 2},
        out_types=[np.float32], why="without a mask")
f.declines("DecoderAttention", 1, [x, x, *weights, None, None, None, no, no, no, no], domain=MS, attrs={"num_heads": 0},
           out_types=[np.float32], why="0 heads")


def longformer(batch, rows, n=2, size=4, window=2, dtype=np.float32, spots=(0, 5)):
    w = n * size
    x, wl, bl = normal(batch, rows, w, dtype=dtype), normal(w, 3 * w, dtype=dtype), normal(3 * w, dtype=dtype)
    wg, bg = normal(w, 3 * w, dtype=dtype), normal(3 * w, dtype=dtype)
    mask = np.where(rng.random((batch, rows)) < 0.2, -10000.0, 0.0).astype(dtype)
    flags = np.zeros((batch, rows), np.int32)
    flags[:, [s for s in spots if s < rows]] = 1
    mask[flags == 1] = 0
    a = x.astype(np.float64)

    def attend(weight, bias, seen):
        y = a @ weight.astype(np.float64) + bias.astype(np.float64)
        q, k, v = (heads(t, n) for t in np.split(y, 3, 2))
        s = q @ k.swapaxes(2, 3) / np.sqrt(size) + mask.astype(np.float64)[:, None, None]
        return joined(softmax(np.where(seen, s, -np.inf)) @ v)

    at = np.arange(rows)
    near = (np.abs(at[:, None] - at) <= window) | (flags == 1)[:, None, None, :]
    y = np.where((flags == 1)[..., None], attend(wg, bg, True), attend(wl, bl, near))
    f.case("LongformerAttention", 1, [x, wl, bl, mask, wg, bg, flags], domain=MS, attrs={"num_heads": n, "window": window},
           want=[y.astype(dtype)], tol=TOL[dtype], out_types=[dtype])


longformer(2, 8)
longformer(1, 12, window=3, spots=(0, 1, 7))
longformer(2, 8, spots=())
longformer(2, 8, dtype=np.float16)
ins = [normal(1, 4, 8), normal(8, 24), normal(24), normal(1, 4), normal(8, 24), normal(23), np.zeros((1, 4), np.int32)]
f.fails("LongformerAttention", 1, ins, domain=MS, attrs={"num_heads": 2, "window": 2}, out_types=[np.float32], why="do not fit 2 heads")
f.declines("LongformerAttention", 1, ins, domain=MS, attrs={"num_heads": 2, "window": 0}, out_types=[np.float32], why="window 0")

test_decoder = f.pytest()
