"""What several phases on one placement come to: a request's seconds, or its largest load."""

from __future__ import annotations

from collections.abc import Sequence

from placewright.options import Options
from placewright.outcome import Loads, Outcome

Repeated = tuple[float, Outcome]
"""How many times a phase is run, and what it takes once."""


def joint_value(options: Options, phases: Sequence[Repeated]) -> float:
    """``latency``: one phase after the other. ``throughput``: the busiest device's load of all.

    >>> joint_value(Options(), [(1.0, schedule), (10.0, step)])          # doctest: +SKIP
    0.75
    """
    from placewright.simulate.throughput import combined

    if options.objective == "latency":
        return sum(repeats * outcome.value for repeats, outcome in phases)
    parts = []
    for repeats, outcome in phases:
        assert isinstance(outcome, Loads)
        sums = (outcome.compute, outcome.incoming, outcome.outgoing)
        parts.append([repeats * each.sum(axis=0) for each in sums])
    compute, incoming, outgoing = (sum(each[1:], each[0]) for each in zip(*parts, strict=True))
    return float(combined(options, compute, incoming, outgoing).max())
