"""The command line, as a user runs it. Model outputs on MLX are compared with ONNX Runtime's CPU provider by the command itself."""
from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxruntime_ep_mlx import compare, model_inputs
from onnxruntime_ep_mlx.cli_common import CliError
from onnxruntime_ep_mlx.model_inputs import InputSpec

INF = float("inf")
NAN = float("nan")


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "onnxruntime_ep_mlx", *arguments], capture_output=True, text=True, timeout=300, check=False)


def report_of(*arguments: str) -> dict:
    result = cli(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def save(path: Path, nodes: list, inputs: dict, outputs: dict, opset: int = 20) -> str:
    def declare(items: dict) -> list:
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in items.items()]

    graph = helper.make_graph(nodes, "model", declare(inputs), declare(outputs))
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return str(path)


@pytest.fixture(scope="module")
def softmax_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three nodes, all float."""
    nodes = [helper.make_node("MatMul", ["a", "b"], ["product"], name="product"), helper.make_node("Tanh", ["product"], ["bent"], name="bent"),
             helper.make_node("Softmax", ["bent"], ["share"], name="share", axis=-1)]
    path = tmp_path_factory.mktemp("model") / "softmax.onnx"
    return save(path, nodes, {"a": (TensorProto.FLOAT, ["rows", 16]), "b": (TensorProto.FLOAT, [16, 24])},
                {"share": (TensorProto.FLOAT, ["rows", 24])})


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A float node, and a node on text, which cannot run on MLX."""
    nodes = [helper.make_node("Exp", ["x"], ["y"], name="grow"),
             helper.make_node("StringConcat", ["words", "words"], ["twice"], name="repeat")]
    path = tmp_path_factory.mktemp("model") / "text.onnx"
    return save(path, nodes, {"x": (TensorProto.FLOAT, [4]), "words": (TensorProto.STRING, [2])},
                {"y": (TensorProto.FLOAT, [4]), "twice": (TensorProto.STRING, [2])})


def test_info() -> None:
    info = report_of("info")
    assert {"ort", "ort_api", "mlx", "device", "library"} <= info.keys()
    assert Path(info["library"]).is_file()
    text = cli("info")
    assert text.returncode == 0 and info["ort"] in text.stdout and info["mlx"] in text.stdout


def test_run_compares_with_the_cpu_provider(softmax_model: str) -> None:
    report = report_of("run", softmax_model, "--runs", "3")
    assert report["nodes"] == report["claimed"] == 3 and report["groups"] == 1 and report["declined"] == []
    assert [output["name"] for output in report["outputs"]] == ["share"]
    assert report["outputs"][0]["max_abs"] <= 1e-5 and report["outputs"][0]["max_rel"] <= 1e-3
    assert report["p50_ms"]["mlx"] > 0 and report["p50_ms"]["cpu"] > 0 and report["device"]


def test_run_prints_the_same_facts_as_text(softmax_model: str) -> None:
    result = cli("run", softmax_model, "--runs", "2", "--dim", "rows=5")
    assert result.returncode == 0, result.stderr
    for part in ("nodes 3", "claimed 3 (100 %)", "groups 1", "share", "p50 ms"):
        assert part in result.stdout


def test_run_with_given_inputs(softmax_model: str, tmp_path: Path) -> None:
    file = tmp_path / "inputs.npz"
    np.savez(file, a=np.ones((3, 16), np.float32), b=np.full((16, 24), 0.5, np.float32))
    report = report_of("run", softmax_model, "--inputs", str(file), "--runs", "1")
    assert report["claimed"] == 3 and report["outputs"][0]["max_abs"] <= 1e-6


def test_claim_gives_places_and_reasons(text_model: str) -> None:
    report = report_of("claim", text_model)
    places = {node["name"]: node["place"] for node in report["placed"]}
    assert places == {"grow": "MLX", "repeat": "CPU"}
    assert report["nodes"] == 2 and report["claimed"] == 1 and report["groups"] == 1
    declined = report["declined"]
    assert [(node["name"], node["op_type"]) for node in declined] == [("repeat", "StringConcat")] and declined[0]["reason"]
    text = cli("claim", text_model)
    assert text.returncode == 0
    line = next(line for line in text.stdout.splitlines() if "repeat" in line)
    assert line.startswith("CPU") and declined[0]["reason"] in line


@pytest.mark.parametrize("command", ["run", "claim"])
def test_missing_file(command: str) -> None:
    failure(1, "no such file: /no/such/model.onnx", command, "/no/such/model.onnx")


