"""The house's limits, as a check: file and function length, include direction, calls that do not belong in a plug-in.

Prints one line for each violation; exit code 1 if there is any.
"""
from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES, FUNCTION_LINES = 600, 45
# Lower number = lower layer; a file includes its own layer and lower ones. graph and mx do not see each other.
LAYERS = {"base": 0, "cpu": 1, "graph": 2, "mx": 2, "ops": 3, "plan": 4, "rewrite": 4, "run": 5, "ort": 6}
SIDEWAYS = {("graph", "mx"), ("mx", "graph"), ("plan", "rewrite"), ("rewrite", "plan")}
BANNED = {r"\bgetenv\s*\(": "src/base/opts.c", r"\bgoto\b": None, r"\babort\s*\(": None, r"\bexit\s*\(": None, r"\blongjmp\b": None}


def sources() -> list[Path]:
    return sorted(p for p in (ROOT / "src").rglob("*") if p.suffix in {".c", ".h", ".cc", ".inc"})


def is_test(path: Path) -> bool:
    return path.stem.endswith(("_test", "_bench", "_fuzz"))


def without_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", "", text)


def long_functions(path: Path, text: str) -> list[str]:
    """Bodies of functions in C: a line that ends with `) {` at the margin, up to the next `}` at the margin."""
    found, start, name = [], 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if not start and re.match(r"[A-Za-z_].*\)\s*(const )?(override )?\{$", line) and not line.startswith(("struct", "enum")):
            start, name = number, line.split("(")[0].split()[-1].lstrip("*")
        elif start and line.startswith("}"):
            if number - start - 1 > FUNCTION_LINES:
                found.append(f"{path}:{start}: {name} has {number - start - 1} lines; at most {FUNCTION_LINES}")
            start = 0
    return found


def wrong_includes(path: Path, text: str) -> list[str]:
    here = path.parts[1]
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        m = re.match(r'\s*#include "(\w+)/', line)
        there = m.group(1) if m else here
        if there not in LAYERS or here not in LAYERS:
            continue
        if LAYERS[there] > LAYERS[here] or (here, there) in SIDEWAYS:
            found.append(f"{path}:{number}: {here} includes {there}, which is above it")
    return found


def banned_calls(path: Path, code: str) -> list[str]:
    found = []
    for pattern, allowed in BANNED.items():
        if str(path) == allowed:
            continue
        found += [f"{path}:{code.count(chr(10), 0, m.start()) + 1}: {m.group()} does not belong here" for m in re.finditer(pattern, code)]
    return found


def violations() -> list[str]:
    found = []
    for file in sources():
        path, text = file.relative_to(ROOT), file.read_text()
        code = without_comments(text)
        if text.count("\n") > FILE_LINES:
            found.append(f"{path}: {text.count(chr(10))} lines; at most {FILE_LINES}")
        if not is_test(path):
            found += long_functions(path, code) + banned_calls(path, code)
        found += wrong_includes(path, text)
    return found


if __name__ == "__main__":
    lines = violations()
    print("\n".join(lines) or "no violations")
    sys.exit(bool(lines))
