"""Every planner on small models of the zoo: the tables of the planners' pages (docs/planners/).

    python benchmarks/each_planner.py [--seconds 5] [--rounds 6] [--only TEXT,...]
        [--planners NAME,...] [--json FILE]

Each objective has a few models on preset clusters (`CASES`). Planners that are done in seconds run
until they are done; those that search or prove have `--seconds` each, kernels compiled before, and
`auto` so many `--rounds`, which do not hang on how busy the machine is; the seed is 0. For each:
the value of its plan, which was judged, and the best bound that it or any other proved. With
`--json` what was run replaces the same in FILE, from which ``python docs/tables.py`` writes the
tables.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from placewright.errors import PlacewrightError
from placewright.planners import PlannerEntry, planners_for
from placewright.planning import make_problem, plan_problem
from placewright.problem import LONG_ROUNDING, Problem
from placewright.units import format_seconds

BY_HAND, AUTO = "expert", "auto"
WARM_UP_SECONDS = 0.5


@dataclass(frozen=True)
class Case:
    objective: str
    source: str
    cluster: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def problem(self) -> Problem:
        options = {"objective": self.objective, **self.options}
        return make_problem(self.source, self.cluster, options)[0]


RANDOM = "zoo:rwnn?modules=2&ops=20&width=256"
CHAIN = "zoo:rwnn?modules=3&ops=8&width=256"
FEW = "zoo:rwnn?modules=1&ops=6&width=256"
FREE = {"contiguous": False}
REPLICAS = {"contiguous": False, "replicate": True}

CASES = {
    "latency: a random wiring": Case("latency", RANDOM, "moirai-intra-server"),
    "latency: GoogLeNet": Case("latency", "zoo:googlenet", "diviml"),
    "latency: Llama 13B, memory short": Case(
        "latency", "zoo:llama-13b?phase=decode&context=512", "4090+3060"
    ),
    "latency: a random wiring, no contention": Case(
        "latency", CHAIN, "diviml", {"contention": "none"}
    ),
    "throughput: Inception v3": Case("throughput", "zoo:inception-v3?batch=16", "a100+2xt4+cpu"),
    "throughput: GPT-2": Case("throughput", "zoo:gpt2", "4x3090+cpu"),
    "throughput: GPT-2, not contiguous": Case("throughput", "zoo:gpt2", "4x3090+cpu", FREE),
    "throughput: a handful of ops, replicas": Case("throughput", FEW, "2x3090", REPLICAS),
    "invocation-latency: GoogLeNet": Case("invocation-latency", "zoo:googlenet", "a100+2xt4+cpu"),
    "invocation-latency: BERT": Case("invocation-latency", "zoo:bert-base", "3090+2x3060"),
    "batch-throughput: a random wiring": Case(
        "batch-throughput", RANDOM, "diviml", {"batch": 16, "contention": "none"}
    ),
    "batch-throughput: GoogLeNet": Case(
        "batch-throughput", "zoo:googlenet", "diviml", {"batch": 16, "contention": "none"}
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default="", help="parts of names of cases, parted by commas")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--planners", default="", help="only these, parted by commas")
    given = parser.parse_args()
    parts = given.only.split(",")
    kept = json.loads(given.json.read_text("utf-8")) if given.json and given.json.exists() else {}
    for name, case in CASES.items():
        if any(part in name for part in parts):
            kept[name] = _result(name, case, given, kept.get(name, {}))
            if given.json:
                kept = {each: kept[each] for each in CASES if each in kept}
                given.json.write_text(
                    json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8"
                )


def _check(name: str, bound: float, values: list[float]) -> None:
    """A bound of an earlier run may have been wrong, or of other costs."""
    if values and bound > min(values) * (1 + LONG_ROUNDING):
        raise SystemExit(
            f"{name}: a plan takes {min(values)} s, below the bound of {bound} s that FILE or a "
            "planner has; run all planners of it again without FILE's entry"
        )


def _result(
    name: str, case: Case, given: argparse.Namespace, before: dict[str, Any]
) -> dict[str, Any]:
    """What a case came to: planner → value (None without a plan), its limit, why no plan."""
    wanted = set(given.planners.split(",")) - {""}
    problem = case.problem()
    table = Table("planner", "value", "bound", "", title=f"{name}: {case.source} on {case.cluster}")
    rows = [row for row in planners_for(case.objective) if row.name != BY_HAND]
    found = dict(before.get("planners", {}))
    bound = float(before.get("lower_bound", 0.0))
    for row in rows:
        if wanted and row.name not in wanted:
            continue
        limit = _limit(row, given)
        value, proved, why = _planned(problem, row, limit)
        found[row.name] = {"value": value, "limit": limit, "why": why}
        bound = max(bound, proved)
        shown = "-" if value is None else format_seconds(value)
        table.add_row(row.name, shown, format_seconds(proved), why)
    Console(width=150).print(table)
    _check(name, bound, [each["value"] for each in found.values() if each["value"] is not None])
    return {
        "objective": case.objective,
        "source": case.source,
        "cluster": case.cluster,
        "options": dict(case.options),
        "ops": problem.op_count,
        "devices": problem.device_count,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "lower_bound": bound,
        "planners": {row.name: found[row.name] for row in rows if row.name in found},
    }


def _limit(row: PlannerEntry, given: argparse.Namespace) -> dict[str, float]:
    """Seconds or rounds that a planner may have; nothing for those that are quick."""
    if row.name == AUTO:
        return {"rounds": given.rounds}
    return {} if row.quick else {"seconds": given.seconds}


def _planned(
    problem: Problem, row: PlannerEntry, limit: Mapping[str, float]
) -> tuple[float | None, float, str]:
    """The value of a planner's plan, the bound it came with, or why there is no plan."""
    seconds = limit.get("seconds", float("inf"))
    options = {"iterations": str(limit["rounds"]), "processes": "1"} if "rounds" in limit else {}
    try:
        if "seconds" in limit:  # compiles what is not compiled yet
            plan_problem(problem, planner=row.name, time_limit=WARM_UP_SECONDS)
        plan = plan_problem(problem, planner=row.name, planner_options=options, time_limit=seconds)
    except PlacewrightError as error:
        return None, 0.0, str(error)
    return plan.value, plan.lower_bound, ""


if __name__ == "__main__":
    main()
