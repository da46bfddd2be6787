"""`claim`: where each node of a model would run, and why not on MLX."""
from __future__ import annotations

import argparse
from typing import Any

from .cli_common import claim_summary, claims_of, load_model, operator_of, print_json, print_table
from .cli_options import key_value
from .sessions import open_mlx_session


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("claim", help="the place of each node", description=(
        "Prints for each node of the model whether it runs on MLX, in which group, and for a declined one the reason."))
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument("--option", metavar="K=V", action="append", default=[], type=key_value, help="a session option of the provider")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=command)


def command(arguments: argparse.Namespace) -> int:
    load_model(arguments.model)
    _session, record = open_mlx_session(arguments.model, dict(arguments.option))
    if arguments.json:
        print_json({**claims_of(record), "placed": record["placed"]})
        return 0
    print(claim_summary(record))
    print_table([("place", "node", "operator", "reason"), *_rows(record)], (False,) * 4)
    return 0


def _rows(record: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    # Nodes need not have names, so a reason is found by the whole description and used up in order.
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for node in record["declined"]:
        reasons.setdefault(_key(node), []).append(node["reason"])
    rows = []
    for node in record["placed"]:
        on_mlx = node["place"] == "MLX"
        waiting = reasons.get(_key(node), [])
        reason = "" if on_mlx or not waiting else waiting.pop(0)
        rows.append((f"MLX {node['group']}" if on_mlx else node["place"], node["name"] or "-", operator_of(node), reason))
    return rows


def _key(node: dict[str, Any]) -> tuple[str, str, str]:
    return node["name"], node["domain"], node["op_type"]
