"""What the documents say about speed: python bench/run.py [--only PART …] [--seconds S] [--report FILE].

Products and small operators against ONNX Runtime's CPU provider and the reference BLAS; compiled routes against the eager route and
against the same network written by hand in MLX's Python. Medians with the 10th and the 90th percentile; ratios are taken in one process
(the reference BLAS line: in two, one after the other, since only one of them may load libmlx first).
"""
from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / p) for p in ("tests", "python", "bench")]

import compare  # noqa: E402
from timing import REPORT, Line, measure, write  # noqa: E402

REFERENCE = """
import time, numpy as np, mlx.core as mx
a = mx.array(np.random.default_rng(0).standard_normal((512, 512), np.float32)); mx.eval(a)
mx.set_default_device(mx.cpu)
times = []
for _ in range(12):
    start = time.perf_counter(); mx.eval(a @ a); times.append(time.perf_counter() - start)
print(sorted(times)[6])
"""


def one_node(op_type: str, opset: int, inputs: list, **kw):
    from case import Case, model_of, session
    case = Case(op_type, opset, inputs, **kw)
    model = model_of(case, False)
    feeds = {f"in{i}": a for i, a in enumerate(inputs) if a is not None and i not in case.const}
    pair = {"MLX": session(model, True, {"claim_all": "1"}), "ORT CPU": session(model, False)}
    return {name: lambda s=s: s.run(None, feeds) for name, s in pair.items()}


def nbits(m: int, k: int, n: int, bits: int, level: int):
    rng = np.random.default_rng(0)
    blocks = k // 32
    inputs = [rng.standard_normal((m, k)).astype(np.float32), rng.integers(0, 256, (n, blocks, 4 * bits)).astype(np.uint8),
              (0.01 * rng.random(n * blocks)).astype(np.float32), rng.integers(0, 256, n * blocks * bits // 8).astype(np.uint8)]
    attrs = {"K": k, "N": n, "bits": bits, "block_size": 32, "accuracy_level": level}
    return one_node("MatMulNBits", 1, inputs, attrs=attrs, domain="com.microsoft", const=(1, 2, 3))


def products(seconds: float) -> Iterator[Line]:
    x = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    reference = float(subprocess.run([sys.executable, "-c", REFERENCE], capture_output=True, text=True, check=True).stdout) * 1e6
    line = measure("f32 512x512x512", seconds, one_node("MatMul", 13, [x, x], const=(1,)))
    line.microseconds["reference BLAS"] = [reference] * 3
    line.ratios["reference BLAS"] = [t / reference for t in line.microseconds["MLX"]]
    yield line
    yield measure("Exp of one element", seconds, one_node("Exp", 13, [x[:1, :1]]))
    for bits, level in ((4, 4), (4, 0), (8, 4)):
        for m, k, n in ((1, 576, 1536), (64, 576, 1536), (1, 1536, 576), (64, 1536, 576)):
            yield measure(f"{bits}-bit level {level} {m}x{k}x{n}", seconds, nbits(m, k, n, bits, level))


PARTS = {"products": products, "nodes": compare.nodes, "embedding": compare.embedding, "convolutions": compare.convolutions,
         "language": compare.language}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each way of each line")
    parser.add_argument("--report", type=Path, default=REPORT, metavar="FILE", help="default: %(default)s")
    parsed = parser.parse_args()
    compare.prepare()
    lines: list[Line] = []
    for part in parsed.only:
        for line in PARTS[part](parsed.seconds):
            lines.append(line)
            print(line.text(), flush=True)
    write(parsed.report, lines)


if __name__ == "__main__":
    main()
