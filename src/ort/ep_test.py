"""The provider as ONNX Runtime sees it: graphs of every form, options, errors, threads, lifetimes and what it reports."""
import gc
import subprocess
import sys
import threading

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_mlx as mlx_ep

F = TensorProto.FLOAT
info = helper.make_tensor_value_info
rng = np.random.default_rng(0)
X = rng.standard_normal((2, 3)).astype(np.float32)
W = rng.standard_normal(3).astype(np.float32)


def model(nodes, inputs, outputs, initializers=(), opset=20):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 2)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets).SerializeToString()


def session(source, options=None, level=ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
    settings = ort.SessionOptions()
    settings.graph_optimization_level = level
    mlx_ep.append_to_session_options(settings, options)
    made = ort.InferenceSession(source, settings, enable_fallback=0)
    made.disable_fallback()
    return made


def newest():
    return mlx_ep.describe("sessions")[-1]


def check(source, feeds, want, claimed, **how):
    s = session(source, **how)
    for _ in range(2):
        got = s.run(None, feeds)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
        assert g.shape == np.shape(w)
    record = newest()
    assert record["claimed"] == claimed, record
    assert record["runs"] == 2 * record["groups"] > 0, record
    return record


SCALE = model([helper.make_node("Mul", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "b"], ["z"])],
              [info("x", F, ["n", 3])], [info("z", F, ["n", 3])],
              [numpy_helper.from_array(W, "w"), numpy_helper.from_array(np.float32(2), "b")])
ADD = model([helper.make_node("Add", ["x", "y"], ["z"], name="sum")], [info("x", F, None), info("y", F, None)], [info("z", F, None)])


@pytest.mark.parametrize("level", [ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL])
@pytest.mark.parametrize("rows", [2, 1, 0])
def test_constants(level, rows):
    check(SCALE, {"x": X[:rows]}, [X[:rows] * W + 2], 2, level=level)


def test_unknown_rank():
    check(ADD, {"x": X, "y": W}, [X + W], 1)
    check(ADD, {"x": np.array(1, np.float32), "y": np.array(2, np.float32)}, [np.float32(3)], 1)


def test_scalars():
    scalar = model([helper.make_node("Add", ["x", "y"], ["z"])], [info("x", F, []), info("y", F, [])], [info("z", F, [])])
    check(scalar, {"x": np.array(1, np.float32), "y": np.array(2, np.float32)}, [np.float32(3)], 1)


def test_initializer_that_is_an_input():
    source = model([helper.make_node("Add", ["x", "w"], ["z"])], [info("x", F, ["n", 3]), info("w", F, [3])],
                   [info("z", F, ["n", 3])], [numpy_helper.from_array(W, "w")])
    check(source, {"x": X}, [X + W], 1)
    check(source, {"x": X, "w": 2 * W}, [X + 2 * W], 1)


