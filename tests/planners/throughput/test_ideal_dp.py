"""`ideal-dp` finds the best contiguous split, `linear-dp` the best cuts of an order."""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.analysis.contracted import contracted_graph, directions
from placewright.analysis.reductions.circles import contracted_in_order
from placewright.budget import Budget, no_progress
from placewright.errors import InfeasibleError, OptionError, ProvedInfeasibleError
from placewright.graph import GraphBuilder
from placewright.kernels.throughput.stage_loads import chain_rows
from placewright.options import Options
from placewright.planners.throughput import coarse_ideals, ideal_search
from placewright.planners.throughput.ideal_dp import IdealDP
from placewright.planners.throughput.ideal_search import MOST_IDEALS, Search
from placewright.planners.throughput.linear_dp import LinearDP
from placewright.planners.throughput.splits import best_of_lines, evaluated, linear_orders
from placewright.planners.throughput.stages import stage_tables
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.simulate.throughput import loads
from placewright.solving import solve
from tests.builders import throughput_chain
from tests.naive.throughput import all_splits, best_split, is_contiguous
from tests.planners.judging import check_refusal
from tests.strategies.throughput import throughput_problems

# Tarnawski et al. 2020, Table 1, column DP (contiguous), TPS in milliseconds.
TABLE_1 = {
    "op_bert_l-3_inference": 27.92,
    "op_bert_l-12_inference": 147.48,
    "op_resnet50_inference": 124.35,
    "op_bert_l-3_training": 65.30,
    "op_bert_L-12_training": 438.00,
    "op_resnet50_training": 255.19,
    "layer_bert24_inference": 17.79,
    "layer_resnet50_inference": 33.77,
    "layer_inceptionv3_inference": 51.55,
    "layer_bert24_training": 41.75,
    "layer_resnet50_training": 78.63,
    "layer_inceptionv3_training": 122.76,
}


def solved(problem, planner):
    """(value, lower bound) of a judged plan; infinite if the planner finds none."""
    try:
        plan = solve(problem, planner)
    except InfeasibleError:
        return math.inf, 0.0
    return plan.value, plan.lower_bound


def searched(problem, **how):
    search = Search(Budget(), MOST_IDEALS, no_progress, **how)
    search.run([stage_tables(graph) for graph in directions(problem)])
    return search


@given(throughput_problems())
@settings(max_examples=60)
def test_no_contiguous_split_is_better(problem):
    value, bound = solved(problem, IdealDP())
    best, _ = best_split(problem)
    assert value == pytest.approx(best, rel=1e-8, abs=1e-12)
    assert math.isinf(value) or bound == pytest.approx(value, rel=1e-8, abs=1e-12)


@given(throughput_problems(max_ops=5, max_devices=4, replicate=False))
@settings(max_examples=30)
def test_no_contiguous_split_over_four_devices_is_better(problem):
    value, _ = solved(problem, IdealDP())
    assert value == pytest.approx(best_split(problem)[0], rel=1e-8, abs=1e-12)


@given(throughput_problems())
@settings(max_examples=30)
def test_the_search_needs_no_good_start(problem):
    search = searched(problem, orders=0)
    best, _ = best_split(problem)
    found = math.inf if search.best is None else search.best.value
    assert found == pytest.approx(best, rel=1e-8, abs=1e-12)
    assert search.impossible == math.isinf(best)


@given(throughput_problems(contiguous=False))
@settings(max_examples=20)
def test_without_contiguity_it_claims_no_bound(problem):
    try:
        proposal = IdealDP().plan(problem, Budget(), 0, no_progress)
    except InfeasibleError as error:
        check_refusal(problem, "ideal-dp", error)
        return
    assert proposal.lower_bound == 0.0
    assert is_contiguous(problem, proposal.placement.device)


@given(throughput_problems(), st.randoms())
@settings(max_examples=30)
def test_chains_of_ideals_are_the_contiguous_splits(problem, random):
    splits = list(all_splits(problem))
    for placement in random.sample(splits, min(len(splits), 8)):
        chains = any(
            _is_chain(graph, placement.device)
            for graph in (contracted_graph(problem), contracted_graph(problem, mirrored=False))
        )
        assert chains == is_contiguous(problem, placement.device)


def _is_chain(graph, device):
    """Whether nodes are whole and their stages can be put in a row that edges only go up."""
    from graphlib import CycleError, TopologicalSorter

    of_node = {}
    for op, node in enumerate(graph.op_node.tolist()):
        if of_node.setdefault(node, device[op]) != device[op]:
            return False
    after = {}
    for a, b in zip(graph.edge_source.tolist(), graph.edge_target.tolist(), strict=True):
        if of_node[a] != of_node[b]:
            after.setdefault(of_node[b], set()).add(of_node[a])
    try:
        list(TopologicalSorter(after).static_order())
    except CycleError:
        return False
    return True


