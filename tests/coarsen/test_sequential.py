"""Topological orders and the groups that come of cutting one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placewright.analysis.orders import (
    ORDERS,
    by_label,
    dfs_topo,
    mean_edge_time,
    mean_op_time,
    order_named,
    path_lengths,
)
from placewright.coarsen.contraction import contract
from placewright.coarsen.sequential import ccr, sequential_groups
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import GraphBuilder, frozen
from placewright.kernels.common.arrays import arrays_of
from placewright.kernels.latency.sequential import cheapest_cuts, top_levels
from placewright.planning import make_problem
from tests import naive
from tests.naive import celeritas as naive_celeritas
from tests.strategies import BYTES, problems

MEASURES = st.sampled_from(["edge", "tensor"])
ORDER_NAMES = st.sampled_from(sorted(ORDERS))


def without_colocation(problem):
    return replace(problem, colocation=np.full(problem.op_count, -1))


def is_topological(problem, order):
    position = np.empty(problem.op_count, dtype=int)
    position[order] = np.arange(problem.op_count)
    return (
        sorted(order.tolist()) == list(range(problem.op_count))
        and (position[problem.edge_producer] < position[problem.consumers]).all()
    )


# -- orders ------------------------------------------------------------------------------------


@given(problem=problems(), name=ORDER_NAMES)
def test_every_order_is_topological(problem, name):
    assert is_topological(problem, order_named(name, problem))


@given(problem=problems())
def test_cpd_topo_is_the_papers_queue(problem):
    length = path_lengths(problem)
    steps = np.round(length / (length.max() * 1e-9)) if length.max() > 0 else length
    assert order_named("cpd", problem).tolist() == naive_celeritas.depth_first(problem, steps)


@given(problem=problems())
def test_dfs_topo_takes_what_became_ready_by_number(problem):
    nothing = np.zeros(problem.op_count)
    assert dfs_topo(problem).tolist() == naive_celeritas.depth_first(problem, nothing)


@given(problem=problems())
def test_m_topo_is_breadth_first(problem):
    assert order_named("m-topo", problem).tolist() == naive_celeritas.breadth_first_order(problem)


@given(problem=problems(max_ops=8))
def test_path_lengths_are_those_of_the_longest_paths_through_each_op(problem):
    op_weight, edge_weight = mean_op_time(problem), mean_edge_time(problem)
    top = naive_celeritas.top_levels(problem, op_weight, edge_weight)
    bottom = naive.upward_ranks(problem, op_weight, edge_weight)
    arrays = arrays_of(problem)
    levels = top_levels(op_weight, edge_weight, problem.topological_order, arrays)
    assert levels.tolist() == top
    assert path_lengths(problem).tolist() == (np.array(top) + np.array(bottom)).tolist()


@given(problem=problems(), data=st.data())
def test_by_label_stays_with_a_label_while_it_can(problem, data):
    n = problem.op_count
    drawn = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    label = np.array(drawn, dtype=np.int32)
    line = order_named("cpd", problem)
    found = by_label(problem, line, label)
    assert is_topological(problem, found)
    assert found.tolist() == naive_celeritas.by_label(problem, line.tolist(), label)


@given(problem=problems(), data=st.data())
def test_by_label_leaves_a_line_whose_labels_stand_together(problem, data):
    line = order_named("cpd", problem)
    starts = data.draw(
        st.lists(st.booleans(), min_size=problem.op_count, max_size=problem.op_count)
    )
    label = np.empty(problem.op_count, dtype=np.int32)
    label[line] = np.cumsum(starts)
    assert by_label(problem, line, label).tolist() == line.tolist()


# -- cutting -----------------------------------------------------------------------------------


@st.composite
def lines(draw):
    """The arguments of `cheapest_cuts`, of a random line."""
    n, d = draw(st.integers(1, 10)), draw(st.integers(1, 3))
    inputs = [
        [
            (draw(st.integers(0, j - 1)), draw(st.integers(0, 4)))
            for _ in range(draw(st.integers(0, 3)) if j else 0)
        ]
        for j in range(n)
    ]
    labels = st.sampled_from([-1, -1, 0, 1, 2])
    label = np.array(draw(st.lists(labels, min_size=n, max_size=n)), dtype=np.int32)
    capacity = draw(st.lists(st.sampled_from([3.0, 6.0, np.inf]), min_size=d, max_size=d))
    pure_labels = draw(st.sets(st.integers(0, 2)))
    allowed = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=n * d,
                            max_size=n * d))  # fmt: skip
    return {
        "inputs": inputs,
        "memory": np.array(draw(st.lists(BYTES, min_size=n, max_size=n))),
        "allowed": np.array(allowed).reshape(n, d),
        "device_memory": frozen(capacity, np.float64),
        "limit": draw(st.sampled_from([2.0, 5.0, np.inf])),
        "label": label,
        "pure": np.isin(label, sorted(pure_labels)),
        "reach": draw(st.integers(1, 10)),
    }


@given(lines())
def test_kernel_cuts_exactly_as_its_twin(line):
    inputs = line["inputs"]
    offsets = np.cumsum([0, *map(len, inputs)])
    pairs = np.array([pair for each in inputs for pair in each], dtype=np.int64).reshape(-1, 2)
    rest = [line[name] for name in list(line)[1:]]
    begin = cheapest_cuts(offsets, pairs[:, 0].copy(), pairs[:, 1].copy(), *rest)
    assert begin.tolist() == naive_celeritas.cheapest_cuts(inputs, *rest)


@given(problem=problems(max_ops=8), order=ORDER_NAMES, measure=MEASURES, data=st.data())
def test_no_other_set_of_breakpoints_costs_less(problem, order, measure, data):
    problem = without_colocation(problem)
    reach = data.draw(st.integers(1, 8))
    fraction = data.draw(st.sampled_from([0.1, 0.25, 1.0]))
    found = sequential_groups(
        problem, order=order, reach=reach, memory_fraction=fraction, measure=measure
    )
    line = order_named(order, problem).tolist()
    limit = fraction * sorted(problem.device_memory.tolist())[(problem.device_count - 1) // 2]
    column = lambda values: [values[op] for op in line]  # noqa: E731
    nothing = [-1] * problem.op_count
    best = (np.inf, 0)
    for starts in naive_celeritas.breakpoint_sets(problem.op_count):
        ends = [*starts[1:], problem.op_count]
        if not all(
            end - begin == 1
            or naive_celeritas.may_be_one(
                range(begin, end), column(problem.op_memory), column(np.isfinite(problem.op_time)),
                problem.device_memory, limit, nothing, [False] * problem.op_count, reach,
            )
            for begin, end in zip(starts, ends, strict=True)
        ):  # fmt: skip
            continue
        group = np.empty(problem.op_count, dtype=int)
        for number, (begin, end) in enumerate(zip(starts, ends, strict=True)):
            group[line[begin:end]] = number
        cost = naive_celeritas.cut_cost(problem, group, measure)
        if cost < best[0] - 1e-9 or (cost < best[0] + 1e-9 and len(starts) < best[1]):
            best = (cost, len(starts))
    assert naive_celeritas.cut_cost(problem, found, measure) == pytest.approx(best[0], abs=1e-9)
    assert found.max() + 1 == best[1]


@given(problem=problems(), order=ORDER_NAMES, reach=st.integers(1, 12))
def test_groups_are_neighbours_in_a_topological_order_and_within_reach(problem, order, reach):
    group = sequential_groups(problem, order=order, reach=reach)
    assert sorted(set(group.tolist())) == list(range(group.max() + 1))
    assert (group[problem.edge_producer] <= group[problem.consumers]).all()
    assert np.bincount(group).max() <= reach
    contract(problem, group)  # a cycle would be a GraphError


@given(
    problem=problems(),
    fraction=st.sampled_from([0.1, 0.25, 1.0, 4.0]),
    data=st.data(),
)
def test_what_can_be_placed_before_can_be_placed_after_one_unit_at_a_time(problem, fraction, data):
    pins = {}
    if data.draw(st.booleans()):
        unit = data.draw(st.integers(0, problem.unit_count - 1))
        pins[unit] = data.draw(st.integers(0, problem.device_count - 1))
    problem = problem.with_pins(pins)
    try:
        problem.check_feasible()
    except InfeasibleError:
        assume(False)
    contract(problem, sequential_groups(problem, memory_fraction=fraction)).problem.check_feasible()


def chain(memory, *, colocate=None, bytes_=1.0):
    """A chain of ops of one second on two devices."""
    builder = GraphBuilder("chain")
    for k, each in enumerate(memory):
        together = colocate[k] if colocate else None
        builder.add_op(f"op{k}", "op", parameter_bytes=each, colocate=together)
    for k in range(len(memory) - 1):
        builder.connect(builder.add_tensor(k, bytes_), k + 1)
    graph = builder.build()
    problem, _ = make_problem(graph, "2x3090")
    return replace(problem, op_time=np.ones((len(memory), 2)))


def test_groups_keep_to_the_share_of_memory():
    problem = chain([1e9] * 12)
    group = sequential_groups(problem, memory_fraction=3.5e9 / problem.device_memory[0])
    assert np.bincount(group).tolist() == [3, 3, 3, 3]


def test_an_op_larger_than_the_share_of_memory_is_alone():
    group = sequential_groups(chain([1e9, 9e9, 1e9]), memory_fraction=0.25)
    assert group.tolist() == [0, 1, 2]


def test_a_training_chain_is_not_tied_into_one_unit():
    """Forward ops 0 … 9 and backward ops 9' … 0', each pair colocated, cut three at a time."""
    pairs = [*range(10), *reversed(range(10))]
    problem = chain([1e9] * 20, colocate=[str(pair) for pair in pairs])
    coarse = contract(problem, sequential_groups(problem, reach=3)).problem
    assert coarse.unit_count == 4
    assert coarse.unit_memory.max() == 6e9
    assert coarse.op_count <= 8


def test_ccr_is_all_transfers_by_all_work():
    problem = chain([1.0] * 4, bytes_=1e9)
    route = problem.link_latency[0, 1] + 1e9 * problem.link_seconds_per_byte[0, 1]
    assert ccr(problem) == pytest.approx(3 * route / 4)
    assert ccr(replace(problem, op_time=np.zeros((4, 2)))) == np.inf


def test_what_colocated_ops_give_each_other_does_not_count_in_the_ccr():
    problem = chain([1.0] * 4, colocate=["a", "a", "b", "b"], bytes_=1e9)
    route = problem.link_latency[0, 1] + 1e9 * problem.link_seconds_per_byte[0, 1]
    assert ccr(problem) == pytest.approx(route / 4)


def test_a_training_transformer_shrinks_as_the_paper_says():
    """Table 2: groups of some 165 ops, a CCR lower by 3 to 10 times."""
    problem, _ = make_problem("zoo:gpt3-330m?granularity=head", "celeritas", training=True)
    coarse = contract(problem, sequential_groups(problem)).problem
    assert problem.op_count > 12_000
    assert coarse.op_count * 100 <= problem.op_count
    assert ccr(coarse) * 5 <= ccr(problem)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "zfs"}, "order is 'zfs'; choose cpd, dfs, m-topo"),
        ({"reach": 0}, "reach is 0"),
        ({"memory_fraction": 0.0}, "memory_fraction is 0.0"),
        ({"memory_fraction": float("nan")}, "memory_fraction is nan"),
        ({"measure": "byte"}, "measure is 'byte'; choose edge, tensor"),
    ],
)
def test_an_option_out_of_range_is_refused(options, message):
    with pytest.raises(OptionError, match=message):
        sequential_groups(chain([1.0] * 3), **options)
