"""GroupQueryAttention against ONNX Runtime's CPU kernel (float32, float16) and against NumPy (bfloat16, norm weights)."""
import ml_dtypes
import numpy as np

from case import Case, Family, model_of, run_on_mlx

MS = "com.microsoft"
rng = np.random.default_rng(6)
f = Family("gqa")
i32 = np.int32


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def caches(rows, half, dtype=np.float32):
    angle = np.arange(rows)[:, None] * 10000.0 ** (-np.arange(half) / max(half, 1))
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


def gqa(batch=1, rows=1, past=0, capacity=None, heads=4, kv=2, size=16, lengths=None, total=None, packed=False, rotary=None,
        dtype=np.float32, positions=None, bias=None, sink=None, no_past=False, attrs=None, name="", outs=3, **kw):
    total = past + rows if total is None else total
    q = normal(batch, rows, (heads + 2 * kv if packed else heads) * size, dtype=dtype)
    k = None if packed else normal(batch, rows, kv * size, dtype=dtype)
    v = None if packed else normal(batch, rows, kv * size, dtype=dtype)
    held = past if capacity is None else capacity
    pk, pv = normal(batch, kv, held, size, dtype=dtype), normal(batch, kv, held, size, dtype=dtype)
    lengths = [total] * batch if lengths is None else lengths
    if capacity is not None:  # the CPU kernel clears what is not valid yet
        for b, n in enumerate(lengths):
            pk[b, :, max(n - rows, 0):] = 0
            pv[b, :, max(n - rows, 0):] = 0
    if no_past:
        pk = pv = None
    ins = [q, k, v, pk, pv, np.array([n - 1 for n in lengths], i32), np.array(total, i32)]
    a = {"num_heads": heads, "kv_num_heads": kv, **(attrs or {})}
    if rotary:
        ins += list(caches(64, rotary, dtype))
        a["do_rotary"] = 1
    extra = {9: positions, 10: bias, 11: sink}
    for i in sorted(k for k, x in extra.items() if x is not None):
        ins += [None] * (i - len(ins)) + [extra[i]]
    f.case("GroupQueryAttention", 1, ins, outs=outs, domain=MS, attrs=a, name=name, tol=kw.pop("tol", (1e-4, 2e-5)), **kw)
    return ins, a


# prefill, a chunk after a past, decode; a growing cache and one of fixed capacity
for rows, past in ((1, 0), (5, 0), (1, 7), (4, 6), (1, 1)):
    for capacity in (None, 16):
        for packed in (False, True):
            gqa(rows=rows, past=past, capacity=capacity, packed=packed, name=f"S{rows}-P{past}-C{capacity}")
            gqa(rows=rows, past=past, capacity=capacity, packed=packed, rotary=8, name=f"rotary-S{rows}-P{past}-C{capacity}")
gqa(batch=3, rows=4, name="batch")
gqa(batch=3, past=5, rotary=8, name="batch-decode")
gqa(heads=6, kv=6, rows=3, past=2, name="mha")
gqa(heads=8, kv=1, rows=3, name="mqa")
gqa(rows=4, rotary=8, attrs={"rotary_interleaved": 1}, name="interleaved")
gqa(past=4, rotary=8, attrs={"rotary_interleaved": 1}, name="interleaved-decode")
gqa(rows=4, past=3, rotary=8, size=32, name="partial")
gqa(rows=4, rotary=8, size=32, attrs={"rotary_interleaved": 1}, name="partial-interleaved")
gqa(rows=6, attrs={"scale": 0.5}, name="scale")
gqa(rows=6, outs=1, name="no-present")
# entries of different lengths: decode, each at its own place
gqa(batch=3, past=7, lengths=[8, 5, 2], name="ragged-decode", any_out=(1, 2))
gqa(batch=3, past=7, lengths=[8, 5, 2], capacity=12, rotary=8, name="ragged-shared")
gqa(batch=2, rows=1, past=7, lengths=[5, 8], rotary=8, packed=True, attrs={"local_window_size": 3}, name="ragged-window", any_out=(1, 2))
# windows, caps, sinks
for w in (1, 3, 100):
    gqa(rows=6, attrs={"local_window_size": w}, name=f"window{w}")
    gqa(rows=4, past=5, attrs={"local_window_size": w}, name=f"window{w}-chunk")
    gqa(past=9, attrs={"local_window_size": w}, rotary=8, name=f"window{w}-decode")
gqa(rows=4, past=3, attrs={"softcap": 2.0}, name="softcap")
gqa(past=6, attrs={"softcap": 1.0, "local_window_size": 4}, name="softcap-window")
gqa(rows=4, past=3, attrs={"smooth_softmax": 1}, name="smooth")
gqa(past=5, attrs={"smooth_softmax": 1}, name="smooth-decode")
gqa(rows=4, past=3, sink=normal(4), name="sink")
gqa(past=5, sink=normal(4), name="sink-decode")
gqa(rows=3, sink=normal(4), attrs={"softcap": 3.0, "local_window_size": 2}, name="sink-softcap-window")
# additive bias, positions
gqa(rows=4, past=3, bias=normal(1, 4, 4, 7), name="bias")
gqa(batch=2, rows=4, bias=normal(2, 1, 4, 4), name="bias-batch")
gqa(past=6, bias=normal(1, 1, 1, 7), attrs={"local_window_size": 3}, name="bias-window")
gqa(rows=4, past=3, bias=normal(1, 4, 4, 7), attrs={"softcap": 2.0}, name="bias-softcap")
gqa(rows=4, rotary=8, positions=np.array([[3, 4, 5, 6]]), name="positions-first")
gqa(past=6, rotary=8, positions=np.array([[11]]), name="positions-decode")
gqa(rows=3, past=4, rotary=8, positions=np.array([[9, 2, 5]]), name="positions-chunk")
gqa(batch=2, past=4, rotary=8, positions=np.array([[9], [2]]), name="positions-batch")
# halves
gqa(rows=5, rotary=8, dtype=np.float16, tol=(6e-3, 3e-3), name="f16")
gqa(past=5, rotary=8, dtype=np.float16, tol=(6e-3, 3e-3), name="f16-decode")
gqa(rows=3, past=5, dtype=np.float16, attrs={"softcap": 2.0}, tol=(6e-3, 3e-3), name="f16-softcap")


