"""Multilevel search: kernels against their twins, levels, and plans against the judge."""

import resource
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.budget import Budget, no_progress
from placewright.cluster import Cluster, Device, Link
from placewright.coarsen.contraction import contract
from placewright.errors import InfeasibleError, OptionError
from placewright.kernels.latency import multilevel_matching, multilevel_timing
from placewright.options import Options
from placewright.plan import Placement
from placewright.planners.latency.construct.list_scheduling import Heft
from placewright.planners.latency.search.multilevel import Multilevel, levels
from placewright.planners.latency.search.multilevel.clusters import clusters_of
from placewright.planners.latency.search.multilevel.contracting import contracted
from placewright.planners.latency.search.multilevel.search import Search
from placewright.planners.latency.search.walk import breadth_first_sequence
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.simulate.latency import schedule_placement, time_placement
from placewright.solving import solve
from placewright.verify import verify
from tests import naive
from tests.naive import multilevel as naive_multilevel
from tests.strategies import placements, problems

CLOSE = 1e-9


def layered(ops=200, devices=4, seed=0, contention="link", memory=np.inf):
    """A random problem of many ops, each read by a few of those behind it, some colocated."""
    rng = np.random.default_rng(seed)
    readers = [
        sorted({op + 1 + int(step) for step in rng.integers(0, 12, 3)} & set(range(ops)))
        for op in range(ops)
    ]
    tensors = [op for op in range(ops) if readers[op]]
    pairs = np.arange(devices * devices)
    apart = pairs // devices != pairs % devices
    nothing = np.full(ops, -1)
    return Problem(
        name="layered",
        op_names=tuple(f"op{op}" for op in range(ops)),
        op_types=("",) * ops,
        op_modules=("",) * ops,
        op_time=rng.uniform(0.5, 2.0, (ops, devices)),
        op_memory=np.ones(ops),
        is_backward=np.zeros(ops),
        forward_twin=nothing,
        colocation=np.where(np.arange(ops) % 9 == 0, np.arange(ops) % 5, -1),
        op_pinned=nothing,
        tensor_producer=np.array(tensors),
        tensor_bytes=rng.uniform(1.0, 5.0, len(tensors)),
        consumer_offsets=np.cumsum([0, *(len(readers[op]) for op in tensors)]),
        consumers=np.concatenate([readers[op] for op in tensors]),
        device_names=tuple(f"device{d}" for d in range(devices)),
        device_kinds=("kind",) * devices,
        device_memory=np.full(devices, memory),
        link_latency=np.where(apart, 0.05, 0.0).reshape(devices, devices),
        link_seconds_per_byte=np.where(apart, 0.2, 0.0).reshape(devices, devices),
        channel_offsets=np.concatenate([[0], np.cumsum(apart)]),
        channels=rng.integers(0, 2, int(apart.sum())),
        channel_names=("one", "two"),
        options=Options(contention=contention),
    )


def units_anywhere(problem, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, problem.device_count, problem.unit_count)[problem.op_unit].astype(
        np.int32
    )


def order_of(placement):
    return placement.sequence[placement.sequence >= 0]


# -- timing ----------------------------------------------------------------------------------------


