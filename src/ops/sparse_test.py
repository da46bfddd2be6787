"""Block-sparse attention against NumPy: ONNX Runtime's CPU kernel needs the caches bound to one buffer."""
import numpy as np

from case import Family

rng = np.random.default_rng(41)
f = Family("sparse")
f32, f16, i32 = np.float32, np.float16, np.int32
MS, H, KV, D, BLOCK, ROWS = "com.microsoft", 4, 2, 8, 16, 64
layouts = np.array([[[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]], [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 1]]])


def normal(*shape, dtype=f32):
    return rng.standard_normal(shape).astype(dtype)


def compressed(blocks):
    """Row starts and columns, the columns filled up with -1."""
    rows = np.concatenate([np.zeros((len(blocks), 1), int), blocks.sum(2).cumsum(1)], 1)
    longest = rows[:, -1].max()
    columns = [np.pad(np.nonzero(b)[1], (0, longest - b.sum()), constant_values=-1) for b in blocks]
    return rows.astype(i32), np.array(columns, i32)


def split(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def rotate(x, cos, sin, at):
    c, s = cos[at][:, None], sin[at][:, None]
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * c - b * s, a * s + b * c], -1)


def sparse(batch=1, rows=1, past=0, lengths=None, blocks=layouts, packed=False, rotary=False, dtype=f32, name="", tol=(1e-4, 1e-5), **attrs):
    total = past + rows
    lengths = lengths or [total] * batch
    q, k, v = normal(batch, rows, H * D, dtype=dtype), normal(batch, rows, KV * D, dtype=dtype), normal(batch, rows, KV * D, dtype=dtype)
    caches = [normal(batch, KV, ROWS, D, dtype=dtype) for _ in range(2)]
    ins = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    ins += caches + list(compressed(blocks)) + [np.array(total, i32), np.array(lengths, i32)]
    starts = [0 if past == 0 else n - rows for n in lengths]
    at = np.array(starts)[:, None] + np.arange(rows)
    wide = [split(x, h).astype(np.float64) for x, h in ((q, H), (k, KV), (v, KV))]
    if rotary:
        angle = np.arange(ROWS)[:, None] * 100.0 ** (-np.arange(D // 2) / 4)
        cos, sin = np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)
        ins += [cos, sin]
        attrs["do_rotary"] = 1
        wide[0], wide[1] = (rotate(x, cos.astype(np.float64), sin.astype(np.float64), at) for x in wide[:2])
    present = [c.astype(np.float64) for c in caches]
    for b in range(batch):
        for c, x in zip(present, wide[1:]):
            c[b, :, starts[b]:starts[b] + rows] = x[b]
    keys, values = (np.repeat(c, H // KV, 1)[:, :, :total] for c in present)
    key = np.arange(total)
    seen = np.stack([np.stack([blocks[h % len(blocks)][at[b][:, None] // BLOCK, key // BLOCK] for h in range(H)]) for b in range(batch)]) > 0
    seen &= (key <= at[:, :, None])[:, None]
    s = np.where(seen, wide[0] @ keys.swapaxes(2, 3) * attrs.get("scale", D ** -0.5), -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    y = (e / e.sum(-1, keepdims=True) @ values).transpose(0, 2, 1, 3).reshape(batch, rows, -1)
    f.case("SparseAttention", 1, ins, outs=3, domain=MS, attrs={"num_heads": H, "kv_num_heads": KV, "sparse_block_size": BLOCK, **attrs},
           want=[a.astype(dtype) for a in (y, *present)], out_types=[dtype] * 3, name=name, tol=tol)
    return ins


good = sparse(rows=40, name="prompt")
sparse(rows=64, name="prompt-full")
sparse(past=40, name="decode")
sparse(past=63, batch=2, name="decode-last")
sparse(batch=2, rows=40, lengths=[40, 20], name="padded-prompt")
sparse(batch=2, past=40, lengths=[41, 21], name="ragged-decode")
sparse(rows=40, blocks=layouts[:1], name="one-layout")
sparse(rows=40, packed=True, name="packed")
sparse(rows=40, rotary=True, name="rotary")
sparse(batch=2, past=40, lengths=[41, 30], rotary=True, packed=True, name="rotary-decode")
sparse(rows=20, scale=0.2, name="scale")
sparse(rows=40, dtype=f16, tol=(1e-2, 5e-3), name="f16")

attrs = {"num_heads": H, "kv_num_heads": KV, "sparse_block_size": BLOCK}
bad = list(good)
bad[6] = bad[6] + 9
f.fails("SparseAttention", 1, bad, "block_col_indices", outs=3, domain=MS, attrs=attrs)
f.fails("SparseAttention", 1, good[:7] + [np.array(65, i32), good[8]], "total", outs=3, domain=MS, attrs=attrs)
f.fails("SparseAttention", 1, good[:8] + [np.array([0], i32)], "key_total_sequence_lengths", outs=3, domain=MS, attrs=attrs)
f.declines("SparseAttention", 1, good, "do_rotary", outs=3, domain=MS, attrs={**attrs, "do_rotary": 1})

test_sparse = f.pytest()
