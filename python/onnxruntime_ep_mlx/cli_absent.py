"""Operators that have a schema but are not translated, for `ops --md`."""
from __future__ import annotations

from . import describe

_HEAD = """
## Not claimed, and why

Operators that ONNX or ONNX Runtime has a schema for, and that the provider leaves alone; the reason is also the one that
`claim` gives. Channels-last forms (`com.ms.internal.nhwc`) are not asked for.

| domain | operators | reason |
|---|---|---|
"""


def section() -> str:
    by_reason: dict[tuple[str, str], list[str]] = {}
    for row in describe("absent"):
        by_reason.setdefault((row["domain"] or "ai.onnx", row["reason"]), []).append(row["op_type"])
    return _HEAD + "".join(f"| {domain} | {', '.join(types)} | {reason} |\n" for (domain, reason), types in sorted(by_reason.items()))