@given(data=st.data())
def test_blocks_are_timed_as_the_twin_times_their_sequence_and_so_are_tails(data):
    problem = data.draw(problems(memory=False))
    device = data.draw(placements(problem))
    if np.isinf(problem.op_time[np.arange(problem.op_count), device]).any():
        return
    search = Search(problem, device, problem.topological_order, np.random.default_rng(0))
    sequence = breadth_first_sequence(problem, problem.topological_order).tolist()
    _, finish, _, there = naive.time_sequence(problem, device, sequence)
    timing = search.timing
    assert timing.op_finish.tolist() == [finish[op] for op in range(problem.op_count)]
    for edge, arrival in enumerate(timing.arrival.tolist()):
        producer, reader = problem.edge_producer[edge], problem.consumers[edge]
        same = device[producer] == device[reader]
        assert arrival == (finish[producer] if same else there[edge])
    assert search.best == max(finish.values())
    expected = naive_multilevel.tails(problem, device, sequence)
    assert timing.op_tail.tolist() == pytest.approx(expected, abs=1e-12)
    critical = set(timing.critical[: timing.critical_count[0]].tolist())
    longest = max(a + b for a, b in zip(timing.op_finish, expected, strict=True))
    assert longest == pytest.approx(search.best)
    for op in range(problem.op_count):
        slack = search.best - finish[op] - expected[op]
        if abs(slack - CLOSE * search.best) > 1e-12:  # else rounding decides
            assert (op in critical) == (slack < CLOSE * search.best)


@pytest.mark.parametrize("contention", ["none", "port", "link"])
def test_a_window_tells_what_a_change_within_it_comes_to(contention):
    """No more than the new makespan; and that itself, unless a way around the window is longer."""
    problem = layered(contention=contention)
    rng = np.random.default_rng(1)
    order = problem.topological_order
    exact = 0
    for trial in range(60):
        device = units_anywhere(problem, trial)
        search = Search(problem, device, order, rng)
        unit = int(rng.integers(problem.unit_count))
        ops = np.flatnonzero(problem.op_unit == unit)
        ranks = search.state.op_rank
        writers = problem.edge_producer[np.isin(problem.consumers, ops)]
        touched = ranks[np.concatenate([ops, writers])]
        settled, kept = search.best, search.timing.arrival.copy()
        search.state.unit_device[unit] = other = int(rng.integers(problem.device_count))
        search.state.device[ops] = other
        first, last = int(touched.min()), int(touched.max())
        lent = search.space, search.state, search.timing
        value = multilevel_timing.window(search.arrays, *lent, first, last)
        multilevel_timing.restore(*lent, first, last)
        assert (search.timing.arrival == kept).all()
        moved = Placement(search.state.device, search.state.sequence)
        makespan = time_placement(problem, moved).makespan
        assert value <= makespan * (1 + CLOSE)
        assert makespan <= max(value, settled) * (1 + CLOSE)
        exact += value == pytest.approx(makespan)
        again = multilevel_timing.settle(search.arrays, *lent, first)
        assert again == pytest.approx(makespan)
    assert exact > 30


# -- search ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_the_search_keeps_its_books(temperature):
    """Whatever it did, the best is what it says it is, fits, and is no worse than the start."""
    problem = layered(memory=70.0)
    start = Heft().plan(problem, Budget(), 0, no_progress).placement
    search = Search(problem, start.device, order_of(start), np.random.default_rng(3))
    before = search.best
    for _ in range(10):
        search.improve(500, temperature)
        state = search.state
        used = np.bincount(state.unit_device, problem.unit_memory, problem.device_count)
        assert state.free.tolist() == pytest.approx((problem.device_memory - used).tolist())
        assert state.free.min() >= 0
        assert state.device.tolist() == state.unit_device[problem.op_unit].tolist()
        assert state.op_at[state.op_rank].tolist() == list(range(problem.op_count))
        current = time_placement(problem, Placement(state.device, state.sequence)).makespan
        assert current == pytest.approx(state.value[0])
        assert time_placement(problem, search.placement()).makespan == pytest.approx(search.best)
    assert search.best < (0.9 if temperature == 0 else 1.0) * before


def test_a_worse_order_is_not_taken():
    problem = layered()
    start = Heft().plan(problem, Budget(), 0, no_progress).placement
    search = Search(problem, start.device, order_of(start), np.random.default_rng(0))
    search.improve(3000, 0.0)
    best, order = search.best, search.placed()[1]
    search.try_order(problem.topological_order)
    assert search.best == best and search.state.value[0] == best
    assert search.state.op_at.tolist() == order.tolist()


