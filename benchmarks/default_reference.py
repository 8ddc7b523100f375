"""What the default planner is compared with, kept in a file (part of `default.py`).

A reference is the best value and the best bound that any planner of a list came to:

- of DiviML's networks: the program of the whole network, its modules, and neighbourhoods of a plan;
- of the models of Moirai's Table IV: Moirai's program as `moirai.py` asks it (on the ops
  themselves, where it refuses those on fewer: coarsening ``exact``), and four fast planners.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import asdict, dataclass
from pathlib import Path

import moirai

from placewright.errors import PlacewrightError
from placewright.problem import Problem
from placewright.solving import solve

NETWORK_PLANNERS = ("diviml-milp", "milp-split", "lns")
MODEL_PLANNERS = ("heft", "celeritas", "m-sct", "getf", "moirai-milp")
COARSE_OPS = 100  # left by coarsening exact


def key_of(cluster: str, model: str) -> str:
    return f"{cluster}/{model}"


@dataclass(frozen=True)
class Known:
    """What a planner found in `seconds`, its limit; `error`: why it found nothing."""

    planner: str
    milliseconds: float | None = None
    bound: float = 0.0
    seconds: float = 0.0
    error: str = ""


class Reference:
    """Section and instance → what is known of it, in the file `path`."""

    def __init__(self, path: Path, known: dict[str, list[Known]]) -> None:
        self.path, self.known = path, known

    @classmethod
    def read(cls, path: Path) -> Reference:
        """Empty if there is no such file yet."""
        content = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return cls(
            path, {name: [Known(**each) for each in found] for name, found in content.items()}
        )

    def best(self, section: str, instance: str) -> Known | None:
        found = self.known.get(f"{section}: {instance}", [])
        return min(
            (each for each in found if each.milliseconds is not None),
            key=lambda each: each.milliseconds or 0.0,
            default=None,
        )

    def add_network(self, name: str, problem: Problem, seconds: float) -> None:
        for planner in NETWORK_PLANNERS:
            self._add(f"rwnn: {name}", network_value(problem, planner, seconds))

    def add_model(self, name: str, seconds: float) -> None:
        cluster, _, model = name.partition("/")
        for planner in MODEL_PLANNERS:
            self._add(f"zoo: {name}", model_value(cluster, model, planner, seconds))

    def _add(self, key: str, new: Known) -> None:
        """Keep it, unless what the same planner found before is better."""
        found = self.known.setdefault(key, [])
        old = next((each for each in found if each.planner == new.planner), None)
        if old is not None:
            found.remove(old)
            new = better(old, new)
        found.append(new)
        print(key, new, sep=" | ", file=sys.stderr, flush=True)
        document = {name: [asdict(each) for each in known] for name, known in self.known.items()}
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
        beside.replace(self.path)


def better(one: Known, other: Known) -> Known:
    values = [each.milliseconds for each in (one, other) if each.milliseconds is not None]
    return Known(
        one.planner,
        min(values, default=None),
        max(one.bound, other.bound),
        max(one.seconds, other.seconds),
        "" if values else other.error,
    )


def network_value(problem: Problem, planner: str, seconds: float) -> Known:
    try:
        plan = solve(problem, planner, time_limit=seconds)
    except PlacewrightError as error:
        return Known(planner, seconds=seconds, error=str(error))
    return Known(planner, plan.value * 1e3, plan.lower_bound * 1e3, seconds)


def model_value(cluster: str, model: str, planner: str, seconds: float) -> Known:
    """On the ops themselves, or on fewer if the planner is exact and has no plan there."""
    asked = Namespace(milp_seconds=seconds, time_limit=seconds, milp_start="celeritas")
    case = moirai.case_of(model, cluster, "none", 0)
    found = moirai.cell(case, planner, asked)
    if found.value is None and planner in moirai.EXACT:
        case = moirai.case_of(model, cluster, "exact", COARSE_OPS)
        found = moirai.cell(case, planner, asked)
    if found.value is None:
        return Known(planner, seconds=seconds, error=found.error)
    return Known(planner, found.value * 1e3, case.bound.value * 1e3, seconds)
