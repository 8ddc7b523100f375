"""A plan for one host, repeated on all that are like it (DiviML §VI, "single node").

"Single node utilizes our MILP solvers to schedule one-sixth of the GPT-3 graph on a single node,
then replicates that schedule for the rest of GPT-3 on the remaining 5 nodes."
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placewright.analysis.devices import restricted
from placewright.analysis.modules import split_modules
from placewright.analysis.subproblem import Subproblem, subproblem
from placewright.analysis.symmetry import equal_hosts
from placewright.errors import OptionError
from placewright.graph import Ints
from placewright.plan import Placement
from placewright.problem import Problem

PlanPart = Callable[[Problem], Placement]
"""Plans a part of the model on one host: ``device[op, input]`` of that problem."""


def repeated_on_hosts(problem: Problem, plan_part: PlanPart) -> Placement:
    """The model cut into as many pieces as there are equal hosts, each piece on one host.

    The pieces are runs of modules, about equal in memory (in ops, if ops keep none). Each is
    planned by `plan_part` on the devices of its host alone; pieces that look the same, only once.
    So the first and the last piece of a language model, with embedding and head, have plans of
    their own. Objective ``batch-throughput``; OptionError if the problem has no equal hosts.
    """
    groups = equal_hosts(problem)
    if not groups:
        raise OptionError(
            "no two hosts of this cluster are equal; plan for the whole cluster instead"
        )
    hosts = max(groups, key=len)
    device = np.empty((problem.op_count, problem.options.batch), dtype=np.int32)
    planned: dict[tuple[bytes, ...], Ints] = {}
    for host, ops in zip(hosts, pieces(problem, len(hosts)), strict=True):
        if not len(ops):
            continue
        part = subproblem(problem, ops)
        # Equal hosts are equal to the first one; so is what is planned there.
        alone = on_devices(part.problem, hosts[0])
        key = (*Subproblem(alone, part.ops, part.edges).key(), alone.batch_time.tobytes())
        if key not in planned:
            planned[key] = plan_part(alone).device
        device[ops] = np.array(host, dtype=np.int32)[planned[key]]
    return Placement(device)


def pieces(problem: Problem, count: int) -> list[Ints]:
    """The ops of `count` runs of modules, in topological order, of about equal memory.

    What is colocated with an op of an earlier run goes with that: a head that shares the weights
    of the embedding.
    """
    modules = split_modules(problem, 1)
    weight = problem.op_memory if problem.op_memory.any() else np.ones(problem.op_count)
    size = np.bincount(modules.op_module, weight, modules.count)
    middle = np.cumsum(size) - size / 2
    piece = np.minimum(middle * count / size.sum(), count - 1).astype(int)
    order = problem.topological_order
    of_unit = np.full(problem.unit_count, count)
    np.minimum.at(of_unit, problem.op_unit, piece[modules.op_module])
    of_op = of_unit[problem.op_unit[order]]
    return [order[of_op == each] for each in range(count)]


def on_devices(problem: Problem, devices: list[int]) -> Problem:
    """The problem with these devices alone, rising; OptionError if an op is pinned to another."""
    if not np.isin(problem.op_pinned, [-1, *devices]).all():
        raise OptionError("an op is pinned to a device outside; leave out the pins")
    return restricted(problem, np.array(devices)).problem