@given(problem=problems(max_ops=12))
def test_clusters_of_each_scale_hold_every_unit_once(problem):
    clusters = clusters_of(problem, np.random.default_rng(0))
    for scale in clusters.cluster_of:
        members = [
            clusters.units[clusters.offsets[c] : clusters.offsets[c + 1]] for c in np.unique(scale)
        ]
        assert sorted(np.concatenate(members).tolist()) == list(range(problem.unit_count))
        for cluster, units in zip(np.unique(scale), members, strict=True):
            assert (scale[units] == cluster).all()


# -- levels ----------------------------------------------------------------------------------------


@given(problem=problems(max_ops=12), data=st.data())
def test_what_joining_a_pair_costs_is_what_it_adds_to_the_longest_path(problem, data):
    device = data.draw(placements(problem))
    if np.isinf(problem.op_time[np.arange(problem.op_count), device]).any():
        return
    graph = levels._Graph.of(problem, device)
    order = graph._order()
    depth = multilevel_matching.depths_of(order, graph._readers, graph.target)
    edges = list(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    assert depth.tolist() == naive_multilevel.depths(graph.count, edges)
    one, two, _ = graph._pairs(depth)
    lost, _ = multilevel_matching.losses(
        one, two, graph.source, graph.target, graph.cost, graph.weight, *graph._paths(order)
    )
    weight = dict(enumerate(graph.weight.tolist()))
    costly = [(a, b, c) for (a, b), c in zip(edges, graph.cost.tolist(), strict=True)]
    before = naive_multilevel.longest_path(costly, weight)
    assert graph.longest_path() == pytest.approx(before)
    for a, b, loss in zip(one.tolist(), two.tolist(), lost.tolist(), strict=True):
        after = naive_multilevel.longest_path(*naive_multilevel.joined(costly, weight, a, b))
        assert loss == pytest.approx(after - before, abs=1e-12)


@given(problem=problems(max_ops=12), data=st.data(), within=st.booleans())
def test_levels_are_dags_of_groups_within_devices_that_fit(problem, data, within):
    device = data.draw(placements(problem)) if within else None
    if within and np.isinf(problem.op_time[np.arange(problem.op_count), device]).any():
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    finer, order = problem, problem.topological_order
    for level in levels.coarsen(problem, device, 2, rng):  # a cycle would be a GraphError
        assert level.finer is finer and level.problem.op_count < finer.op_count
        for group in range(level.problem.op_count):
            ops = np.flatnonzero(level.op_group == group)
            assert not within or len(set(device[ops].tolist())) == 1
            if len(ops) > 1:
                unit = level.problem.op_unit[group]
                fits = level.problem.unit_memory[unit] <= problem.device_memory
                assert (np.isfinite(level.problem.unit_time[unit]) & fits).any()
        if within:
            device, order = level.restrict(device, order)
            back, fine = level.expand(device, order)
            assert back.tolist() == device[level.op_group].tolist()
            breadth_first_sequence(finer, fine)
            Search(finer, back, fine, rng)
        finer = level.problem


@given(problem=problems(max_ops=12), seed=st.integers(0, 9))
def test_a_level_has_the_times_memory_and_bytes_of_a_contraction(problem, seed):
    problem = replace(problem, link_latency=np.zeros_like(problem.link_latency))
    found = levels.coarsen(problem, None, 2, np.random.default_rng(seed))
    if not found:
        return
    quick = found[0].problem
    exact = contract(problem, found[0].op_group).problem
    assert np.allclose(quick.op_time, exact.op_time)
    assert quick.op_memory.tolist() == pytest.approx(exact.op_memory.tolist())
    assert quick.op_pinned.tolist() == exact.op_pinned.tolist()
    assert quick.op_unit.tolist() == exact.op_unit.tolist()
    assert _sent(quick) == pytest.approx(_sent(exact))
    assert quick.edge_count <= exact.edge_count
    if problem.options.transfer_unit == "tensor":  # else a tensor may become one per edge
        assert quick.tensor_count <= exact.tensor_count


def _sent(problem):
    """Bytes from one op to another, over all tensors."""
    found: dict[tuple[int, int], float] = {}
    nbytes = problem.tensor_bytes[problem.edge_tensor]
    for a, b, size in zip(problem.edge_producer, problem.consumers, nbytes, strict=True):
        found[int(a), int(b)] = found.get((int(a), int(b)), 0.0) + float(size)
    return found


def test_a_saved_latency_counts_as_bytes():
    problem = layered(ops=60)
    group = np.repeat(np.arange(20), 3).astype(np.int32)
    merged, apart = contracted(problem, group).problem, contract(problem, group).problem
    fewer = apart.tensor_count - merged.tensor_count
    assert fewer > 0
    assert merged.tensor_bytes.sum() == pytest.approx(apart.tensor_bytes.sum() + fewer * 0.25)


# -- plans -----------------------------------------------------------------------------------------


@given(problem=problems(), seed=st.integers(0, 3))
def test_its_plan_passes_the_judge_or_it_says_that_nothing_fits(problem, seed):
    try:
        plan = solve(problem, Multilevel(iterations=200), seed=seed)
    except InfeasibleError as error:
        assert not np.isinf(problem.device_memory).all() or np.isinf(problem.op_time).any(), error
        return
    assert verify(plan).violations == ()


@given(problem=problems(memory=False), data=st.data())
def test_it_respects_pins(problem, data):
    op = data.draw(st.integers(0, problem.op_count - 1))
    device = data.draw(st.integers(0, problem.device_count - 1))
    pinned = problem.with_pins({int(problem.op_unit[op]): device})
    try:
        plan = solve(pinned, Multilevel(iterations=200))
    except InfeasibleError:
        assert np.isinf(problem.op_time).any()
        return
    assert plan.placement.device[op] == device


class Witness:
    """A listener that remembers."""

    def __init__(self):
        self.placements = []

    def found(self, placement):
        self.placements.append(placement)

    def proved(self, lower_bound, source):
        pass


@given(problem=problems(memory=False), data=st.data())
def test_it_is_never_worse_than_what_it_starts_from(problem, data):
    device = data.draw(placements(problem))
    if np.isinf(problem.op_time[np.arange(problem.op_count), device]).any():
        return
    start = data.draw(st.sampled_from([Placement(device), schedule_placement(problem, device)]))
    witness = Witness()
    budget = Budget(start=start, listener=witness)
    found = Multilevel(iterations=100).plan(problem, budget, 0, no_progress).placement
    value = time_placement(problem, found).makespan
    assert value <= time_placement(problem, start).makespan
    told = [time_placement(problem, each).makespan for each in witness.placements]
    assert told == sorted(told, reverse=True) and told[-1] == value


@pytest.mark.parametrize("contention", ["none", "link"])
def test_memory_that_binds_is_kept_and_it_beats_the_quick_planners(contention):
    problem = layered(ops=600, memory=170.0, contention=contention)
    plan = solve(problem, Multilevel(iterations=200_000))
    assert (plan.device_memory <= 170).all()
    for name in ("heft", "greedy", "celeritas", "m-etf", "getf", "memory-fill"):
        assert plan.value < 0.98 * solve(problem, name).value


@settings(max_examples=5)
@given(seed=st.integers(0, 99))
def test_with_iterations_it_gives_the_same_plan_again(seed):
    problem = layered(ops=300, seed=seed)
    start = Heft().plan(problem, Budget(), 0, no_progress).placement
    for budget in (Budget, lambda: Budget(start=start)):
        one, two = (
            Multilevel(iterations=2000).plan(problem, budget(), seed, no_progress).placement
            for _ in range(2)
        )
        assert one.device.tobytes() == two.device.tobytes()
        assert one.sequence.tobytes() == two.sequence.tobytes()


def test_it_stops_in_time():
    problem = layered(ops=2000)
    Multilevel(iterations=100).plan(problem, Budget(), 0, no_progress)  # compiles
    started = time.monotonic()
    Multilevel().plan(problem, Budget(1.5), 0, no_progress)
    assert time.monotonic() - started < 30.0  # on a loaded machine


def test_an_interrupt_keeps_the_best_so_far(monkeypatch):
    problem = layered()
    calls = []

    def interrupted(self, evaluations, temperature):
        calls.append(evaluations)
        if len(calls) > 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Search, "improve", interrupted)
    plan = solve(problem, Multilevel())
    assert verify(plan).ok


