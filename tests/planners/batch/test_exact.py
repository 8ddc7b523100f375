"""Exact planners for batches of inputs against brute force, and their ways of stopping."""

import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placewright.analysis.modules import split_modules
from placewright.analysis.symmetry import Symmetry, equal_devices, equal_hosts
from placewright.bounds import lower_bound
from placewright.budget import Budget, no_progress
from placewright.cluster import Cluster, Device, Link
from placewright.costs.batches import default_sizes
from placewright.errors import OptionError
from placewright.formulations.batch.instance import (
    BatchInstance,
    chunk_devices,
    chunk_size,
    chunks_lose_nothing,
)
from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.plan import Placement
from placewright.planners.batch.diviml import BatchMilp
from placewright.planners.batch.module_bound import by_cp_sat, module_bound
from placewright.planners.batch.rows import input_devices
from placewright.planners.batch.split import BatchSplit
from placewright.planners.batch.starts import first_plans, one_after_another, whole_inputs
from placewright.planners.latency.exact.one_node import repeated_on_hosts
from placewright.planning import make_problem
from placewright.problem import Problem
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import batches_of_four as by_hand
from tests.builders import plain
from tests.naive.batch import shortest_batch_time
from tests.strategies import problems
from tests.strategies.batch import batch_problems, rows_of

LATENCY = st.builds(
    Options, transfer_unit=st.sampled_from(["tensor", "edge"]), contention=st.just("none")
)
FACTORS = st.sampled_from([0.5, 1.0, 1.0, 1.5, 2.0, np.inf])

TWO = Cluster(
    "two",
    (Device("a", "box", memory=1e9), Device("b", "box", memory=1e9)),
    (Link("a", "b", bandwidth=1e9, latency=0.0),),
)


@st.composite
def batches(draw, max_ops=3, max_devices=2, max_inputs=3):
    """A small problem with random batch sizes and times, which need not rise with the size."""
    problem = draw(LATENCY.flatmap(lambda each: problems(max_ops, max_devices, options=each)))
    inputs = draw(st.integers(1, max_inputs))
    sizes = sorted(draw(st.sets(st.integers(1, inputs), min_size=1, max_size=inputs)))
    shape = (problem.device_count, len(sizes))
    factor = np.array([draw(FACTORS) for _ in range(shape[0] * shape[1])]).reshape(shape)
    return with_batches(problem, inputs, sizes, factor)


def with_batches(problem: Problem, inputs: int, sizes: list[int], factor: np.ndarray) -> Problem:
    """A problem of latency for several inputs: a batch takes `factor[device, size]` as long."""
    possible = np.isfinite(problem.op_time)[:, :, None] & np.isfinite(factor)
    time = np.nan_to_num(problem.op_time, posinf=0.0)[:, :, None] * np.nan_to_num(
        factor, posinf=0.0
    )
    options = Options(
        objective="batch-throughput",
        batch=inputs,
        contention="none",
        transfer_unit=problem.options.transfer_unit,
    )
    return replace(
        problem,
        options=options,
        batch_sizes=np.array(sizes),
        batch_time=np.where(possible, time, np.inf),
    )


def with_equal_devices(problem: Problem) -> Problem:
    """Every device as the first, all routes as the first one."""
    count = problem.device_count
    apart = 1.0 - np.eye(count)
    return replace(
        problem,
        op_time=np.repeat(problem.op_time[:, :1], count, axis=1),
        batch_time=np.repeat(problem.batch_time[:, :1], count, axis=1),
        device_memory=np.full(count, problem.device_memory[0]),
        link_latency=apart * problem.link_latency[0, -1],
        link_seconds_per_byte=apart * problem.link_seconds_per_byte[0, -1],
    )


def three_ops(**columns) -> Problem:
    """One input of three ops on three devices; a byte takes a second from one to another."""
    apart = 1.0 - np.eye(3)
    always = {
        "op_time": np.ones((3, 3)),
        "link_latency": 0.0 * apart,
        "link_seconds_per_byte": apart,
        "options": Options("batch-throughput", contention="none", batch=1),
        "batch_sizes": [1],
    }
    return Problem(**plain(3, 3) | always | columns)


def is_contended(problem: Problem) -> bool:
    return problem.options.contention != "none"


def is_optimal(problem: Problem, planner, start: Placement | None = None) -> None:
    best = shortest_batch_time(problem)
    assume(np.isfinite(best))
    plan = solve(problem, planner, start=start)
    assert verify(plan).ok
    assert plan.value >= best * (1 - 1e-9)
    assert plan.lower_bound <= best * (1 + 1e-9)
    if chunks_lose_nothing(problem):
        assert plan.value == pytest.approx(best, rel=1e-5, abs=1e-9)