@given(throughput_problems(), st.data())
@settings(max_examples=40)
def test_its_charges_are_those_of_the_evaluator(problem, data):
    graph = contracted_graph(problem)
    tables = stage_tables(graph)
    node_stage = np.zeros(graph.node_count, dtype=np.int64)
    kinds = []
    left = tables.class_size.copy()
    for node in range(1, graph.node_count):  # numbered in a topological order
        node_stage[node] = node_stage[node - 1] + data.draw(st.integers(0, 1))
    for stage in range(int(node_stage.max()) + 1):
        runs = tables.allowed[node_stage == stage].all(axis=0)
        choices = [
            k for k, numbers in enumerate(tables.kinds) if runs[k] and (left >= numbers).all()
        ]
        if not choices:
            return
        kinds.append(data.draw(st.sampled_from(choices)))
        left = left - np.array(tables.kinds[kinds[-1]])
    split = evaluated(tables, node_stage, np.array(kinds, dtype=np.int64))
    expected = loads(problem, split.placement())
    assert split.value == pytest.approx(expected.value, rel=1e-9, abs=1e-12)
    rows = chain_rows(
        tables.nets, tables.costs, tables.chain, split.node_stage, split.stage_kind, len(kinds)
    )
    assert rows[:, -2].sum() == pytest.approx(problem.op_memory.sum())


@given(throughput_problems())
@settings(max_examples=30)
def test_cuts_of_a_line_are_never_below_the_best_split(problem):
    value, _ = solved(problem, LinearDP())
    best, _ = best_split(problem)
    assert value >= best * (1 - 1e-9)


@given(throughput_problems(replicate=False, staging="host"))
@settings(max_examples=30)
def test_cuts_of_a_line_are_the_best_of_that_line(problem):
    problem = dataclasses.replace(
        problem, options=dataclasses.replace(problem.options, schedule="pipedream")
    )
    graph = contracted_graph(problem)
    order = linear_orders(graph, 3)[-1]
    tables = stage_tables(graph)
    if not tables.kinds:
        return
    found = best_of_lines(tables, [order], np.inf)
    rank = np.argsort(order)
    best = math.inf
    for placement in all_splits(problem):
        along = placement.device[_some_op_of(graph)][order]
        whole = (placement.device == along[rank][graph.op_node]).all()
        runs = 1 + int((np.diff(along) != 0).sum())
        if whole and runs == len(set(along.tolist())):
            best = min(best, loads(problem, placement).value)
    assert (math.inf if found is None else found.value) == pytest.approx(best, rel=1e-9)


def _some_op_of(graph):
    return np.unique(graph.op_node, return_index=True)[1]


@pytest.mark.parametrize("name", TABLE_1)
def test_it_proves_the_optimum_of_the_published_table(workloads, name):
    path = workloads / "tarnawski" / "throughput" / f"{name}.json"
    problem, _ = make_problem(path, None, {"objective": "throughput"})
    plan = solve(problem, IdealDP())
    assert plan.value * 1e3 == pytest.approx(TABLE_1[name], abs=0.00501)
    assert plan.status == "optimal"
    line = solve(problem, LinearDP(orders=4))
    assert plan.value * (1 - 1e-9) <= line.value <= plan.value * 1.02


@pytest.mark.parametrize("name", ["op_bert_l-3_training", "layer_resnet50_training"])
def test_the_optimum_comes_out_of_a_start_that_is_too_high(workloads, name):
    path = workloads / "tarnawski" / "throughput" / f"{name}.json"
    problem, _ = make_problem(path, None, {"objective": "throughput"})
    search = searched(problem, inflate=1.15)
    assert search.best.value * 1e3 == pytest.approx(TABLE_1[name], abs=0.00501)
    assert search.proved == pytest.approx(search.best.value, rel=1e-8)


def test_too_many_ideals_leave_the_best_split_known_and_what_lower_limits_prove(workloads):
    path = workloads / "tarnawski" / "throughput" / "op_bert_l-3_inference.json"
    problem, _ = make_problem(path, None, {"objective": "throughput"})
    proposal = IdealDP(ideals="100").plan(problem, Budget(), 0, no_progress)
    value = loads(problem, proposal.placement).value
    assert value * 1e3 == pytest.approx(27.92, abs=0.00501)
    assert 0 < proposal.lower_bound < value
    assert "stopped after" in proposal.bound_source