@pytest.mark.parametrize("command", ["run", "claim"])
@pytest.mark.parametrize("content", [b"", b"plain text, not a model\n", bytes(range(256))])
def test_file_that_is_not_onnx(command: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    failure(1, "is not an ONNX model", command, str(path))


def test_model_that_onnxruntime_refuses(tmp_path: Path) -> None:
    graph = helper.make_graph([helper.make_node("NoSuchOperator", ["x"], ["y"])], "model",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)]), path)
    failure(1, "NoSuchOperator", "claim", str(path))


def test_unknown_dimension(softmax_model: str) -> None:
    failure(1, "no dimension 'columns'; it has rows", "run", softmax_model, "--dim", "columns=3")


def test_inputs_with_a_wrong_name(softmax_model: str, tmp_path: Path) -> None:
    file = tmp_path / "inputs.npz"
    np.savez(file, a=np.ones((3, 16), np.float32))
    failure(1, "lacks b", "run", softmax_model, "--inputs", str(file))


def test_inputs_of_a_wrong_shape(softmax_model: str, tmp_path: Path) -> None:
    file = tmp_path / "inputs.npz"
    np.savez(file, a=np.ones((3, 5), np.float32), b=np.ones((16, 24), np.float32))
    failure(1, "the run on the CPU provider failed", "run", softmax_model, "--inputs", str(file))


def test_inputs_file_that_is_no_archive(softmax_model: str, tmp_path: Path) -> None:
    file = tmp_path / "inputs.npz"
    file.write_text("hello")
    failure(1, "is not an .npz file", "run", softmax_model, "--inputs", str(file))


def test_inputs_that_cannot_be_made(text_model: str) -> None:
    failure(1, "words is tensor(string)", "run", text_model)


@pytest.mark.parametrize("arguments", [(), ("fly",), ("run",), ("run", "m.onnx", "--dim", "rows"), ("run", "m.onnx", "--runs", "0"),
                                       ("claim", "m.onnx", "--option", "=1"), ("info", "--colour")])
def test_usage_errors(arguments: tuple[str, ...]) -> None:
    result = cli(*arguments)
    assert result.returncode == 2 and "usage:" in result.stderr


def failure(code: int, message: str, *arguments: str) -> None:
    result = cli(*arguments)
    assert result.returncode == code, (result.stdout, result.stderr)
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and message in lines[0], result.stderr
    assert "Traceback" not in result.stdout


def test_ops() -> None:
    rows = json.loads(cli("ops", "--json").stdout)
    keys = {"domain", "op_type", "since", "until", "types", "typed_in", "limits", "compiles", "by_value", "traits"}
    assert keys == rows[0].keys() and len(rows) > 150
    reshape = next(row for row in rows if row["op_type"] == "Reshape" and row["since"] == 5)
    assert reshape["compiles"] == "general" and reshape["by_value"] == [1] and "int4" in reshape["types"] and reshape["limits"] is None
    table = cli("ops").stdout
    assert any(line.split()[:3] == ["ai.onnx", "Softmax", "1+"] for line in table.splitlines()), table[:400]


