"""How far planning for latency scales: tens of thousands of ops, a thousand devices.

    python benchmarks/scale.py [--seconds 30] [CASE ...]

Cases: ``ops`` (50,000 ops of a GPT training step on 16 devices of two kinds in four hosts), ``t5``
(49,000 ops of a T5 on the same), ``devices`` (20,000 ops on 1,000 devices of three kinds in 200
hosts). The hosts hang on one network; transfers contend for its links; no device has the memory
for the ops' case as a whole. For each case: seconds and memory to make the problem and to bound
it, then the value of every quick planner, and of `multilevel` in the time given. Plans are judged
by `solve`.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from placewright.bounds import lower_bound
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InfeasibleError
from placewright.planners.multilevel import Multilevel
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.solving import quick_planners, solve

WARM_UP = "zoo:googlenet"


@dataclass(frozen=True)
class Case:
    source: str
    hosts: int
    kinds: tuple[str, ...]
    devices_per_host: int


CASES = {
    "ops": Case("zoo:gpt3-2.7b?granularity=head&layers=51&batch=2", 4, ("V100-32GB", "T4"), 4),
    "t5": Case("zoo:t5-large?granularity=head&layers=52&batch=32", 4, ("V100-32GB", "T4"), 4),
    "devices": Case(
        "zoo:gpt3-2.7b?granularity=head&layers=20&batch=2",
        200,
        ("V100-32GB", "T4", "A100-80GB"),
        5,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    small, _ = make_problem(WARM_UP, "2x3090", training=True)
    for name in quick_planners(small):  # compiles what is not compiled yet
        solve(small, name)
    solve(small, Multilevel(iterations=1000))
    for name in given.cases or CASES:
        report(name, CASES[name], given.seconds)


def report(name: str, case: Case, seconds: float) -> None:
    started = time.process_time()
    problem, _ = make_problem(case.source, cluster(case), training=True)
    made = time.process_time() - started
    bound = lower_bound(problem)
    bounded = time.process_time() - started - made
    table = Table(
        title=f"{name}: {problem.op_count:,} ops, {problem.device_count:,} devices, "
        f"made in {made:.1f} s, bound {bound.value:.4f} s ({bound.source}) in {bounded:.1f} s, "
        f"up to {resident():.2f} GiB"
    )
    for column in ("planner", "value", "devices", "seconds", "processor s", "GiB so far"):
        table.add_column(column, justify="left" if column == "planner" else "right")
    for planner in quick_planners(problem):
        table.add_row(planner, *line(problem, planner, float("inf")))
    table.add_row("multilevel", *line(problem, Multilevel(), seconds))
    Console(width=120).print(table)


def line(problem: Problem, planner: str | Multilevel, seconds: float) -> tuple[str, ...]:
    wall, processor = time.perf_counter(), time.process_time()
    try:
        plan = solve(problem, planner, time_limit=seconds)
    except InfeasibleError:
        value, used = "no room", "-"
    else:
        value, used = f"{plan.value:.4f}", str(len(set(plan.placement.device.tolist())))
    took = time.perf_counter() - wall, time.process_time() - processor
    return value, used, f"{took[0]:.1f}", f"{took[1]:.1f}", f"{resident():.2f}"


def resident() -> float:
    """GiB: the most this process has had resident so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def cluster(case: Case) -> Cluster:
    """Hosts of one kind of device each, by turns; PCIe 3.0 inside, 100 Gbit/s between."""
    devices, links = [], []
    for host in range(case.hosts):
        for number in range(case.devices_per_host):
            name = f"host{host}-device{number}"
            devices.append(Device(name, case.kinds[host % len(case.kinds)], host=f"host{host}"))
            links.append(Link(name, f"pcie{host}", bandwidth=16e9, latency=5e-6))
        links.append(Link(f"pcie{host}", "network", bandwidth=12.5e9, latency=1e-5))
    switches = (*(f"pcie{host}" for host in range(case.hosts)), "network")
    return Cluster("scale", tuple(devices), tuple(links), switches)


if __name__ == "__main__":
    main()
