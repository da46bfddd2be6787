"""Time of several ways to do one thing: they take turns in blocks, in one process; a ratio is taken in each round, so that what else the
machine does at the time weighs on both of its sides."""
from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

REPORT = Path(__file__).resolve().parent.parent / "build" / "reports" / "bench.json"
SETTLE = 0.01  # seconds: a pool that still spins after the other's block has gone to sleep when the next one is timed
BLOCK, BLOCK_SECONDS, WARM_SECONDS = 10, 0.3, 0.03
FEWEST = 5  # rounds
Spread = list[float]  # 10th percentile, median, 90th percentile


@dataclass
class Line:
    """Microseconds of each way, and the time of the first one over that of each other."""
    name: str
    microseconds: dict[str, Spread]
    ratios: dict[str, Spread]
    note: str = ""

    @property
    def fastest_by_hand(self) -> str | None:
        """The way by hand that is the hardest to beat."""
        return min((way for way in self.microseconds if way.startswith("hand")), key=lambda way: self.microseconds[way][1], default=None)

    def text(self) -> str:
        first, *others = self.microseconds
        rows = [f"{self.name}{': ' + self.note if self.note else ''}", f"    {first:36}{_times(self.microseconds[first])}"]
        for way in others:
            low, middle, high = self.ratios[way]
            apart = self.microseconds[first][1] - self.microseconds[way][1]
            rows.append(f"    {way:36}{_times(self.microseconds[way])}   ratio {middle:6.3f} ({low:.3f} to {high:.3f})   {apart:+.0f} us"
                        + ("   fastest by hand" if way == self.fastest_by_hand else ""))
        return "\n".join(rows)


def _times(spread: Spread) -> str:
    low, middle, high = spread
    return f"{middle:11.1f} us ({low:.1f} to {high:.1f})"


def percentiles(values: list[float]) -> Spread:
    return [float(v) for v in np.percentile(values, (10, 50, 90))]


def measure(name: str, seconds: float, ways: dict[str, Callable[[], object]], note: str = "") -> Line:
    """A line; `seconds` are for each way, beside what its first calls take. The first way is the one that is compared."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    rounds: dict[str, list[float]] = {way: [] for way in ways}
    sizes = {way: _block(call) for way, call in ways.items()}
    order, end = list(ways), time.perf_counter() + seconds * len(ways)
    while time.perf_counter() < end or len(rounds[order[0]]) < FEWEST:
        for way in order:
            block = _timed(ways[way], *sizes[way])
            times[way] += block
            rounds[way].append(float(np.median(block)))
        order = order[1:] + order[:1]
    first, *others = ways
    ratios = {way: percentiles([a / b for a, b in zip(rounds[first], rounds[way])]) for way in others}
    return Line(name, {way: percentiles(times[way]) for way in ways}, ratios, note)


def _block(call: Callable[[], object]) -> tuple[int, int]:
    """How many calls make a block: some that only warm caches, some that are timed."""
    call()  # may trace and compile
    start = time.perf_counter()
    call()
    spent = time.perf_counter() - start
    return (2 if spent < WARM_SECONDS else 0), min(BLOCK, max(1, int(BLOCK_SECONDS / spent)))


def _timed(call: Callable[[], object], warm: int, timed: int) -> list[float]:
    time.sleep(SETTLE)
    for _ in range(warm):
        call()
    times = []
    for _ in range(timed):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    return times


def write(path: Path, lines: list[Line]) -> None:
    """The report: of each line its times, its ratios, and the ratio against the fastest way by hand where it has one."""
    rows = [{**asdict(line), "by_hand": line.ratios[hand][1] if (hand := line.fastest_by_hand) else None} for line in lines]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
