"""The compiled routes, behaviour by behaviour; a test's number is the behaviour's in docs/compiled.md."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_mlx as mlx_ep
from case import TOLERANCE, record_of_newest
from decoders import Driver, Shape, decoder


def open_(model: onnx.ModelProto, options: dict | None = None, mlx: bool = True) -> tuple[ort.InferenceSession, int]:
    so = ort.SessionOptions()
    so.log_severity_level = 4
    so.intra_op_num_threads = 2
    so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if not mlx:
        return ort.InferenceSession(model.SerializeToString(), so, providers=["CPUExecutionProvider"]), -1
    mlx_ep.append_to_session_options(so, {"claim_all": "1", **(options or {})})
    session = ort.InferenceSession(model.SerializeToString(), so, enable_fallback=0)
    record = record_of_newest()
    assert record["claimed"] == record["nodes"] and record["groups"] == 1, record["declined"]
    return session, record["id"]


def counted(identity: int) -> dict:
    return next(r for r in mlx_ep.describe("sessions") if r["id"] == identity)["counters"]


def close(got: np.ndarray, want: np.ndarray, what: str, factor: float = 10) -> None:
    rtol, atol = TOLERANCE[want.dtype.name]
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=factor * rtol, atol=factor * atol, err_msg=what)


def compare_steps(shape: Shape, model: onnx.ModelProto, prompt: int, steps: int, batch: int = 1, capacity: int = 0,
                  options: dict | None = None, chunks: int = 1, reference: str = "eager") -> dict:
    """Prompt in chunks, then steps of one token, on the compiled routes and on a reference; gives the counters."""
    session, identity = open_(model, options)
    mine = Driver(shape, session, batch, capacity)
    other_session, _ = open_(model, {"disable_compile": "1"}, mlx=reference == "eager")
    other = Driver(shape, other_session, batch, capacity)
    random = np.random.default_rng(3)
    sizes = [prompt] * chunks + [1] * steps
    for n, size in enumerate(sizes):
        ids = random.integers(0, shape.vocabulary, (batch, size))
        close(mine.step(ids), other.step(ids), f"step {n} of {size} tokens")
    for name in mine.cache:
        close(mine.rows(name, batch - 1), other.rows(name, batch - 1), name)
    return counted(identity)


FORMS = {
    "gqa": {}, "gqa-lengths": {"from_mask": False}, "gqa-packed": {"packed": True}, "gqa-partial": {"rotary": 0.5},
    "gqa-interleaved": {"interleaved": True}, "gqa-window": {"window": 5}, "gqa-softcap": {"softcap": 3.0}, "gqa-sink": {"sink": True},
    "gqa-none": {"rotary": 0.0}, "gqa-bits": {"bits": 4}, "gqa-embeds": {"embeds": True}, "gqa-f16": {"type": "f16"},
    "mha": {"attention": "mha"}, "mha-nomask": {"attention": "mha", "from_mask": False}, "onnx": {"attention": "onnx"},
    "onnx-softcap": {"attention": "onnx", "softcap": 3.0}, "onnx-f16": {"attention": "onnx", "type": "f16"},
}


@pytest.mark.parametrize("form", FORMS)
def test_compiled_08_decode_compiles_once_for_a_growing_cache(form):
    shape, model = decoder(**FORMS[form])
    c = compare_steps(shape, model, 3, 60)
    assert c["runs"] == {"eager": 0, "general": 0, "decode": 60, "prefill": 1}, c
    assert c["compiles"] == c["traces"] == 2 and not c["fallbacks"], c
    assert c["hits"] == 59


@pytest.mark.parametrize("form", [f for f in FORMS if f.startswith("gqa")])
def test_compiled_20_decode_with_a_shared_cache(form):
    shape, model = decoder(**FORMS[form])
    c = compare_steps(shape, model, 3, 40, capacity=64)
    assert c["runs"] == {"eager": 0, "general": 0, "decode": 40, "prefill": 1}, c
    assert c["compiles"] == 2 and not c["fallbacks"], c


@pytest.mark.parametrize("form", ["gqa", "gqa-packed", "gqa-window"])
@pytest.mark.parametrize("capacity", [0, 64])
def test_compiled_29_equal_to_the_cpu_provider(form, capacity):
    shape, model = decoder(**FORMS[form])
    c = compare_steps(shape, model, 4, 30, capacity=capacity, reference="cpu")
    assert c["runs"]["decode"] == 30 and c["runs"]["prefill"] == 1, c


@pytest.mark.parametrize("capacity", [0, 64])
def test_compiled_21_prefill_in_chunks_traces_once_a_length(capacity):
    shape, model = decoder()
    c = compare_steps(shape, model, 4, 3, capacity=capacity, chunks=5)
    assert c["runs"] == {"eager": 0, "general": 0, "decode": 3, "prefill": 5}, c
    assert c["compiles"] == 3, c  # the first prompt, a later chunk, a step


@pytest.mark.parametrize("capacity", [0, 64])
@pytest.mark.parametrize("form", ["gqa", "gqa-window", "gqa-interleaved"])
def test_compiled_07_batches(form, capacity):
    shape, model = decoder(**FORMS[form])
    c = compare_steps(shape, model, 3, 20, batch=3, capacity=capacity)
    assert c["runs"]["decode"] == 20 and not c["fallbacks"], c


def test_compiled_07_batches_of_different_lengths():
    """A shared cache whose entries are of different lengths: right padding of the first prompt, as GroupQueryAttention has it."""
    shape, model = decoder(from_mask=False)
    mine, identity = open_(model)
    cpu, _ = open_(model, mlx=False)
    drivers = [Driver(shape, s, 2, 32) for s in (mine, cpu)]
    random = np.random.default_rng(5)
    first = random.integers(0, shape.vocabulary, (2, 6))
    for d in drivers:
        d.lengths = np.array([0, -2])  # the second entry has four tokens and two of padding
    feeds = [d.step(first) for d in drivers]
    close(feeds[0][0], feeds[1][0], "prompt of the long entry")
    close(feeds[0][1, :4], feeds[1][1, :4], "prompt of the short entry")
    for n in range(12):
        ids = random.integers(0, shape.vocabulary, (2, 1))
        got, want = (d.step(ids) for d in drivers)
        close(got, want, f"step {n}")
    c = counted(identity)
    assert c["runs"] == {"eager": 0, "general": 0, "decode": 12, "prefill": 1}, c


@pytest.mark.parametrize("steps, kind", [(512, "gqa"), (512, "onnx")])
def test_compiled_15_hundreds_of_steps(steps, kind):
    shape, model = decoder(**FORMS[kind])
    c = compare_steps(shape, model, 2, steps)
    assert c["runs"]["decode"] == steps and c["compiles"] == 2 and not c["fallbacks"], c


def test_compiled_23_a_shared_cache_gets_its_new_rows_only():
    shape, model = decoder(layers=3)
    session, identity = open_(model)
    d = Driver(shape, session, 1, 256)
    d.step([1, 2, 3])
    d.step([4])
    before, runs = counted(identity)["bytes_copied"], 10
    for n in range(runs):
        d.step([n])
    row = shape.kv_heads * shape.size * 4
    assert counted(identity)["bytes_copied"] - before == runs * (shape.layers * 2 * row + shape.vocabulary * 4)


def test_compiled_23_rows_behind_the_new_ones_stay():
    shape, model = decoder()
    session, _ = open_(model)
    d = Driver(shape, session, 1, 16)
    for value in d.cache.values():
        value.numpy()[:] = np.nan  # whatever the buffer held before
    logits = [d.step([1, 2, 3]), d.step([4]), d.step([5])]
    assert all(np.isfinite(x).all() for x in logits)
    for value in d.cache.values():
        assert np.isfinite(value.numpy()[0, :, :5]).all() and np.isnan(value.numpy()[0, :, 5:]).all()


def test_compiled_08_rewinding_a_shared_cache():
    shape, model = decoder()
    session, identity = open_(model)
    d = Driver(shape, session, 1, 64)
    d.step([1, 2, 3])
    first = [d.step([n]) for n in range(5)]
    d.lengths[:] = 3
    again = [d.step([n]) for n in range(5)]
    for a, b in zip(first, again):
        np.testing.assert_array_equal(a, b)
    assert counted(identity)["runs"]["decode"] == 10


def one_attention(op: str, domain: str, names: list[str], dims: dict, **attrs) -> onnx.ModelProto:
    """A node with a cache and nothing else; every size is symbolic."""
    kinds = {"lengths": TensorProto.INT32, "total": TensorProto.INT32, "attention_mask": TensorProto.INT32}
    ins = [tensor(n, [f"{n}{i}" for i in range(dims[n])], kinds.get(n, TensorProto.FLOAT)) for n in names if n]
    outs = [tensor(n, [f"{n}{i}" for i in range(r)]) for n, r in (("y", 3), ("nk", 4), ("nv", 4))]
    model = simple([helper.make_node(op, names, ["y", "nk", "nv"], domain=domain, **attrs)], ins, outs)
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


def refused_after_good_runs(model: onnx.ModelProto, good, bad: dict, why: str) -> None:
    """Runs that fit, one that does not (an error, as on the eager route), and runs that fit again, on the same closure."""
    session, identity = open_(model)
    for past in (4, 5, 6):
        session.run(None, good(past))
    with pytest.raises(Exception, match=why):
        session.run(None, {**good(7), **bad})
    session.run(None, good(8))
    c = counted(identity)
    assert c["runs"] == {"eager": 0, "general": 0, "decode": 4, "prefill": 0} and c["compiles"] == 1, c
    assert c["fallbacks"] == {"a value is out of its range": 1}, c


def rows(*dims) -> np.ndarray:
    return np.random.default_rng(4).standard_normal(dims).astype(np.float32)


def test_compiled_22_past_keys_and_values_of_different_lengths_are_an_error():
    names = ["q", "k", "v", "", "", "", "pk", "pv"]
    model = one_attention("MultiHeadAttention", "com.microsoft", names, {"q": 3, "k": 3, "v": 3, "pk": 4, "pv": 4}, num_heads=2)
    good = lambda p: {"q": rows(1, 1, 16), "k": rows(1, 1, 16), "v": rows(1, 1, 16), "pk": rows(1, 2, p, 8), "pv": rows(1, 2, p, 8)}  # noqa: E731
    refused_after_good_runs(model, good, {"pv": rows(1, 2, 3, 8)}, "past")


def test_compiled_22_a_mask_that_is_longer_than_the_cache_is_an_error():
    names = ["q", "k", "v", "", "attention_mask", "", "pk", "pv"]
    dims = {"q": 3, "k": 3, "v": 3, "attention_mask": 2, "pk": 4, "pv": 4}
    model = one_attention("MultiHeadAttention", "com.microsoft", names, dims, num_heads=2)
    good = lambda p: {"q": rows(1, 1, 16), "k": rows(1, 1, 16), "v": rows(1, 1, 16), "pk": rows(1, 2, p, 8), "pv": rows(1, 2, p, 8),  # noqa: E731
                      "attention_mask": np.ones((1, p + 1), np.int32)}
    refused_after_good_runs(model, good, {"attention_mask": np.ones((1, 12), np.int32)}, "mask")


def test_compiled_22_a_cache_that_is_shorter_than_another_layers_is_an_error():
    shape, model = decoder()
    session, identity = open_(model)
    d = Driver(shape, session, 1, 16)
    for part in ("key", "value"):
        d.cache[f"past_key_values.1.{part}"] = d.value(np.zeros((1, shape.kv_heads, 4, shape.size), np.float32))
    d.step([1, 2, 3])
    d.step([4])
    d.lengths[:] = 6
    with pytest.raises(Exception, match="past rows"):
        d.step([5])
    assert counted(identity)["fallbacks"] == {"a value is out of its range": 1}


def test_compiled_22_a_bias_that_is_shorter_than_the_cache_is_an_error():
    names = ["q", "k", "v", "pk", "pv", "lengths", "total", "", "", "", "bias"]
    dims = {"q": 3, "k": 3, "v": 3, "pk": 4, "pv": 4, "lengths": 1, "total": 0, "bias": 4}
    model = one_attention("GroupQueryAttention", "com.microsoft", names, dims, num_heads=2, kv_num_heads=1)
    good = lambda p: {"q": rows(1, 1, 32), "k": rows(1, 1, 16), "v": rows(1, 1, 16), "pk": rows(1, 1, p, 16), "pv": rows(1, 1, p, 16),  # noqa: E731
                      "lengths": np.array([p], np.int32), "total": np.array(p + 1, np.int32), "bias": rows(1, 2, 1, 16)}
    refused_after_good_runs(model, good, {"total": np.array(17, np.int32), "lengths": np.array([16], np.int32), "pk": rows(1, 1, 16, 16),
                                          "pv": rows(1, 1, 16, 16)}, "attention_bias")


# ---- the general route ------------------------------------------------------------------------------------------------------
def simple(nodes, inputs, outputs, constants=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    return model


def tensor(name, dims, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def gelu_like() -> onnx.ModelProto:
    return simple([helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Tanh", ["a"], ["b"]), helper.make_node("Add", ["a", "b"], ["y"])],
                  [tensor("x", ["n", "m"])], [tensor("y", ["n", "m"])])


def run_shapes(session, shapes):
    for s in shapes:
        x = np.random.default_rng(1).standard_normal(s).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, np.exp(x) + np.tanh(np.exp(x)), rtol=1e-5)


def test_compiled_15_alternating_shapes_are_traced_once_each():
    session, identity = open_(gelu_like())
    run_shapes(session, [(2, 3), (4, 5)] * 20)
    c = counted(identity)
    assert c["traces"] == c["compiles"] == 2 and c["hits"] == 38 and c["runs"]["general"] == 40, c


def test_compiled_15_the_cache_of_closures_is_bounded():
    session, identity = open_(gelu_like(), {"closures": "3"})
    run_shapes(session, [(n, 3) for n in (1, 2, 3, 4, 1, 2)])
    c = counted(identity)
    assert c["evictions"] == 3 and c["traces"] == 6 and c["runs"]["general"] == 6, c


def test_compiled_15_shapes_that_come_once_only_are_not_traced_for_ever():
    session, identity = open_(gelu_like())
    run_shapes(session, [(n, 3) for n in range(1, 30)])
    c = counted(identity)
    assert c["traces"] == 8 and c["fallbacks"] == {"the shapes are new once more": 21}, c
    run_shapes(session, [(25, 3), (25, 3)])  # it comes again: now it is
    assert counted(identity)["traces"] == 9


def test_compiled_16_empty_inputs_are_eager():
    session, identity = open_(gelu_like())
    run_shapes(session, [(2, 3), (0, 3), (2, 0), (2, 3)])
    c = counted(identity)
    assert c["runs"]["general"] == 2 and c["fallbacks"] == {"an input has no elements": 2}, c


def test_compiled_24_values_that_the_host_reads_are_in_the_key():
    model = simple([helper.make_node("Add", ["shape", "zero"], ["s"]), helper.make_node("Exp", ["x"], ["e"]),
                    helper.make_node("Reshape", ["e", "s"], ["y"])],
                   [tensor("x", [6]), tensor("shape", [2], TensorProto.INT64)], [tensor("y", ["a", "b"])], [("zero", np.zeros(2, np.int64))])
    session, identity = open_(model)
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [3, 2], [2, 3], [1, 6], [3, 2]):
        (y,) = session.run(None, {"x": x, "shape": np.array(shape)})
        assert y.shape == tuple(shape)
        np.testing.assert_allclose(y.ravel(), np.exp(x), rtol=1e-6)
    c = counted(identity)
    assert c["compiles"] == 3 and c["hits"] == 2 and c["runs"]["general"] == 5, c


def test_compiled_24_an_index_out_of_range_is_an_error():
    model = simple([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Gather", ["e", "i"], ["y"])],
                   [tensor("x", [4]), tensor("i", [1], TensorProto.INT64)], [tensor("y", [1])])
    session, identity = open_(model)
    x = np.arange(4, dtype=np.float32)
    for i in (0, 3, -4):
        np.testing.assert_allclose(session.run(None, {"x": x, "i": np.array([i])})[0], np.exp(x)[[i]], rtol=1e-6)
    for i in (4, -5, 2**40):
        with pytest.raises(Exception, match="out of range"):
            session.run(None, {"x": x, "i": np.array([i])})
    np.testing.assert_allclose(session.run(None, {"x": x, "i": np.array([2])})[0], np.exp(x)[[2]], rtol=1e-6)
    c = counted(identity)
    assert c["runs"]["general"] == 4 and c["fallbacks"] == {"a value is out of its range": 3}, c


def test_compiled_04_nodes_that_shape_by_data_are_eager():
    model = simple([helper.make_node("NonZero", ["x"], ["y"])], [tensor("x", [5])], [tensor("y", [1, "n"], TensorProto.INT64)])
    session, identity = open_(model)
    for x in ([0, 1, 2, 0, 3], [1, 1, 1, 1, 1]):
        x = np.array(x, np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.array(np.nonzero(x)))
    assert counted(identity)["fallbacks"] == {"a node reads data or draws numbers": 2}


# ---- switches -----------------------------------------------------------------------------------------------------------------
SWITCHES = {"ONNX_GENAI_MLX_NO_COMPILE": (0, 0, 0), "ONNXRUNTIME_EP_MLX_NO_COMPILE": (0, 0, 0), "MLX_EP_NO_GENERAL_COMPILE": (0, 1, 1),
            "ONNXRUNTIME_EP_MLX_NO_GENERAL_COMPILE": (0, 1, 1), "MLX_EP_NO_PREFILL_COMPILE": (1, 1, 0),
            "ONNXRUNTIME_EP_MLX_NO_PREFILL_COMPILE": (1, 1, 0), "disable_compile": (0, 0, 0), "disable_general_compile": (0, 1, 1),
            "disable_prefill_compile": (1, 1, 0)}


def route_counts(options: dict) -> tuple[int, int, int]:
    session, general = open_(gelu_like(), options)
    run_shapes(session, [(2, 3)])
    shape, model = decoder()
    stepper, identity = open_(model, options)
    d = Driver(shape, stepper)
    d.step([1, 2])
    d.step([3])
    runs = counted(identity)["runs"]
    return counted(general)["runs"]["general"], runs["decode"], runs["prefill"]


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("value", ["1", "0", ""])
def test_compiled_01_02_switches(switch, value, monkeypatch):
    on = value == "1"
    if switch.isupper():
        monkeypatch.setenv(switch, value)
        options = {}
    else:
        options = {switch: value or "0"}
    assert route_counts(options) == (SWITCHES[switch] if on else (1, 1, 1))


def test_compiled_without_a_compiler_on_the_path():
    """Nothing is compiled by a program of the machine: a PATH that has none changes nothing."""
    here = Path(__file__).resolve().parent
    code = ("import sys; sys.path[:0] = [%r, %r]\n"
            "import onnxruntime_ep_mlx as m; m.register_execution_provider_library()\n"
            "from test_compiled import *\n"
            "assert route_counts({}) == (1, 1, 1); print('compiled')") % (str(here), str(here.parent / "python"))
    env = {**os.environ, "PATH": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.strip() == "compiled", done.stderr


def test_compiled_28_a_session_tells_its_counts_at_its_end():
    here = Path(__file__).resolve().parent
    code = ("import sys; sys.path[:0] = [%r, %r]\n"
            "import onnxruntime_ep_mlx as m; m.register_execution_provider_library()\n"
            "from test_compiled import *\n"
            "session, _ = open_(gelu_like()); run_shapes(session, [(2, 3)] * 4); del session") % (str(here), str(here.parent / "python"))
    env = {**os.environ, "ONNXRUNTIME_EP_MLX_VERBOSE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert '"general":4' in done.stderr and '"compiles":1' in done.stderr and "a session ends" in done.stderr, done.stderr


def test_counters_of_the_process():
    before = mlx_ep.counters()
    session, _ = open_(gelu_like())
    run_shapes(session, [(2, 3), (2, 3), (0, 3)])
    after = mlx_ep.counters()
    assert after["runs"]["general"] - before["runs"]["general"] == 2
    assert after["compiles"] - before["compiles"] == 1 and after["hits"] - before["hits"] == 1
    why = "an input has no elements"
    assert after["fallbacks"][why] - before["fallbacks"].get(why, 0) == 1


# ---- control flow and recurrences ---------------------------------------------------------------------------------------------
def branch(name: str, op: str) -> onnx.GraphProto:
    return helper.make_graph([helper.make_node(op, ["e"], [name])], name, [], [tensor(name, ["n"])])


def test_compiled_03_if_is_keyed_by_its_decision():
    nodes = [helper.make_node("Exp", ["x"], ["e"]),
             helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "Neg"), else_branch=branch("f", "Sqrt"))]
    session, identity = open_(simple(nodes, [tensor("x", ["n"]), tensor("c", [], TensorProto.BOOL)], [tensor("y", ["n"])]))
    x = np.arange(4, dtype=np.float32)
    for c in (True, False, True, False, False):
        (y,) = session.run(None, {"x": x, "c": np.array(c)})
        np.testing.assert_allclose(y, -np.exp(x) if c else np.sqrt(np.exp(x)), rtol=1e-6)
    c = counted(identity)
    assert c["runs"]["general"] == 5 and c["compiles"] == 2 and c["hits"] == 3, c


def test_compiled_03_an_if_that_needs_data_is_eager():
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("ReduceSum", ["e"], ["s"], keepdims=0),
             helper.make_node("Greater", ["s", "limit"], ["c"]),
             helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "Neg"), else_branch=branch("f", "Sqrt"))]
    session, identity = open_(simple(nodes, [tensor("x", ["n"])], [tensor("y", ["n"])], [("limit", np.float32(2000))]))
    for scale in (1, 5):
        x = np.full(1000, scale, np.float32)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, -np.exp(x) if np.exp(x).sum() > 2000 else np.sqrt(np.exp(x)), rtol=1e-6)
    assert counted(identity)["runs"]["eager"] == 2


def test_compiled_03_a_loop_of_known_length_is_one_closure():
    body = helper.make_graph([helper.make_node("Add", ["a", "x"], ["b"]), helper.make_node("Identity", ["go"], ["on"]),
                              helper.make_node("Exp", ["b"], ["slice"])], "body",
                             [tensor("i", [], TensorProto.INT64), tensor("go", [], TensorProto.BOOL), tensor("a", [3])],
                             [tensor("on", [], TensorProto.BOOL), tensor("b", [3]), tensor("slice", [3])])
    nodes = [helper.make_node("Loop", ["m", "", "x"], ["y", "slices"], body=body)]
    session, identity = open_(simple(nodes, [tensor("m", [], TensorProto.INT64), tensor("x", [3])],
                                     [tensor("y", [3]), tensor("slices", ["n", 3])]))
    x = np.array([0.1, 0.2, 0.3], np.float32)
    for m in (3, 70, 3):
        y, slices = session.run(None, {"x": x, "m": np.array(m)})
        np.testing.assert_allclose(y, x * (m + 1), rtol=1e-5)
        np.testing.assert_allclose(slices, np.exp(x * np.arange(2, m + 2)[:, None]), rtol=1e-4)
    c = counted(identity)
    assert c["runs"]["general"] == 3 and c["compiles"] == 2, c


@pytest.mark.parametrize("op, gates", [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_compiled_recurrences_are_one_closure(op, gates):
    random = np.random.default_rng(2)
    w, r = (random.standard_normal((1, gates * 5, k)).astype(np.float32) for k in (3, 5))
    outs = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    model = simple([helper.make_node(op, ["x", "w", "r"], outs, hidden_size=5)], [tensor("x", ["t", "b", 3])],
                   [tensor(o, None) for o in outs], [("w", w), ("r", r)])
    session, identity = open_(model)
    cpu, _ = open_(model, mlx=False)
    for t in (4, 9, 4):
        x = random.standard_normal((t, 2, 3)).astype(np.float32)
        for a, b in zip(session.run(None, {"x": x}), cpu.run(None, {"x": x})):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    c = counted(identity)
    assert c["runs"]["general"] == 3 and c["compiles"] == 2, c


# ---- a real model -------------------------------------------------------------------------------------------------------------
def test_compiled_29_smollm2_for_hundreds_of_steps():
    from onnxruntime_ep_mlx.demo import smollm2_folder
    from onnxruntime_ep_mlx.generate import Decoder
    folder = smollm2_folder()
    compiled, eager = Decoder(folder, "mlx"), Decoder(folder, "mlx", options={"disable_compile": "1"})
    ids = list(range(100, 120))
    mine, theirs = compiled.step(ids), eager.step(ids)
    for n in range(512):
        a, b = int(np.argmax(mine)), int(np.argmax(theirs))
        if a != b:
            second, first = np.sort(theirs)[-2:]
            assert first - second < 1e-3, f"step {n}: {a} for {b}"
        mine, theirs = compiled.step([b]), eager.step([b])
    np.testing.assert_allclose(mine, theirs, rtol=1e-2, atol=1e-2)
    c = compiled.record()["counters"]
    assert c["runs"] == {"eager": 0, "general": 0, "decode": 512, "prefill": 1}, c
    assert c["compiles"] == c["traces"] == 2 and not c["fallbacks"], c
