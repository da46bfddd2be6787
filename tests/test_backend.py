"""The official ONNX node tests: what ONNX Runtime's CPU provider passes, passes on MLX too. Writes build/reports/node_tests.json: a
line for each test with its name, status, placement and detail (why it fails or is refused)."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from node_suite import attempt, cases, has_only_tensors

REPORT = Path(__file__).resolve().parent.parent / "build" / "reports" / "node_tests.json"
LINES: dict[str, dict] = {}
PASSING = 1780  # at least, of the tests of onnx 1.23
WHOLE = 0.95  # at least, of the passing tests with tensors of numbers only: every node on MLX, says ONNX Runtime


# What ONNX Runtime's CPU provider passes and MLX does not, with the reason; an entry that passes again fails the test.
KNOWN: dict[str, str] = {}


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_node(case):
    mlx, cpu = attempt(case, True), attempt(case, False)
    LINES[case.name] = {"name": case.name, "status": mlx.status, "placement": mlx.placement, "detail": mlx.detail, "cpu": cpu.status,
                        "tensors_only": has_only_tensors(case)}
    fine = mlx.status == "pass" or cpu.status != "pass"
    assert fine == (case.name not in KNOWN), mlx.detail or f"{case.name} passes: take it off the list"


def test_report():
    if len(LINES) < len(cases()):
        pytest.fail("the node tests did not all run: run the whole file")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps(list(LINES.values()), indent=1))
    passing = [line for line in LINES.values() if line["status"] == "pass"]
    tensors = [line for line in passing if line["tensors_only"]]
    whole = [line for line in tensors if line["placement"] == "mlx"]
    print(f"{len(passing)} of {len(LINES)} pass; {len(whole)} of {len(tensors)} with tensors only wholly on MLX")
    assert len(passing) >= PASSING
    assert len(whole) >= WHOLE * len(tensors)
    assert all(line["detail"] for line in LINES.values() if line["status"] != "pass")
    assert all(line["placement"] for line in passing)
