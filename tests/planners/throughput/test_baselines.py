"""Baselines for throughput, against the figures the paper prints for them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from placewright import planners
from placewright.budget import Budget, no_progress
from placewright.cluster import Cluster, Device, Link
from placewright.errors import InfeasibleError, OptionError
from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.plan import Placement
from placewright.planning import make_problem
from placewright.simulate import evaluate
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import CPU, X, Y
from tests.builders import throughput_chain as chain
from tests.naive.throughput import best_split
from tests.strategies.throughput import throughput_problems
from tests.verify.test_throughput import planned

TARNAWSKI = Path(__file__).resolve().parents[4] / "shared" / "workloads" / "tarnawski"

needs_workloads = pytest.mark.skipif(
    not TARNAWSKI.is_dir(), reason="the published workloads are not here"
)


def problem_of(name: str, contiguous: bool):
    options = {"objective": "throughput", "contiguous": contiguous}
    return make_problem(TARNAWSKI / "throughput" / f"{name}.json", None, options)[0]


@needs_workloads
@pytest.mark.parametrize(
    ("name", "milliseconds"),
    [
        ("bert24_inference", 20.08),
        ("bert24_training", 49.40),
        ("inceptionv3_inference", 102.48),
        ("resnet50_inference", 43.92),
    ],
)
def test_expert_splits_are_worth_what_the_paper_says(name, milliseconds):
    """Tarnawski et al. 2020, Table 1, column Expert."""
    file = TARNAWSKI / "experts" / f"{name}_expert.json"
    workload = TARNAWSKI / "throughput" / f"layer_{name}.json"
    options = {"file": str(file), "workload": str(workload)}
    plan = solve(problem_of(f"layer_{name}", False), "expert", planner_options=options)
    assert plan.value * 1e3 == pytest.approx(milliseconds, abs=0.005)


@needs_workloads
@pytest.mark.parametrize(("name", "slowdown"), [("layer_bert24_inference", 92.41)])
def test_one_accelerator_takes_the_sum_of_its_ops(name, slowdown):
    """Table 2 gives 0.19 of the best split's throughput: 17.79 / 92.41."""
    plan = solve(problem_of(name, True), "single-device")
    assert plan.value * 1e3 == pytest.approx(slowdown, abs=0.005)
    assert plan.throughput == pytest.approx(1 / plan.value)


@needs_workloads
def test_greedy_fills_accelerators_in_a_row():
    problem = problem_of("op_bert_L-12_training", True)
    plan = solve(problem, "greedy")
    assert verify(plan).ok
    used = sorted(set(plan.placement.device.tolist()))
    assert len(used) > 1
    assert (plan.device_memory[used] <= problem.device_memory[used]).all()


@needs_workloads
@pytest.mark.parametrize("name", ["metis", "scotch"])
def test_partitioners_plan_only_where_splits_need_not_be_contiguous(name):
    pytest.importorskip({"metis": "pymetis", "scotch": "pyscotch"}[name])
    with pytest.raises(OptionError, match="not contiguous; allow that"):
        solve(problem_of("layer_bert24_inference", True), name)
    plan = solve(problem_of("layer_bert24_inference", False), name)
    assert plan.value < 0.0185  # the paper's Scotch: 18.03 ms


@needs_workloads
def test_an_expert_split_in_a_circle_is_refused_where_it_must_be_contiguous(tmp_path):
    problem = problem_of("layer_bert24_inference", True)
    names = problem.op_names
    file = tmp_path / "split.json"
    rows = ", ".join(f'"{name}": "acc{number % 2}"' for number, name in enumerate(names))
    file.write_text(f'{{"format": "placewright.placement/1", "placement": {{{rows}}}}}')
    with pytest.raises(InfeasibleError, match="is not contiguous"):
        solve(problem, "expert", planner_options={"file": str(file)})


@needs_workloads
@pytest.mark.parametrize(
    ("name", "milliseconds"),
    [
        ("layer_bert24_inference", 17.79),
        ("layer_inceptionv3_inference", 60.42),
        ("layer_bert24_training", 41.75),
        ("layer_inceptionv3_training", 128.32),
    ],
)
def test_pipedream_finds_what_the_paper_says_it_finds(name, milliseconds):
    """Tarnawski et al. 2020, Table 1, column PipeDream."""
    plan = solve(problem_of(name, True), "pipedream")
    assert plan.value * 1e3 == pytest.approx(milliseconds, abs=0.006)


