"""Attention over a cache in blocks, against NumPy: ONNX Runtime has no CPU kernel of it."""
import ml_dtypes
import numpy as np

from case import Family, check_runs

rng = np.random.default_rng(43)
f = Family("paged")
f16, bf16, i32 = np.float16, ml_dtypes.bfloat16, np.int32
MS, H, KV, D, BLOCKS, BLOCK = "com.microsoft", 4, 2, 8, 10, 4


def normal(*shape, dtype=f16):
    return rng.standard_normal(shape).astype(dtype)


def rotate(x, cos, sin, at):
    c, s = cos[at].astype(np.float64)[:, None], sin[at].astype(np.float64)[:, None]
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * c - b * s, a * s + b * c], -1)


def rms(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w.astype(np.float64)


def paged(lengths, past, dtype=f16, packed=False, rotary=False, slots=None, sink=False, norms=False, name="", tol=(1e-2, 8e-3), **attrs):
    n, starts = sum(lengths), np.concatenate([[0], np.cumsum(lengths)])
    q, k, v = normal(n, H * D, dtype=dtype), normal(n, KV * D, dtype=dtype), normal(n, KV * D, dtype=dtype)
    caches = [normal(BLOCKS, BLOCK, KV, D, dtype=dtype) for _ in range(2)]
    table = rng.permutation(BLOCKS)[: len(lengths) * 3].reshape(len(lengths), 3)
    at = np.concatenate([p + np.arange(m) for m, p in zip(lengths, past)])
    entry = np.repeat(np.arange(len(lengths)), lengths)
    own_slots = table[entry, at // BLOCK] * BLOCK + at % BLOCK
    put = own_slots if slots is None else np.where(np.array(slots), own_slots, -1)
    ins = [np.concatenate([q, k, v], 1), None, None] if packed else [q, k, v]
    ins += caches + [starts.astype(i32), np.array(past, i32), table.astype(i32)]
    q, k, v = (x.astype(np.float64).reshape(n, -1, D) for x in (q, k, v))
    extra = {}
    if norms:
        extra[12], extra[13] = normal(D, dtype=dtype), normal(D, dtype=dtype)
        q, k = rms(q, extra[12]), rms(k, extra[13])
    if rotary:
        angle = np.arange(16)[:, None] * 100.0 ** (-np.arange(D // 2) / 4)
        extra[8], extra[9] = np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)
        q, k = (rotate(x, extra[8], extra[9], at) for x in (q, k))
        attrs["do_rotary"] = 1
    if slots is not None:
        extra[10] = put.astype(i32)
    if sink:
        extra[11] = normal(H, dtype=dtype)
    for i in sorted(extra):
        ins += [None] * (i - len(ins)) + [extra[i]]
    rows = [c.astype(np.float64).reshape(-1, KV, D) for c in caches]
    for i in np.nonzero(put >= 0)[0]:
        rows[0][put[i]], rows[1][put[i]] = k[i], v[i]
    y = []
    for b, m in enumerate(lengths):
        key = np.arange(past[b] + m)
        where = table[b, key // BLOCK] * BLOCK + key % BLOCK
        keys, values = (np.repeat(r[where], H // KV, 1) for r in rows)
        s = np.einsum("qhd,khd->hqk", q[starts[b]:starts[b + 1]], keys) * D ** -0.5
        if attrs.get("softcap"):
            s = attrs["softcap"] * np.tanh(s / attrs["softcap"])
        if attrs.get("is_causal", 1):
            s = np.where(key <= past[b] + np.arange(m)[:, None], s, -np.inf)
        e = np.exp(s)
        total = e.sum(-1, keepdims=True) + (np.exp(extra[11].astype(np.float64))[:, None, None] if sink else 0)
        y.append(np.einsum("hqk,khd->qhd", e / total, values).reshape(m, H * D))
    want = [np.concatenate(y), *(r.reshape(BLOCKS, BLOCK, KV, D) for r in rows)]
    f.case("PagedAttention", 1, ins, outs=3, domain=MS, attrs={"num_heads": H, "kv_num_heads": KV, **attrs}, name=name, tol=tol,
           want=[w.astype(dtype) for w in want], out_types=[dtype] * 3)
    return ins


good = paged([5, 2, 3], [0, 0, 0], name="prompt")
paged([1, 1, 1], [7, 0, 11], name="decode")
paged([4, 1, 3], [3, 8, 0], name="mixed")
paged([3, 0, 2], [3, 5, 1], name="empty-entry")
paged([4, 1, 3], [3, 8, 0], packed=True, name="packed")
PACKED = f.cases.pop()
paged([4, 1, 3], [3, 8, 0], rotary=True, name="rotary")
paged([4, 1], [3, 8], slots=[1, 0, 1, 1, 1], name="slots")
paged([4, 1], [3, 8], slots=[0] * 5, name="no-slots")
paged([4, 1], [3, 8], sink=True, name="sink")
paged([4, 1], [3, 8], norms=True, rotary=True, name="norms", tol=(2e-2, 2e-2))
paged([4, 1], [3, 8], softcap=2.0, name="softcap")
paged([4, 1], [3, 8], is_causal=0, name="both-ways")
paged([4, 1, 3], [3, 8, 0], dtype=bf16, name="bf16", tol=(5e-2, 5e-2))

attrs = {"num_heads": H, "kv_num_heads": KV}
kw = {"outs": 3, "domain": MS, "attrs": attrs}
f.fails("PagedAttention", 1, good[:7] + [good[7] + 10], "block_table", out_types=[f16] * 3, **kw)
f.fails("PagedAttention", 1, good[:6] + [np.array([20, 0, 0], i32), good[7]], "past_seqlens", out_types=[f16] * 3, **kw)
f.fails("PagedAttention", 1, good[:5] + [np.array([0, 5, 7, 9], i32)] + good[6:], "cumulative_sequence_length", out_types=[f16] * 3, **kw)
f.declines("PagedAttention", 1, good, "local_window_size", outs=3, domain=MS, attrs={**attrs, "local_window_size": 4}, out_types=[f16] * 3)
f.declines("PagedAttention", 1, good, "without an output", domain=MS, attrs=attrs, out_types=[f16])

test_paged = f.pytest()


def test_packed():
    """ONNX Runtime's shape inference takes the packed form only where its width is known."""
    check_runs(PACKED, False)
