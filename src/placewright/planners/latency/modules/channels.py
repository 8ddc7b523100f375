"""MILP-SPLIT with several channels: modules one after another (DiviML, §IV-B2; a heuristic).

The paper's channels between modules are the edges that cross a boundary; those of the cluster are
what two transfers cannot use at once. Here and in `channel_bound` the former are meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from placewright.analysis.modules import Modules
from placewright.analysis.subproblem import Subproblem, subproblem
from placewright.budget import Budget, Progress
from placewright.formulations.latency.cp_model import Effort
from placewright.formulations.latency.incumbent import timed
from placewright.graph import Floats, Ints
from placewright.plan import Placement
from placewright.planners.latency.exact.cases import QUICK_TURNS, Job, overfull
from placewright.planners.latency.exact.parallel import Solvers
from placewright.planners.latency.search.neighbourhood import Neighbourhood
from placewright.planners.latency.search.neighbourhoods import Search
from placewright.planners.latency.search.state import State
from placewright.problem import Problem

GAIN = 1e-4  # relative; less is not worth another round
NEIGHBOURHOOD_UNITS = 0.03  # for two modules, in CP-SAT's own time: some tenths of a second
MOST_ROUNDS = 2
ROUND = 4  # neighbourhoods of each thread between two looks at what was found


def solve_in_order(
    modules: Modules, solvers: Solvers, limit: Budget, on_progress: Progress
) -> Placement | None:
    """Solve every module given the devices and the finish of the ops it reads, then join them.

    What else earlier modules still run then is not seen, so this may lose the optimum, and
    nothing is proved. A module has a few short turns, and a fair share of what time is left.
    None if no plan was found for one, such as for too little memory that earlier ones leave, or if
    time is up before the last.
    """
    problem = modules.problem
    device = np.full(problem.op_count, -1, dtype=np.int32)
    finish = np.zeros(problem.op_count)
    free = problem.device_memory.copy()
    items: list[Ints] = []
    for module in range(modules.count):
        if module and limit.left <= 0:
            return None
        inputs, sub = _module(modules, module, device, finish, free)
        share = limit.part(max(limit.left, 0.0) / (modules.count - module))
        placement = solvers.solve([Job(sub, until=QUICK_TURNS)], share)[0].placement
        if placement is None:
            return None
        ops = sub.ops[len(inputs) :]
        device[ops] = placement.device[len(inputs) :]
        free -= np.bincount(device[ops], problem.op_memory[ops], problem.device_count)
        schedule = timed(sub.problem, placement).schedule
        finish[ops] = schedule.op_finish[len(inputs) :] + _begin(finish, inputs)
        items.append(sub.items(_inside(placement, len(sub.edges)), skipped=len(inputs)))
        on_progress("modules solved", (module + 1) / modules.count)
    return Placement(device, np.concatenate(items))


def polished(
    best: State, modules: Modules, limit: Budget, solvers: Solvers, on_progress: Progress
) -> Iterator[State]:
    """Ever shorter schedules: two neighbouring modules at a time are placed anew.

    All other ops keep their devices, and their order there; the makespan of the whole counts. So
    this sees what solving in order does not: where modules overlap, and what later ones want.
    Goes along the chain until once around brings no gain, at most `MOST_ROUNDS` times.
    """
    pairs = max(1, modules.count - 1)
    since = 0
    for number in range(pairs * MOST_ROUNDS):
        if since >= pairs or limit.left <= 0 or best.value == 0.0:
            break
        at = number % pairs
        ops = np.concatenate([modules.ops(t) for t in range(at, min(at + 2, modules.count))])
        found = _anew(best, ops, solvers.method.seed, limit)
        since = 0 if found.value < best.value * (1 - GAIN) else since + 1
        best = found
        yield best
        on_progress("modules placed anew", number / (pairs * MOST_ROUNDS))


def _anew(best: State, ops: Ints, seed: int, limit: Budget) -> State:
    free = np.zeros(best.problem.unit_count, dtype=np.bool_)
    free[best.problem.op_unit[ops]] = True
    effort = Effort(max(limit.left, 0.0), NEIGHBOURHOOD_UNITS, level=0, seed=seed)
    found = Neighbourhood(best, free).improved(effort)
    if found is None or found.value >= best.value or overfull(best.problem, found.placement):
        return best
    return found


def searched(
    best: State, limit: Budget, in_vain: int, solvers: Solvers, on_progress: Progress
) -> Iterator[State]:
    """Ever shorter schedules, by neighbourhoods anywhere, as of `search.neighbourhoods`.

    Modules do not count there. Until time is up, or so many in a row bring nothing (`in_vain`).
    """
    search = Search(best, solvers.method.seed, solvers.workers)
    gained = 0
    while limit.left > 0 and search.done - gained < in_vain and best.value > 0.0:
        # Not the limit itself: the listener hears of the plans through who asks for them.
        search.run(Budget(limit.left), search.done + ROUND * solvers.workers)
        if search.best.value < best.value:
            best, gained = search.best, search.done
        yield best
        if search.interrupted:
            raise KeyboardInterrupt
        on_progress("neighbourhoods placed anew", (search.done - gained) / in_vain)


def _module(
    modules: Modules, module: int, device: Ints, finish: Floats, free: Floats
) -> tuple[Ints, Subproblem]:
    """The ops that the module reads, by finish, and the problem of them and its own ops.

    The ops it reads are on their devices, in a row on each, so that each ends when it does.
    """
    problem = modules.problem
    own = modules.ops(module)
    inputs = np.unique(problem.edge_producer[modules.input_edges(module)])
    inputs = inputs[np.argsort(finish[inputs], kind="stable")]
    sub = subproblem(problem, np.concatenate([inputs, own]).astype(np.int32))
    part, count = sub.problem, len(inputs)
    pinned, time, memory = part.op_pinned.copy(), part.op_time.copy(), part.op_memory.copy()
    _pin_to_placed(problem, own, device, pinned[count:])
    pinned[:count], memory[:count] = device[inputs], 0.0
    ready = finish[inputs] - _begin(finish, inputs)
    rows = []
    for each in range(problem.device_count):
        row = np.flatnonzero(pinned[:count] == each)
        time[row] = np.diff(ready[row], prepend=0.0)[:, None]
        rows += [(int(a), int(b)) for a, b in pairwise(row.tolist())]
    # Edges among ops read would hold them up: they have ended.
    sub = _rewired(sub, count, rows)
    part = replace(sub.problem, op_time=time, op_memory=memory, op_pinned=pinned)
    part = replace(part, device_memory=np.maximum(free, 0.0))
    return inputs, replace(sub, problem=part)


def _pin_to_placed(problem: Problem, ops: Ints, device: Ints, pinned: Ints) -> None:
    """Ops of units that earlier modules have placed go where these are."""
    unit_device = np.full(problem.unit_count, -1)
    np.maximum.at(unit_device, problem.op_unit, device)
    placed = unit_device[problem.op_unit[ops]]
    pinned[placed >= 0] = placed[placed >= 0]


def _begin(finish: Floats, inputs: Ints) -> float:
    """When a module's own clock starts: as the first op it reads ends."""
    return float(finish[inputs].min()) if len(inputs) else 0.0


def _rewired(sub: Subproblem, count: int, rows: list[tuple[int, int]]) -> Subproblem:
    """Without the edges to the first `count` ops, with those of `rows`, of no bytes; these last."""
    part = sub.problem
    kept = part.consumers >= count
    per_tensor = np.bincount(part.edge_tensor[kept], minlength=part.tensor_count)
    tensors = np.flatnonzero(per_tensor)
    sources, targets = [a for a, _ in rows], [b for _, b in rows]
    sizes = [*per_tensor[tensors].tolist(), *(1 for _ in rows)]
    problem = replace(
        part,
        tensor_producer=np.concatenate([part.tensor_producer[tensors], sources]),
        tensor_bytes=np.concatenate([part.tensor_bytes[tensors], np.zeros(len(rows))]),
        consumers=np.concatenate([part.consumers[kept], targets]),
        consumer_offsets=np.concatenate([[0], np.cumsum(sizes)]),
    )
    return Subproblem(problem, sub.ops, sub.edges[kept])


def _inside(placement: Placement, edges: int) -> Placement:
    """Without the edges that `_rewired` added."""
    assert placement.sequence is not None
    return Placement(placement.device, placement.sequence[placement.sequence >= -edges])
