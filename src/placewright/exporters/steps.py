"""Plans of steps of micro-batches: the row of stages whose step is the shortest.

`step_rows` says what every row takes at least, and names rows that take little, which are timed by
the simulator. Where the shortest of their steps is above the bound, `step_search` looks at all
rows; and where these are too many, cuts of the best are moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from placewright.errors import OptionError, ProvedInfeasibleError
from placewright.exporters.data_parallel import Groups, groupings
from placewright.exporters.engines import ENGINES, Engine, limits_of
from placewright.exporters.pieces import Pieces
from placewright.exporters.rows import Row, Stage, devices_of
from placewright.exporters.step_costs import StepCosts, step_costs
from placewright.exporters.step_rows import StepRow, best_rows
from placewright.exporters.step_search import best_of_steps
from placewright.exporters.timing import Timed, timed_placement
from placewright.options import Options
from placewright.plan import OPTIMAL_GAP, gap_of
from placewright.problem import LONG_ROUNDING, Problem
from placewright.units import format_bytes

Stages = tuple[Stage, ...]

MOST_TIMED = 4  # of the rows that take little
MOST_MOVES = 25  # of cuts of the best of them


def check_steps(options: Options, engine: Engine) -> None:
    """OptionError for steps of micro-batches that the engine does not run."""
    if options.micro_batches is None:
        return
    able = limits_of(engine).schedules
    if not able:
        others = [name for name, row in ENGINES.items() if row.limits and row.limits.schedules]
        raise OptionError(
            f"{engine.name} does not work in steps of micro-batches; leave out --micro-batches, or "
            f"plan --for {', '.join(others)}"
        )
    if options.schedule not in able:
        raise OptionError(
            f"{engine.name} runs schedule {' or '.join(able)}, not {options.schedule}; leave out "
            "--schedule"
        )
    if options.data_parallel > 1 and not limits_of(engine).data_parallel:
        others = [name for name, row in ENGINES.items() if row.limits and row.limits.data_parallel]
        raise OptionError(
            f"plans for {engine.name} are of one pipeline; leave out --data-parallel, or plan "
            f"--for {' or '.join(others)}"
        )


def best_step(pieces: Pieces, engine: Engine) -> tuple[Timed, float]:
    """The row of the shortest step that was found, and seconds per micro-batch of any row at least.

    OptionError where nobody says what activations a micro-batch takes, or a forward op reads of a
    backward one; InfeasibleError where no row fits.
    """
    check_step(pieces.problem)
    count = pieces.problem.options.data_parallel
    if count > 1:
        return _best_in_parallel(pieces, engine, count)
    costs = step_costs(pieces, limits_of(engine))
    best, bound = best_of(pieces, costs, lambda stages: timed_row(pieces, costs, stages))
    if best is None:
        raise no_room(pieces, costs)
    return best, bound


def _best_in_parallel(pieces: Pieces, engine: Engine, count: int) -> tuple[Timed, float]:
    """The same of so many data-parallel pipelines, in any groups of devices that are alike."""
    if (pinned := np.flatnonzero(pieces.problem.op_pinned >= 0)).size:
        raise OptionError(
            f"'{pieces.problem.op_names[pinned[0]]}' is pinned to a device, and data-parallel "
            "pipelines have each op in every one; leave out --pin, or --data-parallel"
        )
    ways = groupings(pieces.problem, count)
    if not ways:
        raise ProvedInfeasibleError(
            f"the devices do not make {count} data-parallel pipelines of equal stages: there are "
            "fewer of each kind; give a smaller --data-parallel"
        )
    found = [_best_of_groups(pieces, engine, groups) for groups in ways]
    plans = [best for best, _, _ in found if best is not None]
    if not plans:
        raise no_room(pieces, found[0][2])
    return min(plans, key=lambda best: best.value), min(bound for _, bound, _ in found)


def _best_of_groups(
    pieces: Pieces, engine: Engine, groups: Groups
) -> tuple[Timed | None, float, StepCosts]:
    own = groups.first_alone(pieces)
    costs = step_costs(own, limits_of(engine), groups=groups)
    best, bound = best_of(own, costs, lambda stages: timed_row(pieces, costs, stages, groups))
    return best, bound, costs


def best_of(
    pieces: Pieces,
    costs: StepCosts,
    timed: Callable[[Stages], Timed | None],
    limit: float = math.inf,
) -> tuple[Timed | None, float]:
    """The best row found below `limit` seconds per micro-batch, and what any row takes at least.

    By the costs of `pieces`; `timed` runs a row, and gives None where it does not fit after all. No
    row where none fits, or none is below the limit.
    """
    bound, rows = best_rows(costs)
    bound = bound / costs.step_micro_batches * (1 - LONG_ROUNDING)
    if bound >= limit or not rows:
        return None, bound
    best, stages = _quickest(rows, timed)
    if best is not None and gap_of(best.value, bound) <= OPTIMAL_GAP:
        return best, bound
    least = limit if best is None else min(best.value, limit)
    found, is_whole = best_of_steps(pieces, costs, least * costs.step_micro_batches)
    if found is not None:
        better = timed(found)
        if better is None:
            return best, bound
        best, stages, least = better, found, better.value
    if is_whole and costs.is_exact:
        return best, max(bound, least * (1 - LONG_ROUNDING))
    if best is None:
        return None, bound
    return _moved(costs, best, stages, timed), bound


def _quickest(
    rows: Sequence[StepRow], timed: Callable[[Stages], Timed | None]
) -> tuple[Timed | None, Stages]:
    """The best of those that take little, as they are timed."""
    best: Timed | None = None
    stages: Stages = ()
    for row in sorted(rows, key=lambda row: row.bound)[:MOST_TIMED]:
        found = timed(row.stages)
        if found is not None and (best is None or found.value < best.value):
            best, stages = found, row.stages
    return best, stages


def timed_row(
    pieces: Pieces, costs: StepCosts, stages: Stages, groups: Groups | None = None
) -> Timed:
    """A row as it runs, in each of the groups; InfeasibleError where it does not fit."""
    return timed_placement(pieces, devices_of(costs.classes, Row(math.inf, stages)), groups=groups)


def check_step(problem: Problem) -> None:
    """OptionError for a problem whose steps have no passes, or of unknown activations."""
    _check_stash(problem)
    _check_passes(problem)


def _check_stash(problem: Problem) -> None:
    if problem.is_backward.any() and not problem.op_stash.size:
        raise OptionError(
            "micro-batches: the source does not say what activations each of them keeps; leave out "
            "--micro-batches, or plan a source of which --training makes the backward pass"
        )


def _check_passes(problem: Problem) -> None:
    turns = problem.is_backward[problem.edge_producer] & ~problem.is_backward[problem.consumers]
    if turns.any():
        edge = int(turns.argmax())
        reader, maker = int(problem.consumers[edge]), int(problem.edge_producer[edge])
        raise OptionError(
            f"micro-batches: forward op '{problem.op_names[reader]}' reads what backward op "
            f"'{problem.op_names[maker]}' makes, and a step has the forward pass first; mark "
            f"'{problem.op_names[reader]}' as backward, or leave out --micro-batches"
        )


def no_room(pieces: Pieces, costs: StepCosts) -> ProvedInfeasibleError:
    stash = costs.least_stash
    room = ", ".join(format_bytes(float(each)) for each in pieces.problem.device_memory)
    kept = f", {format_bytes(stash)} of it activations of one micro-batch" if stash else ""
    return ProvedInfeasibleError(
        f"no row of whole pieces fits with the activations of the {costs.micro_batches} "
        f"micro-batches of a step in flight: the model keeps {format_bytes(costs.least)}{kept}, "
        f"the devices have {room}; give a smaller batch or fewer --micro-batches"
    )


def _moved(
    costs: StepCosts, best: Timed, stages: Stages, timed: Callable[[Stages], Timed | None]
) -> Timed:
    """The best with cuts moved by a piece, one at a time, as long as that makes it shorter."""
    moves = 0
    number = 0
    while number < 2 * (len(stages) - 1) and moves < MOST_MOVES:
        cut, by = divmod(number, 2)
        number += 1
        moved = _with_cut(stages, cut, 2 * by - 1)
        if not _fit(costs, moved):
            continue
        moves += 1
        found = timed(moved)
        if found is not None and found.value < best.value * (1 - LONG_ROUNDING):
            best, stages, number = found, moved, 0
    return best


def _with_cut(stages: Stages, cut: int, by: int) -> Stages:
    (one, first, end), (two, begin, last) = stages[cut : cut + 2]
    return (*stages[:cut], (one, first, end + by), (two, begin + by, last), *stages[cut + 2 :])


def _fit(costs: StepCosts, stages: Stages) -> bool:
    """Whether all are stages, with the activations of all micro-batches in flight."""
    return all(
        first <= last and bool(costs.may(after)[one, first, last])
        for after, (one, first, last) in enumerate(reversed(stages))
    )
