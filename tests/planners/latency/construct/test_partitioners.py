"""METIS and Scotch as planners; skipped where the extra is not installed."""

import builtins
import ctypes
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.cluster import Cluster, Device, Link
from placewright.errors import (
    InfeasibleError,
    InputError,
    MissingExtraError,
    OptionError,
    ProvedInfeasibleError,
)
from placewright.graph import GraphBuilder
from placewright.planners.latency.construct import partitioners
from placewright.planners.latency.construct.partitioners import Metis, Scotch
from placewright.planning import make_problem
from placewright.solving import solve
from placewright.verify import verify
from tests.strategies import problems

LIBRARY = {Metis: "pymetis", Scotch: "pyscotch"}


@pytest.fixture(params=[Metis, Scotch], ids=["metis", "scotch"])
def kind(request):
    pytest.importorskip(LIBRARY[request.param])
    return request.param


@settings(max_examples=25)
@given(problem=problems(), seed=st.integers(0, 3), balance=st.sampled_from(["time", "memory"]))
@pytest.mark.parametrize("kind", [Metis, Scotch])
def test_its_plan_passes_the_judge_and_comes_again(kind, problem, seed, balance):
    pytest.importorskip(LIBRARY[kind])
    try:
        plan = solve(problem, kind(balance=balance), seed=seed)
    except InfeasibleError as error:
        assert not np.isinf(problem.device_memory).all() or np.isinf(problem.op_time).any(), error
        return
    assert verify(plan).violations == ()
    again = solve(problem, kind(balance=balance), seed=seed)
    assert again.to_document() == plan.to_document()


@settings(max_examples=20)
@given(problem=problems(memory=False), data=st.data())
@pytest.mark.parametrize("kind", [Metis, Scotch])
def test_pinned_ops_stay_where_they_are_pinned(kind, problem, data):
    pytest.importorskip(LIBRARY[kind])
    op = data.draw(st.integers(0, problem.op_count - 1))
    device = data.draw(st.integers(0, problem.device_count - 1))
    pinned = problem.with_pins({int(problem.op_unit[op]): device})
    try:
        plan = solve(pinned, kind())
    except InfeasibleError:
        assert np.isinf(problem.op_time).any()
        return
    assert plan.placement.device[op] == device


def clusters_of_ops(sizes, kinds, memory=np.inf, parameter_bytes=1.0):
    """Complete DAGs of `sizes` ops with heavy tensors, joined to the next by one light tensor."""
    builder = GraphBuilder("clusters")
    first = 0
    previous = None
    for number, size in enumerate(sizes):
        ops = [
            builder.add_op(f"c{number}.{k}", "op", parameter_bytes=parameter_bytes)
            for k in range(size)
        ]
        for a, b in itertools.combinations(ops, 2):
            builder.connect(builder.add_tensor(a, 100.0), b)
        if previous is not None:
            builder.connect(builder.add_tensor(previous, 1.0), ops[0])
        previous = ops[-1]
        first += size
    for name, seconds in kinds.items():
        builder.times[name] = [seconds] * first
    devices = tuple(Device(name, name, memory=memory) for name in kinds)
    links = tuple(
        Link(a.name, b.name, bandwidth=100.0) for a, b in itertools.combinations(devices, 2)
    )
    return make_problem(builder.build(), Cluster("box", devices=devices, links=links))[0]


def test_it_cuts_where_least_is_exchanged(kind):
    problem = clusters_of_ops([8, 8, 8], {"a": 1.0, "b": 1.0, "c": 1.0})
    device = solve(problem, kind()).placement.device.reshape(3, 8)
    assert (device == device[:, :1]).all()
    assert len(set(device[:, 0])) == 3


def test_a_device_twice_as_fast_gets_twice_the_work(kind):
    problem = clusters_of_ops([1] * 90, {"slow": 1.0, "fast": 0.5})
    counts = np.bincount(solve(problem, kind()).placement.device, minlength=2)
    assert 27 <= counts[0] <= 33


def test_balancing_memory_shares_out_bytes(kind):
    problem = clusters_of_ops([1] * 90, {"slow": 1.0, "fast": 0.1})
    counts = np.bincount(solve(problem, kind(balance="memory")).placement.device, minlength=2)
    assert 42 <= counts[0] <= 48


def test_what_overflows_a_device_goes_to_another(kind):
    problem = clusters_of_ops([1] * 90, {"slow": 1.0, "fast": 0.1}, memory=50.0)
    plan = solve(problem, kind())
    assert plan.device_memory.max() <= 50.0
    assert plan.device_memory.sum() == 90.0


