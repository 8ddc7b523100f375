"""DiviML's Tables IV and V: throughput of batches (part of `diviml.py`, which runs it).

`batches` (Table IV): a row per kind of network, inputs per second. `--time-limit` seconds for each
of ``one-plus-one-ea``, ``annealing`` and ``milp-split``, `--milp-limit` for ``diviml-milp``; the
upper bound on throughput is the best that any planner proved.

`gpt3` (Table V): GPT-3 on six equal hosts of two kinds of GPU, one forward pass over 20 tokens per
input, layers as ops. ``single node`` plans a sixth of the model on one host and repeats the plan on
the others; ``multi node`` gives ``milp-split`` all hosts, with and without symmetry breaking. Each
row has `--time-limit` seconds.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import numpy as np

from placewright import planners
from placewright.bounds import lower_bound
from placewright.budget import Budget, no_progress
from placewright.coarsen import coarsen
from placewright.errors import PlacewrightError
from placewright.plan import Plan
from placewright.planners.latency.exact.one_node import repeated_on_hosts
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.simulate import evaluate
from placewright.solving import solve

OBJECTIVE = "batch-throughput"
QUICK = ("single-device", "met", "greedy", "heft")
SEARCHES = ("one-plus-one-ea", "annealing")
BASELINES = (*QUICK, *SEARCHES)
MILP, SPLIT = "diviml-milp", "milp-split"

GPT3 = "zoo:gpt3-175b?phase=forward&context=20"
GPT3_INPUTS = 16
SYMMETRIES = ("none", "batch", "task", "time")

Row = dict[str, Any]


def network(ops: int, channels: int, dependency: str, seed: int, batch: int) -> Problem:
    query = f"modules=10&ops={ops}&channels={channels}&dependency={dependency}&seed={seed}"
    options = {"objective": OBJECTIVE, "batch": batch, "contention": "none"}
    return make_problem(f"zoo:rwnn?times=diviml&{query}", "diviml", options)[0]


def solved(problem: Problem, name: str, seconds: float) -> Plan | None:
    limit = float("inf") if planners.entry(name, OBJECTIVE).quick else seconds
    try:
        return solve(problem, name, time_limit=limit)
    except PlacewrightError:
        return None


def batch_names(arguments: Namespace) -> tuple[str, ...]:
    return (*BASELINES, *(() if arguments.no_milp else (MILP,)), SPLIT)


def batch_rows(
    arguments: Namespace, shapes: list[tuple[int, str]], seeds: list[int], ops: list[int]
) -> Iterator[Row]:
    """Inputs per second of each planner, the upper bound, and milp-split over the best baseline."""
    for batch in [int(each) for each in arguments.batches.split(",")]:
        for size in ops:
            for channels, dependency in shapes:
                problems = [network(size, channels, dependency, seed, batch) for seed in seeds]
                title = f"B={batch}, 10 × {size}, {dependency}, {channels}-chan"
                yield {"network": title, **_batch_row(problems, arguments)}


def _batch_row(problems: list[Problem], arguments: Namespace) -> Row:
    names = batch_names(arguments)
    rates: dict[str, list[float]] = {name: [] for name in names}
    bounds, ahead = [], []
    for problem in problems:
        plans = {
            name: solved(
                problem, name, arguments.milp_limit if name == MILP else arguments.time_limit
            )
            for name in names
        }
        for name, plan in plans.items():
            rates[name].append((plan.throughput or 0.0) if plan else float("nan"))
        least = max(plan.lower_bound for plan in plans.values() if plan)
        bounds.append(problem.options.batch / least)
        ahead.append(rates[SPLIT][-1] / np.nanmax([rates[name][-1] for name in BASELINES]) - 1)
    return {
        "per_second": {name: float(np.mean(each)) for name, each in rates.items()},
        "upper_bound": float(np.mean(bounds)),
        "ahead": float(np.mean(ahead)),
    }


def batch_finding(rows: list[Row]) -> str:
    ahead = float(np.mean([row["ahead"] for row in rows]))
    slack = float(
        np.mean(
            [
                row["upper_bound"] / max(row["per_second"][name] for name in BASELINES) - 1
                for row in rows
            ]
        )
    )
    heft = float(np.mean([row["per_second"][SPLIT] / row["per_second"]["heft"] for row in rows]))
    return (
        f"milp-split has {ahead:+.1%} throughput over the best baseline, and no plan can have more "
        f"than {slack:+.1%}; over heft it has {heft - 1:+.1%}"
    )


# -- Table V -------------------------------------------------------------------------------------


def gpt3_rows(arguments: Namespace) -> Iterator[Row]:
    """Inputs per second of each way to plan GPT-3 on six hosts."""
    options = {"objective": OBJECTIVE, "batch": GPT3_INPUTS, "contention": "none"}
    whole = make_problem(GPT3, "diviml-six-nodes", options)[0]
    layers = coarsen(whole, "layers")
    assert layers is not None
    problem, seconds = layers.problem, arguments.time_limit
    for title, name in (("single node, milp", MILP), ("single node, milp-split", SPLIT)):
        yield {"way": title, "per_second": GPT3_INPUTS / _single_node(problem, name, seconds)}
    for symmetry in SYMMETRIES:
        plan = solve(problem, SPLIT, planner_options={"symmetry": symmetry}, time_limit=seconds)
        title = "no symmetries" if symmetry == "none" else f"all symmetries, {symmetry}"
        yield {"way": f"multi node, milp-split, {title}", "per_second": plan.throughput}
    yield {"way": "upper bound", "per_second": GPT3_INPUTS / lower_bound(problem).value}


def _single_node(problem: Problem, name: str, seconds: float) -> float:
    """Seconds for all inputs when each host has its share of the model; three parts are planned."""
    options = {"solver": "cp-sat"}  # highs finds nothing better than its start in this time

    def plan_part(part: Problem) -> Any:
        planner = planners.create(name, options, OBJECTIVE)
        return planner.plan(part, Budget(seconds / 3), 0, no_progress).placement

    return evaluate(problem, repeated_on_hosts(problem, plan_part)).value