@settings(max_examples=25)
@given(batches())
def test_the_program_finds_the_least_time(problem):
    is_optimal(problem, BatchMilp())


@settings(max_examples=20)
@given(batches(max_ops=2, max_devices=3, max_inputs=4))
def test_the_program_finds_the_least_time_on_three_devices(problem):
    is_optimal(problem, BatchMilp())


@settings(max_examples=20)
@given(batches())
def test_cp_sat_finds_the_least_time(problem):
    is_optimal(problem, BatchMilp(solver="cp-sat"))


@settings(max_examples=25)
@given(batch_problems(4, 2, 3).filter(is_contended))
def test_cp_sat_finds_the_least_time_under_contention(problem):
    is_optimal(problem, BatchMilp(solver="cp-sat"))


@pytest.mark.parametrize("solver", ["highs", "cp-sat"])
@settings(max_examples=15)
@given(data=st.data())
def test_it_finds_the_least_time_from_any_start(solver, data):
    """The better the start, the less time there is for what could be where."""
    problem = data.draw(batch_problems(3, 3, 2, contention="none", memory=False))
    start = Placement(input_devices(problem, data.draw(rows_of(problem))))
    is_optimal(problem, BatchMilp(solver=solver), start)


@pytest.mark.parametrize("solver", ["highs", "cp-sat"])
def test_a_device_that_could_begin_late_only_need_not_be_used(solver):
    """b could end on y after 3.5 s, as a is on x: sooner than in the start, but not the best."""
    problem = three_ops(
        op_pinned=[0, -1, -1],
        tensor_producer=[0],
        tensor_bytes=[2.5],
        consumer_offsets=[0, 1],
        consumers=[1],
        batch_time=[[[1.0]] * 3, [[1.0], [0.0], [np.inf]], [[2.0], [np.inf], [1.0]]],
    )
    plan = solve(problem, BatchMilp(solver=solver), start=Placement(np.zeros((3, 1), dtype=int)))
    assert (plan.value, plan.status) == (2.0, "optimal")


@settings(max_examples=20)
@given(
    batches(max_ops=2, max_devices=3),
    st.sampled_from(["batch", "task", "time"]),
    st.sampled_from(["highs", "cp-sat"]),
)
def test_order_among_equal_devices_loses_no_optimum(problem, use, solver):
    is_optimal(with_equal_devices(problem), BatchMilp(solver=solver, symmetry=use))


@settings(max_examples=20)
@given(batches())
def test_the_bound_from_modules_is_below_the_least_time(problem):
    best = shortest_batch_time(problem)
    for channels in (1, 2):
        modules = split_modules(problem, channels)
        assert module_bound(modules).value <= best * (1 + 1e-9)
        solved = module_bound(modules, by_cp_sat(Budget(), 5.0))
        assert solved.value <= best * (1 + 1e-9)


def test_the_bound_from_modules_counts_what_no_path_does():
    # Two forks of three equal ops on two devices: a module takes two of their times, a path one.
    problem = forks(2)
    quick = lower_bound(problem).value
    solved = module_bound(split_modules(problem, 1), by_cp_sat(Budget(), 5.0)).value
    assert quick < solved <= solve(problem, BatchMilp(solver="cp-sat")).value


def forks(count: int, inputs: int = 1, cluster: str | Cluster = TWO) -> Problem:
    """`count` times an op that feeds three others, which feed the next; these take a second."""
    builder = GraphBuilder("forks")
    last = builder.add_op("start", "op")
    for fork in range(count):
        join = builder.add_op(f"join{fork}", "op")
        for arm in range(3):
            op = builder.add_op(f"arm{fork}.{arm}", "op")
            builder.connect(builder.add_tensor(last, 0.0), op)
            builder.connect(builder.add_tensor(op, 0.0), join)
        last = join
    graph = builder.build()
    time = np.array([float("arm" in name) for name in graph.op_names])
    sizes = default_sizes(inputs)
    kinds = ("box", "A100 40GB", "T4")
    times = {kind if size == 1 else f"{kind}@{size}": time for kind in kinds for size in sizes}
    graph = replace(graph, times=dict.fromkeys(kinds, time) | times)
    options = {"objective": "batch-throughput", "batch": inputs, "contention": "none"}
    return make_problem(graph, cluster, options)[0]


def rwnn(modules: int = 2) -> Problem:
    return make_problem(
        f"zoo:rwnn?modules={modules}&ops=6",
        "diviml",
        {"objective": "batch-throughput", "batch": 8, "contention": "none"},
    )[0]


