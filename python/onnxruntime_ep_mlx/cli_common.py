"""What the commands share: sessions on MLX and on the CPU provider, the claims of a session, errors, printing."""
from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from . import append_to_session_options, describe

_SILENT = 4  # ONNX Runtime's log level "fatal": errors are reported once, by the command


class CliError(Exception):
    """A failure to report in one line; the command ends with exit code 1."""


def load_model(path: str) -> onnx.ModelProto:
    """The model's graph, without the values of external weights."""
    if not Path(path).is_file():
        raise CliError(f"no such file: {path}")
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf raises types of its own
        raise CliError(f"{path} is not an ONNX model: {first_line(error)}") from error
    if not model.HasField("graph") or not model.opset_import:
        raise CliError(f"{path} is not an ONNX model: it has no graph or no operator set")
    return model


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
        raise CliError(f"ONNX Runtime cannot open {model}: {first_line(error)}") from error
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
        raise CliError("the provider's library has no record of the session that was just made")
    return max(records, key=lambda record: record["id"])


def record_with_id(identity: int) -> dict[str, Any]:
    for record in describe("sessions"):
        if record["id"] == identity:
            return dict(record)
    raise CliError(f"the provider's library no longer lists session {identity}")


def claims_of(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("nodes", "claimed", "groups", "declined", "device")}


def claim_summary(record: Mapping[str, Any]) -> str:
    share = 100 * record["claimed"] / record["nodes"] if record["nodes"] else 100
    return f"nodes {record['nodes']}   claimed {record['claimed']} ({share:.0f} %)   groups {record['groups']}   device {record['device']}"


def operator_of(node: Mapping[str, Any]) -> str:
    return f"{node['domain']}.{node['op_type']}" if node["domain"] not in ("", "ai.onnx") else node["op_type"]


def print_table(rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    """Aligned columns; numeric ones to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(numeric))]
    for row in rows:
        cells = (cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, numeric))
        print("  ".join(cells).rstrip())


def print_json(value: Any) -> None:
    """One line of JSON. JSON has no infinity: it is written as the string "inf"."""
    print(json.dumps(_finite(value), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def report(error: BaseException) -> None:
    print(f"error: {first_line(error)}", file=sys.stderr)
