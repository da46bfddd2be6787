"""DynamicSparseAttention against numpy; ONNX Runtime's CPU provider does not have it."""
import ml_dtypes
import numpy as np

from case import Family

MS = "com.microsoft"
rng = np.random.default_rng(101)
f = Family("selected")
BF16 = ml_dtypes.bfloat16
TOL = {np.float32: (2e-5, 2e-5), np.float16: (1e-2, 1e-2), BF16: (8e-2, 8e-2)}


def normal(*shape, dtype=np.float32):
    return (0.5 * rng.standard_normal(shape)).astype(dtype)


def turn(x, cos, sin, offset, interleaved):
    """x [B, S, H, D]; cos [B, S, half]"""
    half = cos.shape[-1]
    part = x[..., offset : offset + 2 * half].copy()
    a, b = (part[..., 0::2], part[..., 1::2]) if interleaved else (part[..., :half], part[..., half:])
    c, s = cos[:, :, None], sin[:, :, None]
    new = np.stack([a * c - b * s, a * s + b * c], -1)
    x = x.copy()
    x[..., offset : offset + 2 * half] = new.reshape(part.shape) if interleaved else np.concatenate([new[..., 0], new[..., 1]], -1)
    return x


def rms(x, w):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w.astype(np.float64)


def case(past=(3, 5), held=8, rows=2, heads=4, kv=2, size=8, local=0, aux=0, shared=False, picks=3, dtype=np.float32, packed=False,
         rotary=None, interleaved=0, norm=False, sink=False, smooth=False, given=False):
    batch, total = len(past), max(past) + rows
    q, k, v = (normal(batch, rows, n * size, dtype=dtype) for n in (heads, kv, kv))
    old = [normal(batch, kv, held, size, dtype=dtype) for _ in range(2)] if held else [None, None]
    extra = [normal(batch, kv, aux, size, dtype=dtype) for _ in range(2)] if aux else [None, None]
    angles = rng.uniform(0, 6, (32, 2))
    cos, sin = (np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)) if rotary is not None else (None, None)
    weights = [rng.uniform(0.5, 2, size).astype(dtype) for _ in range(2)] if norm else [None, None]
    at = np.array(past)[:, None] + np.arange(rows)
    positions = at + 4 if given else None
    fq, fk, fv = (x.astype(np.float64).reshape(batch, rows, -1, size) for x in (q, k, v))
    if norm:
        fq, fk = rms(fq, weights[0]), rms(fk, weights[1])
    if rotary is not None:
        c, s = (t.astype(np.float64)[positions if given else at] for t in (cos, sin))
        fq, fk = turn(fq, c, s, rotary, interleaved), turn(fk, c, s, rotary, interleaved)
    capacity = max(held, total)
    caches = []
    for o, fresh in zip(old, (fk, fv)):
        cache = np.zeros((batch, kv, capacity, size))
        if o is not None:
            cache[:, :, :held] = o
        for b in range(batch):
            cache[b, :, past[b] : past[b] + rows] = fresh[b].transpose(1, 0, 2)
        caches.append(cache)
    source = aux if local else total
    indices, counts = np.full((batch * rows, picks), -1, np.int32), rng.integers(0, picks + 1, batch * rows).astype(np.int32)
    logit = normal(heads, dtype=dtype) if sink else None
    y = np.zeros((batch, rows, heads, size))
    for b in range(batch):
        for i in range(rows):
            limit = source if local else at[b, i] + 1
            row = b * rows + i
            counts[row] = min(counts[row], limit)
            indices[row, : counts[row]] = rng.permutation(limit)[: counts[row]]
            for h in range(heads):
                g = h // (heads // kv)
                pick = indices[row, : counts[row]]
                if local:
                    near = np.arange(max(0, at[b, i] - local + 1), at[b, i] + 1)
                    ks = np.concatenate([caches[0][b, g, near], extra[0][b, g, pick].astype(np.float64)])
                    vs = np.concatenate([caches[1][b, g, near], extra[0 if shared else 1][b, g, pick].astype(np.float64)])
                else:
                    ks, vs = caches[0][b, g, pick], caches[1][b, g, pick]
                scores = np.exp(ks @ fq[b, i, h] / np.sqrt(size))
                below = scores.sum() + (np.exp(float(logit[h])) if sink else 1 if smooth else 0)
                y[b, i, h] = scores @ vs / below if len(ks) else 0
    attrs = {"num_heads": heads, "kv_num_heads": kv, "do_rotary": int(rotary is not None), "rotary_interleaved": interleaved,
             "rotary_offset": rotary or 0, "smooth_softmax": int(smooth)}
    if local:
        attrs |= {"attention_mode": "local_plus_selected", "selected_kv_source": "auxiliary", "local_window_size": local, "auxiliary_kv_shared": int(shared)}
    if packed:
        q, k, v = np.concatenate([q, k, v], -1), None, None
    inputs = [q, k, v, *old, extra[0], None if shared else extra[1], indices, counts, np.array(past, np.int32) + rows - 1, np.array(total, np.int32), cos, sin,
              positions, *weights, logit]
    while inputs[-1] is None:
        inputs.pop()
    f.case("DynamicSparseAttention", 1, inputs, domain=MS, attrs=attrs, outs=3, tol=TOL[dtype], out_types=[dtype] * 3,
           want=[y.reshape(batch, rows, -1).astype(dtype), *(c.astype(dtype) for c in caches)], name=f"local={local} past={past}")


case()
case(past=(0, 0), held=0, rows=4)
case(past=(4,), held=4, rows=1, packed=True)
case(rotary=0)
case(rotary=4 - 4, interleaved=1, given=True)
case(rotary=8, size=16, norm=True)
case(sink=True)
case(smooth=True, picks=1)
case(local=2, aux=6)
case(local=3, aux=6, shared=True, sink=True)
case(local=9, aux=4, picks=4, packed=True, norm=True, rotary=0)
case(dtype=np.float16)
case(dtype=BF16, local=2, aux=6)
case(picks=0)

q, k = normal(1, 2, 16), normal(1, 2, 8)
ints = [np.zeros((2, 3), np.int32), np.zeros(2, np.int32), np.array([1], np.int32), np.array(2, np.int32)]
kw = {"domain": MS, "outs": 3, "out_types": [np.float32] * 3}
attrs = {"num_heads": 2, "kv_num_heads": 1}
f.fails("DynamicSparseAttention", 1, [q, k, k, None, None, None, None, *ints[:2], np.array([4], np.int32), ints[3]], attrs=attrs, why="seqlens_k does not fit", **kw)
f.declines("DynamicSparseAttention", 1, [q, k, k, None, None, None, None, *ints], attrs=attrs | {"selected_kv_source": "auxiliary"}, why="selected_kv_source", **kw)

test_selected = f.pytest()
