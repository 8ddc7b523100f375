"""Rows of stages whose KV caches an engine makes of one size: that of the stage with most.

Such an engine asks which GPU has least memory left, once weights are loaded, and gives each stage a
cache of so many bytes; the stage with most layers then has the fewest tokens, and these count. So
every GPU keeps room for the largest cache of the row. How large that is, is tried for each amount
that a stage can have: stages of no more, on GPUs with so much less memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from placewright.errors import InfeasibleError
from placewright.exporters.pieces import Pieces
from placewright.exporters.row_costs import piece_sums
from placewright.exporters.timing import Timed, timed_placement
from placewright.graph import Floats
from placewright.plan import OPTIMAL_GAP, gap_of
from placewright.problem import ROUNDING
from placewright.serving.capacity import ALIKE
from placewright.simulate.pipeline_steps import kept_bytes
from placewright.units import format_bytes

MOST_SIZES = 150  # that are tried: a row for each


@dataclass(frozen=True, eq=False)
class Best:
    """The best row of stages as it runs; no row takes less than `lower_bound`, and why."""

    timed: Timed
    lower_bound: float
    bound_source: str


def with_caches_alike(pieces: Pieces, best: Best, search: Callable[[Pieces], Best]) -> Best:
    """The best row that has room for caches of one size, where `best` is that of any row.

    `search` finds the best row of pieces. InfeasibleError where none has room.
    """
    if not pieces.problem.op_cache.any():
        return best
    if not _have_room(pieces, best.timed):
        best = _best_of_sizes(pieces, best, search)
    told = {**best.timed.told, ALIKE: "true"}
    return replace(best, timed=replace(best.timed, told=told))


def _have_room(pieces: Pieces, timed: Timed) -> bool:
    """Whether each device that is used has room for its weights and the largest cache."""
    problem, placement = timed.own.problem, timed.own.placement
    cache = np.bincount(placement.device, problem.op_cache, problem.device_count)
    others = kept_bytes(problem, placement) - cache
    room = pieces.problem.device_memory * (1 + ROUNDING)
    used = np.unique(placement.device)
    return bool((others + cache.max() <= room)[used].all())


def _best_of_sizes(pieces: Pieces, free: Best, search: Callable[[Pieces], Best]) -> Best:
    sizes = _sizes(pieces)
    tried = sizes[:: len(sizes) // MOST_SIZES + 1].tolist()
    found: list[Best] = []
    for size in tried:
        try:
            best = search(_with_size(pieces, size))
        except InfeasibleError:
            continue
        found.append(replace(best, timed=_as_it_is(pieces, best.timed)))
        if gap_of(best.timed.value, free.lower_bound) <= OPTIMAL_GAP:
            return replace(found[-1], lower_bound=free.lower_bound)
    if not found:
        raise InfeasibleError(
            "no row of stages has room for KV caches of one size on all GPUs, that of the stage "
            f"with most; all need {format_bytes(float(pieces.problem.op_cache.sum()))} together"
        )
    best = min(found, key=lambda each: each.timed.value)
    if len(tried) < len(sizes):
        return replace(best, lower_bound=free.lower_bound, bound_source=free.bound_source)
    least = min(each.lower_bound for each in found)
    return replace(best, lower_bound=max(free.lower_bound, least))


def _sizes(pieces: Pieces) -> Floats:
    """What the largest cache of a row can come to, in bytes, that all may have room for."""
    problem = pieces.problem
    caches = piece_sums(pieces, problem.op_cache)
    usable = np.isfinite(problem.op_time).any(axis=0)
    sizes = np.unique(caches[np.triu_indices(pieces.count)])
    sizes = sizes[sizes * int(usable.sum()) >= caches[0, -1] * (1 - ROUNDING)]
    room = np.maximum(problem.device_memory[usable] - sizes[:, None], 0.0).sum(axis=1)
    copies = sum(each.bytes * (len(each.pieces) - 1) for each in pieces.shared)
    others = float((problem.op_memory - problem.op_cache).sum()) - copies
    found: Floats = sizes[others <= room * (1 + ROUNDING)]
    return found


def _with_size(pieces: Pieces, size: float) -> Pieces:
    """Stages with caches of so many bytes at most, on devices that keep as many free for them."""
    problem = pieces.problem
    problem = replace(
        problem,
        op_memory=np.maximum(problem.op_memory - problem.op_cache, 0.0),
        device_memory=np.maximum(problem.device_memory - size, 0.0),
    )
    return replace(pieces, problem=problem, most_cache=size)


def _as_it_is(pieces: Pieces, timed: Timed) -> Timed:
    """The same row where caches count on the devices that have them."""
    device = np.empty(pieces.count, dtype=np.int32)
    device[pieces.op_piece] = timed.own.placement.device
    return timed_placement(pieces, device)