def test_what_fits_nowhere_is_said(kind):
    problem = clusters_of_ops([1, 1, 1], {"a": 1.0, "b": 1.0}, memory=3.0, parameter_bytes=2.0)
    with pytest.raises(ProvedInfeasibleError, match="no placement of the ops"):
        solve(problem, kind())


def test_colocated_ops_are_one_vertex():
    builder = GraphBuilder("twins")
    for op in range(4):
        builder.add_op(f"op{op}", "op", colocate="together" if op in (0, 3) else None)
    for a, b in ((0, 1), (1, 2), (2, 3)):
        builder.connect(builder.add_tensor(a, 10.0), b)
    builder.times["kind"] = [1.0, 2.0, 3.0, 4.0]
    devices = (Device("a", "kind", memory=np.inf), Device("b", "kind", memory=np.inf))
    cluster = Cluster("two", devices=devices, links=(Link("a", "b", bandwidth=1.0),))
    problem, _ = make_problem(builder.build(), cluster)
    graph = partitioners.unit_graph(problem, partitioners.mean_unit_time(problem))
    assert len(graph.vertex_weight) == 3
    assert (graph.vertex_weight / graph.vertex_weight.sum()).round(3).tolist() == [0.5, 0.2, 0.3]
    assert graph.offsets.tolist() == [0, 2, 4, 6]  # a triangle: unit 0 exchanges with both
    assert graph.neighbours.tolist() == [1, 2, 0, 2, 0, 1]
    assert len(set(graph.edge_weight.tolist())) == 1


@given(problems())
def test_the_graph_is_symmetric_and_weighs_what_units_exchange(problem):
    graph = partitioners.unit_graph(problem, partitioners.mean_unit_time(problem))
    listed = {}
    for unit in range(len(graph.vertex_weight)):
        for k in range(graph.offsets[unit], graph.offsets[unit + 1]):
            listed[unit, int(graph.neighbours[k])] = int(graph.edge_weight[k])
    assert all(listed[b, a] == weight for (a, b), weight in listed.items())
    unit = problem.op_unit
    expected = {
        (int(unit[a]), int(unit[b]))
        for a, b in zip(problem.edge_producer, problem.consumers, strict=True)
        if unit[a] != unit[b]
    }
    assert set(listed) == expected | {(b, a) for a, b in expected}
    assert (graph.vertex_weight >= 1).all() and graph.vertex_weight.sum() < 2**31
    assert (graph.edge_weight >= 1).all() and graph.edge_weight.sum() < 2**31


@given(problems())
def test_device_speeds_are_shares_of_what_is_supported(problem):
    speeds = partitioners.device_speeds(problem)
    supported = np.isfinite(problem.unit_time).any(axis=0)
    assert np.isfinite(speeds).all() and (speeds >= 0).all()
    assert (speeds[~supported] == 0).all()


@pytest.mark.parametrize("options", [{"balance": "work"}, {"imbalance": "none"}, {"imbalance": 2}])
def test_an_option_that_cannot_be_is_refused(options):
    for planner in (Metis, Scotch):
        with pytest.raises(OptionError, match=next(iter(options))):
            planner(**options)


@pytest.mark.parametrize("kind", [Metis, Scotch])
def test_without_the_extra_it_says_what_to_install(kind, monkeypatch):
    original = builtins.__import__

    def without(name, *arguments, **named):
        if name == LIBRARY[kind]:
            raise ImportError(name)
        return original(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    problem = clusters_of_ops([2, 2], {"a": 1.0, "b": 1.0})
    with pytest.raises(MissingExtraError, match=r"pip install 'placewright\[partitioners\]'"):
        solve(problem, kind())


def test_a_scotch_without_its_library_says_what_to_install(monkeypatch):
    class WithoutLibrary:
        def __getattr__(self, name):
            raise FileNotFoundError("Sequential library not found: libscotch.so\nmore")

    monkeypatch.setitem(__import__("sys").modules, "pyscotch", WithoutLibrary())
    problem = clusters_of_ops([2, 2], {"a": 1.0, "b": 1.0})
    with pytest.raises(InputError, match="libscotch-dev"):
        solve(problem, Scotch())


def test_standard_output_is_for_results(kind, capfd):
    none = np.zeros(0, dtype=np.int64)
    weights = np.array([1, 1, 1000, 1])  # METIS warns of parts that stay empty
    graph = partitioners.WeightedGraph(np.zeros(5, dtype=np.int64), none, none, weights)
    shares = np.array([0.005, 0.005, 0.495, 0.495])
    for seed in range(5):
        assert set(kind().partition(graph, shares, seed).tolist()) <= {0, 1, 2, 3}
    ctypes.CDLL(None).fflush(None)
    print("result")
    assert capfd.readouterr() == ("result\n", "")
