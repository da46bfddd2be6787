"""The official ONNX node tests, through a session with MLX and ONNX Runtime's CPU provider.

A test has a status (pass, fail, refused: no session can be made) and a placement, which ONNX Runtime itself tells: mlx (every
node), part, cpu, none (ONNX Runtime leaves no node, even with its optimisations off), or nothing for a test that is refused.
"""
from __future__ import annotations

import ctypes
import dataclasses
import functools
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, numpy_helper

import onnxruntime_ep_mlx as mlx_ep
from assignment import assignment_of, check_record, record_assignment

NEWEST_IR, NEWEST_OPSET = 13, 27  # that ONNX Runtime 1.31 loads
# Element types that ONNX Runtime hands over as raw words only: by their numpy (ml_dtypes) name, the ONNX type, the word, and
# how many elements share one.
RAW = {"bfloat16": (TensorProto.BFLOAT16, np.uint16, 1), "float8_e4m3fn": (TensorProto.FLOAT8E4M3FN, np.uint8, 1),
       "float8_e4m3fnuz": (TensorProto.FLOAT8E4M3FNUZ, np.uint8, 1), "float8_e5m2": (TensorProto.FLOAT8E5M2, np.uint8, 1),
       "float8_e5m2fnuz": (TensorProto.FLOAT8E5M2FNUZ, np.uint8, 1), "float8_e8m0fnu": (TensorProto.FLOAT8E8M0, np.uint8, 1),
       "int4": (TensorProto.INT4, np.uint8, 2), "uint4": (TensorProto.UINT4, np.uint8, 2),
       "float4_e2m1fn": (TensorProto.FLOAT4E2M1, np.uint8, 2), "int2": (TensorProto.INT2, np.uint8, 4),
       "uint2": (TensorProto.UINT2, np.uint8, 4)}
NAMES = {TensorProto.DataType.Name(onnx_type).lower(): name for name, (onnx_type, _, _) in RAW.items()}


@dataclasses.dataclass
class Result:
    status: str  # pass, fail, refused
    detail: str = ""
    placement: str = ""


@functools.cache
def cases() -> list:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests
        return load_model_tests(kind="node")


