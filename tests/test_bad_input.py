"""What bad input gets: a clear error, or ORT's CPU provider; never a crash, never a wrong number."""
from __future__ import annotations

import _ctypes
import ctypes
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_mlx as mlx_ep
from case import record_of_newest, run_on_mlx, session

F32 = TensorProto.FLOAT


def model(nodes, ins, outs, opset=20, inits=(), domains=()):
    graph = helper.make_graph(nodes, "bad", ins, outs, list(inits))
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)])
    m.ir_version = 10
    return m


def info(name, shape, t=F32):
    return helper.make_tensor_value_info(name, t, shape)


def test_a_file_that_is_no_provider_library(tmp_path):
    text = tmp_path / "libtext.so"
    text.write_text("not a library")
    with pytest.raises(Exception, match="libtext.so"):
        ort.register_execution_provider_library("text", str(text))
    with pytest.raises(Exception, match="CreateEpFactories|symbol"):
        ort.register_execution_provider_library("other", _ctypes.__file__)


def create_factories_with(newest: int) -> tuple[int, int, str]:
    """CreateEpFactories against a made-up host whose newest API is `newest`: status code, factories, message."""
    seen = {}
    status = ctypes.create_string_buffer(8)
    create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)

    @create
    def create_status(code, message):
        seen["status"] = (code, message.decode())
        return ctypes.addressof(status)

    api = (ctypes.c_void_p * 512)()
    api[0] = ctypes.cast(create_status, ctypes.c_void_p).value
    get = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
    version = ctypes.CFUNCTYPE(ctypes.c_char_p)
    get_api = get(lambda v: ctypes.addressof(api) if v <= newest else None)
    get_version = version(lambda: b"1.%d.0" % newest)
    base = (ctypes.c_void_p * 2)(ctypes.cast(get_api, ctypes.c_void_p).value, ctypes.cast(get_version, ctypes.c_void_p).value)
    lib = ctypes.CDLL(mlx_ep.library_path())
    lib.CreateEpFactories.restype = ctypes.c_void_p
    factories, n = (ctypes.c_void_p * 1)(), ctypes.c_size_t(99)
    result = lib.CreateEpFactories(b"mlx", ctypes.byref(base), None, factories, ctypes.c_size_t(1), ctypes.byref(n))
    code, message = seen.get("status", (0, ""))
    return (code if result else 0), n.value, message


def test_an_onnx_runtime_that_is_too_old():
    code, n, message = create_factories_with(22)
    assert code != 0 and n == 0
    assert "23" in message and "1.22.0" in message


@pytest.mark.parametrize("attrs, why", [({"approximate": "bogus"}, "approximate")])
def test_an_unsupported_attribute_goes_to_the_cpu_provider(attrs, why):
    m = model([helper.make_node("Gelu", ["x"], ["y"], name="gelu", **attrs)], [info("x", [2, 3])], [info("y", [2, 3])])
    try:
        session(m, True)
    except Exception as e:  # ORT's own checks may refuse it as well
        assert "approximate" in str(e) or "Gelu" in str(e)
    record = record_of_newest()
    assert record["claimed"] == 0 and why in record["declined"][0]["reason"], record


def test_a_cycle_between_claims_is_cut():
    """MLX nodes before and after a CPU node, and a direct edge between them: one fused node would wait for itself."""
    function = helper.make_function("test", "ByWords", ["u"], ["v"], [
        helper.make_node("Cast", ["u"], ["words"], to=TensorProto.STRING),
        helper.make_node("Cast", ["words"], ["v"], to=TensorProto.FLOAT)], [helper.make_opsetid("", 20)])
    nodes = [helper.make_node("Exp", ["x"], ["a"], name="before"), helper.make_node("ByWords", ["a"], ["b"], name="cpu", domain="test"),
             helper.make_node("Add", ["a", "b"], ["y"], name="after")]
    m = model(nodes, [info("x", [2, 2])], [info("y", [2, 2])], domains=("test",))
    m.functions.append(function)
    x = np.array([[0.1, 0.2], [0.5, -0.3]], np.float32)
    s = session(m, True)
    record = record_of_newest()
    assert (record["nodes"], record["claimed"], record["groups"]) == (4, 2, 2), record
    np.testing.assert_allclose(s.run(None, {"x": x})[0], 2 * np.exp(x), rtol=1e-5)


