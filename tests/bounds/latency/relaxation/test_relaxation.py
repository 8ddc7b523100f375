"""Bounds by regions, chains and cases against brute force."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from placewright.bounds import lower_bound as best_without_search
from placewright.bounds.latency.paths import lower_bound
from placewright.bounds.latency.relaxation import prove
from placewright.bounds.latency.relaxation.cases import Cases
from placewright.bounds.latency.relaxation.lagrangian import Chain, Prices, Pricing
from placewright.bounds.latency.relaxation.network import network_of
from placewright.bounds.latency.relaxation.paths import settle
from placewright.bounds.latency.relaxation.regions import BOUNDED, Regions
from placewright.bounds.latency.relaxation.solving import Solver
from placewright.budget import Budget
from placewright.errors import InfeasibleError
from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.solving import solve
from tests import naive
from tests.naive import peak as naive_peak
from tests.strategies import graph_columns, problems

EXACT = 1e-9
SOLVED = 1e-6  # as closely as regions are solved
ENDLESS = Budget()


def optimum_of(problem):
    """Regions are searched under ``peak`` too, so what is proved may be above plans without it."""
    try:
        problem.check_feasible()
    except InfeasibleError:
        reject()
    if problem.options.memory == "peak":
        return naive_peak.shortest_makespan(problem)
    return naive.shortest_makespan(problem)


def assert_nothing_proved_is_above_the_optimum(problem):
    optimum = optimum_of(problem)
    assert prove(problem, Budget(20.0)).value <= optimum * (1 + EXACT)


def regions_of(problem, incumbent=np.inf):
    """Its network, and the regions where a plan as long as `incumbent` is known."""
    network = network_of(problem)
    regions = Regions.of(network)
    regions.rule_out(incumbent)
    return network, regions


def value_when_solved(problem, rounds):
    """What paths say after the regions on them have been solved as often."""
    network, regions = regions_of(problem)
    solver = Solver(regions, ENDLESS)
    for _ in range(rounds):
        reach = settle(network, regions, ENDLESS)
        solver.raise_costs(solver.waiting(reach.arcs(), np.inf))
    return settle(network, regions, ENDLESS).value


class Heard:
    def __init__(self):
        self.bounds = []

    def found(self, placement):
        raise AssertionError("a bound finds no plans")

    def proved(self, lower_bound, source):
        self.bounds.append((lower_bound, source))


def options(draw):
    return Options(
        transfer_unit=draw(st.sampled_from(["tensor", "edge"])),
        contention=draw(st.sampled_from(["none", "port", "link"])),
    )


def problem_of(draw, edges, n, devices=2, memory=False):
    """Ops 0 … n − 1; `edges` maps an op to the lists of readers of its tensors."""
    builder = GraphBuilder("structured")
    for op in range(n):
        builder.add_op(f"op{op}", "op")
    for op, tensors in edges.items():
        for readers in tensors:
            tensor = builder.add_tensor(op, draw(st.sampled_from([0.5, 1.0, 2.0])))
            for reader in readers:
                builder.connect(tensor, reader)
    graph = builder.build()
    times = st.sampled_from([0.0, 0.5, 1.0, 2.0])
    time = np.array(draw(st.lists(times, min_size=n * devices, max_size=n * devices)))
    per_byte = np.array(
        draw(st.lists(st.sampled_from([0.1, 0.25, 1.0]), min_size=devices**2, max_size=devices**2))
    ).reshape(devices, devices)
    np.fill_diagonal(per_byte, 0.0)
    pairs = devices**2
    inter = [pair for pair in range(pairs) if pair // devices != pair % devices]
    offsets = np.cumsum([0, *(pair in inter for pair in range(pairs))])
    op_memory = np.ones(n) if memory else np.zeros(n)
    return Problem(
        name="structured",
        **graph_columns(graph),
        op_time=time.reshape(n, devices),
        op_memory=op_memory,
        op_pinned=np.full(n, -1),
        device_names=tuple(f"device{k}" for k in range(devices)),
        device_kinds=("kind",) * devices,
        device_memory=np.full(devices, np.ceil(0.7 * n) if memory else np.inf),
        link_latency=np.zeros((devices, devices)),
        link_seconds_per_byte=per_byte,
        channel_offsets=offsets,
        channels=np.zeros(len(inter), dtype=np.int32),
        channel_names=("shared",),
        options=options(draw),
    )


@st.composite
def shared_tensors(draw):
    """Like a small encoder and decoder: a tensor that feeds every piece of a chain.

    0 → 1 (shared) → 2 → 3 → 4, with 5 and 6 that read op 1 alone and feed 3 and 4.
    """
    one = [[2, 5, 6]] if draw(st.booleans()) else [[2], [5], [6]]
    edges = {0: [[1]], 1: one, 2: [[3]], 3: [[4]], 5: [[3]], 6: [[4]]}
    if draw(st.booleans()):
        edges[6] = []
    return problem_of(draw, edges, 7, memory=draw(st.booleans()))


@st.composite
def chains_of_modules(draw):
    """Forks and joins one after another: 0 → (1, 2) → 3 → (4, 5) → 6."""
    edges = {0: [[1, 2]], 1: [[3]], 2: [[3]], 3: [[4], [5]], 4: [[6]], 5: [[6]]}
    if draw(st.booleans()):
        edges[1] = [[3, 5]]  # a channel beside the cut op
    return problem_of(draw, edges, 7, memory=draw(st.booleans()))


@settings(max_examples=25)
@given(problem=problems(max_ops=6, max_devices=3))
def test_nothing_proved_is_above_the_optimum(problem):
    assert_nothing_proved_is_above_the_optimum(problem)


@settings(max_examples=25)
@given(problem=st.one_of(shared_tensors(), chains_of_modules()))
def test_nothing_proved_of_shared_tensors_and_modules_is_above_the_optimum(problem):
    assert_nothing_proved_is_above_the_optimum(problem)


@settings(max_examples=20)
@given(
    problem=st.one_of(shared_tensors(), chains_of_modules(), problems(6, 3)),
    share=st.floats(0.3, 1.5),
)
def test_whatever_the_incumbent_the_lesser_of_both_is_a_bound(problem, share):
    optimum = optimum_of(problem)
    bound = prove(problem, Budget(20.0), incumbent=optimum * share).value
    assert min(bound, optimum * share) <= optimum * (1 + EXACT)
    assert bound <= optimum * (1 + EXACT) or bound <= optimum * share * (1 + EXACT)


@settings(max_examples=25)
@given(problem=st.one_of(shared_tensors(), chains_of_modules()), data=st.data())
def test_all_prices_and_all_cases_give_valid_bounds(problem, data):
    optimum = optimum_of(problem)
    network, regions = regions_of(problem)
    reach = settle(network, regions, ENDLESS)
    assert reach.value <= optimum * (1 + EXACT)
    chain = Chain(network, regions, reach.steps())
    size = 1 + network.device_count + network.routes.channel_count
    weight = np.array(data.draw(st.lists(st.floats(0.001, 1.0), min_size=size, max_size=size)))
    memory = data.draw(st.sampled_from([0.0, 0.5]))
    limited = network.share.max(axis=0) > 0
    prices = Prices(weight / weight.sum(), np.where(limited, memory, 0.0))
    cases = [{}]
    for op in chain.boundary()[:2]:
        cases = [{**case, op: d} for case in cases for d in range(network.device_count)]
    values = [Pricing(chain, chain.durations(), case).value(prices)[0] for case in cases]
    assert min(values) <= optimum * (1 + EXACT)


@settings(max_examples=20)
@given(problem=chains_of_modules())
def test_regions_that_are_solved_still_bound_the_optimum(problem):
    optimum = optimum_of(problem)
    assert value_when_solved(problem, 6) <= optimum * (1 + SOLVED)


def test_a_region_whose_bound_would_rise_tick_by_tick_is_solved_at_once():
    builder = GraphBuilder("two forks")
    for name in "abcdefg":
        builder.add_op(name, "op", parameter_bytes=1.0)
    for source, size, readers in (
        (0, 0.5, (1, 2)), (1, 1.0, (3,)), (2, 0.5, (3,)), (3, 2.0, (4,)),
        (3, 0.5, (5,)), (4, 0.5, (6,)), (5, 2.0, (6,)),
    ):  # fmt: skip
        tensor = builder.add_tensor(source, size)
        for reader in readers:
            builder.connect(tensor, reader)
    problem = replace(
        two_small_devices(builder.build()),
        op_time=np.array([[2.0, 2], [0, 0], [1, 2], [0.5, 0], [2, 0], [0, 0], [0, 2]]),
        device_memory=np.full(2, 5.0),
        link_seconds_per_byte=np.array([[0.0, 1.0], [0.25, 0.0]]),
        options=Options(transfer_unit="edge", contention="port"),
    )
    assert value_when_solved(problem, 1) == pytest.approx(optimum_of(problem))


def chain_of_three(contention="port"):
    """a → (b, c) → d, each a second on either device; a second to send anything."""
    builder = GraphBuilder("diamond")
    for name in "abcd":
        builder.add_op(name, "op")
    for source, reader in ((0, 1), (0, 2), (1, 3), (2, 3)):
        builder.connect(builder.add_tensor(source, 1.0), reader)
    graph = builder.build()
    per_byte = np.array([[0.0, 1.0], [1.0, 0.0]])
    return Problem(
        name="diamond",
        **graph_columns(graph),
        op_time=np.ones((4, 2)),
        op_memory=np.zeros(4),
        op_pinned=np.full(4, -1),
        device_names=("one", "two"),
        device_kinds=("kind",) * 2,
        device_memory=np.full(2, np.inf),
        link_latency=np.zeros((2, 2)),
        link_seconds_per_byte=per_byte,
        channel_offsets=np.zeros(5),
        channels=np.zeros(0, dtype=np.int32),
        channel_names=(),
        options=Options(contention=contention),
    )


def test_a_fork_that_is_not_worth_its_transfers_is_proved_serial():
    assert lower_bound(chain_of_three()).value < 3.5
    bound = prove(chain_of_three(), Budget(10.0))
    assert bound.value == pytest.approx(4.0)


def test_each_bound_told_is_better_than_the_one_before():
    heard = Heard()
    bound = prove(chain_of_three(), Budget(10.0, None, heard))
    values = [value for value, _ in heard.bounds]
    assert values == sorted(values)
    assert (bound.value, bound.source) == heard.bounds[-1]


def test_weights_that_no_device_holds_alone_force_a_transfer():
    builder = GraphBuilder("two halves")
    for name in "ab":
        builder.add_op(name, "op", parameter_bytes=1.0)
    builder.connect(builder.add_tensor(0, 1.0), 1)
    problem = two_small_devices(builder.build())
    assert lower_bound(problem).value <= 2.0
    assert prove(problem, Budget(10.0)).value == pytest.approx(5.0)


def two_small_devices(graph):
    """Two devices that hold one op each; a transfer takes three seconds."""
    base = chain_of_three()
    n = graph.op_count
    return replace(
        base,
        **graph_columns(graph),
        op_time=np.ones((n, 2)),
        op_memory=graph.op_parameter_bytes,
        op_pinned=np.full(n, -1),
        device_memory=np.array([1.5, 1.5]),
        link_seconds_per_byte=np.array([[0.0, 3.0], [3.0, 0.0]]),
        op_sync_bytes=np.zeros(n),
        batch_time=np.zeros((n, 2, 0)),
    )


def test_ctrl_c_keeps_the_best_so_far(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Cases, "bounds", interrupt)
    monkeypatch.setattr(Solver, "waiting", interrupt)
    problem = chain_of_three()
    assert prove(problem, Budget(10.0)).value >= lower_bound(problem).value


def test_no_time_leaves_the_bound_that_takes_no_search():
    problem = chain_of_three()
    assert prove(problem, Budget(0.0)).value == best_without_search(problem).value


def test_the_encoder_decoder_is_bounded_where_paths_and_work_say_little(workloads):
    path = workloads / "moirai" / "transformer.json"
    problem, _ = make_problem(str(path), None, {"objective": "latency"})
    network, regions = regions_of(problem, solve(problem, "single-device").value)
    value = settle(network, regions, ENDLESS).value
    assert value > 1.75 * lower_bound(problem).value
    assert (regions.level == BOUNDED).sum() < 0.2 * len(regions.level)
