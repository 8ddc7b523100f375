"""An op or a transfer goes past others in a sequence of ops and edges, and back again.

`state` has the `sequence`, the `position` of each op and edge in it (edges follow ops) and the
`device` of each op. `scratch` has `saved`, the first position of the part that was reordered and
its length, `undo_sequence`, that part as it was, and `kept`, edges while they are moved. Who moves
sets the length to 0 first: what cannot move leaves it so.
"""

from __future__ import annotations

from placewright.kernels.compiled import inlined, inner, kernel

FIRST, LENGTH = 0, 1  # in saved


@inner
def move_op(p, state, scratch, op, step, passes, most):
    """Move `op` past so many ops of its device, later (`step` 1) or earlier (-1).

    It stays before its consumers and after its producers, and goes less than `most` positions.
    Of the edges that it goes past, those it produces, or reads on the way back, go along.
    """
    place = state.position[op]
    if step > 0:
        end = min(_first_consumer(p, state, op), place + most)
    else:
        end = max(_last_producer(p, state, op), place - most)
    target = place
    for k in range(place + step, end, step):
        item = state.sequence[k]
        if item >= 0 and state.device[item] == state.device[op]:
            target = k
            passes -= 1
            if passes == 0:
                break
    if target == place:
        return
    _save(state, scratch, place, target)
    side = 0 if step > 0 else 1  # of its edges' ends
    kept, free = 0, place
    for k in range(place + step, target + step, step):
        item = state.sequence[k]
        if item < 0 and p.edge_ends[-1 - item, side] == op:
            scratch.kept[kept] = item
            kept += 1
        else:
            _put(state, free, item)
            free += step
    _put(state, free, op)
    for k in range(kept):
        _put(state, free + step * (1 + k), scratch.kept[k])


@inner
def move_item(state, scratch, place, target):
    """Move the item at `place` to `target`; those between move up."""
    _save(state, scratch, place, target)
    item, step = state.sequence[place], 1 if target > place else -1
    for k in range(place, target, step):
        _put(state, k, state.sequence[k + step])
    _put(state, target, item)


@kernel
def undo_order(state, scratch):
    """Take the last move back."""
    first = scratch.saved[FIRST]
    for k in range(scratch.saved[LENGTH]):
        _put(state, first + k, scratch.undo_sequence[k])


@inner
def _save(state, scratch, one, other):
    """Note the sequence from one position to another as it is."""
    first, last = min(one, other), max(one, other)
    scratch.saved[FIRST] = first
    scratch.saved[LENGTH] = last - first + 1
    for k in range(first, last + 1):
        scratch.undo_sequence[k - first] = state.sequence[k]


@inlined
def _put(state, place, item):
    state.sequence[place] = item
    state.position[item if item >= 0 else len(state.device) - 1 - item] = place


@inner
def _first_consumer(p, state, op):
    """Where in the sequence the first consumer of `op` is; its end if there is none."""
    first = len(state.sequence)
    for k in range(p.output_offsets[op], p.output_offsets[op + 1]):
        tensor = p.outputs[k]
        for edge in range(p.consumer_offsets[tensor], p.consumer_offsets[tensor + 1]):
            first = min(first, state.position[p.consumers[edge]])
    return first


@inner
def _last_producer(p, state, op):
    """Where in the sequence the last producer of `op` is; -1 if there is none."""
    last = -1
    for k in range(p.input_offsets[op], p.input_offsets[op + 1]):
        last = max(last, state.position[p.edge_producer[p.inputs[k]]])
    return last