def chain():
    """y = softmax(x @ w + b): every shape unknown but w's."""
    rng = np.random.default_rng(0)
    inits = [numpy_helper.from_array(rng.standard_normal((4, 5)).astype(np.float32), "w"),
             numpy_helper.from_array(rng.standard_normal(5).astype(np.float32), "b")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["s"]),
             helper.make_node("Softmax", ["s"], ["y"])]
    return nodes, inits


@pytest.mark.parametrize("shape", [(0, 4), (3, 0, 4), (1, 4), (4,)])
def test_zero_size_dimensions_and_unknown_ranks(shape):
    nodes, inits = chain()
    m = model(nodes, [info("x", None)], [info("y", None)], inits=inits)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    got = run_on_mlx(m, {"x": x})[0]
    want = session(m, False).run(None, {"x": x})[0]
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_failure_in_the_middle_of_a_run_is_an_error_and_the_session_goes_on():
    nodes = [helper.make_node("Exp", ["x"], ["e"], name="exp"), helper.make_node("Add", ["e", "z"], ["y"], name="sum")]
    m = model(nodes, [info("x", ["n"]), info("z", ["m"])], [info("y", None)])
    s = session(m, True)
    assert record_of_newest()["claimed"] == 2
    x = np.ones(3, np.float32)
    with pytest.raises(Exception, match=r"node 'sum' \(Add\)"):
        s.run(None, {"x": x, "z": np.ones(4, np.float32)})
    np.testing.assert_allclose(s.run(None, {"x": x, "z": x})[0], np.exp(x) + 1, rtol=1e-6)


def test_types_that_mlx_lacks_stay_on_the_cpu_provider():
    nodes = [helper.make_node("StringConcat", ["a", "b"], ["c"], name="strings")]
    m = model(nodes, [info("a", [2], TensorProto.STRING), info("b", [2], TensorProto.STRING)], [info("c", [2], TensorProto.STRING)])
    s = session(m, True)
    record = record_of_newest()
    assert record["claimed"] == 0 and record["declined"][0]["reason"]
    assert list(s.run(None, {"a": np.array(["x", "y"]), "b": np.array(["1", "2"])})[0]) == ["x1", "y2"]


@pytest.mark.parametrize("options, why", [({"devise": "cpu"}, "unknown option 'devise'"), ({"device": "tpu"}, "auto, cpu or gpu")])
def test_bad_options_are_named(options, why):
    nodes, inits = chain()
    m = model(nodes, [info("x", [2, 4])], [info("y", [2, 5])], inits=inits)
    with pytest.raises(Exception, match=why):
        session(m, True, options)


def test_a_malformed_model_is_an_error():
    m = model([helper.make_node("Reshape", ["x", "shape"], ["y"], name="r")], [info("x", [2, 3])], [info("y", None)],
              inits=[numpy_helper.from_array(np.array([4, 4], np.int64), "shape")])
    with pytest.raises(Exception, match="[Rr]eshape|shape"):
        s = session(m, True, {"claim_all": "1"})
        s.run(None, {"x": np.zeros((2, 3), np.float32)})


def test_a_process_that_ends_with_open_sessions_ends_well():
    code = """
import numpy as np, onnx, onnxruntime_ep_mlx as m, onnxruntime as ort
from onnx import helper, TensorProto as T
v = lambda n: helper.make_tensor_value_info(n, T.FLOAT, [2])
g = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [v("x")], [v("y")])
so = ort.SessionOptions(); m.append_to_session_options(so, {"claim_all": 1})
s = ort.InferenceSession(helper.make_model(g, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString(), so)
print(s.run(None, {"x": np.zeros(2, np.float32)})[0].tolist(), m.describe("sessions")[-1]["runs"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1.0, 1.0] 1"


def test_models_from_a_file_with_external_data(tmp_path):
    nodes, inits = chain()
    m = model(nodes, [info("x", ["n", 4])], [info("y", ["n", 5])], inits=inits)
    path = str(tmp_path / "m.onnx")
    onnx.save_model(m, path, save_as_external_data=True, size_threshold=0, location="m.data")
    x = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
    got = run_on_mlx(path, {"x": x})[0]
    np.testing.assert_allclose(got, session(path, False).run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
