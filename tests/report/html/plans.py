"""A plan for each objective, quickly made."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import placewright
from placewright.exporters.planning import plan_for as engine_plan
from placewright.objectives import OBJECTIVES
from placewright.plan import Plan
from placewright.planning import make_problem
from placewright.solving import solve

QUICK = {
    "latency": ("heft", "4090+3060", {}),
    "throughput": ("linear-dp", "a100+2xt4+cpu", {}),
    "invocation-latency": ("greedy", "tarnawski", {"subgraphs": 2}),
    "batch-throughput": ("greedy", "4090+3060", {"batch": 4}),
}
assert set(QUICK) == set(OBJECTIVES)


@cache
def plan_for(objective: str) -> Plan:
    """Two layers of a GPT-2."""
    planner, cluster, options = QUICK[objective]
    return placewright.plan(
        "zoo:gpt2?layers=2", cluster, planner=planner, objective=objective, **options
    )


@cache
def plan_for_steps() -> Plan:
    """Steps of four micro-batches, trained by 1F1B on three stages at most."""
    found = engine_plan(
        "zoo:gpt2?layers=4&batch=4",
        "moirai-intra-server",
        "megatron",
        training=True,
        micro_batches=4,
        free_seconds=0,
    ).plan
    assert isinstance(found, Plan)
    return found


def with_names(*texts: str) -> Plan:
    """A plan whose first ops, device and problem are called so."""
    problem, _ = make_problem("zoo:gpt2?layers=1", "4090+3060", {})
    ops = (*texts, *problem.op_names[len(texts) :])
    devices = (texts[0], *problem.device_names[1:])
    modules = (*texts, *problem.op_modules[len(texts) :])
    changed = replace(
        problem, name=texts[0], op_names=ops, device_names=devices, op_modules=modules
    )
    return solve(changed, "heft")
