"""`ops`: every operator that the provider translates, with its versions and traits."""
from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from . import describe
from .cli_absent import section as absent_section
from .cli_common import print_json, print_table

_HEAD = """# Operators

Generated from the provider's table by `python -m onnxruntime_ep_mlx ops --md`; a test fails when it is stale. A node of a
type that is listed is claimed when its types, attributes and constants are ones that the translator can do; `python -m
onnxruntime_ep_mlx claim MODEL.onnx` tells the reason of each node that is not. Everything else stays on ONNX Runtime's
CPU provider: strings, sequences, optionals and maps above all.

Traits: `no_trace` reads data while it is translated, so it is never part of a compiled closure; `cheap` only moves or
reinterprets data; `kv` is attention with past and present; `random` gives other values in each run; `any_type` checks types
itself (packed weights); `narrow_types` takes floats of 4 and 8 bits and integers of 2 and 4 bits too.
"""

Row = Mapping[str, Any]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("ops", help="the operators", description="Lists every operator that the provider translates.")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON: a list of domain, op_type, since, until (null: open), traits")
    form.add_argument("--md", action="store_true", help="print docs/ops.md")
    parser.set_defaults(command=command)


def versions(row: Row) -> str:
    since, until = row["since"], row["until"]
    return f"{since}+" if until is None else str(since) if until == since else f"{since}-{until}"


def by_operator(rows: Sequence[Row]) -> dict[tuple[str, str], tuple[str, str]]:
    """(domain, type) -> (versions, traits), sorted."""
    found: dict[tuple[str, str], tuple[list[str], set[str]]] = {}
    for row in rows:
        spans, traits = found.setdefault((row["domain"], row["op_type"]), ([], set()))
        spans.append(versions(row))
        traits.update(row["traits"])
    return {key: (", ".join(spans), ", ".join(sorted(traits))) for key, (spans, traits) in sorted(found.items())}


def markdown(rows: Sequence[Row]) -> str:
    listed = by_operator(rows)
    parts = [_HEAD]
    for domain in sorted({key[0] for key in listed}):
        mine = {key[1]: facts for key, facts in listed.items() if key[0] == domain}
        parts.append(f"\n## {domain or 'ai.onnx'} ({len(mine)})\n\n| operator | versions | traits |\n|---|---|---|\n")
        parts += [f"| {name} | {spans} | {traits} |\n" for name, (spans, traits) in mine.items()]
    return "".join(parts) + absent_section()


def command(arguments: argparse.Namespace) -> int:
    rows = describe("ops")
    if arguments.json:
        print_json(rows)
    elif arguments.md:
        print(markdown(rows), end="")
    else:
        table = [(domain or "ai.onnx", name, spans, traits) for (domain, name), (spans, traits) in by_operator(rows).items()]
        print_table([("domain", "operator", "versions", "traits"), *table], (False, False, False, False))
    return 0
