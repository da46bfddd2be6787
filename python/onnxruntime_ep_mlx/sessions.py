"""Sessions on MLX and on ONNX Runtime's CPU provider that never fall back silently, and the library's record of what it claimed."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime

from .library import describe
from .registration import append_to_session_options

_SILENT = 4  # ONNX Runtime's log level "fatal": an error is raised, and need not be printed too


class SessionError(RuntimeError):
    """A session could not be made, or its record is not there."""


def session_options(threads: int | None = None) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _SILENT
    if threads:
        options.intra_op_num_threads = threads
    return options


def open_session(model: str, options: onnxruntime.SessionOptions, providers: Sequence[str] | None = None) -> onnxruntime.InferenceSession:
    """A session that never falls back to another provider by itself."""
    try:
        session = onnxruntime.InferenceSession(model, options, providers=providers, enable_fallback=0)
    except Exception as error:  # ONNX Runtime raises one type per status code
        raise SessionError(f"ONNX Runtime cannot open {model}: {first_line(error)}") from error
    session.disable_fallback()
    return session


def open_cpu_session(model: str, threads: int | None = None) -> onnxruntime.InferenceSession:
    return open_session(model, session_options(threads), ["CPUExecutionProvider"])


def open_mlx_session(model: str, options: Mapping[str, Any], threads: int | None = None) -> tuple[onnxruntime.InferenceSession, dict[str, Any]]:
    """A session on MLX and the library's record of what it claims there."""
    settings = session_options(threads)
    append_to_session_options(settings, options)
    before = newest_record_id()
    session = open_session(model, settings)
    return session, newest_record(before)


def newest_record_id() -> int:
    return max((record["id"] for record in describe("sessions")), default=-1)


def newest_record(after: int) -> dict[str, Any]:
    """The record of the newest session with an id above `after`."""
    records = [record for record in describe("sessions") if record["id"] > after]
    if not records:
        raise SessionError("the provider's library has no record of the session that was just made")
    return max(records, key=lambda record: record["id"])


def record_with_id(identity: int) -> dict[str, Any]:
    for record in describe("sessions"):
        if record["id"] == identity:
            return dict(record)
    raise SessionError(f"the provider's library no longer lists session {identity}")


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
