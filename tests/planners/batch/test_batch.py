"""Planners for batches: kernels against their twins, plans against the judge."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.analysis.orders import m_topo
from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError, OptionError, ProvedInfeasibleError
from placewright.kernels.batch import changes, moves, timing
from placewright.kernels.batch import search as kernel
from placewright.kernels.batch.arrays import batches_of
from placewright.kernels.batch.tails import find_tails
from placewright.kernels.batch.timing import commit, retime, scratch_of, settle
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.search import BEST, CURRENT
from placewright.options import Options
from placewright.planners.batch import rows as filling
from placewright.planners.batch import splits as splitting
from placewright.planners.batch import starts
from placewright.planners.batch.lists import (
    Greedy,
    Heft,
    MinimumExecutionTime,
    SingleDevice,
    heft_order,
    list_in_order,
)
from placewright.planners.batch.multilevel import Multilevel
from placewright.planners.batch.rows import input_devices, listed, order_of, placement_of
from placewright.planners.batch.search import Annealing, OnePlusOneEA
from placewright.planners.batch.splits import splits_of
from placewright.planners.batch.starts import of_least_load
from placewright.planners.batch.walk import Walk
from placewright.planning import make_problem, plan_problem
from placewright.problem import Problem
from placewright.simulate import evaluate
from placewright.simulate.batch import expand
from placewright.solving import solve
from placewright.verify import verify
from tests import naive
from tests.builders import batches_of_four as by_hand
from tests.builders import plain
from tests.naive import batch as naive_batch
from tests.planners.judging import judged, judged_twice
from tests.strategies import tight
from tests.strategies.batch import batch_problems, op_orders, rows_of

LISTS = [SingleDevice, MinimumExecutionTime, Greedy, Heft]
SEARCHES = [
    pytest.param(lambda **limits: OnePlusOneEA(**limits), id="one-plus-one-ea"),
    pytest.param(lambda **limits: Annealing(**limits), id="annealing"),
    pytest.param(lambda **limits: Annealing(order="free", **limits), id="annealing-free"),
    pytest.param(lambda **limits: Multilevel(**limits), id="multilevel"),
]
BY_LOAD = pytest.param(
    lambda **limits: Annealing(order="free", start="least-load", **limits), id="annealing-by-load"
)
EVERY = [pytest.param(kind, id=kind.name) for kind in LISTS] + [
    pytest.param(lambda kind=each.values[0]: kind(iterations=200), id=each.id)
    for each in [*SEARCHES, BY_LOAD]
]
BATCHES = "batch-throughput"
FREE = Options(BATCHES, contention="none", batch=4)


def finish(problem, rows, order):
    arrays = arrays_of(problem)
    scratch = scratch_of(problem, arrays.channel_count)
    return settle(arrays, batches_of(problem), rows, order, rank_of(order), scratch)


def rank_of(order):
    return np.argsort(order).astype(np.int32)


def unconnected(memory, room):
    """The columns of a problem of ops that read nothing, on devices at no distance."""
    ops, devices = len(memory), len(room)
    return plain(ops, devices) | {
        "op_memory": memory,
        "device_memory": room,
        "tensor_producer": [],
        "tensor_bytes": [],
        "consumer_offsets": [0],
        "consumers": [],
        "link_latency": np.zeros((devices, devices)),
        "link_seconds_per_byte": np.zeros((devices, devices)),
    }


@pytest.mark.parametrize("planner", [Greedy, Heft, MinimumExecutionTime])
def test_units_that_fit_in_one_way_only_are_placed_so(planner):
    """Three of the four fill the larger device; only inputs of a batch of two are allowed."""
    problem = Problem(
        **unconnected([1.0, 3.0, 2.0, 2.0], [6.0, 2.0])
        | {
            "op_time": np.zeros((4, 2)),
            "batch_sizes": [1, 2],
            "batch_time": np.tile([[np.inf, 0.5], [np.inf, 0.5]], (4, 1, 1)),
            "options": Options("batch-throughput", contention="none", batch=2),
        }
    )
    assert solve(problem, planner()).value == pytest.approx(1.5)


# -- splits ----------------------------------------------------------------------------------


@given(problem=batch_problems())
def test_splits_are_exactly_the_allowed_ones_over_fewest_devices_first(problem):
    splits, b = splits_of(problem), batches_of(problem)
    allowed = b.allowed[:, b.kind]
    for unit in range(problem.unit_count):
        expected = naive_batch.fewest_first(problem, allowed[unit].tolist())
        assert [tuple(split) for split in splits.of(unit).tolist()] == expected


@given(problem=batch_problems())
def test_over_fewest_are_the_splits_of_fewest_devices(problem):
    splits = splits_of(problem)
    for unit in range(problem.unit_count):
        every = splits.of(unit).tolist()
        fewest = min(sum(n > 0 for n in split) for split in every)
        expected = [split for split in every if sum(n > 0 for n in split) == fewest]
        assert splits.over_fewest.of(unit).tolist() == expected


@pytest.mark.parametrize("planner", [Greedy, Heft])
def test_where_units_find_no_room_they_are_split_over_few_devices(planner, monkeypatch):
    """Split in halves the small ones would end first, and leave no room for the last."""
    monkeypatch.setattr(filling, "MOST_FIRST", (0, 64))
    monkeypatch.setattr(filling, "_fitted", None)  # nobody searches for what fits
    problem = Problem(
        **unconnected([1.0] * 11 + [5.0], [12.0, 12.0])
        | {
            "op_time": np.ones((12, 2)),
            "batch_sizes": [2, 4],
            "batch_time": np.tile([1.0, 2.0], (12, 2, 1)),
            "options": Options("batch-throughput", batch=4),
        }
    )
    plan = solve(problem, planner())
    assert (plan.placement.device == plan.placement.device[:, :1]).all()


def test_sizes_that_leave_a_gap_are_never_proposed():
    time = np.full((2, 2, 4), np.inf)
    time[:, :, [1, 3]] = 1.0  # two or four inputs, not one or three
    problem = by_hand(batch_time=time)
    assert batches_of(problem).chunk == 1
    assert splits_of(problem).of(0).tolist() == [[0, 4], [4, 0], [2, 2]]


def test_of_very_many_splits_an_even_choice_is_kept(monkeypatch):
    monkeypatch.setattr(splitting, "MOST_SPLITS", 7)
    many = by_hand(
        options=Options("batch-throughput", batch=100),
        batch_sizes=range(1, 101),
        batch_time=np.ones((2, 2, 100)),
    )
    assert splits_of(many).of(0)[:, 0].tolist() == [0, 100, 1, 20, 40, 60, 80]


# -- kernels ---------------------------------------------------------------------------------


@given(data=st.data(), problem=batch_problems())
def test_the_kernel_finishes_when_its_twin_and_the_evaluator_do(data, problem):
    rows, order = data.draw(rows_of(problem)), data.draw(op_orders(problem))
    device = input_devices(problem, rows)
    value = finish(problem, rows, order)
    ends = naive_batch.run_in_order(problem, device.tolist(), order.tolist())[1]
    assert value == pytest.approx(max(ends.values()), abs=1e-12)
    placement = replace(
        placement_of(problem, rows, order), sequence=listed_for(problem, rows, order)
    )
    assert evaluate(problem, placement).value == value
    assert evaluate(problem, placement_of(problem, rows, order)).value <= value


@given(data=st.data(), problem=batch_problems(), stride=st.sampled_from([1, 2, 5]))
def test_timing_goes_on_from_the_middle_and_ends_when_it_is_too_late(data, problem, stride):
    """A unit is split in another way or an op moved in the order, again and again."""
    arrays, b = arrays_of(problem), batches_of(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "FEWEST_BETWEEN_SNAPSHOTS", stride)
        scratch = scratch_of(problem, arrays.channel_count)
    order, rows = data.draw(op_orders(problem)), data.draw(rows_of(problem))
    settle(arrays, b, rows, order, rank_of(order), scratch)
    for _ in range(4):
        before = work_of(problem, rows)
        if data.draw(st.booleans()):
            unit = data.draw(st.integers(0, problem.unit_count - 1))
            rows[unit] = data.draw(rows_of(problem))[unit]
            first, lowest, last = extent(problem, rank_of(order), unit)
        else:
            following = data.draw(op_orders(problem))
            apart = np.flatnonzero(following != order)
            first, last = (apart[0], apart[-1]) if len(apart) else (0, 0)
            order, lowest = following, first
        shared = arrays, b, rows, order, rank_of(order)
        more = work_of(problem, rows) - before
        value = finish(problem, rows, order)
        early = value * data.draw(st.sampled_from([0.5, 0.9, 0.999]))
        assert retime(*shared, first, last, early, more, scratch) in (np.inf, value)
        assert retime(*shared, first, last, value, more, scratch) == value
        commit(order, first, more, value, scratch)
        find_tails(*shared, lowest, last, scratch)
        where = input_devices(problem, rows).tolist()
        ends = naive_batch.run_in_order(problem, where, order.tolist())[1]
        assert value == pytest.approx(max(ends.values()), abs=1e-12)
        tails = naive_batch.tails_in_order(problem, where, order.tolist())
        chunk = b.chunk
        for (op, device), tail in tails.items():
            chunks = np.flatnonzero(np.array(where[op])[::chunk] == device)
            assert scratch.tail[op, chunks] == pytest.approx(tail, abs=1e-9)


def work_of(problem, rows):
    """Seconds that each device computes."""
    work = np.zeros(problem.device_count)
    for op, row in enumerate(input_devices(problem, rows).tolist()):
        for d in set(row):
            work[d] += naive_batch.size_time(problem, op, d, row.count(d))
    return work


def extent(problem, rank, unit):
    """The first place that another row of a unit concerns, the lowest of these and producers' and
    the last: where tensors go one after another, its producers send to elsewhere."""
    ops = np.flatnonzero(problem.op_unit == unit)
    producers = problem.edge_producer[np.isin(problem.consumers, ops)]
    lowest = int(rank[np.concatenate([ops, producers])].min())
    first = int(rank[ops].min()) if problem.options.contention == "none" else lowest
    return first, lowest, int(rank[ops].max())


@given(data=st.data(), problem=batch_problems())
def test_a_walk_knows_the_value_of_what_it_is_at(data, problem):
    walk = Walk(
        problem, Budget(), data.draw(st.integers(0, 99)), math.inf, data.draw(rows_of(problem))
    )
    if not changes.has_room(walk.state) or not walk.choices:
        return
    heat = 10.0 ** data.draw(st.integers(-3, 0)) * float(walk.state.value[0])
    for _ in range(4):
        walk.run(kernel.anneal, 3, heat, 1.0, 0.3, 0.5)
        value = finish(problem, walk.state.rows, walk.state.op_at)
        assert walk.state.value[CURRENT] == value
        best = finish(problem, walk.state.best_rows, walk.state.best_op_at)
        assert walk.state.value[BEST] == best <= value
    walk.run(kernel.evolve, 5)
    assert walk.state.value[CURRENT] == finish(problem, walk.state.rows, walk.state.op_at)


@given(data=st.data(), problem=batch_problems())
def test_an_op_is_critical_if_delays_of_a_batch_by_more_than_the_slack_delay_the_end(data, problem):
    walk = Walk(problem, Budget(), 0, math.inf, data.draw(rows_of(problem)))
    if not changes.has_room(walk.state):
        return
    walk.run(kernel.anneal, 0, 1.0, 1.0, 0.0, 0.0)  # settles
    where, order = input_devices(problem, walk.state.rows), walk.state.op_at.tolist()
    tails = naive_batch.tails_in_order(problem, where, order)
    begins, ends = naive_batch.run_in_order(problem, where, order)
    value, slack = max(ends.values()), data.draw(st.sampled_from([0.0, 0.1, 0.5])) + 1e-9
    for op in order:
        ways = [begins[op, device] + tails[op, device] for device in set(where[op])]
        if abs(max(ways) - (value - slack)) > 1e-12:
            found = moves.is_critical.py_func(walk.batches, walk.state, walk.scratch, op, slack)
            assert found == (max(ways) >= value - slack)


def listed_for(problem, rows, order):
    return listed(expand(problem, input_devices(problem, rows)), order)


@pytest.mark.parametrize("insertion", [False, True])
@given(data=st.data(), problem=batch_problems(memory=False))
def test_list_scheduling_splits_and_times_as_its_twin(insertion, data, problem):
    order = data.draw(op_orders(problem))
    rows, times = list_in_order(problem, order, "test", insertion=insertion)
    b = batches_of(problem)
    splits = [
        naive_batch.fewest_first(problem, b.allowed[unit, b.kind].tolist())
        for unit in range(problem.unit_count)
    ]
    expected = naive_batch.list_schedule(
        problem, order.tolist(), splits, b.chunk, insertion=insertion
    )
    ends = {
        (op, d): float(times[1][op, d])
        for op in range(problem.op_count)
        for d in set(rows[problem.op_unit[op]].tolist())
    }
    unpinned = [u for u in range(problem.unit_count) if problem.unit_pinned[u] < 0]
    assert {u: rows[u].tolist() for u in unpinned} == {u: expected[0][u] for u in unpinned}
    assert ends == pytest.approx(expected[2], abs=1e-9)


def walk_of(problem, seed=0):
    start = np.array(
        [np.repeat(np.arange(problem.device_count), splits_of(problem).of(u)[0])
         for u in range(problem.unit_count)], dtype=np.int32,
    )  # fmt: skip
    return Walk(problem, Budget(), seed, np.inf, start)


def assert_sound(walk, problem):
    """The counts are those of the rows, the rows allowed, the order topological, the value true."""
    state = walk.state
    devices = np.arange(problem.device_count)
    for unit, row in enumerate(state.rows):
        counts = (row[:, None] == devices).sum(axis=0)
        assert state.count[unit].tolist() == counts.tolist()
        assert walk.batches.allowed[unit, walk.batches.kind, counts].all()
    used = ((state.count > 0) * problem.unit_memory[:, None]).sum(axis=0)
    assert state.free == pytest.approx(problem.device_memory - used, abs=1e-9)
    assert sorted(state.op_at) == list(range(problem.op_count))
    assert state.op_rank[state.op_at].tolist() == list(range(problem.op_count))
    assert (state.op_rank[problem.edge_producer] < state.op_rank[problem.consumers]).all()
    current, best = state.value
    assert finish(problem, state.rows, state.op_at) == current
    assert finish(problem, state.best_rows, state.best_op_at) == best <= current


@given(problem=batch_problems(), share=st.sampled_from([0.0, 0.5, 1.0]), seed=st.integers(0, 9))
def test_annealing_stays_sound_and_does_the_same_however_it_is_cut(problem, share, seed):
    one, other = walk_of(problem, seed), walk_of(problem, seed)
    if not one.choices:
        return
    temperature = 0.5
    for count in (1, 7, 60):
        temperature = one.run(kernel.anneal, count, temperature, 0.95, share, share)
        assert_sound(one, problem)
    assert other.run(kernel.anneal, 68, 0.5, 0.95, share, share) == temperature
    assert other.state.rows.tolist() == one.state.rows.tolist()
    assert other.state.value.tolist() == one.state.value.tolist()


@given(problem=batch_problems(), seed=st.integers(0, 9))
def test_evolution_stays_sound_gets_no_worse_and_does_the_same_however_it_is_cut(problem, seed):
    one, other = walk_of(problem, seed), walk_of(problem, seed)
    if not one.choices:
        return
    value = one.state.value[0]
    for count in (1, 7, 60):
        one.run(kernel.evolve, count)
        assert_sound(one, problem)
        assert one.state.value[0] <= value
        value = one.state.value[0]
    other.run(kernel.evolve, 68)
    assert other.state.rows.tolist() == one.state.rows.tolist()


@given(problem=batch_problems())
def test_sampling_the_temperature_leaves_everything_in_place(problem):
    walk = walk_of(problem)
    if not walk.choices:
        return
    before = walk.state.rows.copy()
    assert walk.run(kernel.mean_worsening, 30) >= 0
    assert walk.state.rows.tolist() == before.tolist()
    assert_sound(walk, problem)


def test_with_a_free_order_it_starts_hotter_and_colder_by_turns_from_a_given_start(monkeypatch):
    begun = []
    monkeypatch.setattr(
        Walk,
        "run",
        lambda walk, what, *rest: 1.0 if what is kernel.mean_worsening else begun.append(rest[1]),
    )
    start = solve(by_hand(), Greedy()).placement
    for order, given_start in (("breadth-first", None), ("free", None), *[("free", start)] * 20):
        seed = len(begun)
        Annealing(iterations=1, order=order).plan(
            by_hand(), Budget(start=given_start), seed, no_progress
        )
    assert begun[:2] == [0.05, 0.1]
    assert all(0.005 <= each <= 0.1 for each in begun[2:])
    assert min(begun[2:]) < 0.02 and max(begun[2:]) > 0.05


@given(problem=batch_problems(max_ops=4, max_batch=4), seed=st.integers(0, 3))
def test_every_row_that_is_allowed_can_be_reached(problem, seed):
    walk = walk_of(problem, seed)
    if not walk.choices or len(walk.space.movable) != 1:
        return
    unit = int(walk.space.movable[0])
    seen = set()
    for _ in range(1500):
        walk.run(kernel.anneal, 1, 1e9, 1.0, 0.0, 0.5)
        seen.add(tuple(walk.state.rows[unit].tolist()))
    used = walk.splits.of(unit) > 0
    memory = problem.unit_memory[unit]
    free = walk.state.free + np.where(walk.state.count[unit] > 0, memory, 0.0)
    fitting = ~used | (memory <= free)
    chunks = walk.state.rows.shape[1]
    expected = {
        row
        for split in walk.splits.of(unit)[fitting.all(axis=1)].tolist()
        for row in itertools.permutations(np.repeat(np.arange(len(split)), split).tolist(), chunks)
    }
    if len(expected) <= 60:
        assert seen == expected


# -- plans -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EVERY)
@settings(max_examples=20)
@given(problem=batch_problems() | tight(batch_problems(6)), seed=st.integers(0, 3))
def test_its_plan_passes_the_judge_and_comes_again(kind, problem, seed):
    judged_twice(problem, kind(), seed)


@pytest.mark.parametrize("kind", EVERY)
@settings(max_examples=20)
@given(problem=batch_problems(max_ops=4, max_devices=2, max_batch=3, contention="none"))
def test_it_is_never_better_than_the_optimum(kind, problem):
    plan = judged(problem, kind())
    assert plan is None or plan.value >= shortest(problem) * (1 - 1e-9)


def shortest(problem):
    """The optimum by trying every placement in every order."""
    return min(
        (
            naive.shortest_makespan(
                expand(problem, np.array(where)).problem.with_device_memory(
                    np.full(problem.device_count, np.inf)
                )
            )
            for where in naive_batch.every_placement(problem)
        ),
        default=np.inf,
    )


@pytest.mark.parametrize("kind", SEARCHES)
@settings(max_examples=20)
@given(problem=batch_problems(memory=False))
def test_a_search_is_no_worse_than_where_it_starts(kind, problem):
    start = solve(problem, MinimumExecutionTime())
    rows = start.placement.device[:, :: batches_of(problem).chunk]
    unit_rows = np.empty((problem.unit_count, rows.shape[1]), dtype=np.int32)
    unit_rows[problem.op_unit] = rows
    before = finish(problem, unit_rows, m_topo(problem))
    assert solve(problem, kind(iterations=50)).value <= before + 1e-12


def in_a_pipeline():
    return make_problem("zoo:gpt2?layers=2", "2x3090", {"objective": BATCHES, "batch": 4})[0]


def test_least_load_puts_each_unit_on_one_device_as_balanced_as_for_throughput():
    problem = in_a_pipeline()
    rows = of_least_load(problem, "annealing", 0, Budget())
    assert (rows == rows[:, :1]).all()
    load = np.bincount(rows[:, 0], problem.unit_time[:, 0], problem.device_count)
    assert load.max() < 0.7 * load.sum()
    again = of_least_load(problem, "annealing", 0, Budget())
    assert (again == rows).all()


def test_of_what_must_be_split_most_is_where_the_load_is_least():
    problem = by_hand(options=FREE)
    time = np.array(problem.batch_time)
    time[:, :, 3] = np.inf  # at most three inputs in a batch
    rows = of_least_load(replace(problem, batch_time=time), "annealing", 0, Budget())
    most = np.sort([np.bincount(row, minlength=2) for row in rows], axis=1)
    assert most.tolist() == [[1, 3]] * len(rows)


def test_that_no_unit_can_be_on_one_device_proves_nothing_about_batches(monkeypatch):
    def fails(*_):
        raise ProvedInfeasibleError("no room")

    monkeypatch.setattr(starts, "first_plan", fails)
    with pytest.raises(InfeasibleError, match="start=least-load: no room") as caught:
        of_least_load(by_hand(options=FREE), "annealing", 0, Budget())
    assert not isinstance(caught.value, ProvedInfeasibleError)


def test_where_it_starts_decides_where_a_short_search_ends():
    problem = in_a_pipeline()
    found = [
        judged(problem, Annealing(iterations=1, order="free", start=start)).placement.device
        for start in ("simple", "least-load")
    ]
    assert (found[0] != found[1]).any()
    with pytest.raises(OptionError, match="start is 'heft'; choose simple or least-load"):
        Annealing(start="heft")


def test_met_takes_the_batches_of_least_time_per_input():
    time = [[[3, 4, 5, 6], [1, 1, 9, 9]]] * 2
    plan = solve(by_hand(options=FREE, batch_time=time), MinimumExecutionTime())
    assert np.bincount(plan.placement.device[0]).tolist() == [2, 2]


def test_data_stays_where_it_is_when_an_op_is_split_like_the_one_before():
    problem = by_hand(options=Options("batch-throughput", batch=4))
    for kind in (Greedy, Heft):
        device = solve(problem, kind()).placement.device
        assert np.bincount(device[0]).tolist() == [3, 1]
        assert (device[0] == device[1]).sum() >= 3


def test_a_single_device_needs_to_take_all_inputs_at_once():
    plan = solve(by_hand(), SingleDevice())
    assert (set(plan.placement.device.ravel().tolist()), plan.value) == ({0}, 8.0)
    time = np.array(by_hand().batch_time)
    time[1, :, 3] = np.inf
    with pytest.raises(InfeasibleError, match="no device takes all 4 inputs"):
        solve(by_hand(batch_time=time), SingleDevice())


@pytest.mark.parametrize("kind", EVERY)
@settings(max_examples=15)
@given(data=st.data(), problem=batch_problems(memory=False))
def test_it_respects_pins(kind, data, problem):
    op = data.draw(st.integers(0, problem.op_count - 1))
    device = data.draw(st.integers(0, problem.device_count - 1))
    plan = judged(problem.with_pins({int(problem.op_unit[op]): device}), kind())
    assert plan is None or set(plan.placement.device[op].tolist()) == {device}


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("options", [FREE, Options("batch-throughput", batch=4)])
def test_an_op_has_no_batches_where_it_is_not_supported(kind, options):
    """Though y has times for batches of a, which are as quick."""
    unsupported = [[1, math.inf], [1, 2]]
    problem = by_hand(options=options, op_time=unsupported, batch_time=np.ones((2, 2, 4)))
    plan = solve(problem, kind())
    assert plan.placement.device[0].tolist() == [0] * 4


def test_copies_of_weights_leave_room_for_the_ops_to_come():
    """Both devices would hold a twice; then b would fit nowhere."""
    problem = by_hand(options=FREE, op_memory=[2.0, 2.0], device_memory=[2.0, 2.0])
    for kind in (MinimumExecutionTime, Greedy, Heft):
        assert verify(solve(problem, kind())).ok


def test_an_op_that_finds_no_room_is_placed_before_the_others():
    time = np.array(by_hand().batch_time)
    time[1, 1] = np.inf  # b runs on x only, where a would go first
    problem = by_hand(batch_time=time, op_memory=[1.0, 2.0], device_memory=[2.0, 2.0])
    for kind in (MinimumExecutionTime, Greedy, Heft):
        assert solve(problem, kind()).placement.device.tolist() == [[1] * 4, [0] * 4]


def test_that_there_is_no_room_at_all_is_proved():
    problem = by_hand(op_memory=[2.0, 2.0], op_pinned=[-1, 0], device_memory=[3.0, 1.0])
    for kind in (MinimumExecutionTime, Greedy, Heft, OnePlusOneEA):
        with pytest.raises(ProvedInfeasibleError, match="fits the devices' memory"):
            solve(problem, kind())


def test_of_some_splits_alone_it_is_not_proved_that_none_fits(monkeypatch):
    problem = Problem(
        **unconnected([2.0] * 3, [3.0, 3.0])
        | {
            "op_time": np.ones((3, 2)),
            "batch_sizes": [1, 2, 3, 4],
            "batch_time": np.ones((3, 2, 4)),
            "options": Options("batch-throughput", batch=4),
        }
    )
    with pytest.raises(ProvedInfeasibleError):
        solve(problem, Heft())
    monkeypatch.setattr(splitting, "MOST_SPLITS", 2)
    with pytest.raises(InfeasibleError, match="found no device for op") as error:
        solve(replace(problem, name="anew"), Heft())
    assert not isinstance(error.value, ProvedInfeasibleError)


@pytest.mark.parametrize("planner", ["auto", "heft", "multilevel"])
def test_that_no_sizes_add_up_is_proved(planner):
    time = np.full((2, 2, 4), np.inf)
    time[:, :, 2] = 1.0  # three of four inputs
    with pytest.raises(ProvedInfeasibleError, match="add up to 4 inputs"):
        plan_problem(by_hand(batch_time=time), planner=planner, time_limit=60)


# -- searches --------------------------------------------------------------------------------


def chain(seconds=0.0):
    """Four ops in a row on two devices that are equally fast; a transfer takes so long."""
    columns = {
        "op_names": tuple("abcd"), "op_types": ("op",) * 4, "op_modules": ("",) * 4,
        "op_time": np.ones((4, 2)), "op_memory": [0.0] * 4, "is_backward": [False] * 4,
        "forward_twin": [-1] * 4, "colocation": [-1] * 4, "op_pinned": [-1] * 4,
        "tensor_producer": [0, 1, 2], "tensor_bytes": [0.0] * 3, "consumer_offsets": [0, 1, 2, 3],
        "consumers": [1, 2, 3], "batch_time": np.broadcast_to([1.0, 2.0, 3.0, 4.0], (4, 2, 4)),
        "link_latency": [[0.0, seconds], [seconds, 0.0]],
    }  # fmt: skip
    return by_hand(**columns)


@pytest.mark.parametrize("kind", SEARCHES)
def test_it_finds_that_half_the_inputs_belong_on_each_of_two_equal_devices(kind):
    plan = solve(chain(), kind())
    assert (plan.value, plan.status) == (pytest.approx(8.0), "optimal")


def test_annealing_knows_that_inputs_may_go_their_own_ways_where_transfers_are_slow():
    assert solve(chain(seconds=5.0), Annealing()).value == pytest.approx(8.0)


@pytest.mark.parametrize("kind", SEARCHES)
def test_it_stops_when_the_time_is_up(kind):
    problem = chain()
    solve(problem, kind(iterations=50))  # compiled
    assert solve(problem, kind(), time_limit=0.3).seconds < 1.5
    assert solve(problem, kind(), time_limit=1e-9).value <= 16.0


@pytest.mark.parametrize("kind", SEARCHES)
def test_an_interrupt_keeps_what_was_found(kind):
    problem = chain()

    def interrupt(what, done):
        if done > 0:
            raise KeyboardInterrupt

    proposal = kind(iterations=100_000).plan(problem, Budget(), 0, interrupt)
    assert evaluate(problem, proposal.placement).value <= 16.0


def test_progress_goes_from_nothing_towards_everything():
    seen = []
    planner = OnePlusOneEA(iterations=300)
    planner.plan(chain(), Budget(), 0, lambda what, done: seen.append(done))
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert seen[-1] <= 1


def test_options_are_those_of_latency():
    with pytest.raises(OptionError, match="iterations is many"):
        Annealing(iterations="many")
    hot = solve(chain(), Annealing(iterations=9, temperature="1 s", cooling=1))
    assert verify(hot).ok


def test_heft_ranks_by_the_mean_batch():
    problem = chain()
    assert heft_order(problem).tolist() == [0, 1, 2, 3]


# What the published machine of CPU, T4 and A100 makes of ten random modules.
@pytest.mark.slow
def test_on_randomly_wired_networks_search_beats_lists_and_lists_beat_one_device():
    options = {"objective": "batch-throughput", "batch": 16, "contention": "none"}
    problem, _ = make_problem("zoo:rwnn?modules=10&ops=32", "diviml", options)
    values = [
        solve(problem, planner).value
        for planner in (SingleDevice(), Greedy(), Heft(), Annealing(iterations=200_000))
    ]
    assert values == sorted(values, reverse=True)
    assert values[-1] <= 1.05 * solve(problem, SingleDevice()).lower_bound


# -- every op split alike, and orders of plans -----------------------------------------------------


@given(problem=batch_problems())
def test_data_parallel_is_the_best_split_that_all_ops_can_have(problem):
    best = naive_batch.best_even_split(problem)
    try:
        plan = solve(problem, "data-parallel")
    except InfeasibleError:
        assert math.isinf(best)
        return
    assert verify(plan).violations == ()
    assert plan.value == pytest.approx(best)


@given(data=st.data(), problem=batch_problems())
def test_a_search_goes_on_in_the_order_of_a_plan(data, problem):
    rows, order = data.draw(rows_of(problem)), data.draw(op_orders(problem))
    placement = placement_of(problem, rows, order)
    sequenced = replace(placement, sequence=listed_for(problem, rows, order))
    assert order_of(problem, sequenced).tolist() == order.tolist()
    rank = np.argsort(order_of(problem, placement))
    assert (rank[problem.edge_producer] < rank[problem.consumers]).all()
    assert order_of(problem, replace(placement, sequence=None)).tolist() == list(m_topo(problem))
