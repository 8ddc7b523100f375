"""Devices and bytes for the parts of a chain that share memory, as a mixed-integer program.

Part t goes from a device s of the cut op before it to one e of its own (`analysis.parts`), and
keeps some of its bytes on each device. What it takes at least is known for some prices of bytes:

    seconds of part t from s to e  ≥  low − Σ_d price[d] · bytes[t, d]        (a `Cut`),

since low is no more than any plan's seconds and what its bytes cost. So a lower bound on the
latency of all is the least

    Σ_t seconds[t]   such that   Σ_t bytes[t, d] ≤ memory[d],   Σ_d bytes[t, d] = bytes of part t,

over all paths of pairs (s, e). With the path free this is more than any prices say for the chain as
a whole (those are a Lagrangian relaxation, which is content with a mean over paths): of equal
devices no price says anything, while a path must leave a device when that is full.

Variables of a pair that is not taken are 0, so each cut is tight at both ends: ``seconds[t, s, e] ≥
low · z[t, s, e] − Σ_d price[d] · bytes[t, s, e, d]``. Bytes are counted as shares of the part's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from placewright.budget import Budget
from placewright.graph import Floats
from placewright.problem import LONG_ROUNDING
from placewright.solvers.mathopt import (
    HORIZON,
    LOOSE,
    OutOfTimeError,
    Program,
    Term,
    safe_bound,
    solve_program,
)

SOLVER = "highs"
SHARES = 1000.0  # that a whole is counted in: solvers accept rows that are off by 1e-6

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Cut:
    """No plan takes less than `low` seconds, ``price[device]`` for each of its bytes included."""

    price: Floats
    low: float


@dataclass(frozen=True, eq=False)
class PartOfChain:
    """What is known of a part: its `memory`, bytes of all its ops, and its arcs.

    ``low[source, target]`` seconds, `inf` for pairs that are of no interest; one device for an end
    of the chain. `cuts` of some pairs.
    """

    memory: float
    low: Floats
    cuts: Mapping[Pair, Sequence[Cut]]


@dataclass(frozen=True, eq=False)
class Path:
    """A pair for each part, None if none was found; no plan is shorter than `bound` seconds."""

    pairs: list[Pair] | None
    bound: float


def shortest_path(
    parts: Sequence[PartOfChain],
    capacity: Floats,
    groups: Sequence[Sequence[int]],
    horizon: float,
    limit: Budget,
) -> Path:
    """The shortest path; its `bound` is the horizon where no plan is shorter than that.

    `capacity[device]` bytes; `groups` of devices of which any two can be exchanged: each is the
    device of a cut op only after the one before it, so that one path counts for all alike. A plan
    of interest takes less than `horizon` seconds.

    >>> shortest_path(parts, np.array([4.0, 4.0]), [[0, 1]], 1.0, Budget(5.0)).bound
    0.98
    """
    try:
        writer = _Writer(parts, capacity, groups, HORIZON / horizon, limit)
        answer = solve_program(writer.program, SOLVER, limit.left)
    except OutOfTimeError:
        return Path(None, 0.0)
    if answer.infeasible:
        return Path(None, horizon * (1 - LONG_ROUNDING))
    bound = min(safe_bound(answer) * horizon / HORIZON, horizon) * (1 - LONG_ROUNDING)
    return Path(None if answer.values is None else writer.pairs(answer.values), bound)


class _Writer:
    """The program, in scaled time."""

    def __init__(
        self,
        parts: Sequence[PartOfChain],
        capacity: Floats,
        groups: Sequence[Sequence[int]],
        scale: float,
        limit: Budget,
    ) -> None:
        self.program = Program(limit)
        self._capacity, self._groups, self._scale = capacity, groups, scale
        self._taken: list[dict[Pair, int]] = []  # of each part, the variables of its pairs
        self._used: dict[int, list[Term]] = {}  # shares of what a device has
        latency = self.program.variable(0.0, HORIZON * (1 + LOOSE))
        seconds = [(each, -1.0) for part in parts for each in self._add(part)]
        self.program.row([(latency, 1.0), *seconds], lower=0.0)
        self._join()
        for terms in self._used.values():
            self.program.row(terms, upper=SHARES)
        self.program.minimise(latency)

    def pairs(self, values: Floats) -> list[Pair]:
        """Those taken."""
        return [max(taken, key=lambda pair: float(values[taken[pair]])) for taken in self._taken]

    def _add(self, part: PartOfChain) -> list[int]:
        """Its pairs, of which it takes one; variables of their seconds."""
        program = self.program
        taken: dict[Pair, int] = {}
        found = []
        for source, target in np.argwhere(np.isfinite(part.low)).tolist():
            pair = source, target
            z, seconds = program.binary(), program.variable(0.0, HORIZON * (1 + LOOSE))
            taken[pair] = z
            found.append(seconds)
            shares = self._share_out(part.memory, z)
            program.row([(seconds, 1.0), (z, -float(part.low[pair]) * self._scale)], lower=0.0)
            for cut in part.cuts.get(pair, ()):
                byte = cut.price * part.memory * self._scale  # of all of them
                paid = [(share, float(byte[device])) for device, share in shares.items()]
                program.row([(seconds, 1.0), (z, -cut.low * self._scale), *paid], lower=0.0)
        program.row([(z, 1.0) for z in taken.values()], lower=1.0, upper=1.0)
        self._taken.append(taken)
        return found

    def _share_out(self, memory: float, z: int) -> dict[int, int]:
        """Which share of a part's bytes is on each device, if its pair is taken."""
        if memory <= 0:
            return {}
        shares = {}
        for device, capacity in enumerate(self._capacity.tolist()):
            share = shares[device] = self.program.variable(0.0, 1.0)
            if capacity < memory:
                self.program.row([(share, 1.0), (z, -capacity / memory)], upper=0.0)
            if 0 < capacity < np.inf:
                used = self._used.setdefault(device, [])
                used.append((share, memory / capacity * SHARES))
        all_of_it = [*((share, SHARES) for share in shares.values()), (z, -SHARES)]
        self.program.row(all_of_it, lower=0.0, upper=0.0)
        return shares

    def _join(self) -> None:
        """A part begins where the one before it ends, on no twin of a device not used so far."""
        devices = range(len(self._capacity))
        earlier: dict[int, list[Term]] = {device: [] for device in devices}
        for before, after in pairwise(self._taken):
            here = {d: [(z, 1.0) for (_, end), z in before.items() if end == d] for d in devices}
            for device in devices:
                leaving = [(z, -1.0) for (start, _), z in after.items() if start == device]
                if here[device] or leaving:
                    self.program.row([*here[device], *leaving], lower=0.0, upper=0.0)
            for group in self._groups:
                for first, second in pairwise(group):
                    if here[second]:
                        minus = [(z, -1.0) for z, _ in here[second]]
                        self.program.row([*earlier[first], *minus], lower=0.0)
            for device in devices:
                earlier[device] = [*earlier[device], *here[device]]
