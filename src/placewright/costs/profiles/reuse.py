"""What calls move between two calls of one op, and so how much of it the caches have lost.

A small call takes up to ten times as long where its code and tables have to come from memory. What
empties the caches is what other calls move in the meantime; a second view in a row is quick, one
after a matrix product is not.

>>> bytes_before(["view", "linear", "view", "view"], [0.0, 100.0, 0.0, 0.0])
[0.0, 0.0, 100.0, 0.0]
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import accumulate

from placewright.costs.profiles.entry import op_name
from placewright.importers.costs import Cost


def bytes_before(ops: Sequence[str], moved: Sequence[float]) -> list[float]:
    """`[call]` what calls moved since the last one of the same op, that one left out.

    `ops` are the ops' names in the order of their program, `moved` what each reads and writes. A
    program is run again and again, so the first call of an op comes after its last.
    """
    ends = list(accumulate(moved))
    last = {op: end - ends[-1] for op, end in zip(ops, ends, strict=True)}
    found = []
    for op, end, own in zip(ops, ends, moved, strict=True):
        found.append(max(end - own - last[op], 0.0))
        last[op] = end
    return found


def median_before(signatures: Iterable[str], costs: Iterable[Cost]) -> dict[str, float]:
    """By signature, what `bytes_before` says of a program's calls; the median of all."""
    called = list(signatures)
    moved = [cost.bytes_read + cost.bytes_written for cost in costs]
    found: dict[str, list[float]] = {}
    for text, between in zip(called, bytes_before(list(map(op_name, called)), moved), strict=True):
        found.setdefault(text, []).append(between)
    return {text: statistics.median(each) for text, each in found.items()}
