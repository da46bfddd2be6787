"""docs/ops.md out of the library's own table: python tools/ops_doc.py [--check]."""
from __future__ import annotations

import sys
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "docs" / "ops.md"
HEAD = """# Operators

Generated from the provider's table by `python tools/ops_doc.py`; a test fails when it is stale. A node of a type that is
listed is claimed when its types, attributes and constants are ones that the translator can do; `python -m
onnxruntime_ep_mlx claim MODEL.onnx` tells the reason of each node that is not. Everything else stays on ONNX Runtime's
CPU provider: strings, sequences, optionals and maps above all.
"""


def render(rows: list[dict]) -> str:
    parts = [HEAD]
    for domain in sorted({row["domain"] for row in rows}):
        types: dict[str, list[str]] = {}
        for row in rows:
            if row["domain"] == domain:
                until = row["until"]
                span = f"{row['since']}+" if until is None else str(row["since"]) if until == row["since"] else f"{row['since']}-{until}"
                types.setdefault(row["op_type"], []).append(span)
        parts.append(f"\n## {domain or 'ai.onnx'} ({len(types)})\n\n| operator | versions |\n|---|---|\n")
        parts += [f"| {name} | {', '.join(spans)} |\n" for name, spans in sorted(types.items())]
    return "".join(parts)


def current() -> str:
    import onnxruntime_ep_mlx as mlx_ep
    return render(mlx_ep.describe("ops"))


if __name__ == "__main__":
    text = current()
    if "--check" in sys.argv:
        sys.exit(0 if FILE.read_text() == text else "docs/ops.md is stale: run python tools/ops_doc.py")
    FILE.write_text(text)
    print(FILE)
