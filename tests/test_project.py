"""The project's own rules: limits of the code, a fresh list of operators, a case for every operator."""
from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import onnxruntime_ep_mlx as mlx_ep
from case import Family
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
