"""What `hrl` and `placeto` learn: beside random placements, one device, HEFT and `auto`.

    python benchmarks/learned.py [--seconds 300] [--seeds 3] [--together 2] [--json FILE]
        [--workloads googlenet,rwnn] [--planners hrl,placeto] [--parts learning,transfer]

1. Learning: workloads of up to 200 ops, each planner and seed for so many seconds, of a process of
   its own; `--together` so many runs at a time, with a thread of torch each. `cpu` is what a run
   had of the processor. `random` is the best of as many placements drawn at random as the planner
   had timed (each node anywhere it may be, those that overflow left out). `first` and `last` are
   the means of what the first and the last tenth of its episodes came to, `spread` the larger of
   the standard deviations of single episodes within them. It `learns` where the last are better by
   more than that. `--json` keeps all that, and the mean and the spread of every tenth.
2. Transfer: Placeto trained on ten random wirings, one after another and again, then used on ten
   others without training (`episodes=0`), beside its policy before training. `mean` is that of the
   16 placements made for each, `plan` what comes of them.

Every plan is judged. Values are milliseconds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import pairwise
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
WORKLOADS = {
    "moirai-googlenet": (str(SHARED / "moirai" / "googlenet.json"), None),
    "googlenet": ("zoo:googlenet", "diviml"),
    "rwnn": ("zoo:rwnn?modules=2&ops=20&width=256", "moirai-intra-server"),
}
NAMES = ("hrl", "placeto")
WIRING, CLUSTER = "zoo:rwnn?modules=1&ops=20&width=256&seed={}", "moirai-intra-server"
TRAINED, OTHERS = range(10), range(10, 20)
ROUNDS = 2


def main() -> None:
    arguments = parsed()
    console = Console(width=170)
    if "learning" in arguments.parts:
        console.print(learning(arguments))
    if "transfer" in arguments.parts:
        console.print(transfer(arguments.transfer_seconds))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seconds", type=float, default=300.0, help="for each planner and seed (300)")
    add("--seeds", type=int, default=3)
    add("--together", type=int, default=1, help="runs side by side (1)")
    add("--json", type=Path, help="a file for what the runs came to, written after each")
    add("--workloads", default=",".join(WORKLOADS), help=f"of {', '.join(WORKLOADS)} (all)")
    add("--planners", default=",".join(NAMES), help=f"of {', '.join(NAMES)} (both)")
    add("--auto", type=float, default=10.0, help="seconds of planner auto, beside them (10)")
    add("--transfer-seconds", type=float, default=600.0, help="of training in part 2 (600)")
    add("--parts", default="learning,transfer")
    arguments = parser.parse_args()
    for option, known in (("workloads", tuple(WORKLOADS)), ("planners", NAMES)):
        chosen = getattr(arguments, option).split(",")
        if unknown := set(chosen) - set(known):
            parser.error(f"--{option}: no {unknown.pop()}; there are {', '.join(known)}")
        setattr(arguments, option, chosen)
    return arguments


# -- learning ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A planner and a seed on a workload; times are seconds, `tenths` means and spreads."""

    workload: str
    planner: str
    seed: int
    seconds: float
    cpu: float
    plan: float
    random: float
    episodes: int
    timed: int
    first: float
    last: float
    spread: float
    tenths: list[tuple[float, float]]

    @property
    def learns(self) -> bool:
        return self.last < self.first - self.spread


def learning(arguments: argparse.Namespace) -> Table:
    columns = ("planner", "seed", "plan", "random", "one device", "heft", "auto", "episodes",
               "cpu s", "first", "last", "spread", "learns")  # fmt: skip
    table = titled(f"learning, {arguments.seconds:g} s each", "workload", columns)
    runs: list[Run] = []
    for run in all_runs(arguments):
        runs.append(run)
        if arguments.json is not None:
            documents = [asdict(each) | {"learns": each.learns} for each in runs]
            arguments.json.write_text(json.dumps(documents, indent=1) + "\n")
    runs.sort(key=lambda run: (arguments.workloads.index(run.workload), run.planner, run.seed))
    for name in arguments.workloads:
        problem, _ = make_problem(*WORKLOADS[name])
        beside = [solve(problem, each).value for each in ("single-device", "heft")]
        beside.append(plan_problem(problem, time_limit=arguments.auto).value)
        for run in runs:
            if run.workload == name:
                table.add_row(f"{name} ({problem.op_count} ops)", *cells(run, beside))
    return table


def all_runs(arguments: argparse.Namespace) -> Iterator[Run]:
    """Each run when it has ended, `--together` at a time, in processes of their own."""
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes to come
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.together, fresh, max_tasks_per_child=1) as pool:
        asked = [
            pool.submit(learnt, workload, planner, arguments.seconds, seed)
            for workload in arguments.workloads
            for seed in range(arguments.seeds)
            for planner in arguments.planners
        ]
        for done in as_completed(asked):
            yield done.result()


def learnt(workload: str, planner: str, seconds: float, seed: int) -> Run:
    import torch  # noqa: F401  # not within the time of learning

    problem, _ = make_problem(*WORKLOADS[workload])
    lessons: list[Lesson] = []
    started = time.process_time()
    with Counted() as timed:
        plan = solve(problem, planner, time_limit=seconds, seed=seed, on_lesson=lessons.append)
    cpu = time.process_time() - started
    tenths = [
        (float(np.mean([each.mean for each in some])), total_spread(some))
        for some in split(lessons, 10)
    ]
    return Run(
        workload=workload,
        planner=planner,
        seed=seed,
        seconds=seconds,
        cpu=cpu,
        plan=plan.value,
        random=best_of_random(problem, timed.count, seed),
        episodes=lessons[-1].episodes,
        timed=timed.count,
        first=tenths[0][0],
        last=tenths[-1][0],
        spread=max(tenths[0][1], tenths[-1][1]),
        tenths=tenths,
    )


def split(lessons: list[Lesson], parts: int) -> list[list[Lesson]]:
    """In order, as even as can be; every part has a lesson, if need be one that others have."""
    count = len(lessons)
    ends = [round(part * count / parts) for part in range(parts + 1)]
    return [lessons[min(first, count - 1) : max(last, first + 1)] for first, last in pairwise(ends)]


def cells(run: Run, beside: list[float]) -> list[str]:
    return [
        run.planner,
        str(run.seed),
        *(shown(each) for each in (run.plan, run.random, *beside)),
        f"{run.episodes:,}",
        f"{run.cpu:.0f}",
        *(shown(each) for each in (run.first, run.last, run.spread)),
        "yes" if run.learns else "no",
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
