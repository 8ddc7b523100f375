"""What `hrl` and `placeto` learn: beside random placements, one device, HEFT and `auto`.

    python benchmarks/learned.py [--seconds 300] [--seeds 3] [--auto 10] [--parts learning,transfer]

1. Learning: workloads of up to 200 ops, each planner and seed for so many seconds. `random` is the
   best of as many placements drawn at random as the planner had timed (each node anywhere it may
   be, those that overflow left out). `first` and `last` are the means of what the first and the
   last tenth of its episodes came to, `spread` the larger of their standard deviations. It
   `learns` where the last are better by more than that.
2. Transfer: Placeto trained on ten random wirings, one after another and again, then used on ten
   others without training (`episodes=0`), beside its policy before training. `mean` is that of the
   16 placements made for each, `plan` what comes of them.

Every plan is judged. Values are milliseconds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from placewright.budget import Lesson
from placewright.planners.latency.learned.nodes import Nodes
from placewright.planning import make_problem, plan_problem
from placewright.problem import Problem
from placewright.simulate.latency import time_placement
from placewright.solving import solve

SHARED = Path(__file__).resolve().parents[2] / "shared" / "workloads"
WORKLOADS = (
    (str(SHARED / "moirai" / "googlenet.json"), None),
    ("zoo:googlenet", "diviml"),
    ("zoo:rwnn?modules=2&ops=20&width=256", "moirai-intra-server"),
)
NAMES = ("hrl", "placeto")
WIRING, CLUSTER = "zoo:rwnn?modules=1&ops=20&width=256&seed={}", "moirai-intra-server"
TRAINED, OTHERS = range(10), range(10, 20)
ROUNDS = 2


def main() -> None:
    arguments = parsed()
    console = Console(width=150)
    if "learning" in arguments.parts:
        console.print(learning(arguments.seconds, arguments.seeds, arguments.auto))
    if "transfer" in arguments.parts:
        console.print(transfer(arguments.transfer_seconds))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seconds", type=float, default=300.0, help="for each planner and seed (300)")
    add("--seeds", type=int, default=3)
    add("--auto", type=float, default=10.0, help="seconds of planner auto, beside them (10)")
    add("--transfer-seconds", type=float, default=600.0, help="of training in part 2 (600)")
    add("--parts", default="learning,transfer")
    return parser.parse_args()


# -- learning ------------------------------------------------------------------------------------


def learning(seconds: float, seeds: int, auto: float) -> Table:
    columns = ("ops", "planner", "seed", "plan", "random", "one device", "heft", "auto", "episodes",
               "first", "last", "spread", "learns")  # fmt: skip
    table = titled(f"learning, {seconds:g} s each", "workload", columns)
    for source, cluster in WORKLOADS:
        problem, _ = make_problem(source, cluster)
        beside = [solve(problem, name).value for name in ("single-device", "heft")]
        beside.append(plan_problem(problem, time_limit=auto).value)
        for name in NAMES:
            for seed in range(seeds):
                table.add_row(
                    Path(source).name,
                    str(problem.op_count),
                    *learnt(problem, name, seconds, seed, beside),
                )
    return table


def learnt(
    problem: Problem, name: str, seconds: float, seed: int, beside: list[float]
) -> list[str]:
    """The cells of a planner and a seed."""
    lessons: list[Lesson] = []
    timed = Counted()
    with timed:
        plan = solve(problem, name, time_limit=seconds, seed=seed, on_lesson=lessons.append)
    tenth = max(1, len(lessons) // 10)
    first, last = lessons[:tenth], lessons[-tenth:]
    means = [float(np.mean([each.mean for each in some])) for some in (first, last)]
    spread = max(total_spread(some) for some in (first, last))
    values = [plan.value, best_of_random(problem, timed.count, seed), *beside]
    return [
        name,
        str(seed),
        *(shown(each) for each in values),
        f"{lessons[-1].episodes:,}",
        *(shown(each) for each in (*means, spread)),
        "yes" if means[1] < means[0] - spread else "no",
    ]


class Counted:
    """Counts the placements that are timed."""

    def __enter__(self) -> Counted:
        self.count, self._timed = 0, Nodes.timed

        def timed(nodes: Nodes, device: np.ndarray) -> tuple[float, float]:
            self.count += 1
            return self._timed(nodes, device)

        Nodes.timed = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Nodes.timed = self._timed  # type: ignore[method-assign]


def total_spread(lessons: list[Lesson]) -> float:
    """The standard deviation of all episodes of some lessons, which have as many each."""
    means = np.array([each.mean for each in lessons])
    return float(np.sqrt(means.var() + np.mean([each.spread**2 for each in lessons])))


def best_of_random(problem: Problem, count: int, seed: int) -> float:
    nodes, rng = Nodes(problem, problem.unit_count), np.random.default_rng(seed)
    best, placement = np.inf, None
    for _ in range(count):
        device = (rng.random(nodes.allowed.shape) * nodes.allowed).argmax(axis=1)
        seconds, excess = nodes.timed(device)
        if seconds < best and excess == 0:
            best, placement = seconds, nodes.placement(device)
    return np.inf if placement is None else time_placement(problem, placement).makespan


# -- transfer ------------------------------------------------------------------------------------


def transfer(seconds: float) -> Table:
    columns = ("one device", "heft", "untrained mean", "plan", "trained mean", "plan", "better")
    table = titled(f"placeto, trained for {seconds:g} s on ten other wirings", "wiring", columns)
    with tempfile.TemporaryDirectory() as folder:
        policy = str(Path(folder) / "policy.safetensors")
        for turn in range(ROUNDS):
            for seed in TRAINED:
                options = {"save": policy} | ({"policy": policy} if turn or seed else {})
                share = seconds / ROUNDS / len(TRAINED)
                solve(wiring(seed), "placeto", planner_options=options, time_limit=share)
        better = 0
        for seed in OTHERS:
            problem = wiring(seed)
            beside = [solve(problem, name).value for name in ("single-device", "heft")]
            untrained, trained = used(problem, {}), used(problem, {"policy": policy})
            better += trained[0] < untrained[0]
            table.add_row(
                str(seed),
                *(shown(each) for each in (*beside, *untrained, *trained)),
                "yes" if trained[0] < untrained[0] else "no",
            )
    table.add_section()
    table.add_row("all", *[""] * 6, f"{better} of {len(OTHERS)}")
    return table


def wiring(seed: int) -> Problem:
    return make_problem(WIRING.format(seed), CLUSTER)[0]


def used(problem: Problem, options: dict[str, str]) -> tuple[float, float]:
    """Without training: what its placements come to on average, and the plan."""
    lessons: list[Lesson] = []
    options = {"episodes": "0", **options}
    plan = solve(problem, "placeto", planner_options=options, on_lesson=lessons.append)
    return lessons[0].mean, plan.value


# -- output --------------------------------------------------------------------------------------


def shown(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"


def titled(title: str, first: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


if __name__ == "__main__":
    main()
