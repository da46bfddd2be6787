"""The compiled routes against the eager one and against the same network written by hand in MLX's Python with mx.compile:
python bench/compare.py [--json FILE] [--seconds S].

All in one process, taking turns, numpy in and numpy out; outputs are compared before anything is timed, and the routes of the
provider's runs are asserted. On the CPU device mx.compile needs a C++ compiler at run time; the provider does not.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / p) for p in ("tests", "python", "bench")]

import onnxruntime as ort  # noqa: E402

import onnxruntime_ep_mlx as mlx_ep  # noqa: E402
from run import measure  # noqa: E402


def close(name: str, got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    apart = float(np.abs(got - want).max()) / float(np.abs(want).max())
    assert apart <= tolerance, f"{name}: outputs are {apart} apart"


def sessions(path: str) -> tuple:
    from onnxruntime_ep_mlx.sessions import open_mlx_session
    return tuple(open_mlx_session(path, options) for options in ({}, {"disable_compile": "1"}))


def counters(record: dict) -> dict:
    return next(r for r in mlx_ep.describe("sessions") if r["id"] == record["id"])["counters"]


def assert_routes(record: dict, kinds: set[str]) -> None:
    c = counters(record)
    assert not c["fallbacks"] and {k for k, n in c["runs"].items() if n} <= kinds, c


def with_mlx(function):
    """numpy in, numpy out."""
    import mlx.core as mx
    compiled = mx.compile(function)

    def call(*arrays):
        outs = compiled(*(mx.array(a) for a in arrays))
        mx.eval(outs)
        return [np.array(o) for o in outs]
    return call


def networks():
    from onnxruntime_ep_mlx.embed import packaged_file
    import onnx.backend.test
    light = Path(onnx.backend.test.__file__).parent / "data" / "light" / "light_resnet50.onnx"
    yield "ResNet-50", str(light), (1, 3, 224, 224), 1e-3
    yield "OCR detector", str(packaged_file("rapidocr", "models/ch_PP-OCRv4_det_infer.onnx", "rapidocr")), (1, 3, 320, 320), 1e-3


def convolutional(seconds: float):
    from handmade import ConvNet
    for name, path, shape, tolerance in networks():
        x = np.random.default_rng(0).random(shape, dtype=np.float32)
        (mine, record), (eager, _) = sessions(path)
        feeds = {mine.get_inputs()[0].name: x}
        hand = with_mlx(ConvNet(path, list(feeds)))
        close(name, mine.run(None, feeds)[0], hand(x)[0], tolerance)
        close(name, mine.run(None, feeds)[0], eager.run(None, feeds)[0], 1e-5)
        yield name, measure(seconds, lambda: mine.run(None, feeds), lambda: eager.run(None, feeds), lambda: hand(x))
        assert_routes(record, {"general"})


def language_model(seconds: float):
    from handmade import SmolLM2
    from onnxruntime_ep_mlx.demo import smollm2_folder
    from onnxruntime_ep_mlx.generate import Decoder
    folder = smollm2_folder()
    (path,) = Path(folder).glob("*.onnx")
    hand_model = SmolLM2(str(path))
    hand = with_mlx(hand_model)
    mine, eager = Decoder(folder, "mlx"), Decoder(folder, "mlx", options={"disable_compile": "1"})
    (session, record), (eager_session, _) = (mine.session, mine.record()), (eager.session, None)
    size = hand_model.cos.shape[1]
    cos, sin = np.array(hand_model.cos), np.array(hand_model.sin)
    random = np.random.default_rng(0)
    names = [i.name for i in session.get_inputs()]
    for name, past, rows in (("SmolLM2 decode, past 64", 64, 1), ("SmolLM2 decode, past 512", 512, 1), ("SmolLM2 prefill, 64", 0, 64)):
        ids = random.integers(0, 1000, (1, rows))
        cache = [(0.1 * random.standard_normal((1, hand_model.kv, past, size))).astype(np.float32) for _ in range(2 * hand_model.layers)]
        total = past + rows
        every = {"input_ids": ids, "attention_mask": np.ones((1, total), np.int64), "position_ids": np.arange(past, total)[None]}
        feeds = {n: every[n] for n in names if n in every}
        feeds.update(zip((n for n in names if n.startswith("past")), cache))
        mask = np.where(np.arange(total)[None] <= np.arange(past, total)[:, None], 0, -np.inf).astype(np.float32)
        inputs = [ids, cos[past:total], sin[past:total], mask, *(cache if past else [])]
        close(name, session.run(None, feeds)[0], hand(*inputs)[0], 2e-3)
        yield name, measure(seconds, lambda: session.run(None, feeds), lambda: eager_session.run(None, feeds), lambda: hand(*inputs))
    assert_routes(record, {"decode", "prefill"})


def one_node(seconds: float):
    import mlx.core as mx
    from case import Case, model_of, record_of_newest, session
    for op, call, shape in (("Exp", mx.exp, (1, 1)), ("Neg", mx.negative, (64, 64))):
        x = np.random.default_rng(0).random(shape, dtype=np.float32)
        model = model_of(Case(op, 13, [x]), False)
        eager = session(model, True, {"claim_all": "1", "disable_compile": "1"})
        s = session(model, True, {"claim_all": "1"})
        record, a = record_of_newest(), mx.array(x)
        yield f"{op} of {shape}, MLX's evaluation", measure(seconds, lambda: s.run(None, {"in0": x}), lambda: eager.run(None, {"in0": x}),
                                                                  lambda: mx.eval(call(a)))
        assert_routes(record, {"general"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", default=str(ROOT / "build" / "reports" / "bench.json"))
    parser.add_argument("--seconds", type=float, default=2.0, help="of each line")
    parser.add_argument("--only", choices=("nodes", "convolutions", "language"), help="one part")
    parsed = parser.parse_args()
    mlx_ep.register_execution_provider_library()
    ort.set_default_logger_severity(4)
    rows = []
    import mlx.core as mx
    if not mx.metal.is_available() and mlx_ep.describe("info")["device"] == "cpu":
        mx.set_default_device(mx.cpu)
    parts = {"nodes": one_node, "convolutions": convolutional, "language": language_model}
    for part in [parts[parsed.only]] if parsed.only else parts.values():
        for name, (mine, eager, hand) in part(parsed.seconds):
            rows.append({"line": name, "mlx_us": mine, "eager_us": eager, "hand_us": hand, "ratio_eager": mine[1] / max(eager[1], 1e-3),
                         "ratio_hand": mine[1] / hand[1]})
            print(f"{name:32} compiled {mine[1]:10.0f} us   eager {eager[1]:10.0f} us   by hand {hand[1]:10.0f} us ({hand[0]:.0f} to {hand[2]:.0f})"
                  f"   ratio {rows[-1]['ratio_hand']:.3f}", flush=True)
    os.makedirs(Path(parsed.json).parent, exist_ok=True)
    Path(parsed.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
