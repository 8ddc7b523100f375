"""What ``kill -9`` leaves of a run of ``placewright plan`` (part of `default.py`).

A run is killed at a random moment after it has written its first plan. The plan in the file must be
whole, pass the judge, and be no older than the seconds between two checkpoints, which a busy
machine may stretch.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from placewright.errors import PlacewrightError
from placewright.plan import Plan
from placewright.verify import verify

SOURCE = ("zoo:rwnn?modules=5", "-c", "diviml")
LATEST_SECONDS = 6.0  # after the first plan
FIRST_PLAN_SECONDS = 120.0  # the most that starting and the first plan may take


@dataclass(frozen=True)
class Killed:
    """One run: when it was killed, its value in ms, whether its plan is right, and how many seconds
    it is behind. `moment`: seconds after the first plan."""

    moment: float
    verified: bool
    value: float | None = None
    lost: float = 0.0

    def cells(self) -> list[str]:
        plan = "-" if self.value is None else f"{self.value:.6g}"
        return [f"{self.moment:.2f}", plan, "yes" if self.verified else "NO", f"{self.lost:.2f}"]


def killed_rows(count: int, seed: int) -> Iterator[Killed]:
    moments = random.Random(seed)
    for _ in range(count):
        with tempfile.TemporaryDirectory() as folder:
            yield killed(Path(folder), moments.uniform(0.0, LATEST_SECONDS))


def killed(folder: Path, moment: float) -> Killed:
    path, events = folder / "plan.json", folder / "events.jsonl"
    command = [
        *(sys.executable, "-m", "placewright", "plan", *SOURCE, "--time-limit", "1000"),
        *("--gap", "0", "-o", str(path), "--events", str(events)),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + FIRST_PLAN_SECONDS
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(moment)
        process.kill()
        process.wait()
    try:
        plan = Plan.load(path)
    except PlacewrightError:
        return Killed(moment, False)
    lost = seconds_lost(events_in(events), plan.value)
    return Killed(moment, verify(plan).ok, plan.value * 1e3, lost)


def events_in(path: Path) -> list[tuple[float, float | None]]:
    """(seconds, value) of what was told; the last line may be cut short."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line.endswith("}")]
    return [(event["seconds"], event["value"]) for event in map(json.loads, lines)]


def seconds_lost(told: list[tuple[float, float | None]], value: float) -> float:
    """From the first plan better than `value` to the last event."""
    better = [at for at, then in told if then is not None and then < value]
    return told[-1][0] - better[0] if better else 0.0