def test_dangling_ops_do_not_make_a_translation_network_too_large(workloads):
    path = workloads / "tarnawski" / "throughput" / "layer_gnmt_inference.json"
    problem, _ = make_problem(path, None, {"objective": "throughput"})
    plan = solve(problem, IdealDP())
    assert plan.value * 1e3 == pytest.approx(32.9107, abs=0.00005)
    assert plan.status == "optimal"


def test_no_time_leaves_the_cuts_of_a_line(workloads):
    path = workloads / "tarnawski" / "throughput" / "layer_bert24_training.json"
    problem, _ = make_problem(
        path, None, {"objective": "throughput", "schedule": "gpipe", "load": "sum"}
    )
    proposal = IdealDP().plan(problem, Budget(0.0), 0, no_progress)
    assert loads(problem, proposal.placement).value < 0.043


def wide(rows, length, devices=4, **changes):
    """Rows of ops beside each other, from one op to one other, all equally dear to send."""
    random = np.random.default_rng(0)
    ops = rows * length + 2
    inner = np.arange(rows * length).reshape(rows, length) + 1
    producer = np.concatenate([np.zeros(rows), inner.ravel()]).astype(np.int32)
    consumers = np.concatenate([inner[:, 0], np.roll(inner, -1, axis=1).ravel()])
    consumers[rows:].reshape(rows, length)[:, -1] = ops - 1
    problem = chained(ops, devices)
    return dataclasses.replace(
        problem,
        op_time=np.repeat(random.uniform(0.5, 3.0, ops)[:, None], devices, axis=1),
        tensor_producer=producer,
        tensor_bytes=np.full(len(producer), 0.02),
        consumer_offsets=np.arange(len(producer) + 1),
        consumers=consumers.astype(np.int32),
        **changes,
    )


def test_coarser_graphs_find_the_best_split_where_ideals_are_too_many():
    problem = wide(3, 12)
    best = IdealDP().plan(problem, Budget(), 0, no_progress)
    value = loads(problem, best.placement).value
    assert best.lower_bound == pytest.approx(value)
    gives_up = IdealDP(ideals="1500").plan(problem, Budget(), 0, no_progress)
    assert 0 < gives_up.lower_bound <= value
    assert value <= loads(problem, gives_up.placement).value * (1 + 1e-9)
    assert loads(problem, gives_up.placement).value <= 1.02 * value
    assert "stopped after" in gives_up.bound_source


def test_lower_limits_are_asked_about_where_ideals_are_too_many(monkeypatch):
    monkeypatch.setattr(ideal_search, "MOST_KEPT", 200)
    problem = wide(3, 12)
    tables = [stage_tables(graph) for graph in directions(problem)]
    stops = Search(Budget(), MOST_IDEALS, no_progress, lower_limits=False)
    stops.run(tables)
    goes_on = Search(Budget(), MOST_IDEALS, no_progress)
    goes_on.run(tables)
    assert goes_on.proved > stops.proved
    assert goes_on.best.value < stops.best.value
    best = IdealDP().plan(problem, Budget(), 0, no_progress)
    assert goes_on.proved <= loads(problem, best.placement).value


def test_pairs_of_limits_are_not_asked_about_where_nothing_fits(monkeypatch):
    """One device of three has room for two ops of four, the others for none."""
    monkeypatch.setattr(Search, "_possible", None)
    problem = throughput_chain(
        is_backward=[False, False, True, True],
        device_memory=[2.0, 0.0, 0.0],
        options=Options("throughput", schedule="gpipe"),
    )
    assert searched(problem).impossible


@pytest.mark.parametrize("most", [2, 100])
@given(throughput_problems(max_ops=10))
@settings(max_examples=50)
def test_nodes_joined_for_a_coarser_graph_are_in_no_circle(most, problem):
    for graph in directions(problem):
        group = coarse_ideals._joined(graph, math.inf, most)
        assert np.bincount(group).max(initial=0) <= most
        assert contracted_in_order(graph, group).node_count == len(set(group.tolist()))


def test_a_star_is_made_coarser_in_a_few_steps():
    """Pairs would join its middle with one op after another."""
    builder = GraphBuilder("star")
    middle = builder.add_tensor(builder.add_op("middle", "matmul", flops=1e9), 1.0)
    for op in range(200):
        builder.add_op(f"op{op}", "matmul", inputs=[middle], flops=1e9)
    problem, _ = make_problem(builder.build(), "2x3090", {"objective": "throughput"})
    (graph,) = directions(problem)
    seconds = graph.time.min(axis=2).sum()
    coarser = coarse_ideals._coarser(graph, seconds / 4)
    assert len(coarser) < 4 and coarser[-1].node_count < 160


