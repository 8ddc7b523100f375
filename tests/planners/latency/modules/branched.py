"""Problems with equal branches between one op and another, and what counts of them come to."""

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from placewright.graph import GraphBuilder
from tests.strategies import BYTES, problems


@st.composite
def branched_graphs(draw, fewest=4, most=4, most_places=3):
    """A fan-out op, branches that are trees of the same shape, and an op that reads them.

    Also `[op]` its place in its branch, -1 for the fan-out op and the last op.
    """
    count, places = draw(st.integers(fewest, most)), draw(st.integers(1, most_places))
    memory = [draw(BYTES) for _ in range(places)]
    size = [draw(BYTES) for _ in range(places)]
    reads = [draw(st.sampled_from([-1, *range(k)])) for k in range(places)]  # -1: the fan-out op
    builder = GraphBuilder("branched")
    builder.add_op("fan_out", "op", parameter_bytes=1.0)
    place = [-1]
    for branch in range(count):
        for k in range(places):
            builder.add_op(f"branch{branch}.{k}", "op", parameter_bytes=memory[k])
            place.append(k)
    place.append(-1)
    end = builder.add_op("end", "op", parameter_bytes=0.5)
    fan_out = builder.add_tensor(0, draw(BYTES))
    for branch in range(count):
        first = 1 + branch * places
        for k in range(places):
            if reads[k] < 0:
                builder.connect(fan_out, first + k)
            after = [later for later in range(places) if reads[later] == k]
            tensor = builder.add_tensor(first + k, size[k])
            for op in [first + later for later in after] or [end]:
                builder.connect(tensor, op)
    return builder.build(), np.array(place)


@st.composite
def branched_problems(draw, **arguments):
    """Such a problem, places with equal times; and `[op]` the place."""
    shape = {name: arguments.pop(name) for name in ("fewest", "most") if name in arguments}
    graph, place = draw(branched_graphs(**shape))
    problem = draw(problems(graph=st.just(graph), **arguments))
    like = np.where(place >= 0, place + 1, np.arange(len(place)))
    return replace(problem, op_time=problem.op_time[like]), place


def busy(problem, place, device, weight):
    """`weight` · the longest time until a device or channel is done with branches + transfers.

    The branches are all ops but the first and the last; their devices as those of `device`. What
    several branches read is sent first, to fast devices before slow ones, and until then a device
    and the channels that are its own are idle.
    """
    devices = range(problem.device_count)
    load = np.zeros(problem.device_count)
    for op in range(1, problem.op_count - 1):
        load[device[op]] += problem.op_time[op, device[op]]
    offsets, channels, names = problem.active_channels
    users = [set() for _ in names]
    for source, target in itertools.product(devices, devices):
        pair = source * problem.device_count + target
        for channel in channels[offsets[pair] : offsets[pair + 1]]:
            users[channel].add(source)
    taken, sent, copied = np.zeros(len(names)), 0.0, {}
    for edge, reader in enumerate(problem.consumers.tolist()):
        tensor = int(problem.edge_tensor[edge])
        source, target = device[problem.edge_producer[edge]], device[reader]
        if source == target:
            continue
        seconds = problem.link_latency[source, target]
        seconds += problem.tensor_bytes[tensor] * problem.link_seconds_per_byte[source, target]
        if problem.edge_producer[edge] == 0 and problem.options.transfer_unit == "tensor":
            if (tensor, target) in copied:
                continue
            copied[tensor, target] = seconds
        sent += seconds
        pair = source * problem.device_count + target
        for channel in channels[offsets[pair] : offsets[pair + 1]]:
            taken[channel] += seconds
    idle = _idle(problem, place, device, copied)
    for channel, sources in enumerate(users):
        if len(sources) == 1 and taken[channel] > 0.0:
            taken[channel] += idle[sources.pop()]
    at_work = [load[d] + idle[d] for d in devices]
    return weight * max(*at_work, taken.max(initial=0.0)) + sent


def _idle(problem, place, device, copied):
    """Seconds until what is copied to devices, and before it to others on its way, is there."""
    offsets, channels, _ = problem.active_channels

    def way(target):
        pair = device[0] * problem.device_count + target
        return set(channels[offsets[pair] : offsets[pair + 1]].tolist())

    slowness = np.zeros(problem.device_count)
    for op in [np.flatnonzero(place == k)[0] for k in range(place.max() + 1)]:
        allowed = problem.unit_allowed[problem.op_unit[op]]
        slowness += np.where(allowed, problem.op_time[op], 0.0)
    order = sorted(range(problem.device_count), key=lambda d: (slowness[d], d))
    idle = np.zeros(problem.device_count)
    for (_, target), seconds in copied.items():
        for d in order[order.index(target) :]:
            if d == target or (d != device[0] and way(d) & way(target)):
                idle[d] += seconds
    return idle


def all_shares(problem, place, branches):
    """Every way to give branches rows of devices, but for their order: devices of all ops."""
    places = int(place.max()) + 1
    open_to = [np.flatnonzero(np.isfinite(times)).tolist() for times in problem.op_time]
    rows = list(itertools.product(*(open_to[1 + k] for k in range(places))))
    for chosen in itertools.combinations_with_replacement(rows, branches):
        yield np.array([row for branch in chosen for row in branch], dtype=np.int32)
