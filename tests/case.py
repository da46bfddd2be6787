"""One-operator cases: build a model, check that the node runs on MLX, compare with an oracle.

A family's test file makes a Family, adds cases to it and ends with `test_x = family.pytest()`. Each case runs with static
and with symbolic dimensions. A case passes only if the node was placed on MLX and a run was counted there.
"""
from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_mlx as mlx_ep

# (relative, absolute) tolerance by type name: a few units in the last place of what is summed.
TOLERANCE = {"float64": (1e-9, 1e-12), "float32": (1e-5, 1e-6), "float16": (4e-3, 1e-3), "bfloat16": (2e-2, 1e-2)}


@dataclasses.dataclass
class Case:
    op_type: str
    opset: int
    inputs: list
    outs: int = 1
    attrs: dict = dataclasses.field(default_factory=dict)
    domain: str = ""
    const: tuple = ()
    tol: tuple | None = None
    want: list | None = None  # arrays; None entries are not compared
    ref: str = "ort"  # or "onnx": onnx.reference
    name: str = ""
    out_types: list | None = None  # numpy types, where ONNX's inference gives none
    out_shapes: list | None = None  # declared shapes, beside out_types
    skip_outs: tuple = ()  # outputs left out (empty name)
    any_out: tuple = ()  # outputs that are computed but not compared
    why: str = ""  # for declines and fails
    kind: str = "runs"


def numpy_type(t) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(t))


def is_float(a) -> bool:
    return np.dtype(a.dtype).name in TOLERANCE


def model_of(case: Case, symbolic: bool) -> onnx.ModelProto:
    """A model of one node; inputs in case.const become initializers."""
    names, infos, initializers = [], [], []
    for i, a in enumerate(case.inputs):
        names.append("" if a is None else f"in{i}")
        if a is None:
            continue
        if i in case.const:
            initializers.append(numpy_helper.from_array(np.asarray(a), names[-1]))
            continue
        shape = [f"d{i}_{k}" for k in range(a.ndim)] if symbolic else list(a.shape)
        infos.append(helper.make_tensor_value_info(names[-1], numpy_type(a.dtype), shape))
    outs = ["" if k in case.skip_outs else f"out{k}" for k in range(case.outs)]
    node = helper.make_node(case.op_type, names, outs, name="node", domain=case.domain, **case.attrs)
    out_infos = []
    for k, name in enumerate(outs):
        if not name:
            continue
        if case.out_types:
            shape = case.out_shapes[k] if case.out_shapes else None
            out_infos.append(helper.make_tensor_value_info(name, numpy_type(case.out_types[k]), shape))
        else:
            out_infos.append(onnx.ValueInfoProto(name=name))
    graph = helper.make_graph([node], "case", infos, out_infos, initializers)
    opsets = [helper.make_opsetid("", case.opset if not case.domain else 20)]
    if case.domain:
        opsets.append(helper.make_opsetid(case.domain, case.opset))
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 10
    return model


def session(model: onnx.ModelProto | str, mlx: bool, options: dict | None = None) -> ort.InferenceSession:
    so = ort.SessionOptions()
    so.intra_op_num_threads = 2
    so.log_severity_level = 4
    so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = model if isinstance(model, str) else model.SerializeToString()
    if not mlx:
        return ort.InferenceSession(data, so, providers=["CPUExecutionProvider"])
    mlx_ep.append_to_session_options(so, options or {})
    s = ort.InferenceSession(data, so, enable_fallback=0)
    s.disable_fallback()
    return s


def record_of_newest() -> dict:
    return mlx_ep.describe("sessions")[-1]


def run_on_mlx(model, feeds: dict, all_nodes: bool = True, options: dict | None = None) -> list:
    """Runs on MLX and asserts the placement and that the run was counted."""
    s = session(model, True, {"claim_all": "1", **(options or {})})
    record = record_of_newest()
    assert not all_nodes or record["claimed"] == record["nodes"], record["declined"]
    outputs = s.run(None, feeds)
    after = next(r for r in mlx_ep.describe("sessions") if r["id"] == record["id"])
    assert sum(after["routes"].values()) >= 1, "no run was counted on MLX"
    return outputs


def compare(got: np.ndarray, want: np.ndarray, tol: tuple | None, what: str) -> None:
    assert got.dtype == want.dtype, f"{what}: type {got.dtype}, expected {want.dtype}"
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    if not is_float(want):
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    rtol, atol = tol or TOLERANCE[np.dtype(want.dtype).name]
    wide = np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=atol, equal_nan=True, err_msg=what)


def expected(case: Case, model: onnx.ModelProto, feeds: dict) -> list:
    if case.want is not None:
        return [None if w is None else np.asarray(w) for w in case.want]
    if case.ref == "onnx":
        from onnx.reference import ReferenceEvaluator
        return [np.asarray(v) for v in ReferenceEvaluator(model).run(None, feeds)]
    return session(model, False).run(None, feeds)


def with_bf16(feeds: dict) -> dict:
    """ONNX Runtime takes bfloat16 as an OrtValue."""
    out = {}
    for k, a in feeds.items():
        if a.dtype.name == "bfloat16":
            a = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(a.view(np.uint16), TensorProto.BFLOAT16)
        out[k] = a
    return out