def test_demo() -> None:
    result = subprocess.run([sys.executable, "-m", "onnxruntime_ep_mlx.demo", "--max-new-tokens", "16"], capture_output=True, text=True,
                            timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "Paris" in next(line for line in lines if line.startswith("answer"))
    claims = [re.search(r"nodes (\d+)   claimed (\d+)", line) for line in lines]
    assert [int(found.group(2)) > 0.9 * int(found.group(1)) for found in claims if found] == [True, True]
    assert any(line.split() == ["MLX", "ORT", "CPU"] for line in lines)
    ranked = lines[next(index for index, line in enumerate(lines) if line.startswith("query")) + 1]
    assert "optimise the slowest loop" in ranked
    apart = next(line for line in lines if line.startswith("largest difference"))
    assert float(apart.split()[-1]) < 1e-3


def test_demo_without_a_model() -> None:
    result = subprocess.run([sys.executable, "-m", "onnxruntime_ep_mlx.demo", "--model-dir", "/no/such/folder"], capture_output=True,
                            text=True, timeout=120, check=False)
    assert result.returncode == 1 and result.stderr.startswith("error: ") and len(result.stderr.splitlines()) == 1
    assert "/no/such/folder" in result.stderr


# The measures and the made inputs, without a model.

@pytest.mark.parametrize(("value", "reference", "max_abs", "max_rel"), [
    ([1.0, 2.0], [1.0, 2.0], 0, 0),
    ([NAN, INF, -INF], [NAN, INF, -INF], 0, 0),
    ([1.5, 100.0], [1.0, 100.0], 0.5, 0.5),
    ([0.01, 100.0], [0.0, 100.0], 0.01, 0.01),
    ([NAN, 1.0], [0.0, 1.0], INF, INF),
    ([1.0, 1.0], [NAN, 1.0], INF, INF),
    ([INF], [-INF], INF, INF),
    ([2.0, INF], [1.0, INF], 1, 1),
    ([0.5], [0.0], 0.5, INF),
    ([], [], 0, 0),
])
def test_difference(value: list, reference: list, max_abs: float, max_rel: float) -> None:
    result = compare.difference(np.array(value, np.float64), np.array(reference, np.float64))
    assert result.max_abs == pytest.approx(max_abs)
    assert result.max_rel == pytest.approx(max_rel) if max_rel < INF else result.max_rel > 1e100


def test_difference_of_other_kinds() -> None:
    ints = np.array([1, 2], np.int64)
    assert compare.difference(ints, ints.astype(np.int32)) == compare.APART
    assert compare.difference(ints, ints[None]) == compare.APART
    assert compare.difference([ints, ints], [ints, ints + 1]).max_abs == 1
    assert compare.difference([ints], [ints, ints]) == compare.APART
    assert compare.difference({"a": 1.0}, {"a": 1.0}) == compare.EQUAL
    assert compare.difference({"a": 1.0}, {"b": 1.0}) == compare.APART
    assert compare.difference(np.array(["x"]), np.array(["x"])) == compare.EQUAL
    assert compare.difference(np.array(["x"]), np.array(["y"])) == compare.APART


DECODER = [InputSpec("input_ids", "tensor(int64)", ("batch_size", "sequence_length")),
           InputSpec("attention_mask", "tensor(int64)", ("batch_size", "total_sequence_length")),
           InputSpec("past_key_values.0.key", "tensor(float)", ("batch_size", 3, "past_sequence_length", 64))]


def test_decoder_lengths_agree() -> None:
    shapes = model_inputs.resolve_shapes(DECODER, {"sequence_length": 5, "past_sequence_length": 7})
    assert shapes == {"input_ids": (1, 5), "attention_mask": (1, 12), "past_key_values.0.key": (1, 3, 7, 64)}
    shapes = model_inputs.resolve_shapes(DECODER, {"total_sequence_length": 20})
    assert shapes["attention_mask"] == (1, 20)


def test_summed_dimension() -> None:
    specs = [InputSpec("x", "tensor(float)", ("batch", "past")), InputSpec("y", "tensor(float)", ("batch", "past + 1"))]
    assert model_inputs.resolve_shapes(specs, {"past": 0}) == {"x": (1, 0), "y": (1, 1)}


def test_axis_override() -> None:
    specs = [InputSpec("wave", "tensor(float)", (None, None))]
    assert model_inputs.resolve_shapes(specs, {"wave:1": 256})["wave"] == (1, 256)
    with pytest.raises(CliError, match="wave:2"):
        model_inputs.make_inputs(specs, {"wave:2": 256})


def test_made_inputs_are_sensible_and_repeatable() -> None:
    table = helper.make_tensor("table", TensorProto.FLOAT, [4, 1], [0.0] * 4)
    graph = helper.make_graph([helper.make_node("Gather", ["table", "input_ids"], ["rows"])], "model", [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, 64])], [], [table])
    specs = [*DECODER, InputSpec("token_type_ids", "tensor(int64)", (1, 4)), InputSpec("position_ids", "tensor(int64)", (2, 4)),
             InputSpec("sr", "tensor(int64)", ())]
    model = helper.make_model(graph)
    made = model_inputs.make_inputs(specs, {"sequence_length": 64}, model)
    assert made["input_ids"].min() >= 0 and made["input_ids"].max() == 3
    assert (made["attention_mask"] == 1).all() and (made["token_type_ids"] == 0).all() and made["sr"] == 16000
    np.testing.assert_array_equal(made["position_ids"], [[0, 1, 2, 3]] * 2)
    cache = made["past_key_values.0.key"]
    assert cache.dtype == np.float32 and abs(cache.mean()) < 0.1 and 0.9 < cache.std() < 1.1
    again = model_inputs.make_inputs(specs, {"sequence_length": 64}, model)
    assert all(np.array_equal(made[name], again[name]) for name in made)
