"""The project's own rules: limits of the code, a fresh list of operators, a case for every operator."""
from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import onnx
import onnx.defs
import onnxruntime_ep_mlx as mlx_ep
from case import Family, record_of_newest, session
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state
from onnxruntime_ep_mlx import cli_ops

ROOT = Path(__file__).resolve().parent.parent


def tool(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_code_keeps_to_the_limits():
    assert tool("limits").violations() == []


def test_the_list_of_operators_is_fresh():
    text = cli_ops.markdown(mlx_ep.describe("ops"))
    assert (ROOT / "docs" / "ops.md").read_text() == text, "run: python -m onnxruntime_ep_mlx ops --md > docs/ops.md"


# Operators that ONNX Runtime folds away, or has no schema for yet: src/ops/ops_test.c runs their rows.
ONLY_IN_C = {("", "Constant"), ("", "SwiGLU")}


def families():
    for file in sorted((ROOT / "src" / "ops").glob("*_test.py")):
        spec = importlib.util.spec_from_file_location(f"family_{file.stem}", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield from (v for v in vars(module).values() if isinstance(v, Family))


def test_every_operator_has_a_passing_case():
    tested = {(c.domain, c.op_type) for family in families() for c in family.cases if c.kind == "runs"}
    listed = {(row["domain"], row["op_type"]) for row in mlx_ep.describe("ops")}
    assert len(listed) > 100
    assert sorted(listed - tested - ONLY_IN_C) == []


def test_every_operator_has_a_random_case():
    """By its name in a property file, or in the test file of a family whose builder a property calls."""
    text = "".join(f.read_text() for f in (ROOT / "tests").glob("test_properties*.py"))
    for name in set(re.findall(r'built\(draw, "(\w+)"', text)):
        text += (ROOT / "src" / "ops" / f"{name}_test.py").read_text()
    words = set(re.findall(r"\w+", text))
    words |= {"Reduce" + kind for kind in words}  # these are put together from their kinds
    listed = {(row["domain"], row["op_type"]) for row in mlx_ep.describe("ops")}
    assert sorted(key for key in listed - ONLY_IN_C if key[1] not in words) == []


def known_schemas():
    """What the onnx package and this ONNX Runtime know; the runtime's own layouts aside."""
    runtime = {(s.domain, s.name) for s in onnxruntime_pybind11_state.get_all_operator_schema()}
    package = {("" if s.domain == "ai.onnx" else s.domain, s.name) for s in onnx.defs.get_all_schemas()}
    return {key for key in runtime | package if key[0] != "com.ms.internal.nhwc"}


def test_every_schema_is_listed_or_has_a_reason_not_to_be():
    listed = {(row["domain"], row["op_type"]) for row in mlx_ep.describe("ops")}
    absent = [(row["domain"], row["op_type"]) for row in mlx_ep.describe("absent")]
    assert len(known_schemas()) > 300
    assert sorted(known_schemas() - listed - set(absent)) == []
    assert sorted(listed & set(absent)) == []
    assert len(absent) == len(set(absent))
    assert all(row["reason"] for row in mlx_ep.describe("absent"))


def test_an_absent_operator_is_declined_with_its_reason():
    node = helper.make_node("StringSplit", ["x"], ["y", "n"])
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])],
                              [helper.make_tensor_value_info("n", TensorProto.INT64, None)])
    session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), True)
    assert record_of_newest()["declined"][0]["reason"] == "strings are not tensors of MLX"
