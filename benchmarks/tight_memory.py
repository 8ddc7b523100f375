"""Searches where memory is tight: plans that fill their devices, drawn by seed.

    python benchmarks/tight_memory.py [--seeds 0:24] [--objective latency]
        [--planners annealing:order=free,multilevel] [--seconds 3] [--iterations N]
        [--json FILE] [--before FILE]

Each seed is an instance: a language model of the zoo by blocks, or a network of `unseen_families`
op by op, on 2 to 6 devices that together have 2 to 25 % more memory than it needs. For each
planner: its value over the best value that any of them, or any in the file of ``--before``, found.
The seconds are processor time of this process, so that other work on the machine matters less;
with ``--iterations`` they are left out of account and the runs repeat exactly. ``--json`` keeps the
values, and ``--before`` compares with those of an earlier run, instance by instance.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
import unseen_families
from rich.console import Console
from rich.table import Table

from placewright import planners
from placewright.budget import Budget, Progress, no_progress
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InfeasibleError
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.planners.base import Proposal
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.solving import propose, solve

ROOM = (1.02, 1.05, 1.1, 1.25)
"""Memory of all devices together, in what the ops keep; seeds go through it in turn."""

MODELS = ("llama-7b", "llama-13b", "gpt2-xl", "llama3-8b", "bert-large", "t5-large")
KINDS = ("RTX 4090", "RTX 3060", "RTX 3090", "T4", "A100 40GB", "V100 16GB")
PLANNERS = "annealing:order=free,multilevel"


@dataclass
class ProcessorBudget(Budget):
    """Seconds are those that this process works."""

    _started: float = field(default_factory=time.process_time)

    @property
    def left(self) -> float:
        return self.seconds - (time.process_time() - self._started)

    def part(self, seconds: float) -> Budget:
        return ProcessorBudget(min(seconds, self.left), self.start, self.listener, self.on_lesson)


@dataclass(frozen=True)
class Values:
    """Milliseconds of each planner on each instance, `inf` where it found none or takes it not."""

    of: Mapping[str, Mapping[str, float]]  # [instance][planner]

    def best(self, instance: str) -> float:
        return min(self.of.get(instance, {}).values(), default=math.inf)


def main() -> None:
    arguments = parsed()
    before = Values(json.loads(arguments.before.read_text("utf-8")) if arguments.before else {})
    found: dict[str, dict[str, float]] = {}
    for planner in arguments.planners:  # what is loaded or compiled is nobody's time
        value_of(instance(1, arguments.objective)[1], planner, 0, arguments)
    for seed in arguments.seeds:
        name, problem = instance(seed, arguments.objective)
        found[name] = {}
        for planner in arguments.planners:
            found[name][planner] = value_of(problem, planner, seed, arguments)
        print(name, *(f"{each:.5g}" for each in found[name].values()), sep=" | ", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    Console(width=150).print(table_of(Values(found), before, arguments.planners))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seeds", default="0:24", help="FIRST:END, the end left out, or a list (0:24)")
    add("--objective", default="latency", choices=unseen_families.OBJECTIVES)
    add("--planners", default=PLANNERS, help="NAME[:KEY=VALUE], separated by commas")
    add("--seconds", type=float, default=3.0, help="of the processor, for each plan (3)")
    add("--iterations", help="of the planner, in place of seconds")
    add("--json", type=Path, metavar="FILE", help="write the values to this file")
    add("--before", type=Path, metavar="FILE", help="compare with the values in this file")
    arguments = parser.parse_args()
    first, colon, end = arguments.seeds.partition(":")
    numbers = range(int(first), int(end)) if colon else map(int, arguments.seeds.split(","))
    arguments.seeds = list(numbers)
    arguments.planners = arguments.planners.split(",")
    return arguments


def value_of(problem: Problem, planner: str, seed: int, arguments: argparse.Namespace) -> float:
    name, *pairs = planner.split(":")
    options = dict(pair.split("=", 1) for pair in pairs)
    if arguments.iterations:
        options["iterations"] = arguments.iterations
    chosen = planners.create(name, options, problem.options.objective)
    if chosen.supports(problem):
        return math.inf
    budget = Budget() if arguments.iterations else ProcessorBudget(arguments.seconds)
    try:
        proposal, _ = propose(problem, None, chosen, budget, seed, no_progress)
    except InfeasibleError:
        return math.inf
    return judged(problem, proposal.placement) * 1e3


def judged(problem: Problem, placement: Placement) -> float:
    """Seconds, once the judge has agreed."""
    plan = solve(problem, _Given(placement, problem.options.objective))
    return plan.value


class _Given:
    """Proposes what somebody else has found."""

    name = "given"
    counts_peak = True

    def __init__(self, placement: Placement, objective: str) -> None:
        self.placement, self.objective = placement, objective

    def supports(self, problem: Problem) -> None:
        return None

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        return Proposal(self.placement)


def table_of(found: Values, before: Values, names: Sequence[str]) -> Table:
    """Each value over the best known; with an earlier run, both."""
    runs = [("before", before), ("now", found)] if before.of else [("", found)]
    table = Table(title="Tight memory: value over the best known")
    table.add_column("instance")
    for name in names:
        for run, _ in runs:
            table.add_column(f"{name} {run}".strip(), justify="right")
    ratios: dict[tuple[str, str], list[float]] = {}
    for instance in found.of:
        best = min(found.best(instance), before.best(instance))
        cells = []
        for name in names:
            for run, values in runs:
                value = values.of.get(instance, {}).get(name, math.inf)
                ratio = value / best if value < math.inf else math.inf
                ratios.setdefault((name, run), []).append(ratio)
                cells.append(f"{ratio:.4f}" if value < math.inf else "none")
        table.add_row(instance, *cells)
    table.add_section()
    for said, figure in FIGURES.items():
        table.add_row(said, *(figure(np.array(each)) for each in ratios.values()))
    return table


def _mean(ratios: Floats) -> str:
    """Geometric, of those that found a plan."""
    return f"{np.exp(np.log(ratios[np.isfinite(ratios)]).mean()):.4f}"


FIGURES: Mapping[str, Callable[[Floats], str]] = {
    "mean of those found": _mean,
    "within 0.5 %": lambda ratios: f"{np.mean(ratios <= 1.005):.0%}",
    "no plan": lambda ratios: str(np.isinf(ratios).sum()),
}


# -- instances -------------------------------------------------------------------------------------


def instance(seed: int, objective: str = "latency") -> tuple[str, Problem]:
    """The instance of a seed, and its name, which says what was drawn."""
    rng = np.random.default_rng(seed)
    room = ROOM[seed // 2 % len(ROOM)]
    kind, problem = (_blocks if seed % 2 == 0 else _ops)(rng, objective)
    problem = problem.with_device_memory(room * _packed(rng, problem))
    return f"{seed}: {kind}, {problem.device_count} devices, {room - 1:.0%} spare", problem


def _packed(rng: np.random.Generator, problem: Problem) -> Floats:
    """`[device]` bytes that units take which are shared out unevenly, so that there is a plan."""
    shares = rng.uniform(0.5, 1.5, problem.device_count)
    room = problem.op_memory.sum() * shares / shares.sum()
    used = np.zeros(problem.device_count)
    for unit in rng.permutation(problem.unit_count):
        used[int(np.argmax(room - used))] += problem.unit_memory[unit]
    return used


def _blocks(rng: np.random.Generator, objective: str) -> tuple[str, Problem]:
    """A language model by blocks on devices of the catalogue, in a host of which PCIe is shared."""
    model, layers = str(rng.choice(MODELS)), int(rng.integers(16, 49))
    kinds = rng.choice(KINDS, int(rng.integers(2, 7)))
    devices = tuple(Device(f"d{k}", str(kind)) for k, kind in enumerate(kinds))
    speed = float(rng.choice([8e9, 2.5e10]))
    source = f"zoo:{model}?layers={layers}&context={rng.choice([256, 1024])}"
    cluster = Cluster("drawn", devices, _links(len(devices), speed))
    problem = make_problem(source, cluster, _options(rng, objective), granularity="block")[0]
    return f"{model} of {layers} blocks", problem


def _ops(rng: np.random.Generator, objective: str) -> tuple[str, Problem]:
    family = str(rng.choice(list(unseen_families.FAMILIES)))
    net = unseen_families.Network(family, rng)
    unseen_families.FAMILIES[family](net)
    count = int(rng.integers(2, 7))
    devices = tuple(
        Device(f"d{k}", str(rng.choice(["fast", "slow"])), memory=math.inf) for k in range(count)
    )
    cluster = Cluster("drawn", devices, _links(count, float(rng.choice([1e9, 5e9, 2e10]))))
    return family, make_problem(net.graph(), cluster, _options(rng, objective))[0]


def _links(count: int, speed: float) -> tuple[Link, ...]:
    return tuple(
        Link(f"d{one}", f"d{two}", bandwidth=speed, latency=1e-5)
        for one, two in combinations(range(count), 2)
    )


def _options(rng: np.random.Generator, objective: str) -> dict[str, str | bool]:
    said: dict[str, str | bool] = {"objective": objective}
    if objective == "latency":
        said["contention"] = str(rng.choice(["none", "port", "link"]))
    if objective == "throughput":
        said["contiguous"] = bool(rng.integers(2))
    return said


if __name__ == "__main__":
    main()
