"""How far planning for latency and throughput scales: 50,000 ops, a thousand devices.

    python benchmarks/scale.py [--seconds 30] [CASE ...]

Cases: ``ops`` (50,000 ops of a GPT training step on 16 devices of two kinds in four hosts), ``t5``
(49,000 ops of a T5 on the same), ``devices`` (20,000 ops on 1,000 devices of three kinds in 200
hosts). For throughput: ``pipeline-ops``, ``pipeline-t5`` and ``pipeline-devices`` are the same with
stages that need not be contiguous (tied parameters leave no others), ``pipeline-both`` the 50,000
ops on the 1,000 devices; ``pipeline-rows`` and ``pipeline-rows-devices`` are contiguous: 41,000 ops
of a Llama on 16 and on 1,000 devices; ``pipeline-unequal`` the 50,000 ops on 64 devices of four
kinds. For batches of 32 inputs, on these 64: ``batches`` (20,000 ops, a GPT's inference) and
``batches-ops`` (the 50,000 of its training step). The hosts hang on one network; transfers contend
for its links; no device has the memory for the ops' case as a whole. For each case: seconds and
memory to make the problem and to bound it, then the value of every quick planner, and of a search
for large problems (`multilevel`; for throughput `block-moves`) and the default planner in the time
given, of which processor seconds and memory are only this process's. Plans are judged by `solve`.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from placewright.bounds import Bound, lower_bound
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InfeasibleError, OptionError
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
    options: Mapping[str, Any] = field(default_factory=dict)
    training: bool = True

    @property
    def objective(self) -> str:
        return str(self.options.get("objective", "latency"))


GPT = "zoo:gpt3-2.7b?granularity=head&layers=51&batch=2"
SMALLER_GPT = "zoo:gpt3-2.7b?granularity=head&layers=20&batch=2"
T5 = "zoo:t5-large?granularity=head&layers=52&batch=32"
LLAMA = "zoo:llama-13b?granularity=head&context=1024"
TWO, THREE = ("V100-32GB", "T4"), ("V100-32GB", "T4", "A100-80GB")
FOUR = (*THREE, "RTX3090")
FREE = {"objective": "throughput", "contiguous": False}
IN_A_ROW = {"objective": "throughput", "contiguous": True}
BATCHES = {"objective": "batch-throughput", "batch": 32}

CASES = {
    "ops": Case(GPT, 4, TWO, 4),
    "t5": Case(T5, 4, TWO, 4),
    "devices": Case(SMALLER_GPT, 200, THREE, 5),
    "pipeline-ops": Case(GPT, 4, TWO, 4, FREE),
    "pipeline-t5": Case(T5, 4, TWO, 4, FREE),
    "pipeline-devices": Case(SMALLER_GPT, 200, THREE, 5, FREE),
    "pipeline-both": Case(GPT, 200, THREE, 5, FREE),
    "pipeline-rows": Case(LLAMA, 4, THREE, 4, IN_A_ROW),
    "pipeline-rows-devices": Case(LLAMA, 200, THREE, 5, IN_A_ROW),
    "pipeline-unequal": Case(GPT, 16, FOUR, 4, FREE),
    "batches": Case(GPT, 16, FOUR, 4, BATCHES, training=False),
    "batches-ops": Case(GPT, 16, FOUR, 4, BATCHES),
}
SEARCHES = {
    "latency": ("multilevel", "auto"),
    "throughput": ("block-moves", "auto"),
    "batch-throughput": ("multilevel", "auto"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    for options in ({}, FREE, IN_A_ROW, BATCHES):  # compiles what is not compiled yet
        small, _ = make_problem(WARM_UP, "2x3090", options, training=True)
        for planner in (*quick_planners(small), *SEARCHES[small.options.objective]):
            solve(small, planner, time_limit=1.0)
    for name in given.cases or CASES:
        report(name, CASES[name], given.seconds)


def report(name: str, case: Case, seconds: float) -> None:
    started = time.process_time()
    problem, _ = make_problem(case.source, cluster(case), case.options, training=case.training)
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
    for planner in (*quick_planners(problem), *SEARCHES[case.objective]):
        table.add_row(planner, *line(problem, planner, seconds, bound))
    Console(width=120).print(table)


def line(problem: Problem, planner: str, seconds: float, bound: Bound) -> tuple[str, ...]:
    wall, processor = time.perf_counter(), time.process_time()
    try:
        plan = solve(problem, planner, time_limit=seconds, bound=bound)
    except InfeasibleError:
        value, used = "no room", "-"
    except OptionError:
        value, used = "refused", "-"
    else:
        value, used = f"{plan.value:.4f}", str(len(plan.used_devices))
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