def test_bad_iterations_are_an_option_error():
    with pytest.raises(OptionError, match="iterations is 'many'"):
        Multilevel(iterations="many")


# -- many devices ----------------------------------------------------------------------------------


def hosts(count, kinds, each=5):
    """Hosts of one kind each, by turns, behind one switch."""
    devices, links = [], []
    for host in range(count):
        for number in range(each):
            name = f"host{host}-gpu{number}"
            devices.append(Device(name, kinds[host % len(kinds)], host=f"host{host}"))
            links.append(Link(name, f"pcie{host}", bandwidth=16e9, latency=5e-6))
        links.append(Link(f"pcie{host}", "network", bandwidth=12.5e9, latency=1e-5))
    switches = (*(f"pcie{host}" for host in range(count)), "network")
    return Cluster("hosts", tuple(devices), tuple(links), switches)


def test_of_many_devices_it_takes_some_that_are_fast_and_near_each_other():
    cluster = hosts(12, ["T4", "A100-80GB"])
    problem, _ = make_problem("zoo:gpt2", cluster, training=True)
    plan = solve(problem, Multilevel(iterations=2000))
    used = {problem.device_kinds[device] for device in plan.placement.device.tolist()}
    assert used == {"A100-80GB"}
    assert plan.value <= solve(problem, "single-device").value


