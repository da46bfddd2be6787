"""What the documents say about speed: python bench/run.py [--json] [--seconds S].

Medians of blocks of runs that take turns, with the 10th and 90th percentile; a line is a ratio measured in one process (the reference
BLAS line: in two, one after the other, since only one of them may load libmlx first).
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / p) for p in ("tests", "python")]

REFERENCE = """
import time, numpy as np, mlx.core as mx
a = mx.array(np.random.default_rng(0).standard_normal((512, 512), np.float32)); mx.eval(a)
mx.set_default_device(mx.cpu)
times = []
for _ in range(12):
    start = time.perf_counter(); mx.eval(a @ a); times.append(time.perf_counter() - start)
print(sorted(times)[6])
"""


SETTLE, BLOCK = 0.01, 10  # seconds; calls


def measure(seconds: float, *calls) -> list[list[float]]:
    """Microseconds (p10, p50, p90) of each call, in blocks that take turns: a pool that still spins after the other's
    block has gone to sleep when the next one is timed."""
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(times[0]) < 2 * BLOCK:
        for call, list_ in zip(calls, times):
            time.sleep(SETTLE)
            call(), call()
            for _ in range(BLOCK):
                start = time.perf_counter()
                call()
                list_.append((time.perf_counter() - start) * 1e6)
    return [[float(v) for v in np.percentile(t, (10, 50, 90))] for t in times]


def one_node(op_type: str, opset: int, inputs: list, **kw):
    from case import Case, model_of, session
    case = Case(op_type, opset, inputs, **kw)
    model = model_of(case, False)
    feeds = {f"in{i}": a for i, a in enumerate(inputs) if a is not None and i not in case.const}
    pair = session(model, True, {"claim_all": "1"}), session(model, False)
    return [lambda s=s: s.run(None, feeds) for s in pair]


def nbits(m: int, k: int, n: int, bits: int, level: int):
    rng = np.random.default_rng(0)
    blocks = k // 32
    inputs = [rng.standard_normal((m, k)).astype(np.float32), rng.integers(0, 256, (n, blocks, 4 * bits)).astype(np.uint8),
              (0.01 * rng.random(n * blocks)).astype(np.float32), rng.integers(0, 256, n * blocks * bits // 8).astype(np.uint8)]
    attrs = {"K": k, "N": n, "bits": bits, "block_size": 32, "accuracy_level": level}
    return one_node("MatMulNBits", 1, inputs, attrs=attrs, domain="com.microsoft", const=(1, 2, 3))


def lines(seconds: float):
    x = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    product, cpu = one_node("MatMul", 13, [x, x], const=(1,))
    reference = float(subprocess.run([sys.executable, "-c", REFERENCE], capture_output=True, text=True, check=True).stdout) * 1e6
    mine, theirs = measure(seconds, product, cpu)
    yield "f32 512x512x512, reference BLAS", [reference] * 3, mine
    yield "f32 512x512x512, ORT CPU", theirs, mine
    tiny, tiny_cpu = one_node("Exp", 13, [x[:1, :1]])
    mine, theirs = measure(seconds, tiny, tiny_cpu)
    yield "Exp of one element, ORT CPU", theirs, mine
    for bits, level in ((4, 4), (4, 0), (8, 4)):
        for m, k, n in ((1, 576, 1536), (64, 576, 1536), (1, 1536, 576), (64, 1536, 576)):
            mine, theirs = measure(seconds, *nbits(m, k, n, bits, level))
            yield f"{bits}-bit level {level} {m}x{k}x{n}, ORT CPU", theirs, mine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each line")
    parsed = parser.parse_args()
    import onnxruntime_ep_mlx as mlx_ep
    mlx_ep.register_execution_provider_library()
    rows = []
    for name, other, mine in lines(parsed.seconds):
        rows.append({"line": name, "other_us": other, "mlx_us": mine, "ratio": mine[1] / other[1]})
        if not parsed.json:
            print(f"{name:44} {other[1]:11.1f} us   MLX {mine[1]:9.1f} us ({mine[0]:.1f} to {mine[2]:.1f})   ratio {rows[-1]['ratio']:.3f}", flush=True)
    if parsed.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
