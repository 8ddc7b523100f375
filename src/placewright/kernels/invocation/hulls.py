"""What a contiguous subgraph must hold, and cannot hold, given the part of a path that it has."""

from __future__ import annotations

from placewright.kernels.compiled import inner, kernel

FREE, INSIDE, OUTSIDE = 0, 1, 2


@kernel
def enclose(net, order, span, first, last, way, device, tied, state):
    """Fill `state[op]`; whether a subgraph with just places `first` to `last` of a path can be.

    `span[op]` is the last place of the path that leads to the op and the first that it leads to.
    Inside is all that lies between inside ops. Outside is what comes before the path's earlier
    ops or after its later ones, is of another way, may not be on the device, would overflow its
    memory, or would have something outside between it and the inside. If `tied`, ops of one unit
    and way are in or out together.
    """
    for op in range(len(order)):
        low, high = span[op]
        state[op] = FREE
        if (
            high < first
            or low > last
            or net.op_way[op] != way
            or not net.unit_allowed[net.op_unit[op], device]
        ):
            state[op] = OUTSIDE
        if low >= first and high <= last:
            if state[op] == OUTSIDE:
                return False
            state[op] = INSIDE
    changed = True
    while changed:
        changed = False
        if tied:
            possible, changed = _tie_units(net, state, way)
            if not possible:
                return False
        possible, spread = _spread(net, order, state)
        if not possible:
            return False
        possible, shut = _shut_out_heavy(net, state, device)
        if not possible:
            return False
        changed = changed or spread or shut
    return True


@inner
def _tie_units(net, state, way):
    """Ops of one unit and way together; whether that is possible, and whether it changed any."""
    changed = False
    for unit in range(len(net.unit_offsets) - 1):
        inside = outside = free = 0
        for i in range(net.unit_offsets[unit], net.unit_offsets[unit + 1]):
            op = net.unit_ops[i]
            if net.op_way[op] == way:
                inside += state[op] == INSIDE
                outside += state[op] == OUTSIDE
                free += state[op] == FREE
        if inside and outside:
            return False, changed
        if free and (inside or outside):
            changed = True
            for i in range(net.unit_offsets[unit], net.unit_offsets[unit + 1]):
                op = net.unit_ops[i]
                if net.op_way[op] == way:
                    state[op] = INSIDE if inside else OUTSIDE
    return True, changed


@inner(allocates=True)
def _spread(net, order, state):
    """Take in what lies between inside ops, shut out what only outside ops join to them."""
    count = len(order)
    leads_in = [False] * count  # there is an inside op downstream, or this is one
    comes_from = [False] * count
    changed = False
    for i in range(count - 1, -1, -1):
        op = order[i]
        leads_in[op] = state[op] == INSIDE
        for j in range(net.output_offsets[op], net.output_offsets[op + 1]):
            tensor = net.outputs[j]
            for k in range(net.consumer_offsets[tensor], net.consumer_offsets[tensor + 1]):
                later = net.consumers[k]
                if leads_in[later]:
                    leads_in[op] = True
                    if state[later] == OUTSIDE and state[op] != OUTSIDE:
                        if state[op] == INSIDE:
                            return False, changed
                        state[op] = OUTSIDE
                        changed = True
    for i in range(count):
        op = order[i]
        comes_from[op] = state[op] == INSIDE
        for j in range(net.input_offsets[op], net.input_offsets[op + 1]):
            earlier = net.tensor_producer[net.input_tensors[j]]
            if comes_from[earlier]:
                comes_from[op] = True
                if state[earlier] == OUTSIDE and state[op] != OUTSIDE:
                    if state[op] == INSIDE:
                        return False, changed
                    state[op] = OUTSIDE
                    changed = True
    for op in range(count):
        if leads_in[op] and comes_from[op] and state[op] != INSIDE:
            if state[op] == OUTSIDE:
                return False, changed
            state[op] = INSIDE
            changed = True
    return True, changed


@inner(allocates=True)
def _shut_out_heavy(net, state, device):
    """Shut out each op whose unit does not fit beside those inside; False if they have none."""
    left = net.device_memory[device]
    units = len(net.unit_offsets) - 1
    touched = [False] * units
    memory = [0.0] * units
    for op in range(len(state)):
        unit = net.op_unit[op]
        memory[unit] += net.op_memory[op]
        touched[unit] = touched[unit] or state[op] == INSIDE
    for unit in range(units):
        if touched[unit]:
            left -= memory[unit]
    slack = 1e-9 * net.device_memory[device] if left < net.device_memory[device] else 0.0
    if left < -slack:
        return False, False
    changed = False
    for op in range(len(state)):
        unit = net.op_unit[op]
        if state[op] == FREE and not touched[unit] and memory[unit] > left + slack:
            state[op] = OUTSIDE
            changed = True
    return True, changed