def run_values(s: ort.InferenceSession, feeds: dict) -> list:
    if not any(a.dtype.name == "bfloat16" for a in feeds.values()) and not any("bfloat16" in o.type for o in s.get_outputs()):
        return s.run(None, feeds)
    values = {k: v if isinstance(v, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(v) for k, v in with_bf16(feeds).items()}
    import ml_dtypes
    outs = s.run_with_ort_values(None, values)
    return [o.numpy() if "bfloat16" not in o.data_type() else bf16_of(o, ml_dtypes.bfloat16) for o in outs]


def bf16_of(value: ort.OrtValue, bf16) -> np.ndarray:
    import ctypes
    shape = value.shape()
    n = int(np.prod(shape))
    raw = (ctypes.c_uint16 * n).from_address(value.data_ptr()) if n else []
    return np.array(raw, np.uint16).reshape(shape).view(bf16)


ROUTES: dict[str, dict] = {}  # by operator: how many cases went which way, and why eager; conftest.py reports it


def note_route(case: Case, record: dict) -> None:
    """Which way the case's runs went. A run is eager for a written reason, never for a failure of the compiled route."""
    counters = record["counters"]
    broken = {"the replay failed", "the evaluation failed", "out of memory"} & set(counters["fallbacks"])
    assert not broken, counters
    kinds = ROUTES.setdefault(f"{case.domain}:{case.op_type}", {})
    for way in [k for k, n in counters["runs"].items() if n and k != "eager"] + [f"eager: {why}" for why in counters["fallbacks"]]:
        kinds[way] = kinds.get(way, 0) + 1


def lacks_type(record: dict) -> bool:
    """A GPU has no float64: there such a node is declined, and says so."""
    return record["device"] == "gpu" and bool(record["declined"]) and all("float64" in d["reason"] for d in record["declined"])


def check_runs(case: Case, symbolic: bool) -> None:
    """Runs twice (the second run finds what the first one kept), then once eagerly: both ways give one answer."""
    model = model_of(case, symbolic)
    feeds = {f"in{i}": a for i, a in enumerate(case.inputs) if a is not None and i not in case.const}
    want = expected(case, model, feeds)
    s = session(model, True, {"claim_all": "1"})
    record = record_of_newest()
    if lacks_type(record):
        return
    assert record["claimed"] == record["nodes"] >= 1, record["declined"]
    for _ in range(2):
        got = run_values(s, feeds)
        for k, (g, w) in enumerate(zip(got, want, strict=True)):
            if w is not None and k not in case.any_out:
                compare(np.asarray(g), w, case.tol, f"{case.op_type} output {k}")
    after = next(r for r in mlx_ep.describe("sessions") if r["id"] == record["id"])
    assert sum(after["routes"].values()) == 2, after
    note_route(case, after)
    if not symbolic and after["routes"]["eager"] < 2:
        eager = run_values(session(model, True, {"claim_all": "1", "disable_compile": "1"}), feeds)
        for k, (g, w) in enumerate(zip(got, eager, strict=True)):
            compare_ways(np.asarray(g), np.asarray(w), f"{case.op_type} output {k}, compiled against eager")


def compare_ways(got: np.ndarray, want: np.ndarray, what: str) -> None:
    """Of the compiled and the eager route."""
    assert got.dtype == want.dtype and got.shape == want.shape, what
    if got.tobytes() == want.tobytes():
        return
    if not is_float(want):
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    rtol = max(1e-5, TOLERANCE[np.dtype(want.dtype).name][0])
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=1e-6, equal_nan=True, err_msg=what)


def check_declines(case: Case, symbolic: bool) -> None:
    model = model_of(case, symbolic)
    before = {r["id"] for r in mlx_ep.describe("sessions")}
    try:
        session(model, True, {"claim_all": "1"})
    except Exception:  # ORT's CPU provider may have no kernel either; what counts is our reason
        pass
    record = record_of_newest()
    assert record["id"] not in before, "no session was made"
    assert record["claimed"] == 0, "the node was claimed"
    assert case.why in record["declined"][0]["reason"], record["declined"]


def check_fails(case: Case, symbolic: bool) -> None:
    model = model_of(case, symbolic)
    feeds = {f"in{i}": a for i, a in enumerate(case.inputs) if a is not None and i not in case.const}
    s = session(model, True, {"claim_all": "1"})
    assert record_of_newest()["claimed"] == 1, record_of_newest()["declined"]
    with pytest.raises(Exception, match=case.why):
        run_values(s, feeds)


CHECKS = {"runs": check_runs, "declines": check_declines, "fails": check_fails}


class Family:
    """Cases of one family of operators."""

    def __init__(self, name: str):
        self.name = name
        self.cases: list[Case] = []

    def case(self, op_type: str, opset: int, inputs: list, **kw) -> None:
        arrays = [None if a is None else np.asarray(a) for a in inputs]
        self.cases.append(Case(op_type, opset, arrays, **kw))

    def declines(self, op_type: str, opset: int, inputs: list, why: str, **kw) -> None:
        self.case(op_type, opset, inputs, why=why, kind="declines", **kw)

    def fails(self, op_type: str, opset: int, inputs: list, why: str, **kw) -> None:
        self.case(op_type, opset, inputs, why=why, kind="fails", **kw)

    def pytest(self):
        params = []
        for i, c in enumerate(self.cases):
            types = "-".join(a.dtype.name for a in c.inputs[:1] if a is not None)
            label = "-".join(str(p) for p in (c.op_type, c.opset, types, c.kind if c.kind != "runs" else "", c.name, i) if p != "")
            for symbolic in (False, True):
                params.append(pytest.param(c, symbolic, id=label + ("-symbolic" if symbolic else "")))

        @pytest.mark.parametrize("case, symbolic", params)
        def test(case: Case, symbolic: bool):
            CHECKS[case.kind](case, symbolic)

        return test