def test_of_many_devices_pins_and_the_start_are_kept():
    cluster = hosts(12, ["T4", "A100-80GB"])
    problem, _ = make_problem("zoo:gpt2?layers=2", cluster, training=True)
    pinned = problem.with_pins({0: 57})
    plan = solve(pinned, Multilevel(iterations=500))
    assert set(plan.placement.device[problem.op_unit == 0].tolist()) == {57}
    device = (problem.op_unit % problem.device_count).astype(np.int32)
    start = schedule_placement(problem, device)
    found = Multilevel(iterations=500).plan(problem, Budget(start=start), 0, no_progress)
    assert (
        time_placement(problem, found.placement).makespan <= time_placement(problem, start).makespan
    )


# -- scale -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_thousand_ops_on_sixteen_devices_in_half_a_minute():
    cluster = hosts(4, ["V100-32GB", "T4"], each=4)
    source = "zoo:gpt3-2.7b?granularity=head&layers=51&batch=2"
    problem, _ = make_problem(source, cluster, training=True)
    assert problem.op_count > 50_000
    Multilevel(iterations=100).plan(layered(), Budget(), 0, no_progress)  # compiles
    quick = min(solve(problem, name).value for name in ("heft", "greedy", "celeritas", "getf"))
    plan = solve(problem, Multilevel(), time_limit=30.0)
    assert plan.value < 0.95 * quick
    assert plan.seconds < 33.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 * 2**20  # KiB


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_thousand_devices_in_two_minutes():
    cluster = hosts(200, ["V100-32GB", "T4", "A100-80GB"])
    source = "zoo:gpt3-2.7b?granularity=head&layers=20&batch=2"
    started = time.monotonic()
    problem, _ = make_problem(source, cluster, training=True)
    plan = solve(problem, Multilevel(), time_limit=60.0)
    assert time.monotonic() - started < 120.0
    assert plan.value < solve(problem, "single-device").value
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 * 2**20  # KiB
