"""What the commands share: reading a model, the claims of a session, errors, printing."""
from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from .sessions import first_line


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


def report(error: BaseException) -> None:
    print(f"error: {first_line(error)}", file=sys.stderr)
