"""A plan as the start of another: its ops and devices found again by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from placewright.errors import InputError
from placewright.graph import Ints
from placewright.outcome import BatchSchedule, Schedule
from placewright.plan import Placement, Plan, numbered
from placewright.problem import Problem


def starting_placement(
    plan: Plan,
    problem: Problem,
    path: str | Path = "the plan",
    stand_ins: Sequence[str] | None = None,
    *,
    ordered: bool = True,
) -> Placement:
    """The plan's placement for `problem`, whose ops and devices have the names of the plan's.

    ``stand_ins[op]`` is the op of the plan that an op which the plan lacks is placed with.

    Devices of the plan that the problem lacks must be unused. The order of a schedule is kept
    where the graph, and of batches their sizes, are the same, unless it is not to be `ordered`.
    InputError names the op or device at fault; whether the placement fits is for the judge to say.
    """
    theirs, ours = plan.problem.options.objective, problem.options.objective
    if theirs != ours:
        raise InputError(f"{path}: is a plan for {theirs}, not {ours}; give a plan for {ours}")
    if ours == "batch-throughput" and plan.problem.options.batch != problem.options.batch:
        raise InputError(
            f"{path}: is for {plan.problem.options.batch} inputs; give a plan for "
            f"{problem.options.batch}"
        )
    devices = _devices(plan, problem, path)
    theirs_by_name = set(plan.problem.op_names)
    names = [
        name if name in theirs_by_name else other
        for name, other in zip(problem.op_names, stand_ins or problem.op_names, strict=True)
    ]
    ops = _numbers(plan.problem.op_names, names, path)
    device = devices[plan.placement.device[ops]].astype(np.int32)
    replicas = tuple(tuple(devices[list(stage)].tolist()) for stage in plan.placement.replicas)
    subgraph = plan.placement.subgraph
    return Placement(
        device,
        _sequence(plan, problem, ops, device) if ordered else None,
        replicas,
        None if subgraph is None else numbered(device, subgraph[ops]),
        replica_shares=plan.placement.replica_shares,
    )


def _devices(plan: Plan, problem: Problem, path: str | Path) -> Ints:
    """`[device of the plan]` the problem's device of that name, -1 for one that is not used."""
    number = {name: k for k, name in enumerate(problem.device_names)}
    used = set(plan.placement.device.ravel().tolist())
    used |= {device for stage in plan.placement.replicas for device in stage}
    names = plan.problem.device_names
    for device in sorted(used):
        if names[device] not in number:
            raise InputError(
                f"{path}: uses device '{names[device]}', which the cluster lacks; give a plan for "
                "these devices, or take 'placewright replan'"
            )
    return np.array([number.get(name, -1) for name in names], dtype=np.int32)


def _numbers(theirs: Sequence[str], ours: Sequence[str], path: str | Path) -> Ints:
    """`[op of the problem]` the plan's op of that name."""
    number = {name: k for k, name in enumerate(theirs)}
    missing = next((name for name in ours if name not in number), None)
    if missing is not None:
        raise InputError(f"{path}: places no op '{missing}'; give a plan for the same source")
    return np.array([number[name] for name in ours], dtype=np.int32)


def _sequence(plan: Plan, problem: Problem, ops: Ints, device: Ints) -> Ints | None:
    """The order of the plan's schedule, if it is one of this graph, with ``device`` of its ops."""
    if isinstance(plan.outcome, BatchSchedule):
        return _batch_order(plan, plan.outcome, problem, device)
    old = plan.problem
    same = (
        isinstance(plan.outcome, Schedule)
        and np.array_equal(ops, np.arange(old.op_count))
        and np.array_equal(old.edge_producer, problem.edge_producer)
        and np.array_equal(old.consumers, problem.consumers)
        and np.array_equal(old.edge_tensor, problem.edge_tensor)
        and old.options.transfer_unit == problem.options.transfer_unit
    )
    if not same:
        return None
    from placewright.simulate.latency import schedule_sequence

    return schedule_sequence(plan)


def _batch_order(plan: Plan, outcome: BatchSchedule, problem: Problem, device: Ints) -> Ints | None:
    """The order of a plan's batches and transfers, if those are the same on `problem`."""
    from placewright.simulate.batch import batch_sequence, expand

    old, new = expand(plan.problem, plan.placement.device), expand(problem, device)
    same = (
        all(
            np.array_equal(getattr(old, column), getattr(new, column))
            for column in ("op", "size", "tensor", "inputs")
        )
        and all(
            np.array_equal(getattr(old.problem, column), getattr(new.problem, column))
            for column in ("tensor_producer", "consumer_offsets", "consumers")
        )
        and plan.problem.options.transfer_unit == problem.options.transfer_unit
    )
    return batch_sequence(plan, outcome) if same else None
