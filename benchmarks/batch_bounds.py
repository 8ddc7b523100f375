"""How far the bound by paths and work of a batch can go: its program, at plans.

    python benchmarks/batch_bounds.py [--seeds 21,49,77] [--seconds 20]

Each seed is an instance of `unseen_families` with objective ``batch-throughput``. A plan is a point
of the linear program of `bounds.batch.together`, which it values at the larger of the mean work of
the devices of a kind and the longest mean path of an input, waiting included. No weights and prices
prove more than that value, so `gap at least` is what the bound leaves unproved of this plan however
well its program is solved: what is missing is what the program leaves out, such as batches that
wait for the last of their inputs.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import unseen_families
from rich.console import Console
from rich.table import Table

from placewright.bounds.batch.arrivals import Arrivals
from placewright.graph import Floats, Ints
from placewright.kernels.batch.arrays import batches_of
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.common.ranks import upward_ranks
from placewright.plan import Plan
from placewright.planning import plan_problem
from placewright.problem import Problem


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", default="21,49,77,105,133,161,189,24")
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    table = Table("instance", title="values in ms", title_justify="left")
    for column in ("value", "bound", "gap", "program at the plan", "gap at least"):
        table.add_column(column, justify="right")
    for seed in map(int, given.seeds.split(",")):
        name, problem = unseen_families.instance(seed, 1, math.inf)[:2]
        plan = plan_problem(problem, time_limit=given.seconds)
        most = program_at(plan)
        table.add_row(
            name,
            f"{plan.value * 1e3:.2f}",
            f"{plan.lower_bound * 1e3:.2f}",
            f"{plan.gap:.1%}",
            f"{most * 1e3:.2f}",
            f"{max(1 - most / plan.value, 0.0):.1%}",
        )
    Console(width=120).print(table)


def program_at(plan: Plan) -> float:
    """Seconds: what the program of `path_and_work` comes to at a plan."""
    problem = plan.problem
    b = batches_of(problem)
    inputs = _inputs(plan)
    chunks = inputs // b.chunk
    ops, devices = np.arange(problem.op_count)[:, None], b.kind[None, :]
    time = np.where(chunks > 0, b.time[ops, devices, chunks], 0.0)
    work = np.bincount(b.kind, time.sum(axis=0)) / np.bincount(b.kind)
    mean = (time * inputs).sum(axis=1) / problem.options.batch
    order, arrays = problem.topological_order, arrays_of(problem)
    paths = upward_ranks(mean, _waiting(problem, chunks), order, arrays)
    return float(max(work.max(), paths.max()))


def _inputs(plan: Plan) -> Ints:
    """`[op, device]` inputs of an op that a device computes."""
    count = plan.problem.device_count
    each = [np.bincount(devices, minlength=count) for devices in plan.placement.device]
    return np.array(each, dtype=np.int32)


def _waiting(problem: Problem, chunks: Ints) -> Floats:
    """`[edge]` the mean over the inputs of what they wait for its tensor, at least."""
    arrivals, kind = Arrivals.of(problem), batches_of(problem).kind
    found = np.zeros(problem.edge_count)
    for number, edge in enumerate(arrivals.edge.tolist()):
        before = chunks[problem.edge_producer[edge]]
        after = chunks[problem.consumers[edge]]
        found[edge] = arrivals.cost[number, kind, before, after].sum()
    return found


if __name__ == "__main__":
    main()