def test_what_dangles_from_a_layer_and_takes_no_time_is_no_branching_to_pipedream():
    """Four layers of 1 s, each with a part of no time that nothing reads: two to each device."""
    builder = GraphBuilder("dangling")
    tensor = None
    for layer in range(4):
        op = builder.add_op(f"layer{layer}", "layer", [] if tensor is None else [tensor])
        tensor = builder.add_tensor(op, 0.0)
        builder.add_op(f"part{layer}", "getitem", [tensor])
    builder.times["box"] = np.tile([1.0, 0.0], 4)
    boxes = [Device(name, "box", memory=1e9) for name in ("a", "b")]
    cluster = Cluster("two", boxes, (Link("a", "b", bandwidth=1e9),))
    problem, _ = make_problem(builder.build(), cluster, {"objective": "throughput"})
    plan = solve(problem, "pipedream")
    assert verify(plan).ok
    assert plan.value == 2.0


@needs_workloads
def test_local_search_ends_where_no_single_move_helps():
    problem = problem_of("layer_bert24_inference", False)
    plan = solve(problem, "local-search", planner_options={"restarts": "3"})
    for op in range(problem.op_count):
        for device in range(problem.device_count):
            moved = plan.placement.device.copy()
            moved[problem.op_unit == problem.op_unit[op]] = device
            if (np.bincount(moved, problem.op_memory, 7) > problem.device_memory).any():
                continue
            assert evaluate(problem, Placement(moved)).value >= plan.value * (1 - 1e-9)


@given(problem=throughput_problems(contiguous=False, replicate=False))
def test_local_search_passes_the_judge_and_repeats_itself(problem):
    options = {"restarts": "2", "iterations": "500"}
    try:
        plan = solve(problem, "local-search", planner_options=options)
    except InfeasibleError:
        return
    assert verify(plan).ok
    assert (
        plan.to_document() == solve(problem, "local-search", planner_options=options).to_document()
    )


@given(problem=throughput_problems(contiguous=True))
@pytest.mark.parametrize("name", ["pipedream", "greedy", "single-device"])
def test_contiguous_baselines_pass_the_judge_and_are_never_above_the_optimum(name, problem):
    try:
        plan = solve(problem, name)
    except InfeasibleError:
        return
    assert verify(plan).ok
    assert plan.value >= best_split(problem)[0] * (1 - 1e-9)


REPLICATED = Options(objective="throughput", contiguous=False, replicate=True)
EVERYTHING_TWICE = Placement(np.full(4, X), replicas=((X, Y),))


def searched(problem, name, options, start):
    planner = planners.create(name, options, "throughput")
    return planner.plan(problem, Budget(start=start), 0, no_progress).placement


@pytest.mark.parametrize(
    ("name", "options"),
    [("local-search", {"iterations": "30", "restarts": "1"}), ("annealing", {"steps": "30"})],
)
def test_a_start_with_replicas_is_returned_where_nothing_without_them_is_better(name, options):
    problem = chain(options=REPLICATED, device_memory=[9, 9, 9])
    placement = searched(problem, name, options, EVERYTHING_TWICE)
    assert placement.replicas == ((X, Y),)
    assert evaluate(problem, placement).value == 2.5  # 5 s shared by two


@pytest.mark.parametrize(
    "changes",
    [
        {"device_memory": [9, 3, 9]},
        {"op_pinned": [-1, -1, -1, X]},
        {"options": Options(objective="throughput", contiguous=False)},
    ],
)
def test_a_start_whose_replicas_may_not_be_there_goes_on_without_them(changes):
    problem = chain(**{"options": REPLICATED, "device_memory": [9, 9, 9]} | changes)
    placement = searched(problem, "local-search", {"restarts": "1"}, EVERYTHING_TWICE)
    assert placement.replicas == ()
    assert verify(planned(problem, placement)).ok
    alone = Placement(np.full(4, X))
    assert evaluate(problem, placement).value <= evaluate(problem, alone).value


def test_pipedream_says_so_where_no_device_runs_any_layer():
    """Ops without edges are one layer, and x runs the one half of it, y the other."""
    only = {device: [1 if d == device else np.inf for d in (X, Y, CPU)] for device in (X, Y)}
    problem = chain(
        op_time=[only[X], only[Y], only[X], only[Y]],
        tensor_producer=[],
        tensor_bytes=[],
        consumer_offsets=[0],
        consumers=[],
    )
    with pytest.raises(InfeasibleError, match=r"'pipedream' found no split that fits .*no cuts"):
        solve(problem, "pipedream")