def test_a_problem_without_room_is_said_to_have_no_split(workloads):
    path = workloads / "tarnawski" / "throughput" / "op_bert_l-3_inference.json"
    problem, _ = make_problem(path, None, {"objective": "throughput"})
    tight = problem.with_device_memory(np.full(problem.device_count, 1e6))
    with pytest.raises(ProvedInfeasibleError, match=r"that fits the devices \(there is no"):
        IdealDP().plan(tight, Budget(), 0, no_progress)
    with pytest.raises(InfeasibleError, match="no cuts"):
        LinearDP().plan(tight, Budget(), 0, no_progress)


@pytest.mark.parametrize(
    ("planner", "option", "value"),
    [(IdealDP, "ideals", "0"), (IdealDP, "ideals", "many"), (LinearDP, "orders", "-1")],
)
def test_a_bad_option_is_refused(planner, option, value):
    with pytest.raises(OptionError, match=f"{option} is '{value}'"):
        planner(**{option: value})


def test_many_different_devices_are_refused_with_the_reason(workloads):
    path = workloads / "tarnawski" / "throughput" / "layer_bert24_inference.json"
    problem, _ = make_problem(path, None, {"objective": "throughput"})
    d = 20
    times = np.linspace(1.0, 2.0, d)[None, :] * problem.op_time[:, :1]
    many = dataclasses.replace(
        problem,
        op_time=times,
        device_names=tuple(f"d{k}" for k in range(d)),
        device_kinds=("k",) * d,
        device_memory=np.full(d, np.inf),
        link_latency=np.zeros((d, d)),
        link_seconds_per_byte=np.zeros((d, d)),
        channel_offsets=np.zeros(d * d + 1, dtype=np.int64),
        channels=np.zeros(0, dtype=np.int32),
        is_cpu=np.zeros(d, dtype=bool),
        op_cost_source=(),
        host_latency=np.zeros((2, d)),
        host_seconds_per_byte=np.zeros((2, d)),
    )
    assert "20 different classes" in IdealDP().supports(many)
    assert IdealDP().supports(problem) is None


@given(throughput_problems())
@settings(max_examples=20)
def test_contracting_every_node_alone_changes_nothing(problem):
    graph = contracted_graph(problem)
    same = graph.contracted(np.arange(graph.node_count))
    for field in dataclasses.fields(graph):
        if field.name not in ("problem", "class_devices", "nets"):
            np.testing.assert_array_equal(getattr(same, field.name), getattr(graph, field.name))
    for column, expected in zip(same.nets, graph.nets, strict=True):
        np.testing.assert_array_equal(column, expected)


def chained(count, devices=8):
    """A long chain of ops with shortcuts, staged through host memory."""
    random = np.random.default_rng(1)
    step = np.arange(count - 1)
    far = np.minimum(step + random.integers(1, 40, count - 1), count - 1)
    return Problem(
        name="chain",
        op_names=tuple(f"op{k}" for k in range(count)),
        op_types=("op",) * count,
        op_modules=("",) * count,
        op_time=np.repeat(random.random(count)[:, None], devices, axis=1),
        op_memory=np.zeros(count),
        is_backward=np.zeros(count, dtype=bool),
        forward_twin=np.full(count, -1),
        colocation=np.full(count, -1),
        op_pinned=np.full(count, -1),
        tensor_producer=np.concatenate([step, step]),
        tensor_bytes=random.random(2 * (count - 1)),
        consumer_offsets=np.arange(2 * count - 1),
        consumers=np.concatenate([step + 1, far]),
        device_names=tuple(f"device{k}" for k in range(devices)),
        device_kinds=("kind",) * devices,
        device_memory=np.full(devices, np.inf),
        link_latency=np.zeros((devices, devices)),
        link_seconds_per_byte=np.zeros((devices, devices)),
        channel_offsets=np.zeros(devices**2 + 1, dtype=np.int64),
        channels=np.zeros(0, dtype=np.int32),
        channel_names=(),
        options=Options(objective="throughput"),
        staging="host",
        host_seconds_per_byte=np.full((2, devices), 5.0),
    )


def test_fifty_thousand_ops_are_cut_in_seconds():
    problem = chained(50_000)
    LinearDP().plan(chained(100), Budget(), 0, no_progress)  # compiled
    started = time.process_time()
    proposal = LinearDP().plan(problem, Budget(), 0, no_progress)
    assert time.process_time() - started < 20
    value = loads(problem, proposal.placement).value
    assert value < 1.03 * problem.op_time[:, 0].sum() / problem.device_count
