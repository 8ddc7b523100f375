"""Timing anew after a change, against timing everything; changes that are taken back."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.kernels.latency import incremental, moves, order_moves, passing, refining
from placewright.kernels.latency.within_memory import value_within_memory
from placewright.planners.base import NoRoomError
from placewright.planners.latency.search.refining import Refinement
from placewright.planners.latency.search.strings import OnePlusOneEA
from placewright.simulate.latency import schedule_placement
from tests import naive
from tests.strategies import problems


@st.composite
def refinements(draw):
    problem = draw(problems(max_ops=14))
    try:
        start = OnePlusOneEA().start(problem)
    except NoRoomError:
        problem = problem.with_device_memory(np.full(problem.device_count, np.inf))
        start = OnePlusOneEA().start(problem)
    placement = schedule_placement(problem, start[problem.op_unit])
    return Refinement(problem, draw(st.integers(0, 99)), placement)


def makespan(refinement):
    timeline = refinement.timeline
    finish = naive.time_sequence(refinement.problem, timeline.device, timeline.sequence)[1]
    return max(finish.values())


def snapshot(refinement):
    timeline = refinement.timeline
    return {
        name: getattr(timeline, name).copy()
        for name in (
            "device", "unit_device", "free", "sequence", "position", "op_finish", "marks",
            "block_end", "value", "best_unit_device", "best_sequence",
        )
    }  # fmt: skip


def assert_consistent(refinement):
    timeline, n = refinement.timeline, refinement.problem.op_count
    items = timeline.sequence
    assert timeline.position[np.where(items >= 0, items, n - 1 - items)].tolist() == list(
        range(len(items))
    )
    assert refinement.value == value_of(refinement)


def value_of(refinement):
    """The makespan; under option ``peak`` that of the schedule that waits for memory."""
    if refinement.problem.options.memory == "resident":
        return makespan(refinement)
    timeline = refinement.timeline
    return value_within_memory(refinement.arrays, timeline.device, timeline.sequence)


def change(refinement, ordered):
    """Make a random change: (extent or None, how many units changed)."""
    r, t = refinement, refinement.timeline
    t.saved[passing.LENGTH] = 0
    if ordered == "op":
        op = int(r.rng.integers(r.problem.op_count))
        found, count = order_moves.reorder_op(r.arrays, t, r.rng, op), 0
    elif ordered == "edge":
        if not r.problem.edge_count:
            return None, 0
        edge = int(r.rng.integers(r.problem.edge_count))
        found, count = order_moves.reorder_edge(r.arrays, t, r.rng, edge), 0
    else:
        op = r.rng.integers(r.problem.op_count, dtype=np.int32)  # as units name their ops
        count = order_moves.redevice(r.arrays, r.space, r.structure, t, r.rng, op)
        found = order_moves.extent(r.arrays, r.space, t, count) if count else (-1, -1, -1)
    return (None if found[0] < 0 else found), count


KINDS = st.lists(st.sampled_from(["op", "edge", "devices"]), min_size=1, max_size=12)


@given(refinement=refinements(), kinds=KINDS, data=st.data())
def test_a_change_is_timed_as_if_from_the_beginning_and_can_be_taken_back(refinement, kinds, data):
    r, t = refinement, refinement.timeline
    for kind in kinds:
        if data.draw(st.booleans()):
            incremental.find_tails(r.arrays, t)
        before = snapshot(r)
        extent, count = change(r, kind)
        if extent is None:
            continue
        expected = makespan(r)
        limit = data.draw(st.sampled_from([r.value * 0.9, r.value, r.value * 1.1, 1e9]))
        value = incremental.retime(r.arrays, t, *extent, limit)
        if expected > limit:
            assert value == incremental.REJECTED
        elif value == incremental.REJECTED:  # tails are sums from the other end
            assert expected == pytest.approx(limit, rel=1e-12)
        else:
            assert value == expected
        if value < incremental.REJECTED and data.draw(st.booleans()):
            incremental.commit(t, extent[1], value_of(r))
            assert_consistent(r)
            continue
        incremental.forget(t)
        moves.take_back(r.space, t, t, count)
        passing.undo_order(t, t)
        for name, array in snapshot(r).items():
            assert array == pytest.approx(before[name], abs=1e-9 if name == "free" else 0), name


@given(refinement=refinements(), kinds=KINDS)
def test_a_changed_order_is_still_topological(refinement, kinds):
    r, problem = refinement, refinement.problem
    for kind in kinds:
        extent, _ = change(r, kind)
        if extent is not None:
            value = incremental.retime(r.arrays, r.timeline, *extent, 1e9)
            incremental.commit(r.timeline, extent[1], value)
        position = r.timeline.position
        at = position[problem.op_count :]
        assert (position[problem.edge_producer] < at).all()
        assert (at < position[problem.consumers]).all()


def longest_paths(problem, device, sequence):
    """From the start of each op, and of each edge that is sent, to the end: by looking ahead."""
    sent = naive.time_sequence(problem, device, sequence)[2]
    items = [item for item in sequence if item >= 0 or -1 - item in sent]
    op_tail, edge_tail = {}, {}
    for k in range(len(items) - 1, -1, -1):
        item, later = items[k], items[k + 1 :]
        if item >= 0:
            d = device[item]
            after = [op_tail[o] for o in later if o >= 0 and device[o] == d]
            after += [edge_tail[-1 - o] for o in later if o < 0 and from_op(problem, o) == item]
            op_tail[item] = float(problem.op_time[item, d]) + max(after, default=0.0)
            continue
        edge = -1 - item
        source, target = device[from_op(problem, item)], device[problem.consumers[edge]]
        tensor = problem.edge_tensor[edge]
        served = [edge]
        if problem.options.transfer_unit == "tensor":
            served = [e for e in range(problem.edge_count) if problem.edge_tensor[e] == tensor]
        readers = [problem.consumers[e] for e in served if device[problem.consumers[e]] == target]
        after = [op_tail[reader] for reader in readers]
        used = set(naive.contended(problem, source, target))
        for other in later:
            if other < 0:
                ends = device[from_op(problem, other)], device[problem.consumers[-1 - other]]
                if used & set(naive.contended(problem, *ends)):
                    after.append(edge_tail[-1 - other])
        move = naive.transfer_time(problem, tensor, source, target)
        edge_tail[edge] = move + max(after, default=0.0)
    return op_tail, edge_tail


def from_op(problem, item):
    return int(problem.edge_producer[-1 - item])


@given(refinements())
def test_tails_are_the_longest_paths_to_the_end(refinement):
    r, t = refinement, refinement.timeline
    incremental.find_tails(r.arrays, t)
    n = r.problem.op_count
    op_tail, edge_tail = longest_paths(r.problem, t.device, t.sequence.tolist())
    assert t.tail[:n].tolist() == pytest.approx([op_tail[op] for op in range(n)])
    for edge, tail in edge_tail.items():
        assert t.tail[n + edge] == pytest.approx(tail)
    refining.find_critical(r.arrays, t, r.critical)
    start = t.op_finish - r.problem.op_time[np.arange(n), t.device]
    critical = set(np.flatnonzero(start + t.tail[:n] >= t.op_finish.max() * (1 - 1e-9)).tolist())
    assert critical
    assert set(r.critical[1 : 1 + r.critical[0]].tolist()) == critical


@given(refinement=refinements(), cuts=st.lists(st.integers(1, 40), min_size=2, max_size=5))
def test_annealing_is_the_same_however_it_is_cut(refinement, cuts):
    r = refinement
    whole = Refinement(r.problem, 7, r.placement())
    parts = Refinement(r.problem, 7, r.placement())
    shared = r.value / r.problem.op_count + 1e-3
    one = refining.refine(*lent(whole), sum(cuts), shared, 0.99, 0.5)
    other = shared
    for count in cuts:
        other = refining.refine(*lent(parts), count, other, 0.99, 0.5)
    assert one == other
    for name, array in snapshot(whole).items():
        assert array.tolist() == snapshot(parts)[name].tolist(), name
    assert_consistent(whole)
    assert whole.best_value <= r.best_value


@given(refinement=refinements(), seed=st.integers(0, 99))
def test_with_a_price_devices_have_too_much_on_the_way_and_the_best_plan_fits(refinement, seed):
    start = refinement.placement()
    problem = filled(refinement.problem, start.device)
    r = Refinement(problem, seed, start, priced=True)
    t, price = r.timeline, r.timeline.value[incremental.PRICE]
    assert (price > 0.0) == (problem.op_memory.sum() > problem.device_memory.min())
    for _ in range(60):
        before, had_overflow = r.best_value, t.value[incremental.OVERFLOW] > 0.0
        refining.refine(*lent(r), 1, 2.0 * r.value / problem.op_count, 1.0, 0.3)
        used = np.bincount(t.unit_device, problem.unit_memory, problem.device_count)
        excess = np.maximum(used - problem.device_memory, 0.0).sum()
        assert t.value[incremental.OVERFLOW] == pytest.approx(excess, abs=1e-9)
        assert fits(problem, r.placement().device)
        assert r.best_value <= before
        assert price == 0.0 or (t.value[incremental.PRICE] > price) == had_overflow
        price = t.value[incremental.PRICE]
    assert_consistent(r)


def filled(problem, device):
    """Every op keeps something, and devices have no more than that needs where the ops are."""
    kept = problem.op_memory + 1.0
    options = replace(problem.options, memory="resident")
    problem = replace(problem, op_memory=kept, options=options)
    return problem.with_device_memory(np.bincount(device, kept, problem.device_count))


def fits(problem, device):
    used = np.bincount(device, problem.op_memory, problem.device_count)
    return bool((used <= problem.device_memory * (1 + 1e-12)).all())


def lent(r):
    return r.arrays, r.space, r.structure, r.timeline, r.critical, r.rng
