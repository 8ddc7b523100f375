"""Which shares of the inputs replicas that differ take: those that make the largest load least.

Let replica d of a stage be busy for R_d seconds per input if it took all inputs. Within a limit on
its load it can take the part limit / R_d, and the least limit at which these parts come to 1 is
that of the best shares. Under ``pipedream``, where one limit holds for both passes, they are
w_d = (1 / R_d) / Σ 1 / R. Under ``gpipe`` a limit L is split into κ · L for the forward and
(1 − κ) · L for the backward pass. The limits that shares can keep are a convex set, so 1 / L is a
concave function of κ, and golden sections find its largest value. A pass that takes no time, as the
backward pass of inference, needs no part of the limit: the other pass has all of it.

What a stage sends directly depends on its own and its neighbours' shares where links differ
(a mean over pairs). There it is taken as it was with the shares before, a few times over, and the
best shares seen are the answer: good ones, proved best only where transfers cost the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from placewright.graph import Floats
from placewright.outcome import Loads
from placewright.plan import SHARES_ROUNDING, Placement
from placewright.problem import Problem
from placewright.simulate.throughput import combined, loads

ROUNDS = 6  # in which transfers are taken as they were with the shares before
WORTH = 1e-9  # of the value: a smaller gain ends them
LEAST = 1e-9  # of the longest: no replica counts as faster, so that every share is above 0
SECTIONS, HALVINGS = 48, 48
GOLDEN = (5**0.5 - 1) / 2


def balanced(problem: Problem, placement: Placement) -> Placement:
    """The placement with the best shares found for its replicas; itself where they are equal.

    Never worse than it was, and of the same ops on the same devices.
    """
    if problem.options.shares == "equal" or not placement.replicas:
        return placement
    best, found = placement, loads(problem, placement)
    value = found.value
    for number in range(ROUNDS):
        shared = replace(placement, replica_shares=_shares(problem, best, found))
        found = loads(problem, shared)
        # The first ones may help stages that are not the slowest.
        if found.value > value * (1 - (WORTH if number else 0.0)):
            break
        best, value = shared, found.value
    return placement if _are_equal(best) else best


def _are_equal(placement: Placement) -> bool:
    """Whether all replicas of each stage take as many inputs, but for rounding."""
    return all(max(each) - min(each) <= SHARES_ROUNDING for each in placement.replica_shares)


@dataclass(frozen=True)
class _Stage:
    """`seconds[pass, replica]` each is busy per input if it takes all; `sync[pass]` besides."""

    seconds: Floats
    sync: Floats

    def parts(self, limit: Floats) -> Floats:
        """`[replica]` the largest share that keeps ``limit[pass]``."""
        left = np.maximum(limit - self.sync, 0.0)
        found: Floats = (left[:, None] / self.seconds).min(axis=0)
        return found

    def least(self, split: Floats) -> float:
        """The least limit, of which pass p has ``split[p]``, that some shares keep."""
        if len(split) == 1:
            return float(self.sync[0] + 1.0 / (1.0 / self.seconds[0]).sum())
        low = 0.0
        high = float(((self.seconds.max(axis=1) + self.sync) / split).max())
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if self.parts(middle * split).sum() >= 1.0:
                high = middle
            else:
                low = middle
        return high


def _shares(problem: Problem, placement: Placement, found: Loads) -> tuple[tuple[float, ...], ...]:
    """The best shares of each stage if what it sends per input stays what it is."""
    alone = set(placement.device.tolist()) - {stage[0] for stage in placement.replicas}
    apart = _passes_apart(problem, found)
    replicated = [
        _stage(problem, placement, found, members, shares, apart)
        for members, shares in zip(placement.replicas, placement.shares, strict=True)
    ]
    stages = replicated + [
        _stage(problem, placement, found, (device,), (1.0,), apart) for device in sorted(alone)
    ]
    split = _best_split(stages) if apart else np.ones(1)
    chosen = []
    for stage, before in zip(replicated, placement.shares, strict=True):
        parts = stage.parts(stage.least(split) * split)
        # Beside what keeps weights equal all else may be lost in rounding: then any shares will do.
        chosen.append(tuple((parts / parts.sum()).tolist()) if parts.all() else before)
    return tuple(chosen)


def _passes_apart(problem: Problem, found: Loads) -> bool:
    """Whether each pass has a limit of its own: the schedule parts them, and both take time."""
    if problem.options.schedule != "gpipe":
        return False
    forward, backward = found.compute + found.incoming + found.outgoing
    syncs = problem.options.load == "sum" and bool(found.sync.any())
    return bool(forward.any()) and (bool(backward.any()) or syncs)


def _stage(
    problem: Problem,
    placement: Placement,
    found: Loads,
    members: tuple[int, ...],
    shares: tuple[float, ...],
    apart: bool,
) -> _Stage:
    """What each device of a stage would do if it took all inputs."""
    ops = np.flatnonzero(placement.device == members[0])
    way = problem.is_backward[ops].astype(np.int64)
    seconds_of = (np.bincount(way, problem.op_time[ops, each], 2) for each in members)
    compute = np.stack([each.astype(np.float64) for each in seconds_of], axis=1)
    incoming = found.incoming[:, members[0]] / shares[0]
    outgoing = found.outgoing[:, members[0]] / shares[0]
    options = problem.options
    sync = np.array([found.sync[members[0]] if options.load == "sum" else 0.0])
    if apart:
        seconds = combined(options, compute, incoming[:, None], outgoing[:, None])
        sync = np.concatenate([[0.0], sync])
    else:
        seconds = combined(options, compute.sum(0), incoming.sum(), outgoing.sum())[None]
    least = LEAST * float(seconds.max()) or 1.0
    return _Stage(np.maximum(seconds, least), sync)


def _best_split(stages: list[_Stage]) -> Floats:
    """Which part of the limit each pass has where all stages can keep the least one."""

    def limit(forward: float) -> float:
        split = np.array([forward, 1.0 - forward])
        return max(stage.least(split) for stage in stages)

    low, high = 0.0, 1.0
    one, two = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_one, at_two = limit(one), limit(two)
    for _ in range(SECTIONS):
        if at_one <= at_two:
            high, two, at_two = two, one, at_one
            one = high - GOLDEN * (high - low)
            at_one = limit(one)
        else:
            low, one, at_one = one, two, at_two
            two = low + GOLDEN * (high - low)
            at_two = limit(two)
    forward = (low + high) / 2
    return np.array([forward, 1.0 - forward])
