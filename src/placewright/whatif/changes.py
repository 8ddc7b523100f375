"""The problem of a plan when devices are lost or others come, and where its ops were."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from placewright.analysis.devices import device_columns
from placewright.cluster import Cluster
from placewright.coarsen.recompute import names_recomputed
from placewright.costs.roofline import CostOptions, Kernels
from placewright.errors import InfeasibleError, InputError, OptionError
from placewright.graph import Flags, Ints
from placewright.plan import Plan
from placewright.planning import imported, make_problem
from placewright.problem import Problem

_TRAINED = ("zoo", "torch", "hf")  # sources of which `--training` makes forward and backward


def without_devices(problem: Problem, names: Sequence[str]) -> Problem:
    """`problem` without the devices of these names.

    Routes between those left stay as they are: where a lost device forwarded for others, make
    the problem from the cluster as it is now (`on_cluster`). InfeasibleError if an op is pinned
    to one of them or no device is left.
    """
    for name in names:
        if name not in problem.device_names:
            raise OptionError(
                f"there is no device '{name}' to lose; the plan has "
                f"{', '.join(problem.device_names)}"
            )
    kept = [d for d, name in enumerate(problem.device_names) if name not in names]
    if not kept:
        raise InfeasibleError("all devices of the plan are lost; there is nothing to plan on")
    pairs = [a * problem.device_count + b for a in kept for b in kept]
    spans = [problem.channels[problem.channel_offsets[k] : problem.channel_offsets[k + 1]]
             for k in pairs]  # fmt: skip
    columns = device_columns(problem, kept)
    return replace(
        problem,
        **columns,
        name=f"{problem.name} without {', '.join(dict.fromkeys(names))}",
        op_pinned=_pins(problem, columns["device_names"]),
        channel_offsets=np.cumsum([0, *map(len, spans)]),
        channels=np.concatenate(spans),
    )


def forwarders(problem: Problem, names: Sequence[str]) -> list[str]:
    """Those of the devices `names` that routes between the others go over.

    Told by the channels that a link has of its own, ``a → b`` or ``a – b``; a channel that
    several links share by name does not say what it joins.
    """
    kept = [d for d, name in enumerate(problem.device_names) if name not in names]
    used: set[int] = set()
    for pair in (a * problem.device_count + b for a in kept for b in kept):
        span = slice(problem.channel_offsets[pair], problem.channel_offsets[pair + 1])
        used.update(problem.channels[span].tolist())
    ends = {end for k in used for end in re.split(" [→–] ", problem.channel_names[k])}
    return [name for name in dict.fromkeys(names) if name in ends]


def on_cluster(old: Plan, cluster: Cluster | str | Path) -> Problem:
    """The plan's problem on another cluster, made from the plan's source again.

    Ops, their memory, colocation and pins are the plan's own; times and routes the cluster's.
    A ``torch:`` source is imported, which runs its code. InputError if the source is not what
    the plan was made from any more.
    """
    mine = old.problem
    if not old.source:
        raise InputError("the plan does not say what it was made from; use --lost")
    training = bool(mine.is_backward.any()) and old.source.partition(":")[0] in _TRAINED
    chosen = mine.options.to_document()
    names = names_recomputed(mine)
    source = imported(old.source, training=training)

    def make(kernels: Kernels) -> Problem:
        costs = CostOptions(recompute="block" if names else "none", kernels=kernels)
        return make_problem(source, cluster, chosen, costs=costs, recomputed=names or None)[0]

    made = make("auto")
    if not source.graph.is_training and not _idle_alike(made, mine):
        others: tuple[Kernels, ...] = ("program", "fused")
        made = next((each for each in map(make, others) if _idle_alike(each, mine)), made)
    same = made.op_names == mine.op_names and all(
        np.array_equal(getattr(made, column), getattr(mine, column))
        for column in ("tensor_producer", "tensor_bytes", "consumers")
    )
    if not same:
        raise InputError(
            f"{old.source} is not what the plan was made from (it has {made.op_count} ops, the "
            f"plan {mine.op_count}, or other tensors); plan it anew"
        )
    return replace(
        made,
        op_memory=mine.op_memory,
        op_copied=mine.op_copied,
        op_stash=mine.op_stash,
        colocation=mine.colocation,
        op_pinned=_pins(mine, made.device_names),
    )


def _idle_alike(one: Problem, other: Problem) -> bool:
    """Whether the same ops take no time: where kernels are fused, more do."""
    idle = [(problem.op_time == 0).all(axis=1) for problem in (one, other)]
    return np.array_equal(*idle)


def home_devices(old: Plan, problem: Problem) -> Ints:
    """`[unit]` the device of `problem` named as the one it is on in `old`; -1 where there is none.

    Of a stage of replicas the first that is left. A unit that is on several, as it may be where
    `problem` colocates ops that `old` did not, or that its device does not support any more, has
    none either.
    """
    number = {name: d for d, name in enumerate(problem.device_names)}
    of_old = np.array([number.get(name, -1) for name in old.problem.device_names], dtype=np.int32)
    for stage in old.placement.replicas:
        of_old[stage[0]] = next((of_old[d] for d in stage if of_old[d] >= 0), -1)
    op_home = of_old[old.placement.device]
    home = np.full(problem.unit_count, -1, dtype=np.int32)
    home[problem.op_unit] = op_home
    several = np.unique(problem.op_unit[home[problem.op_unit] != op_home])
    home[several] = -1
    there = home >= 0
    home[there & ~np.isfinite(problem.unit_time[np.arange(len(home)), home])] = -1
    return home


def held_before(old: Plan, problem: Problem) -> Flags:
    """`[op, device]` whether the device of that name has the op in `old`, as a replica too."""
    held = np.zeros((problem.op_count, problem.device_count), dtype=np.bool_)
    ops_of = dict(zip(old.problem.device_names, old.device_ops, strict=True))
    for device, name in enumerate(problem.device_names):
        held[ops_of.get(name, []), device] = True
    return held


def _pins(problem: Problem, device_names: Sequence[str]) -> Ints:
    """`op_pinned` by the devices that are left; InfeasibleError if one that is needed is not."""
    number = {name: d for d, name in enumerate(device_names)}
    pins = np.full(problem.op_count, -1, dtype=np.int32)
    for op in np.flatnonzero(problem.op_pinned >= 0):
        name = problem.device_names[problem.op_pinned[op]]
        if name not in number:
            raise InfeasibleError(
                f"op '{problem.op_names[op]}' is pinned to '{name}', which is gone; plan anew "
                "with another pin"
            )
        pins[op] = number[name]
    return pins
