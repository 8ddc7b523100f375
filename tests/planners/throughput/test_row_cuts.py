"""Cuts of lines over rows of devices, and moves of blocks: for throughput at any size."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.budget import Budget, no_progress
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InfeasibleError, OptionError
from placewright.kernels.throughput import loads as kernel
from placewright.kernels.throughput.annealing import anneal
from placewright.kernels.throughput.row_cuts import copies_sent, crossing, cut_row
from placewright.plan import Placement
from placewright.planners.throughput.block_moves import BlockMoves
from placewright.planners.throughput.board import boards
from placewright.planners.throughput.contiguity import in_a_row
from placewright.planners.throughput.row_cuts import RowCuts, rows
from placewright.planning import make_problem
from placewright.simulate import evaluate
from placewright.solving import solve
from placewright.verify import verify
from tests.naive.row_cuts import best_cut, naive_copies, naive_crossing, value_of
from tests.naive.throughput import best_split
from tests.strategies.throughput import throughput_problems

ANY = throughput_problems(contiguous=None, replicate=False)
THROUGH_HOST = throughput_problems(contiguous=None, replicate=False, staging="host", max_ops=5)


def cut(board, order, row, limit, width):
    count = len(order)
    devices = board.problem.device_count
    return cut_row(
        board.arrays, order, row, limit, width, np.arange(count + 1.0),
        np.ones((board.graph.net_count, 2)), np.zeros(devices), np.zeros(devices),
    )  # fmt: skip


@given(THROUGH_HOST, st.floats(0.3, 1.5))
def test_a_wide_beam_finds_a_cut_exactly_where_there_is_one(problem, share):
    """Through host memory all that a stage pays is known; passes that count apart do not add up."""
    assume(problem.options.schedule == "pipedream")
    for board, row in itertools.product(boards(problem), itertools.permutations(range(2))):
        row = np.array(row[: problem.device_count], dtype=np.int32) % problem.device_count
        for order in board.orders(2, 0):
            least = best_cut(problem, board.graph, order, row)
            limit = share * least if 0 < least < math.inf else share
            found = cut(board, order, row, limit, len(order) + 1)
            assert (found >= 0).all() == (least <= limit)
            if (found >= 0).all():
                assert value_of(problem, board.graph, found) <= limit * (1 + 1e-9)


@given(ANY, st.integers(1, 3))
def test_a_narrow_beam_cuts_within_memory(problem, width):
    for board, row in itertools.product(boards(problem), range(3)):
        row = rows(board)[row % len(rows(board))]
        for order in board.orders(3, 0):
            found = cut(board, order, row, math.inf, width)
            if (found >= 0).all():
                assert value_of(problem, board.graph, found) < math.inf


@given(ANY, st.randoms(use_true_random=False))
def test_orders_go_along_the_edges_and_rows_have_every_device(problem, random):
    for board in boards(problem):
        graph = board.graph
        for order in board.orders(5, random.randrange(9)):
            position = np.argsort(order)
            assert sorted(order.tolist()) == list(range(graph.node_count))
            assert (position[graph.edge_source] < position[graph.edge_target]).all()
        for row in rows(board):
            assert sorted(row.tolist()) == list(range(problem.device_count))


@given(ANY, st.data())
def test_what_crosses_a_cut_and_who_gets_copies_is_counted(problem, data):
    board = boards(problem)[0]
    count = board.graph.node_count
    order = np.array(data.draw(st.permutations(range(count))))
    expected = naive_crossing(problem, board.graph, order, 0.5, 0.25)
    assert crossing(board.arrays, order, 0.5, 0.25) == pytest.approx(expected)
    stage = np.array(data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    copies = copies_sent(board.arrays, stage)
    assert np.array_equal(copies, naive_copies(board.graph, stage))


@given(ANY, st.data())
def test_loads_stay_what_the_evaluator_makes_them_while_nodes_move(problem, data):
    board = boards(problem)[0]
    graph, arrays = board.graph, board.arrays
    able = [np.flatnonzero(row).tolist() for row in graph.allowed[:, graph.device_class]]
    assume(all(able))
    device = np.array([data.draw(st.sampled_from(each)) for each in able], dtype=np.int32)
    state = board.loads(device)
    for _ in range(4):
        before = state.node_device.copy()
        moved = []
        for _ in range(data.draw(st.integers(1, 3))):
            node = data.draw(st.integers(0, graph.node_count - 1))
            target = data.draw(st.sampled_from(able[node]))
            moved.append((node, int(state.node_device[node])))
            kernel.move(arrays, state, np.int32(node), np.int32(target))
        if data.draw(st.booleans()):
            kernel.settle(arrays, state)
        else:
            for node, origin in reversed(moved):
                kernel.move(arrays, state, np.int32(node), np.int32(origin))
            kernel.restore(state)
            assert np.array_equal(state.node_device, before)
        found = evaluate(problem, Placement(state.node_device[graph.op_node]))
        assert state.load.sum(axis=0) == pytest.approx(found.load)
        assert kernel.value(state) == pytest.approx(found.value)
        used = np.bincount(state.node_device, graph.memory, problem.device_count)
        assert state.used == pytest.approx(used)
        fits = (state.used <= problem.device_memory * (1 + kernel.ROUNDING)).all()
        assert kernel.fits(arrays, state) == fits
        assert _rings(state) == {
            d: set(np.flatnonzero(state.node_device == d).tolist())
            for d in range(problem.device_count)
        }


def _rings(state):
    found = {}
    for device, first in enumerate(state.first_on.tolist()):
        members, node = set(), first
        while node >= 0 and node not in members:
            members.add(node)
            node = int(state.next_on[node])
        found[device] = members
    return found


@given(ANY, st.integers(0, 99))
def test_moves_of_blocks_keep_to_memory_and_to_the_row(problem, seed):
    try:
        placement = RowCuts().plan(problem, Budget(), 0, no_progress).placement
    except InfeasibleError:
        assume(False)
    for board in boards(problem):
        device = np.zeros(board.graph.node_count, dtype=np.int32)
        device[board.graph.op_node] = placement.device
        rank = board.row_rank(device)
        if rank is None or not np.array_equal(device[board.graph.op_node], placement.device):
            continue
        state = board.loads(device)
        movable = np.arange(board.graph.node_count, dtype=np.int32)
        rng = np.random.default_rng(seed)
        scale = max(float(kernel.value(state)), 0.1)
        anneal(board.arrays, state, movable, rank, rng, 200, scale, scale, scale / 9, 3)
        for each in (state.node_device, state.best):
            found = value_of(problem, board.graph, each)
            assert found < math.inf
            assert board.value(each) == pytest.approx(found)
            if problem.options.contiguous:
                assert in_a_row(problem, each[board.graph.op_node])
        assert state.best_value[0] == pytest.approx(value_of(problem, board.graph, state.best))


@given(throughput_problems(contiguous=None))
@settings(max_examples=20)
def test_plans_pass_the_judge_and_moves_never_make_them_worse(problem):
    try:
        problem.check_feasible()
        plan = solve(problem, RowCuts(2))
    except InfeasibleError:
        assume(False)
    assert verify(plan).ok
    assert plan.value >= best_split(problem)[0] * (1 - 1e-9)
    moved = solve(problem, BlockMoves(200), start=plan.placement)
    assert verify(moved).ok
    assert moved.value <= plan.value * (1 + 1e-12)
    assert verify(solve(problem, BlockMoves(50))).ok


@given(throughput_problems(replicate=False, contiguous=True))
def test_said_to_be_impossible_is_impossible(problem):
    try:
        problem.check_feasible()
        solve(problem, RowCuts())
    except InfeasibleError as error:
        if "there is no contiguous split" in str(error):
            assert best_split(problem)[0] == math.inf


def two_kinds(hosts):
    devices, links = [], []
    for host in range(hosts):
        for number in range(5):
            name = f"h{host}d{number}"
            devices.append(Device(name, ("A100-80GB", "T4")[host % 2], host=f"h{host}"))
            links.append(Link(name, f"bus{host}", bandwidth=16e9, latency=5e-6))
        links.append(Link(f"bus{host}", "net", bandwidth=12.5e9, latency=1e-5))
    switches = (*(f"bus{host}" for host in range(hosts)), "net")
    return Cluster("hosts", tuple(devices), tuple(links), switches)


@pytest.fixture(scope="module")
def large():
    source = "zoo:gpt2?granularity=head"
    options = {"objective": "throughput", "contiguous": False}
    return make_problem(source, two_kinds(20), options, training=True)[0]


def test_a_hundred_devices_in_twenty_hosts_are_no_obstacle(large):
    cuts = solve(large, RowCuts())
    moved = solve(large, BlockMoves(100_000), start=cuts.placement)
    assert verify(cuts).ok and verify(moved).ok
    assert moved.value <= cuts.value < 0.3 * solve(large, "single-device").value


def test_the_same_seed_makes_the_same_plan(large):
    one, two = (solve(large, BlockMoves(30_000), seed=3).placement.device for _ in range(2))
    assert np.array_equal(one, two)


def test_the_time_limit_is_kept(large):
    budget = Budget(1.0)
    BlockMoves().plan(large, budget, 0, no_progress)
    assert -1.0 < budget.left < 0.2


def test_an_interrupt_leaves_the_best_so_far_or_goes_on_up(large):
    def interrupt(what, done):
        if done >= stop:
            raise KeyboardInterrupt

    stop = 0.2
    found = RowCuts().plan(large, Budget(), 0, interrupt).placement
    assert evaluate(large, found).value < math.inf
    stop = 0.0
    with pytest.raises(KeyboardInterrupt):
        RowCuts().plan(large, Budget(), 0, interrupt)


def test_what_is_found_on_the_way_is_told(large):
    told = []

    class Ear:
        def found(self, placement):
            told.append(evaluate(large, placement).value)

        def proved(self, lower_bound, source):
            raise AssertionError("it proves nothing")

    start = RowCuts(1).plan(large, Budget(), 0, no_progress).placement
    budget = Budget(3.0, start, Ear())
    found = BlockMoves().plan(large, budget, 0, no_progress).placement
    assert told == sorted(told, reverse=True)
    assert evaluate(large, found).value <= min(told, default=math.inf)


def test_tied_parameters_are_said_to_forbid_contiguous_stages():
    options = {"objective": "throughput"}
    problem, _ = make_problem("zoo:gpt2", "2x3090", options, training=True, together=True)
    small = replace(
        problem, device_memory=problem.device_memory * 0 + problem.op_memory.sum() / 1.5
    )
    with pytest.raises(InfeasibleError, match=r"no contiguous split: .*lm_head.* on one device"):
        solve(small, RowCuts())


def test_exact_contiguous_planning_leaves_very_large_graphs_to_others():
    options = {"objective": "throughput"}
    source = "zoo:llama-7b?granularity=head&context=256"
    problem, _ = make_problem(source, two_kinds(2), options)
    assert problem.op_count > 10_000
    with pytest.raises(OptionError, match=r"nodes, more than .* use row-cuts"):
        solve(problem, "ideal-dp")
    plan = solve(problem, RowCuts())
    assert verify(plan).ok and plan.value < 2.0 * plan.lower_bound


@pytest.mark.parametrize("planner", [lambda: RowCuts("0"), lambda: BlockMoves("many")])
def test_options_are_whole_numbers(planner):
    with pytest.raises(OptionError, match="give a whole number above 0"):
        planner()


def test_loads_of_zero_are_no_endless_search():
    """However low the limit, it can be kept."""
    problem = replace(
        make_problem("zoo:gpt2?layers=2", "2x3090", {"objective": "throughput"})[0],
        link_latency=np.zeros((2, 2)),
        link_seconds_per_byte=np.zeros((2, 2)),
    )
    problem = replace(problem, op_time=np.zeros_like(problem.op_time))
    assert solve(problem, "row-cuts").value == 0.0
    assert solve(problem, "block-moves", planner_options={"steps": "10"}).value == 0.0