def loadable(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model in versions that the host can load."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    copy.ir_version = min(copy.ir_version, NEWEST_IR)
    for opset in copy.opset_import:
        if opset.domain in ("", "ai.onnx"):
            opset.version = min(opset.version, NEWEST_OPSET)
    return copy


def plain(value: Any) -> Any:
    """What a data set holds, as arrays: some tests give TensorProtos or numpy scalars."""
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def to_ort(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.name not in RAW:
        return value
    onnx_type, word, _ = RAW[value.dtype.name]
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(value).view(word), onnx_type)


def with_inputs_inside(model: onnx.ModelProto, inputs: list) -> tuple[onnx.ModelProto, list]:
    """Inputs of types that Python cannot hand over (several elements a byte) become initializers."""
    graph, kept = model.graph, []
    infos = list(graph.input)
    del graph.input[:]
    for info, value in zip(infos, inputs):
        if isinstance(value, np.ndarray) and RAW.get(value.dtype.name, (0, 0, 1))[2] > 1 or "e8m0" in str(getattr(value, "dtype", "")):
            graph.initializer.append(numpy_helper.from_array(value, info.name))
        else:
            graph.input.append(info)
            kept.append(value)
    return model, kept


def from_ort(value: ort.OrtValue) -> Any:
    kind = value.data_type()[len("tensor("):-1] if value.is_tensor() else ""
    if kind not in NAMES:
        return value.numpy()
    _, word, shared = RAW[NAMES[kind]]
    count = int(np.prod(value.shape()))
    size = -(-count // shared) * np.dtype(word).itemsize
    words = np.frombuffer(ctypes.string_at(value.data_ptr(), size) if count else b"", word)
    if shared > 1:  # the first element lies in the lowest bits
        bits = 8 // shared
        words = np.stack([words >> (bits * i) & (2**bits - 1) for i in range(shared)], -1).reshape(-1)[:count]
    return unpacked(words, NAMES[kind]).reshape(value.shape())


def unpacked(words: np.ndarray, name: str) -> np.ndarray:
    if name in ("int4", "int2"):
        half = 8 if name == "int4" else 2
        words = np.where(words >= half, words.astype(np.int8) - 2 * half, words.astype(np.int8)).astype(np.int8)
        return words.astype(getattr(ml_dtypes, name))
    if name in ("uint4", "uint2"):
        return words.astype(getattr(ml_dtypes, name))
    return words.view(getattr(ml_dtypes, name))


def run(session: ort.InferenceSession, inputs: list) -> list:
    feeds = {info.name: to_ort(value) for info, value in zip(session.get_inputs(), inputs) if value is not None}
    special = any(o.type[len("tensor("):-1] in NAMES for o in session.get_outputs())
    if not special and not any(isinstance(v, ort.OrtValue) for v in feeds.values()):
        return session.run(None, feeds)
    values = {k: v if isinstance(v, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(v) for k, v in feeds.items()}
    return [from_ort(v) for v in session.run_with_ort_values(None, values)]


def check(got: Any, want: Any, rtol: float, atol: float) -> None:
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            check(g, w, rtol, atol)
        return
    if want is None:
        return
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    if want.dtype.kind in "OUS":
        assert got.astype(str).tolist() == want.astype(str).tolist()
        return
    assert got.dtype == want.dtype, f"type {got.dtype}, expected {want.dtype}"
    if want.dtype.kind in "biu" or want.dtype.name in ("int4", "uint4", "int2", "uint2"):
        np.testing.assert_array_equal(got.astype(np.int64), want.astype(np.int64)) if want.dtype.kind == "V" else np.testing.assert_array_equal(got, want)
    else:
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=atol, equal_nan=True)


def options() -> ort.SessionOptions:
    so = ort.SessionOptions()
    so.log_severity_level = 4
    so.intra_op_num_threads = 2
    return so


def open_mlx_session(model: bytes, optimise: bool = True) -> tuple[ort.InferenceSession, str]:
    """A session and where its nodes are placed. A model that ONNX Runtime folds into constants is loaded again unfolded."""
    so = record_assignment(options())
    if not optimise:
        so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    mlx_ep.append_to_session_options(so, {"claim_all": "1"})
    session = ort.InferenceSession(model, so, enable_fallback=0)
    at = assignment_of(session)
    check_record(mlx_ep.describe("sessions")[-1], at)
    if at.placement == "none" and optimise:
        return open_mlx_session(model, False)
    session.disable_fallback()
    return session, at.placement


def open_session(model: bytes, mlx: bool) -> tuple[ort.InferenceSession, str]:
    if mlx:
        return open_mlx_session(model)
    session = ort.InferenceSession(model, options(), providers=["CPUExecutionProvider"], enable_fallback=0)
    session.disable_fallback()
    return session, "cpu"


def said(error: Exception) -> str:
    """On one line, and not all of an array."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:600]


def attempt(case, mlx: bool) -> Result:
    placement = ""
    for inputs, outputs in case.data_sets:
        model, given = with_inputs_inside(loadable(case.model), [plain(v) for v in inputs])
        try:
            session, placement = open_session(model.SerializeToString(), mlx)
        except AssertionError as e:  # two words on the placement
            return Result("fail", said(e))
        except Exception as e:  # ONNX Runtime raises one type per status code
            return Result("refused", said(e))
        try:
            check(run(session, given), [plain(v) for v in outputs], case.rtol, case.atol)
        except Exception as e:
            return Result("fail", said(e), placement)
    return Result("pass", "", placement)


def has_only_tensors(case) -> bool:
    """No string, sequence, optional or map among the graph's ends."""
    for info in [*case.model.graph.input, *case.model.graph.output]:
        if info.type.WhichOneof("value") != "tensor_type" or info.type.tensor_type.elem_type == TensorProto.STRING:
            return False
    return True
