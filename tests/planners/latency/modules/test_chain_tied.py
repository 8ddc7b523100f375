"""Chains of modules that memory ties together: cuts, prices, the program, and what is planned."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.analysis.modules import split_modules
from placewright.budget import Budget
from placewright.formulations.latency.chain_memory import Cut, PartOfChain, shortest_path
from placewright.formulations.latency.chain_mix import mixed
from placewright.formulations.latency.incumbent import timed
from placewright.graph import GraphBuilder
from placewright.planners.latency.exact.cases import Method, overfull
from placewright.planners.latency.exact.parallel import Solvers
from placewright.planners.latency.exact.priced import TURNS
from placewright.planners.latency.first_incumbent import first_incumbent
from placewright.planners.latency.modules.chain_exact import ExactChain
from placewright.planners.latency.modules.chain_search import ChainSearch
from placewright.planners.latency.modules.chain_tied import TiedChain
from placewright.planners.latency.modules.device_twins import DeviceTwins
from placewright.planners.latency.modules.knapsack import Choice
from placewright.planners.latency.modules.milp_split import MilpSplit
from placewright.planners.latency.modules.priced_arcs import PricedArcs
from placewright.solving import solve
from placewright.verify import verify
from tests.analysis.test_modules import problem_of
from tests.naive import shortest_makespan
from tests.naive.chain_memory import shortest_path_with_memory
from tests.planners.latency.exact.test_priced import PRICES, RESIDENT, least_cost
from tests.strategies import problems, tight

SECONDS = st.sampled_from([1.0, 2.0, 2.5, 4.0])
SHARES = st.sampled_from([1.0, 0.1, 3.0])


@st.composite
def chained_graphs(draw):
    """One or two ops side by side between each cut op and the next."""
    builder = GraphBuilder("chain")
    sizes = st.sampled_from([0.0, 1.0, 2.0])
    last = builder.add_op("cut0", "op")
    for number, width in enumerate(draw(st.lists(st.integers(1, 2), min_size=1, max_size=2)), 1):
        middle = [builder.add_op(f"op{number}.{k}", "op") for k in range(width)]
        end = builder.add_op(f"cut{number}", "op")
        tensor = builder.add_tensor(last, draw(sizes))
        for op in middle:
            builder.connect(tensor, op)
            builder.connect(builder.add_tensor(op, draw(sizes)), end)
        last = end
    return builder.build()


@st.composite
def tied_problems(draw):
    """Such a graph on two or three devices with hardly enough memory.

    These differ, are equal, or are so but for their memory, of which a part may need little.
    """
    drawn = problems(graph=chained_graphs(), max_devices=3, options=draw(RESIDENT), memory=False)
    problem = draw(tight(drawn.filter(lambda problem: problem.device_count > 1)))
    if draw(st.booleans()):
        return problem
    devices = problem.device_count
    memory = np.full(devices, problem.device_memory.max())
    route = np.where(np.eye(devices, dtype=bool), 0.0, 1.0)
    return replace(
        problem,
        op_time=np.repeat(problem.op_time[:, :1], devices, axis=1),
        device_memory=memory + np.arange(devices) * draw(st.sampled_from([0.0, 1.0])),
        link_latency=route * draw(st.sampled_from([0.0, 0.5])),
        link_seconds_per_byte=route * draw(st.sampled_from([0.25, 1.0])),
        channel_offsets=np.zeros(devices**2 + 1, dtype=np.int64),
        channels=np.zeros(0, dtype=np.int32),
    )


def exact_chain(problem):
    exact = ExactChain(split_modules(problem))
    for _ in ChainSearch(exact, Solvers(Method(), 1), None).steps(Budget()):
        pass
    return exact.chain


@settings(max_examples=40, deadline=None)
@given(tied_problems(), st.booleans())
def test_bound_and_plan_hold(problem, has_start):
    best = shortest_makespan(problem)
    assume(math.isfinite(best))
    start = first_incumbent(problem, 0, None, Budget())[0] if has_start else None
    tied = TiedChain(exact_chain(problem), Solvers(Method(), 1), start)
    before = tied.bound
    for _ in tied.steps(Budget(20.0)):
        assert before <= tied.bound <= best * (1 + 1e-9) + 1e-12
        before = tied.bound
        if tied.best is not None:
            assert not overfull(problem, tied.best.placement)
            assert tied.best.value >= best * (1 - 1e-9)
    assert start is None or tied.best.value <= start.value


@settings(max_examples=25, deadline=None)
@given(tied_problems())
def test_the_planner_proves_no_more_than_the_optimum(problem):
    best = shortest_makespan(problem)
    assume(math.isfinite(best))
    assume(first_incumbent(problem, 0, None, Budget())[0] is not None)
    plan = solve(problem, MilpSplit(processes="1"), time_limit=20.0)
    assert verify(plan).ok
    assert plan.lower_bound <= best * (1 + 1e-9)
    assert plan.value >= best * (1 - 1e-9)


# -- cuts and twins --------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(tied_problems(), st.data())
def test_what_is_proved_at_some_prices_holds_at_others(problem, data):
    chain = exact_chain(problem)
    price, other = (np.array([data.draw(PRICES) for _ in problem.device_names]) for _ in range(2))
    for arcs in dict.fromkeys(chain.arcs):
        priced = PricedArcs(arcs)
        pairs = [tuple(pair) for pair in np.argwhere(np.isfinite(priced.low)).tolist()]
        for pair in [None, data.draw(st.sampled_from(pairs))] if pairs else []:
            work = priced.work(pair, price, len(TURNS), Budget(), 0)
            if work is not None:
                work.do()
                priced.take(pair, work)
        for at in (price, other):
            table = priced.low_at(at)
            for pair in pairs:
                least = least_cost(priced.part.pinned(*pair).problem, at)
                assert table[pair] <= least * (1 + 1e-9) + 1e-12
        for pair in pairs:
            for choice in priced.choices[pair]:
                here = priced.part.sub.problem
                assert priced.part.ends(choice.placement) == pair == choice.pair
                assert timed(here, choice.placement).value == pytest.approx(choice.value)
                kept = np.bincount(choice.placement.device, here.op_memory, here.device_count)
                assert choice.memory == pytest.approx(kept)


@settings(max_examples=50, deadline=None)
@given(tied_problems())
def test_twins_are_renamed_within_their_groups(problem):
    twins = DeviceTwins(problem)
    chain = ExactChain(split_modules(problem)).chain
    for part in chain.parts:
        ends = part.before >= 0, part.after >= 0
        sizes = [problem.device_count if is_device else 1 for is_device in ends]
        for pair in itertools.product(*map(range, sizes)):
            found = twins.like(part, pair)
            assert pair in [other for other, _ in found]
            for other, renamed in found:
                assert sorted(renamed.tolist()) == list(range(problem.device_count))
                for is_device, here, there in zip(ends, pair, other, strict=True):
                    assert not is_device or renamed[here] == there
                for device, name in enumerate(renamed.tolist()):
                    together = [group for group in twins.groups if device in group]
                    assert name == device or name in together[0]


def test_more_memory_than_a_part_needs_makes_no_device_another_one():
    problem = replace(
        problem_of("ab ac bd cd de df eg fg"),
        op_memory=np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0]),
    )
    for memory, of_first, of_last in (
        ([7.0, 8.0], [[0, 1]], [[0, 1]]),
        ([5.0, 8.0], [[0, 1]], []),
        ([3.0, 9.0], [], []),
    ):
        here = problem.with_device_memory(np.array(memory))
        of = DeviceTwins.by_part(here)
        parts = ExactChain(split_modules(here)).chain.parts
        assert [len(part.ops) for part in parts] == [4, 3]
        assert [of(part).groups for part in parts] == [of_first, of_last]
        peak = replace(here, options=replace(here.options, memory="peak"))
        assert [DeviceTwins.by_part(peak)(part).groups for part in parts] == [[], []]


# -- the programs ----------------------------------------------------------------------------------


@st.composite
def parts_of_chains(draw, devices):
    parts, count = [], draw(st.integers(1, 3))
    for number in range(count):
        shape = (devices if number else 1, devices if number < count - 1 else 1)
        low = np.array([draw(SECONDS) for _ in range(math.prod(shape))]).reshape(shape)
        cuts = {
            pair: [
                Cut(np.array([draw(PRICES) for _ in range(devices)]), draw(SECONDS) + 2.0)
                for _ in range(draw(st.integers(0, 2)))
            ]
            for pair in itertools.product(*map(range, shape))
        }
        parts.append(PartOfChain(draw(st.sampled_from([0.0, 1.0, 2.0, 5.0])), low, cuts))
    return parts


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 3))
def test_the_program_is_the_best_of_its_paths(data, devices):
    parts = data.draw(parts_of_chains(devices))
    total = sum(part.memory for part in parts)
    share = st.sampled_from([0.4, 0.6, 1.0, math.inf])
    capacity = np.array([data.draw(share) * max(total, 1.0) for _ in range(devices)])
    horizon = data.draw(st.sampled_from([30.0, 6.0]))
    best = shortest_path_with_memory(parts, capacity)
    path = shortest_path(parts, capacity, [], horizon, Budget(20.0))
    assert path.bound <= best * (1 + 1e-9)
    assert path.bound == pytest.approx(min(best, horizon), rel=1e-5, abs=2e-6 * horizon)
    if abs(best - horizon) > 1e-6 * horizon:
        assert (path.pairs is None) == (best > horizon)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 3), st.integers(1, 3))
def test_prices_are_those_at_which_no_mix_costs_less(data, devices, count):
    rows = []
    for number in range(count):
        ends = range(devices if number else 1), range(devices if number < count - 1 else 1)
        total = data.draw(st.sampled_from([1.0, 2.0, 4.0]))
        rows.append([])
        for pair in itertools.product(*ends):
            for _ in range(data.draw(st.integers(1, 2))):
                share = np.array(
                    [data.draw(st.sampled_from([1.0, 0.1, 3.0])) for _ in range(devices)]
                )
                kept = total * share / share.sum()
                rows[-1].append(Choice(pair, data.draw(SECONDS), kept, None))
    total = sum(row[0].memory.sum() for row in rows)
    room = st.sampled_from([0.35, 0.5, 1.0, math.inf])
    capacity = np.array([data.draw(room) * total for _ in range(devices)])
    mix = mixed(rows, capacity, 2.0, 50.0, Budget(10.0))
    assert (mix.price >= 0).all() and (mix.price <= 50.0 * 2.0 / total * (1 + 1e-6)).all()
    assert (mix.price[np.isinf(capacity)] == 0).all()
    paths = [
        path
        for path in itertools.product(*rows)
        if all(one.pair[1] == two.pair[0] for one, two in itertools.pairwise(path))
    ]
    dear = mix.price > 0
    paid = float(mix.price[dear] @ capacity[dear])
    cheapest = min(sum(choice.cost(mix.price) for choice in path) for path in paths) - paid
    assert mix.value == pytest.approx(cheapest, rel=1e-6, abs=1e-6)
    fitting = [
        sum(choice.value for choice in path)
        for path in paths
        if (sum(choice.memory for choice in path) <= capacity).all()
    ]
    if fitting:
        assert mix.fits and mix.value <= min(fitting) * (1 + 1e-6)


def test_there_is_no_mix_when_time_is_up():
    rows = [[Choice((0, 0), 1.0, np.array([1.0, 0.0]), None)]]
    assert mixed(rows, np.array([1.0, 1.0]), 1.0, 1.0, Budget(10.0)) is not None
    assert mixed(rows, np.array([1.0, 1.0]), 1.0, 1.0, Budget(0.0)) is None