def test_split_beats_what_it_starts_from_and_repeats():
    problem = rwnn()
    start = first_plans(problem, 0, Budget())[0].value
    planner = BatchSplit(iterations="4", module_seconds="60")  # a busy machine takes its time
    plans = [solve(problem, planner, seed=3) for _ in range(2)]
    assert plans[0].value < start
    assert plans[0].value == plans[1].value
    assert (plans[0].placement.device == plans[1].placement.device).all()
    assert plans[0].lower_bound <= plans[0].value


def test_split_takes_a_mixed_integer_solver_too():
    problem = rwnn(1)
    start = first_plans(problem, 0, Budget())[0].value
    found = solve(problem, BatchSplit(solver="highs", module_seconds="1"), time_limit=2)
    assert found.value <= start


@settings(max_examples=15)
@given(batches(max_ops=5, max_devices=3, max_inputs=4), st.sampled_from(["none", "time"]))
def test_split_gives_a_plan_that_holds_wherever_a_simple_one_does(problem, use):
    assume(first_plans(problem, 0, Budget()))
    plan = solve(problem, BatchSplit(iterations="3", symmetry=use))
    assert verify(plan).ok


@cache
def gpt2(layers):
    options = {"objective": "batch-throughput", "batch": 64}
    return make_problem(f"zoo:gpt2?layers={layers}", "8xA100", options)[0]


@pytest.mark.parametrize("with_start", [False, True])
def test_split_keeps_a_short_limit_on_a_large_problem(with_start):
    problem = gpt2(40)
    start = whole_inputs(problem) if with_start else None
    BatchSplit(iterations="1").plan(gpt2(1), Budget(), 0, no_progress)  # compiles
    began = time.process_time()
    BatchSplit().plan(problem, Budget(1.0, start), 0, no_progress)
    assert time.process_time() - began < 3.0


def test_parts_that_there_is_no_time_for_leave_the_bound_below():
    problem = rwnn(3)
    modules = split_modules(problem, 1)
    whole = module_bound(modules).value
    assert 0.0 <= module_bound(modules, limit=Budget(0.0)).value <= whole
    assert module_bound(modules, limit=Budget(100.0)).value == whole


def test_pins_and_colocation_are_kept():
    problem = rwnn(1)
    pinned, group = problem.op_pinned.copy(), problem.colocation.copy()
    pinned[3], group[[4, 5]] = 1, 0
    problem = replace(problem, op_pinned=pinned, colocation=group)
    for planner in (BatchMilp(solver="cp-sat", nodes="1000"), BatchSplit(iterations="2")):
        plan = solve(problem, planner, time_limit=20)
        assert (plan.placement.device[3] == 1).all()
        assert (plan.placement.device[4] == plan.placement.device[5]).all()


def test_chunks_are_the_inputs_that_every_size_allows():
    problem = rwnn()
    assert problem.batch_sizes.tolist() == [2, 4, 6, 8]
    assert chunk_size(problem) == 2
    assert not chunks_lose_nothing(problem)
    half = replace(problem, batch_sizes=np.array([4, 8]), batch_time=problem.batch_time[:, :, :2])
    assert chunks_lose_nothing(half)


def test_chunks_are_found_whatever_the_inputs_are_called():
    device = np.array([[1, 0, 1, 0], [2, 0, 2, 0]])
    chunks = chunk_devices(device, 2)
    assert chunks is not None
    assert chunks.tolist() == [[0, 1], [0, 2]]
    assert chunk_devices(np.array([[0, 0, 1, 1], [0, 1, 0, 1]]), 2) is None


def test_where_chunks_may_lose_nothing_is_proved():
    problem = rwnn()
    plan = solve(problem, BatchMilp(solver="cp-sat"), time_limit=5)
    assert not plan.bound_source.startswith("diviml-milp")


def test_equal_devices_and_hosts_of_six_nodes_are_found():
    problem = make_problem(
        "zoo:rwnn?modules=1&ops=6",
        "diviml-six-nodes",
        {"objective": "batch-throughput", "batch": 4, "contention": "none"},
    )[0]
    hosts = equal_hosts(problem)
    assert [[len(host) for host in group] for group in hosts] == [[4] * 6]
    assert equal_devices(problem) == [[d, d + 1] for d in range(0, 24, 2)]
    assert equal_hosts(rwnn()) == equal_devices(rwnn()) == []


