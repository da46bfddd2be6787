"""The C example: ONNX Runtime opened from its wheel, this provider registered, a model run on it."""
from __future__ import annotations

import subprocess
from pathlib import Path

import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnxruntime_ep_mlx as mlx_ep


def example() -> Path:
    return Path(mlx_ep.library_path()).parent / "run_model"


def ort_library() -> str:
    capi = Path(onnxruntime.__file__).parent / "capi"
    return str(next(p for p in sorted(capi.iterdir()) if p.name.startswith(("libonnxruntime.so", "libonnxruntime.")) and "providers" not in p.name))


@pytest.fixture
def model(tmp_path) -> str:
    v = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Add", ["e", "x"], ["y"])], "g", v[:1], v[1:])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString())
    return str(path)


def test_runs_a_model_on_mlx(model):
    done = subprocess.run([str(example()), ort_library(), mlx_ep.library_path(), model], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "3.71828" in done.stdout  # exp(1) + 1
    assert "nodes on MLX: 2, on the CPU provider: 0" in done.stdout


def test_a_missing_model_is_an_error():
    done = subprocess.run([str(example()), ort_library(), mlx_ep.library_path(), "/no/such.onnx"], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "/no/such.onnx" in done.stderr