def test_external_data(tmp_path):
    big = rng.standard_normal((64, 3)).astype(np.float32)
    source = onnx.load_from_string(model([helper.make_node("Add", ["x", "w"], ["z"])], [info("x", F, [64, 3])],
                                         [info("z", F, [64, 3])], [numpy_helper.from_array(big, "w")]))
    onnx.save(source, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    check(str(tmp_path / "m.onnx"), {"x": 3 * big}, [4 * big], 1)


@pytest.mark.parametrize("count", [2, 128, 129, 200])
def test_many_inputs(count):
    names = [f"x{i}" for i in range(count)]
    source = model([helper.make_node("Max", names, ["z"])], [info(n, F, [3]) for n in names], [info("z", F, [3])])
    check(source, {n: W + i for i, n in enumerate(names)}, [W + count - 1], 1)


def test_a_node_left_to_the_cpu_splits_the_graph():
    nodes = [helper.make_node("Add", ["x", "y"], ["a"], name="first"),
             helper.make_node("Cast", ["a"], ["words"], name="to_words", to=TensorProto.STRING),
             helper.make_node("Cast", ["words"], ["e"], name="from_words", to=TensorProto.FLOAT),
             helper.make_node("Mul", ["e", "a"], ["z"], name="last")]
    source = model(nodes, [info("x", F, [2, 3]), info("y", F, [3])], [info("z", F, [2, 3]), info("a", F, [2, 3])])
    ones = np.ones_like(X)
    record = check(source, {"x": ones, "y": ones[0]}, [4 * ones, 2 * ones], 2)
    assert record["groups"] == 2
    assert [(p["name"], p["place"]) for p in record["placed"]] == [("first", "MLX"), ("to_words", "CPU"), ("from_words", "CPU"),
                                                                  ("last", "MLX")]
    assert record["placed"][0]["group"] != record["placed"][3]["group"] and record["placed"][1]["group"] is None
    assert [d["name"] for d in record["declined"]] == ["to_words", "from_words"] and record["declined"][0]["reason"]


@pytest.mark.parametrize("condition", [True, False])
def test_bodies_read_outer_values(condition):
    yes = helper.make_graph([helper.make_node("Add", ["a", "k"], ["yz"])], "yes", [], [info("yz", F, [2, 3])])
    no = helper.make_graph([helper.make_node("Sub", ["a", "k"], ["nz"])], "no", [], [info("nz", F, [2, 3])])
    nodes = [helper.make_node("Add", ["x", "y"], ["a"]), helper.make_node("If", ["c"], ["i"], then_branch=yes, else_branch=no),
             helper.make_node("Mul", ["i", "i"], ["z"])]
    source = model(nodes, [info("x", F, [2, 3]), info("y", F, [3]), info("c", TensorProto.BOOL, [])], [info("z", F, [2, 3])],
                   [numpy_helper.from_array(W, "k")])
    want = (X + W + (W if condition else -W)) ** 2
    s = session(source)
    np.testing.assert_allclose(s.run(None, {"x": X, "y": W, "c": np.array(condition)})[0], want, rtol=1e-5)
    assert newest()["runs"] > 0


def test_options():
    for options in ({"device": "cpu"}, {"device": "auto", "verbose": "0"}, {"claim_all": "1"}):
        check(SCALE, {"x": X}, [X * W + 2], 2, options=options)


@pytest.mark.parametrize("options, text", [({"nope": "1"}, "unknown option 'nope'.*known: device"), ({"device": "tpu"}, "expected auto, cpu or gpu"),
                                           ({"verbose": "maybe"}, "expected 0 or 1")])
def test_wrong_options_are_errors(options, text):
    with pytest.raises(Exception, match=text):
        session(SCALE, options)


def test_a_failing_run_says_where_and_the_session_goes_on():
    s = session(ADD)
    with pytest.raises(Exception, match=r"node 'sum' \(Add\)"):
        s.run(None, {"x": X, "y": np.ones(4, np.float32)})
    np.testing.assert_allclose(s.run(None, {"x": X, "y": W})[0], X + W)
    assert newest()["runs"] == 1


def test_runs_at_the_same_time():
    s = session(SCALE)
    wrong = []

    def work(rows):
        for i in range(100):
            x = np.full((rows, 3), i, np.float32)
            y = s.run(None, {"x": x})[0]
            if y.shape != x.shape or not np.allclose(y, x * W + 2):
                wrong.append((rows, i))

    threads = [threading.Thread(target=work, args=(k + 1,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and newest()["runs"] == 600


def test_records_outlive_sessions():
    gc.collect()
    s = session(SCALE)
    s.run(None, {"x": X})
    record = newest()
    assert record["live"] and record["runs"] == 1
    del s
    gc.collect()
    after = next(r for r in mlx_ep.describe("sessions") if r["id"] == record["id"])
    assert after == {**record, "live": False}
    for _ in range(70):
        session(SCALE)
    gc.collect()
    records = mlx_ep.describe("sessions")
    assert sum(not r["live"] for r in records) == 64
    assert [r["id"] for r in records] == sorted(r["id"] for r in records)


def test_describe():
    mlx_ep.register_execution_provider_library()
    about = mlx_ep.describe("info")
    assert about["ort_api"] == min(29, int(ort.__version__.split(".")[1])) and about["library"] == mlx_ep.library_path()
    row = next(r for r in mlx_ep.describe("ops") if r["op_type"] == "Add" and r["domain"] == "")
    assert row["until"] is None and isinstance(row["since"], int) and isinstance(row["traits"], list)
    with pytest.raises(mlx_ep.DescribeError):
        mlx_ep.describe("nothing")


RELOAD = """
import numpy as np, onnxruntime as ort, gc, sys
path, model = sys.argv[1:]
for _ in range(3):
    ort.register_execution_provider_library("MLXExecutionProvider", path)
    devices = [d for d in ort.get_ep_devices() if d.ep_name == "MLXExecutionProvider"]
    settings = ort.SessionOptions()
    settings.add_provider_for_devices(devices, {})
    s = ort.InferenceSession(model, settings)
    assert s.run(None, {"x": np.ones(3, np.float32), "y": np.ones(3, np.float32)})[0].tolist() == [2, 2, 2]
    del s, devices, settings
    gc.collect()
    ort.unregister_execution_provider_library("MLXExecutionProvider")
print("done")
"""


def test_the_library_can_be_loaded_again(tmp_path):
    (tmp_path / "add.onnx").write_bytes(ADD)
    command = [sys.executable, "-c", RELOAD, mlx_ep.library_path(), str(tmp_path / "add.onnx")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0 and "done" in answer.stdout, answer.stderr
