"""Throughput problems to draw, and their best plan by trying every placement."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
from hypothesis import strategies as st

from placewright.options import Options
from placewright.plan import Placement
from placewright.simulate import evaluate
from tests.strategies import problems

SECONDS = st.sampled_from([0.0, 0.1, 0.5])
PER_BYTE = st.sampled_from([0.0, 0.25, 1.0])


@st.composite
def throughput_options(draw, contiguous=None, replicate=False):
    return Options(
        objective="throughput",
        load=draw(st.sampled_from(["sum", "overlap", "duplex"])),
        contiguous=draw(st.booleans()) if contiguous is None else contiguous,
        schedule=draw(st.sampled_from(["pipedream", "gpipe"])),
        replicate=replicate,
    )


@st.composite
def pipelines(draw, max_ops=5, max_devices=3, contiguous=None, memory=True, replicate=False):
    """Random problems with every option; often with equal devices, sometimes with a pin."""
    options = draw(throughput_options(contiguous, replicate))
    problem = draw(problems(max_ops, max_devices, options=options, memory=memory))
    n, d = problem.op_count, problem.device_count
    columns = {
        "staging": draw(st.sampled_from(["host", "direct"])),
        "is_backward": np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))),
        "is_cpu": np.arange(d) == d - 1,
        "host_latency": np.array(draw(st.lists(SECONDS, min_size=2 * d, max_size=2 * d))),
        "host_seconds_per_byte": np.array(draw(st.lists(PER_BYTE, min_size=2 * d, max_size=2 * d))),
    }
    for name in ("host_latency", "host_seconds_per_byte"):
        columns[name] = columns[name].reshape(2, d)
    if d > 1 and draw(st.booleans()):  # all but the last are alike
        time = problem.op_time.copy()
        time[:, : d - 1] = time[:, :1]
        columns["op_time"] = time
        for name in ("host_latency", "host_seconds_per_byte"):
            columns[name][:, : d - 1] = columns[name][:, :1]
        away = 1.0 - np.eye(d)
        columns["link_latency"] = 0.1 * away
        columns["link_seconds_per_byte"] = 0.5 * away
    problem = replace(problem, **columns)
    if draw(st.booleans()):
        unit = draw(st.integers(0, problem.unit_count - 1))
        allowed = np.flatnonzero(np.isfinite(problem.unit_time[unit]))
        if len(allowed):
            problem = problem.with_pins({unit: int(draw(st.sampled_from(allowed.tolist())))})
    return problem


def is_in_a_row(problem, device) -> bool:
    """Whether some row of the devices has all forward data go up, all backward data one way."""
    used = sorted(set(device.tolist()))
    ends = list(zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True))
    for order in permutations(used):
        place = {d: k for k, d in enumerate(order)}
        steps = [(place[device[a]], place[device[b]], problem.is_backward[[a, b]]) for a, b in ends]
        forward = all(a <= b for a, b, way in steps if not way.any())
        up = all(a <= b for a, b, way in steps if way.all())
        down = all(a >= b for a, b, way in steps if way.all())
        if forward and (up or down):
            return True
    return False


def placements_that_fit(problem):
    """Every `device[op]` that is allowed, within memory and, if asked for, contiguous."""
    choices = [
        np.flatnonzero(np.isfinite(problem.unit_time[unit])).tolist()
        for unit in range(problem.unit_count)
    ]
    for chosen in product(*choices):
        unit_device = np.array(chosen, dtype=np.int32)
        if (problem.free_memory(unit_device) < -1e-9).any():
            continue
        device = unit_device[problem.op_unit]
        if not problem.options.contiguous or is_in_a_row(problem, device):
            yield device


def least_max_load(problem) -> float:
    """The least time per sample of any placement without replicas; inf if none fits."""
    values = (evaluate(problem, Placement(d)).value for d in placements_that_fit(problem))
    return min(values, default=np.inf)


def stages_with_replicas(problem):
    """Every placement on stages of equally fast devices, the last devices first to be shared."""
    devices = range(problem.device_count)
    for device in placements_that_fit(problem):
        yield Placement(device)
        used = set(device.tolist())
        spare = [d for d in devices if d not in used]
        for keep in product([None, *sorted(used)], repeat=len(spare)):
            stages = {}
            for other, first in zip(spare, keep, strict=True):
                if first is not None:
                    stages.setdefault(first, [first]).append(other)
            ops = {first: np.flatnonzero(device == first) for first in stages}
            memory = {first: problem.op_memory[ops[first]].sum() for first in stages}
            equal = all(
                np.array_equal(problem.op_time[ops[a], a], problem.op_time[ops[a], b])
                and np.isfinite(problem.unit_time[problem.op_unit[ops[a]], b]).all()
                and memory[a] <= problem.device_memory[b]
                for a in stages
                for b in stages[a]
            )
            if stages and equal:
                yield Placement(device, replicas=tuple(tuple(s) for s in stages.values()))
