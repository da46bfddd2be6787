"""`ops`: every operator that the provider translates, row by row: versions, types, limits, and how it compiles."""
from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import describe
from .cli_absent import section as absent_section
from .cli_common import print_json, print_table

_HEAD = """# Operators

Generated from the provider's table by `python -m onnxruntime_ep_mlx ops --md`; a test fails when it is stale. A node is claimed
when its versions and types are listed here and the limits hold; `python -m onnxruntime_ep_mlx claim MODEL.onnx` tells the reason
of each node that is not. Everything else stays on ONNX Runtime's CPU provider: strings, sequences, optionals and maps above all.

Versions: those of the operator's schema, `1+` without an end. Types: what the first input (or the one in brackets) may have, if
the version allows it; `float` is float32, float16 and bfloat16, `int` and `uint` are all their widths, `narrow` are floats of 4
and 8 bits and integers of 2 and 4 bits. float64 is there on MLX's CPU device only. Limits: what is declined beyond types. For all operators: no rank above 10, no attribute that the known versions have not.

Compiles: `general` becomes part of one closure for all runs of the same shapes, by value of the inputs named (one closure for each
value that they have); `decode/prefill` is attention over a cache that grows without a new closure, where the cache's past and
present are the group's own inputs and outputs (by value: without a past only); `eager only` reads data while it is translated, so its
group is built anew in each run.
"""

Row = Mapping[str, Any]
_SETS = {"float": {"float32", "float16", "bfloat16"}, "int": {"int8", "int16", "int32", "int64"},
         "uint": {"uint8", "uint16", "uint32", "uint64"},
         "narrow": {"float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0", "float4e2m1", "uint4", "int4", "uint2", "int2"}}
_COLUMNS = ("operator", "versions", "types", "limits", "compiles")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("ops", help="the operators", description="Lists every operator that the provider translates.")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true",
                      help="print JSON: a list of domain, op_type, since, until (null: open), types, typed_in (the inputs that have "
                           "these types; null: all), limits (null: none), compiles, by_value (inputs), traits")
    form.add_argument("--md", action="store_true", help="print docs/ops.md")
    parser.set_defaults(command=command)


def versions(row: Row) -> str:
    since, until = row["since"], row["until"]
    return f"{since}+" if until is None else str(since) if until == since else f"{since}-{until}"


def types(row: Row) -> str:
    """The types in words, sets of them by one word."""
    left, words = list(row["types"]), []
    for word, members in _SETS.items():
        if members <= set(left):
            words.append(word)
            left = [name for name in left if name not in members]
    inputs = row["typed_in"]
    where = "" if inputs == [0] else " (all inputs)" if inputs is None else f" ({_inputs(inputs)})"
    return " ".join(words + left) + where


def compiles(row: Row) -> str:
    return row["compiles"] + (f", by value of {_inputs(row['by_value'])}" if row["by_value"] else "")


def _inputs(inputs: Iterable[int]) -> str:
    listed = ", ".join(str(i) for i in inputs)
    return f"inputs {listed}" if "," in listed else f"input {listed}"


def by_domain(rows: Sequence[Row]) -> dict[str, list[tuple[str, ...]]]:
    """The rows in words (see _COLUMNS), sorted by name and version, of each domain."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for row in sorted(rows, key=lambda row: (row["domain"], row["op_type"], row["since"])):
        words = (row["op_type"], versions(row), types(row), row["limits"] or "", compiles(row))
        found.setdefault(row["domain"] or "ai.onnx", []).append(words)
    return found


def markdown(rows: Sequence[Row]) -> str:
    parts = [_HEAD]
    for domain, lines in by_domain(rows).items():
        parts.append(f"\n## {domain} ({len({line[0] for line in lines})})\n\n| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}\n")
        parts += [f"| {' | '.join(line)} |\n" for line in lines]
    return "".join(parts) + absent_section()


def command(arguments: argparse.Namespace) -> int:
    rows = describe("ops")
    if arguments.json:
        print_json(rows)
    elif arguments.md:
        print(markdown(rows), end="")
    else:
        table = [(domain, *line) for domain, lines in by_domain(rows).items() for line in lines]
        print_table([("domain", *_COLUMNS), *table], (False,) * (1 + len(_COLUMNS)))
    return 0
