"""What the plan of every planner has to stand, and its refusal."""

import math
import re
from dataclasses import replace

import numpy as np

from placewright.errors import InfeasibleError
from placewright.options import Options
from placewright.plan import Plan
from placewright.planners.base import Planner
from placewright.problem import Problem
from placewright.solving import solve
from placewright.verify import verify
from tests.naive.fit import anything_fits

IN_A_ROW = {
    ("invocation-latency", "max-load-dp"),
    *(
        ("throughput", each)
        for each in ("greedy", "linear-dp", "ideal-dp", "row-cuts", "pipedream")
    ),
}
"""Planners whose splits are one contiguous piece per device, whether they have to be or not."""


def check_refusal(problem: Problem, planner: str, error: InfeasibleError) -> None:
    """A planner may refuse only what has no plan, or no plan of the kind that it makes.

    Of a peak brute force knows only the resident part.
    """
    objective = problem.options.objective
    if planner == "single-device":
        assert not one_device_is_enough(problem), error
    elif (objective, planner) == ("throughput", "pipedream") and not is_a_row(problem):
        assert "no cuts of the row of layers" in str(error)
    elif objective == "invocation-latency" and "its split is not contiguous" in str(error):
        assert planner in ("metis", "scotch")
        enough = int(re.search(r"allow more \(subgraphs=(\d+)\)", str(error))[1])
        options = replace(problem.options, subgraphs=enough)
        assert enough > problem.options.subgraphs
        assert judged(replace(problem, options=options), planner) is not None
    elif problem.options.memory != "peak" or not np.isfinite(problem.device_memory).any():
        if (objective, planner) in IN_A_ROW:
            problem = replace(problem, options=Options("throughput", contiguous=True))
        assert not anything_fits(problem), error


def is_a_row(problem: Problem) -> bool:
    """Whether of any two ops one needs the other, in inference and with none tied together."""
    needs: list[set[int]] = [set() for _ in range(problem.op_count)]
    for op in problem.topological_order.tolist():
        for edge in np.flatnonzero(problem.consumers == op).tolist():
            producer = int(problem.edge_producer[edge])
            needs[op] |= needs[producer] | {producer}
    free = not problem.is_backward.any() and (problem.colocation < 0).all()
    return bool(free) and sorted(map(len, needs)) == list(range(problem.op_count))


def one_device_is_enough(problem: Problem) -> bool:
    """Whether some device supports every op, has room for all, and takes the whole batch."""
    needed = math.fsum(problem.op_memory.tolist())
    for device in range(problem.device_count):
        times = problem.op_time[:, device].tolist()
        if problem.options.objective == "batch-throughput":
            whole = problem.batch_sizes == problem.options.batch
            times += problem.batch_time[:, device, whole].ravel().tolist() or [math.inf]
        pinned = all(each in (-1, device) for each in problem.op_pinned.tolist())
        if pinned and max(times) < math.inf and needed <= problem.device_memory[device]:
            return True
    return False


def judged(problem: Problem, planner: Planner | str, seed: int = 0) -> Plan | None:
    """The plan, which passed the judge; None where nothing fits."""
    try:
        plan = solve(problem, planner, seed=seed)
    except InfeasibleError as error:
        check_refusal(problem, planner if isinstance(planner, str) else planner.name, error)
        return None
    assert verify(plan).violations == ()
    assert plan.lower_bound <= plan.value * (1 + 1e-9)
    return plan


def judged_twice(problem: Problem, planner: Planner | str, seed: int = 0) -> Plan | None:
    """The plan, which passed the judge and came again, byte for byte; None where nothing fits."""
    plan = judged(problem, planner, seed)
    if plan is not None:
        assert solve(problem, planner, seed=seed).to_document() == plan.to_document()
    return plan
