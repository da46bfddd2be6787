"""The Python package: finding the library, registering it, making sessions with it."""
from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnxruntime_ep_mlx as mlx_ep


def add_model() -> bytes:
    vector = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("a", "b", "c")]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["c"], name="add")], "add", vector[:2], vector[2:])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()


def newest_session() -> dict:
    return mlx_ep.describe("sessions")[-1]


def check_add(session: onnxruntime.InferenceSession) -> None:
    session.disable_fallback()
    assert session.get_providers()[0] == mlx_ep.ep_name()
    a, b = np.array([1, 2, 3], np.float32), np.array([10, 20, 30], np.float32)
    np.testing.assert_array_equal(session.run(None, {"a": a, "b": b})[0], a + b)
    record = newest_session()
    assert (record["nodes"], record["claimed"], record["groups"]) == (1, 1, 1), record
    assert record["placed"][0]["place"] == "MLX"
    assert record["runs"] == 1


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=120, check=False)


def test_names() -> None:
    assert mlx_ep.ep_name() == mlx_ep.get_ep_name() == "MLXExecutionProvider"
    assert mlx_ep.get_ep_names() == ["MLXExecutionProvider"]
    assert mlx_ep.version().count(".") == 2


def test_library_path_is_a_file() -> None:
    path = Path(mlx_ep.library_path())
    assert path.is_file() and path.is_absolute()
    assert mlx_ep.get_library_path() == str(path)
    assert path.name.startswith("libonnxruntime_mlx_ep")


def test_library_named_by_the_environment_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXRUNTIME_EP_MLX_LIBRARY", "/no/such/library.so")
    with pytest.raises(mlx_ep.LibraryNotFoundError, match="/no/such/library.so"):
        mlx_ep.library_path()


def test_missing_library_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxruntime_ep_mlx import library
    monkeypatch.delenv("ONNXRUNTIME_EP_MLX_LIBRARY", raising=False)
    monkeypatch.setattr(library, "library_file_name", lambda: "no-such-library.so")
    with pytest.raises(mlx_ep.LibraryNotFoundError, match="make build"):
        mlx_ep.library_path()


def test_old_onnxruntime_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(onnxruntime, "register_execution_provider_library")
    with pytest.raises(mlx_ep.OnnxRuntimeTooOldError, match="install onnxruntime"):
        mlx_ep.register_execution_provider_library()


def test_register_is_idempotent_and_undone() -> None:
    result = run_python("""
        import onnxruntime, onnxruntime_ep_mlx as m
        offered = lambda: [d.ep_name for d in onnxruntime.get_ep_devices()].count(m.ep_name())
        assert offered() == 0
        m.register_execution_provider_library(); once = offered()
        m.register_execution_provider_library(); assert offered() == once >= 1
        m.unregister_execution_provider_library(); assert offered() == 0
        m.unregister_execution_provider_library()
        m.register_execution_provider_library(); assert offered() == once
        print("done")
    """)
    assert result.returncode == 0 and result.stdout.strip() == "done", result.stderr


def test_library_registered_by_the_host_program_is_taken() -> None:
    result = run_python("""
        import onnxruntime, onnxruntime_ep_mlx as m
        onnxruntime.register_execution_provider_library("chosen_by_the_host", m.library_path())
        before = len(onnxruntime.get_ep_devices())
        m.append_to_session_options(onnxruntime.SessionOptions())
        assert len(onnxruntime.get_ep_devices()) == before
        print("done")
    """)
    assert result.returncode == 0 and result.stdout.strip() == "done", result.stderr


def test_append_to_session_options() -> None:
    options = onnxruntime.SessionOptions()
    mlx_ep.append_to_session_options(options)
    check_add(onnxruntime.InferenceSession(add_model(), options, enable_fallback=0))


def test_plain_providers_list() -> None:
    mlx_ep.register_execution_provider_library()
    providers = [mlx_ep.ep_name(), "CPUExecutionProvider"]
    check_add(onnxruntime.InferenceSession(add_model(), providers=providers, enable_fallback=0))


def test_describe_info() -> None:
    info = mlx_ep.describe("info")
    assert info["version"].startswith(mlx_ep.version())
    assert info["ort_api"] >= 23
    assert info["mlx"] and info["device"] and Path(info["library"]).name == Path(mlx_ep.library_path()).name


def test_describe_ops_lists_add() -> None:
    rows = mlx_ep.describe("ops")
    assert any(row["op_type"] == "Add" and row["domain"] in ("", "ai.onnx") for row in rows)


def test_describe_sessions_grow_by_one() -> None:
    def last_id() -> int:
        return max((record["id"] for record in mlx_ep.describe("sessions")), default=-1)
    options = onnxruntime.SessionOptions()
    mlx_ep.append_to_session_options(options)
    before = last_id()
    session = onnxruntime.InferenceSession(add_model(), options, enable_fallback=0)
    assert last_id() > before and newest_session()["live"]
    del session
    assert not newest_session()["live"]


def test_describe_unknown_topic() -> None:
    with pytest.raises(mlx_ep.DescribeError, match="weather"):
        mlx_ep.describe("weather")
