"""What other hardware would do to a plan: its problem changed a little, and planned again.

Three kinds of change: 1 GiB more on the device whose memory is fullest; the busiest route twice as
fast; one device less, of each kind the used one of least load. The routes are those of the problem:
a route that goes over several links is twice as fast as a whole, and no other changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Literal

import numpy as np

from placewright.analysis.warm_start import starting_placement
from placewright.budget import Progress
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import Floats
from placewright.options import check_kind
from placewright.plan import Plan
from placewright.planning import AUTO, plan_problem
from placewright.problem import Problem
from placewright.simulate import evaluate
from placewright.simulate.peak import used_memory
from placewright.system.interrupts import noticed_interrupts
from placewright.verify import verify
from placewright.whatif.changes import without_devices

Kind = Literal["memory", "link", "device"]
MORE_MEMORY = 2.0**30
FASTER = 2.0
MOST_LOST = 3  # kinds of device of which one is taken away


@dataclass(frozen=True, eq=False)
class Change:
    """The problem changed; `keeps`: every plan of the old one is one of this too."""

    kind: Kind
    name: str
    problem: Problem
    keeps: bool


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """What planning came to under a change; where `plan` is None, `error` says why."""

    change: Change
    plan: Plan | None
    error: str = ""


def sensitivities(
    plan: Plan,
    seconds: float,
    *,
    planner: str = AUTO,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> list[Sensitivity]:
    """Plan again under each change, for `seconds` in all; plans are of the changed problems.

    Where the old plan is still one, the answer is no worse than it. VerificationError where `plan`
    does not hold, OptionError for no time; KeyboardInterrupt after Ctrl-C, for changes that were
    planned for unlike times cannot be compared.
    """
    check_kind(seconds, Real, "what_if", "seconds above 0, such as 10")
    if not 0 < seconds < math.inf:
        raise OptionError(f"--what-if is {seconds}; give seconds above 0, such as 10")
    plan.problem.options.require_full_plan("what-if")
    verify(plan).raise_if_failed()
    asked = list(changes(plan))
    found = []
    with noticed_interrupts() as interrupts:
        for number, change in enumerate(asked):
            if on_progress is not None:
                on_progress(change.name, number / len(asked))
            found.append(_planned(plan, change, planner, seconds / len(asked), seed))
            if interrupts.came:
                raise KeyboardInterrupt
    return found


def changes(plan: Plan) -> Iterator[Change]:
    """What to change, as the plan has it: what is fullest, busiest, least needed."""
    problem = plan.problem
    memory = problem.device_memory.copy()
    limited = np.isfinite(memory) & (memory > 0)
    share = np.divide(used_memory(plan), memory, out=np.zeros(len(memory)), where=limited)
    if share.any():
        full = int(np.argmax(share))
        memory[full] += MORE_MEMORY
        name = f"1 GiB more on {problem.device_names[full]}"
        yield Change("memory", name, problem.with_device_memory(memory), keeps=True)
    yield from _faster(plan)
    for device in _spare(plan):
        name = problem.device_names[device]
        try:
            yield Change("device", f"without {name}", without_devices(problem, [name]), keeps=False)
        except InfeasibleError:  # an op is pinned to it, or there is no other
            continue


def _faster(plan: Plan) -> Iterator[Change]:
    problem, names = plan.problem, plan.problem.device_names
    busy = _route_seconds(plan)
    if not busy.any():
        return
    if _over_host(problem):
        one = int(np.argmax(busy.sum(axis=0) + busy.sum(axis=1)))
        staged = problem.host_seconds_per_byte.copy()
        staged[:, one] /= FASTER
        name = f"{names[one]} to and from host memory twice as fast"
        yield Change("link", name, replace(problem, host_seconds_per_byte=staged), keeps=True)
        return
    both = busy + busy.T
    one, two = (int(each) for each in np.unravel_index(np.argmax(both), both.shape))
    routes = problem.link_seconds_per_byte.copy()
    routes[[one, two], [two, one]] /= FASTER
    name = f"{names[one]} – {names[two]} twice as fast"
    yield Change("link", name, replace(problem, link_seconds_per_byte=routes), keeps=True)


def _over_host(problem: Problem) -> bool:
    """Whether tensors go through host memory, as the objective has it."""
    objective = problem.options.objective
    staged = objective == "throughput" and problem.staging == "host"
    return staged or objective == "invocation-latency"


def _route_seconds(plan: Plan) -> Floats:
    """`[from, to]` seconds that tensors take, each once to a device; bytes through host memory."""
    problem, count = plan.problem, plan.problem.device_count
    device = plan.placement.device.reshape(problem.op_count, -1)
    found = np.zeros((count, count))
    for column in device.T:
        source, target = column[problem.edge_producer], column[problem.consumers]
        keys = (problem.edge_tensor.astype(np.int64) * count + source) * count + target
        ways = np.unique(keys[source != target])
        tensor, pair = np.divmod(ways, count * count)
        one, two = np.divmod(pair, count)
        size = problem.tensor_bytes[tensor]
        if not _over_host(problem):
            size = problem.link_latency[one, two] + size * problem.link_seconds_per_byte[one, two]
        np.add.at(found, (one, two), size)
    return found


def _spare(plan: Plan) -> list[int]:
    """Of each kind of device the used one of least load."""
    load, least = plan.device_load, dict[str, int]()
    for device in sorted(plan.used_devices, key=lambda each: float(load[each])):
        least.setdefault(plan.problem.device_kinds[device], device)
    return list(least.values())[:MOST_LOST]


def _planned(plan: Plan, change: Change, planner: str, seconds: float, seed: int) -> Sensitivity:
    kept = _kept(plan, change) if change.keeps else None
    try:
        found = plan_problem(
            change.problem,
            planner=planner,
            time_limit=seconds,
            seed=seed,
            source=plan.source,
            warm_start=kept,
        )
    except InfeasibleError as error:
        return Sensitivity(change, None, str(error))
    if kept is not None and kept.value < found.value:
        found = replace(
            kept,
            lower_bound=min(found.lower_bound, kept.value),
            bound_source=found.bound_source,
        )
    return Sensitivity(change, found)


def _kept(plan: Plan, change: Change) -> Plan:
    """The old plan under the change, of which nothing is proved."""
    placement = starting_placement(plan, change.problem)
    outcome = evaluate(change.problem, placement)
    return replace(
        plan,
        problem=change.problem,
        placement=replace(placement, sequence=None),
        outcome=outcome,
        value=outcome.value,
        lower_bound=0.0,
        history=None,
    )
