"""Strings of devices, one per unit and chunk of inputs, and changes of single units.

Only rows whose counts are allowed batch sizes ever arise; what does not fit is made, looked at and
taken back. Changes are inlined: handing these tuples on takes longer than one of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from placewright.graph import Flags, Floats, Ints, Wide
from placewright.kernels.compiled import inlined, kernel


class Space(NamedTuple):
    """What a search may do. Only `movable` units, those with a choice, are touched."""

    unit_offsets: Wide  # CSR [unit] → its ops in unit_ops
    unit_ops: Ints
    movable: Ints  # units, by the breadth-first rank of their first op
    unit_kind: Ints  # see planners.batch.splits
    split_offsets: Wide
    splits: Wide


class State(NamedTuple):
    """Where a search is: written by the kernels."""

    rows: Ints  # [unit, chunk] device
    count: Any  # [unit, device] chunks; tuples have a method of this name
    free: Floats  # [device] bytes
    op_at: Ints  # [rank]
    op_rank: Ints  # [op]
    value: Floats  # [CURRENT], [BEST] seconds
    best_rows: Ints
    best_op_at: Ints


class Borrowed(NamedTuple):
    """What is needed to take a mutation back, and a row."""

    row: Ints  # [chunk] the row to come
    count: Any  # [device] its chunks
    undo_unit: Ints
    undo_row: Ints  # [change, chunk]
    changed: Flags  # [unit] among these, while others make room for them
    more: Floats  # [device] seconds that it computes beyond what it did before the changes
    moved: Wide  # the ranks from and to which an op was moved


@inlined
def load(state, lent, unit):
    """The row to come: that of `unit` as it is."""
    for c in range(len(lent.row)):
        lent.row[c] = state.rows[unit, c]


@inlined
def allowed(b, lent, unit):
    """Whether the row to come has allowed batch sizes on all devices; counts its chunks."""
    for d in range(len(lent.count)):
        lent.count[d] = 0
    for c in range(len(lent.row)):
        lent.count[lent.row[c]] += 1
    fine = True
    for c in range(len(lent.row)):
        d = lent.row[c]
        fine &= b.allowed[unit, b.kind[d], lent.count[d]]
    return fine


@inlined
def change(b, state, lent, made, unit):
    """Give `unit` the row to come, as change number `made`, if that is another and allowed.

    Returns the number of changes.
    """
    same = True
    for c in range(len(lent.row)):
        same &= lent.row[c] == state.rows[unit, c]
    changes = made
    if not same and allowed(b, lent, unit):
        lent.undo_unit[made] = unit
        for c in range(len(lent.row)):
            lent.undo_row[made, c] = state.rows[unit, c]
        for d in range(len(lent.count)):
            times = b.unit_time[unit, b.kind[d]]
            lent.more[d] += times[lent.count[d]] - times[state.count[unit, d]]
        _assign(b, state, unit, lent.row)
        changes = made + 1
    return changes


@inlined
def _assign(b, state, unit, row):
    """Split `unit` as in `row`, whether there is room or not."""
    for c in range(len(row)):
        d = state.rows[unit, c]
        state.count[unit, d] -= 1
        if state.count[unit, d] == 0:
            state.free[d] += b.unit_memory[unit]
    for c in range(len(row)):
        d = row[c]
        if state.count[unit, d] == 0:
            state.free[d] -= b.unit_memory[unit]
        state.count[unit, d] += 1
        state.rows[unit, c] = d


@kernel
def take_back(b, state, lent, made):
    """Undo so many changes, the last first."""
    for k in range(made - 1, -1, -1):
        _assign(b, state, lent.undo_unit[k], lent.undo_row[k])


@kernel
def has_room(state):
    fits = True
    for d in range(len(state.free)):
        fits &= state.free[d] >= 0.0
    return fits