def test_renamed_devices_are_used_in_falling_order():
    problem = make_problem(
        "zoo:rwnn?modules=1&ops=6",
        "diviml-six-nodes",
        {"objective": "batch-throughput", "batch": 4, "contention": "none"},
    )[0]
    random = np.random.default_rng(0)
    time = BatchInstance(problem, None).time
    for use in ("batch", "task", "time"):
        symmetry = Symmetry(problem, use)
        for _ in range(20):
            device = random.integers(0, 24, (problem.op_count, 4)).astype(np.int32)
            renamed = symmetry.renaming(device, time)
            assert sorted(renamed.tolist()) == list(range(24))
            spent = symmetry.use_of(renamed[device], time)
            per_host = spent.reshape(6, 4).sum(axis=1)
            assert (np.diff(per_host) <= 1e-9).all()
            assert (np.diff(spent.reshape(12, 2), axis=1) <= 1e-9).all()


def test_one_host_repeated_uses_every_host_alike():
    problem = forks(12, inputs=4, cluster="diviml-six-nodes")
    asked = []

    def plan_part(part):
        asked.append(part)
        return whole_inputs(part)

    placement = repeated_on_hosts(problem, plan_part)
    assert [part.op_count for part in asked] == [9, 8]  # with the first op, and all others
    assert all(part.device_count == 4 for part in asked)
    host = placement.device // 4
    assert (np.diff(host[problem.topological_order], axis=0) >= 0).all()  # one after another
    assert sorted(set(host.ravel().tolist())) == list(range(6))
    tied = problem.colocation.copy()
    tied[[0, problem.op_count - 1]] = 0
    device = repeated_on_hosts(replace(problem, colocation=tied), plan_part).device
    assert (device[0] == device[-1]).all()
    with pytest.raises(OptionError, match="no two hosts"):
        repeated_on_hosts(rwnn(), plan_part)


def test_simple_plans_respect_memory():
    problem = rwnn()
    small = problem.with_device_memory(np.full(3, problem.op_memory.sum() * 0.6))
    assert whole_inputs(small) is None
    assert one_after_another(small) is not None
    plan = solve(small, BatchSplit(iterations="2"))
    assert (plan.device_memory <= small.device_memory).all()


@pytest.mark.parametrize(
    "planner",
    [
        BatchMilp(),
        BatchMilp(solver="cp-sat"),
        BatchSplit(iterations="2"),
        BatchSplit(iterations="2", solver="highs"),
    ],
)
@pytest.mark.parametrize("unsupported", [[0], [0, 1]])
def test_an_op_has_no_batches_where_it_is_not_supported(planner, unsupported):
    """Though the second device has times for batches of it, which are quicker."""
    time = np.ones((2, 2))
    time[unsupported, 1] = np.inf
    problem = by_hand(
        options=Options("batch-throughput", contention="none", batch=4),
        op_time=time,
        batch_time=[[[1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4]]] * 2,
        link_latency=np.zeros((2, 2)),
        link_seconds_per_byte=np.zeros((2, 2)),
    )
    plan = solve(problem, planner)
    assert (plan.placement.device[unsupported] == 0).all()
    assert plan.value == pytest.approx(8.0 if len(unsupported) == 2 else 4.4)


def test_simple_plans_put_no_op_where_it_is_not_supported():
    problem = by_hand(
        options=Options("batch-throughput", contention="none", batch=4),
        op_time=[[1, np.inf], [1, 1]],
        batch_time=[[[1] * 4, [0.1] * 4]] * 2,
    )
    for simple in (whole_inputs, one_after_another):
        placement = simple(problem)
        assert placement is not None
        assert (placement.device[0] == 0).all()


@pytest.mark.parametrize("planner", [BatchMilp, BatchSplit])
def test_contention_is_refused_by_the_programs(planner):
    problem = make_problem(
        "zoo:rwnn?modules=1&ops=6", "diviml", {"objective": "batch-throughput", "batch": 4}
    )[0]
    with pytest.raises(OptionError, match="set contention none"):
        solve(problem, planner())


@pytest.mark.parametrize(
    ("planner", "options", "message"),
    [
        (BatchMilp, {"solver": "excel"}, "choose highs, scip, gurobi, cp-sat"),
        (BatchMilp, {"nodes": "0"}, "nodes is '0'"),
        (BatchMilp, {"symmetry": "some"}, "choose none, batch, task, time"),
        (BatchSplit, {"channels": "9"}, "channels is '9'"),
        (BatchSplit, {"module_seconds": "-1"}, "module_seconds is '-1'"),
        (BatchSplit, {"iterations": "x"}, "iterations is 'x'"),
        (BatchSplit, {"solver": "excel"}, "solver is 'excel'"),
    ],
)
def test_options_are_checked(planner, options, message):
    with pytest.raises(OptionError, match=message):
        planner(**options)
