import numpy as np
from case import Family

f = Family("contrib_bert")
MS = {"domain": "com.microsoft"}
rng = np.random.default_rng(0)
f32, f16, i64, i32 = np.float32, np.float16, np.int64, np.int32


# RelativePositionBias
def buckets(n, count, far, both):
    distance = np.arange(n)[None, :] - np.arange(n)[:, None]
    first = np.zeros_like(distance)
    if both:
        count //= 2
        first = np.where(distance > 0, count, 0)
    distance = np.abs(distance)
    exact = count // 2
    with np.errstate(divide="ignore"):
        share = np.log(distance.astype(f32) / f32(exact)) / np.log(f32(far) / f32(exact))
    large = np.minimum(exact + np.where(distance < exact, 0, share * (count - exact)).astype(int), count - 1)
    return first + np.where(distance < exact, distance, large)


for both in (0, 1):
    for n, count, heads in ((1, 8, 2), (9, 8, 3), (40, 32, 4)):
        for t in (f32, f16):
            table = rng.standard_normal((count, heads)).astype(t)
            want = table.reshape(heads, count)[:, buckets(n, count, 20, both)][None]
            attrs = {"max_distance": 20, "is_bidirectional": both}
            f.case("RelativePositionBias", 1, [table, np.array([n], i64), np.array([n], i64)], const=(1, 2) if t == f32 else (), attrs=attrs, want=[want], **MS)
f.fails("RelativePositionBias", 1, [table, np.array([3], i64), np.array([4], i64)], attrs=attrs, why="must be equal", **MS)


# GatedRelativePositionBias
def gated(q, qb, positions, w, b, scale, heads):
    q, qb, positions, w, b, scale = (v.astype(np.float64) for v in (q, qb, positions, w, b, scale))
    batch, length, hidden = q.shape
    q = (q + qb).reshape(batch, length, heads, hidden // heads).transpose(0, 2, 1, 3)
    both = 1 / (1 + np.exp(-(q @ w + b).reshape(batch, heads, length, 2, -1).sum(-1)))
    return (both[..., :1] * (both[..., 1:] * scale - 1) + 2) * positions


for t, tol in ((f32, (1e-4, 1e-5)), (f16, (1e-2, 1e-2))):
    args = [rng.standard_normal(s).astype(t) for s in ((2, 5, 12), (12,), (1, 3, 5, 5), (4, 8), (8,), (1, 3, 1, 1))]
    f.case("GatedRelativePositionBias", 1, args, attrs={"num_heads": 3}, tol=tol, want=[gated(*args, 3).astype(t)], **MS)
f.declines("GatedRelativePositionBias", 1, args + [np.zeros((2, 5), i32)], attrs={"num_heads": 3}, why="without its padding", **MS)
f.fails("GatedRelativePositionBias", 1, args, attrs={"num_heads": 5}, why="does not fit 5 heads", **MS)

# RemovePadding, RestorePadding
for t in (f32, f16):
    for counts in ([2, 4, 0], [4, 4, 4], [0, 0, 0], [1, 1, 3]):
        x = rng.standard_normal((3, 4, 5)).astype(t)
        there = np.arange(4)[None] < np.array(counts)[:, None]
        offsets = np.concatenate([np.flatnonzero(there), np.flatnonzero(~there)]).astype(i32).reshape(3, 4)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(i32)
        f.case("RemovePadding", 1, [x, np.array(counts, i32)], outs=4, want=[x[there], offsets, starts, np.array([max(counts)], i32)], **MS)
        f.case("RestorePadding", 1, [x[there], offsets], want=[np.where(there[..., None], x, t(0))], **MS)
f.fails("RemovePadding", 1, [x, np.array([5, 1, 1], i32)], outs=4, why="5 tokens in a sequence of 4", **MS)
f.fails("RemovePadding", 1, [x, np.array([1, 1], i32)], outs=4, why="2 token counts for 3 sequences", **MS)
f.fails("RestorePadding", 1, [x[0], np.full((2, 2), 9, i32)], why="out of range", **MS)
test_contrib_bert = f.pytest()