# ---- NumPy as the oracle ----------------------------------------------------------------------------------------------
def attend(q, k, v, mask=None, scale=None, cap=0.0, sink=None):
    """q [B, H, S, D], k and v [B, Hkv, T, D] in float64."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    logits = q @ k.swapaxes(2, 3) * (scale or q.shape[3] ** -0.5)
    if mask is not None:
        logits = np.where(mask, logits, -np.inf)
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


def split(x, heads):
    return x.astype(np.float64).reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def causal(rows, keys):
    return np.arange(keys)[None, :] <= np.arange(rows)[:, None] + keys - rows


def rms(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w.astype(np.float64)


def own(dtype, rows, past, norms=False, window=0, **kw):
    """NumPy is the oracle."""
    heads, kv, size = 4, 2, 8
    q, k, v = normal(1, rows, heads * size, dtype=dtype), normal(1, rows, kv * size, dtype=dtype), normal(1, rows, kv * size, dtype=dtype)
    pk, pv = normal(1, kv, past, size, dtype=dtype), normal(1, kv, past, size, dtype=dtype)
    wq, wk = normal(size, dtype=dtype), normal(size, dtype=dtype)
    fq, fk = split(q, heads), split(k, kv)
    if norms:
        fq, fk = rms(fq, wq), rms(fk, wk)
    keys = np.concatenate([pk.astype(np.float64), fk], 2)
    values = np.concatenate([pv.astype(np.float64), split(v, kv)], 2)
    y = attend(fq, keys, values, causal(rows, past + rows)).transpose(0, 2, 1, 3).reshape(1, rows, -1)
    ins = [q, k, v, pk, pv, np.array([past + rows - 1], i32), np.array(past + rows, i32)]
    if norms:
        ins += [None] * 7 + [wq, wk]
    f.case("GroupQueryAttention", 1, ins, outs=3, domain=MS, attrs={"num_heads": heads, "kv_num_heads": kv},
           want=[y.astype(dtype), keys.astype(dtype), values.astype(dtype)], out_types=[dtype] * 3, **kw)


def padded(causal_flag, lengths=(5, 2, 4)):
    """A right-padded prompt: only the rows inside each entry's length are compared, as only they are defined."""
    batch, rows, heads, kv, size = len(lengths), max(lengths), 4, 2, 8
    q, k, v = normal(batch, rows, heads * size), normal(batch, rows, kv * size), normal(batch, rows, kv * size)
    past = np.zeros((batch, kv, 0, size), np.float32)
    keys, values = split(k, kv), split(v, kv)
    inside = np.arange(rows) < np.array(lengths)[:, None]
    mask = inside[:, None, None, :] & (causal(rows, rows) if causal_flag else np.bool_(True))
    y = attend(split(q, heads), keys, values, mask).transpose(0, 2, 1, 3).reshape(batch, rows, -1)
    ins = [q, k, v, past, past, np.array(lengths, i32) - 1, np.array(rows, i32)]
    attrs = {"num_heads": heads, "kv_num_heads": kv, "causal": causal_flag}
    return ins, attrs, y, inside


def test_right_padded_prompt():
    for causal_flag in (1, 0):
        ins, attrs, want, inside = padded(causal_flag)
        model = model_of(Case("GroupQueryAttention", 1, ins, outs=3, domain=MS, attrs=attrs), True)
        feeds = {f"in{i}": a for i, a in enumerate(ins)}
        got = run_on_mlx(model, feeds)[0]
        np.testing.assert_allclose(got[inside], want[inside], rtol=1e-4, atol=1e-5)


bf16 = ml_dtypes.bfloat16
own(bf16, 4, 3, tol=(3e-2, 2e-2), name="bf16")
own(bf16, 1, 5, tol=(3e-2, 2e-2), name="bf16-decode")
own(np.float32, 4, 3, norms=True, name="norms", tol=(1e-4, 1e-5))
own(np.float32, 1, 3, norms=True, name="norms-decode", tol=(1e-4, 1e-5))

_in, _at = gqa(rows=3, past=2, name="base")
_f = lambda i, a=_at, **kw: f.fails("GroupQueryAttention", 1, i, outs=3, domain=MS, attrs=a, **kw)  # noqa: E731
_f(_in[:5] + [np.array([9], i32), _in[6]], why="seqlens_k")
_f(_in[:5] + [np.array([1], i32), _in[6]], why="past rows")
_rot = _in + list(caches(4, 8))
_f(_rot, {**_at, "do_rotary": 1}, why="cos_cache")
_d = lambda a, why, i=_in, **kw: f.declines("GroupQueryAttention", 1, i, why, outs=3, domain=MS, attrs={**_at, **a}, **kw)  # noqa: E731
_d({"sliding_window_cache": 1, "local_window_size": 2}, "sliding_window_cache")
_d({"qk_output": 1}, "qk_output")
_d({"local_window_size": 0}, "local_window_size")
_d({"do_rotary": 1}, "cos_cache")

test_gqa = f.pytest()
