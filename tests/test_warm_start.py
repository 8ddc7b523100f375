"""Going on from a plan: `improve`, and `plan` with a warm start."""

import json
from dataclasses import replace

import numpy as np
import pytest

from placewright.analysis.warm_start import starting_placement
from placewright.cli.app import app
from placewright.coarsen.recompute import check_blocks_whole
from placewright.costs.roofline import CostOptions
from placewright.errors import InputError, OptionError, VerificationError
from placewright.plan import Plan
from placewright.planning import improve, make_problem, plan
from placewright.simulate import evaluate
from placewright.simulate.latency import time_placement
from placewright.solving import solve
from placewright.verify import verify
from placewright.whatif.judging.judge import Given, judge
from tests.builders import chain, invocation_chain
from tests.verify.test_invocation import plan_of as subgraphs_of

ONE_ROUND = {"iterations": "1", "processes": "1"}


@pytest.fixture(scope="module")
def old() -> Plan:
    return plan("zoo:gpt2?layers=1", "2x3090", planner="heft")


def gpt2(cluster="2x3090", **options):
    return make_problem("zoo:gpt2?layers=1", cluster, options)[0]


# -- improve -------------------------------------------------------------------------------------


def test_a_plan_is_never_made_worse(old):
    better = improve(old, planner_options=ONE_ROUND)
    assert better.value <= old.value
    assert better.lower_bound >= old.lower_bound
    assert verify(better).ok


def test_a_plan_that_cannot_be_bettered_stays_with_the_better_bound():
    best = solve(chain([1.0, 1.0], [9.0, 9.0]), "single-device")
    unproved = replace(best, lower_bound=0.5, bound_source="a guess")
    better = improve(unproved, planner_options=ONE_ROUND)
    assert (better.value, better.planner) == (best.value, "single-device")
    assert better.status == "optimal"
    assert better.bound_source != "a guess"


def test_a_bound_above_what_is_found_is_not_believed(old):
    slow = solve(chain([1.0, 1.0], [9.0, 9.0]), "single-device")
    on_slow = solve(slow.problem.with_pins({0: 1, 1: 1}), "single-device")
    claimed = replace(on_slow, problem=slow.problem, lower_bound=on_slow.value)
    better = improve(claimed, planner_options=ONE_ROUND)
    assert better.value == slow.value < on_slow.value
    assert better.lower_bound <= better.value


def test_a_plan_that_does_not_hold_is_refused(old):
    with pytest.raises(VerificationError):
        improve(replace(old, value=old.value / 2), planner_options=ONE_ROUND)


def test_another_planner_can_go_on_from_a_plan(old):
    better = improve(old, planner="annealing", planner_options={"order": "free", "iterations": "9"})
    assert better.value <= old.value


def test_subgraphs_are_numbered_afresh_where_the_problem_has_fewer_ops():
    problem = invocation_chain()
    old = subgraphs_of(problem, [0, 0, 2, 0], [0, 0, -1, 1])
    fewer = replace(
        problem, op_names=("c", "d"), op_types=("op",) * 2, op_modules=("",) * 2,
        op_time=problem.op_time[2:], op_memory=np.ones(2), is_backward=np.zeros(2),
        forward_twin=np.full(2, -1), colocation=np.full(2, -1), op_pinned=np.full(2, -1),
        tensor_producer=np.array([0]), tensor_bytes=np.ones(1), consumer_offsets=np.array([0, 1]),
        consumers=np.array([1]), op_sync_bytes=np.zeros(2), batch_time=np.zeros((2, 3, 0)),
    )  # fmt: skip
    start = starting_placement(old, fewer)
    assert start.subgraph.tolist() == [-1, 0]
    assert verify(subgraphs_of(fewer, start.device, start.subgraph)).ok


# -- what starts ---------------------------------------------------------------------------------


def test_the_start_is_the_schedule_of_the_plan(old):
    start = starting_placement(old, old.problem)
    assert np.array_equal(start.device, old.placement.device)
    assert time_placement(old.problem, start).makespan <= old.value * (1 + 1e-12)


def test_devices_are_found_again_by_name(old):
    other = replace(
        old.problem,
        device_names=old.problem.device_names[::-1],
    )
    start = starting_placement(old, other)
    assert np.array_equal(start.device, 1 - old.placement.device)


def test_a_start_on_another_graph_names_the_op_that_is_missing(old):
    other, _ = make_problem("zoo:gpt2?layers=2", "2x3090", {})
    with pytest.raises(InputError, match=r"old\.json: places no op '.*'; give a plan for the same"):
        starting_placement(old, other, "old.json")


def test_a_start_on_other_devices_names_the_device(old):
    with pytest.raises(InputError, match=r"uses device 'gpu\d', which the cluster lacks"):
        starting_placement(old, gpt2("a100+2xt4+cpu"))


def test_a_start_for_another_objective_is_refused(old):
    with pytest.raises(InputError, match="is a plan for latency, not throughput"):
        starting_placement(old, gpt2(objective="throughput"))


@pytest.mark.parametrize("objective", ["throughput", "invocation-latency", "batch-throughput"])
def test_plans_for_every_objective_can_be_gone_on_from(objective):
    first = plan(
        "zoo:gpt2?layers=1", "3090+2x3060", planner="single-device", objective=objective, batch=None
    )
    again = plan(
        "zoo:gpt2?layers=1",
        "3090+2x3060",
        objective=objective,
        warm_start=first,
        planner_options=ONE_ROUND,
    )
    assert verify(again).ok
    assert again.value <= first.value


def test_a_start_keeps_the_order_of_batches_and_so_its_value():
    first = plan(
        "zoo:rwnn?modules=2&ops=20&width=256",
        "diviml",
        planner="annealing",
        planner_options={"iterations": "3000", "order": "free"},
        objective="batch-throughput",
        batch=16,
    )
    assert first.placement.sequence is None  # its schedule has the order
    start = starting_placement(first, first.problem)
    assert start.sequence is not None
    assert evaluate(first.problem, start).value == pytest.approx(first.value, rel=1e-12)
    anyhow = starting_placement(first, first.problem, ordered=False)
    assert anyhow.sequence is None
    assert evaluate(first.problem, anyhow).value > first.value


# -- on the command line -------------------------------------------------------------------------


def run(*words: str):
    from typer.testing import CliRunner

    return CliRunner().invoke(app, [str(word) for word in words])


def test_improve_replaces_the_plan_with_a_better_one(old, tmp_path):
    path = tmp_path / "plan.json"
    old.save(path)
    options = ("--iterations", "1", "--processes", "1", "--json")
    done = run("improve", path, *options)
    assert done.exit_code == 0, done.output
    assert Plan.load(path).value == json.loads(done.stdout)["value"] <= old.value


def test_a_warm_start_and_events_on_the_command_line(old, tmp_path):
    path, events = tmp_path / "plan.json", tmp_path / "events.jsonl"
    old.save(path)
    words = ("plan", "zoo:gpt2?layers=1", "-c", "2x3090", "--warm-start", path)
    done = run(*words, "--iterations", "1", "--processes", "1", "--events", events, "--json")
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert lines[0]["source"] == "the plan to start from"
    assert lines[-1]["kind"] == "end"
    assert json.loads(done.stdout)["value"] == lines[-1]["value"] <= old.value


@pytest.mark.parametrize("words", [("-p", "heft"), ("--coarsen", "fusion")])
def test_events_of_what_tells_none_are_refused(words, tmp_path):
    events = tmp_path / "events.jsonl"
    done = run("plan", "zoo:gpt2?layers=1", "-c", "2x3090", *words, "--events", events)
    assert isinstance(done.exception, OptionError)
    assert "--events is for planner auto" in str(done.exception)
    assert not events.exists()


# -- with and without recomputation --------------------------------------------------------------

TRAINED = "zoo:gpt2?layers=2&batch=2"


def trained(recompute="none", **options):
    costs = CostOptions(recompute=recompute)
    return plan(TRAINED, "2x3090", training=True, costs=costs, planner="m-topo", **options)


@pytest.mark.parametrize(("before", "after"), [("none", "block"), ("block", "none")])
def test_what_runs_again_starts_where_it_ran_first(tmp_path, before, after):
    old = trained(before, granularity="block")
    old.save(tmp_path / "old.json")
    started = trained(after, warm_start=tmp_path / "old.json").device_of()
    costs = CostOptions(recompute=after)
    given = Given(placement=tmp_path / "old.json")
    judged = judge(TRAINED, "2x3090", given, training=True, costs=costs).plan.device_of()
    assert started.keys() == judged.keys()
    for name, device in judged.items():
        assert device == old.device_of()[name.removesuffix("_recompute")]


def test_a_split_block_is_no_start_for_recomputing_it(tmp_path):
    old = trained()
    split = [name for name in old.problem.op_names if name.startswith("blocks.0.")]
    device = old.placement.device.copy()
    group = old.problem.op_unit == old.problem.op_unit[old.problem.op_names.index(split[-1])]
    device[group] = 1 - device[old.problem.op_names.index(split[0])]
    problem = make_problem(TRAINED, "2x3090", training=True, costs=CostOptions(recompute="block"))[
        0
    ]
    names = [name.removesuffix("_recompute") for name in problem.op_names]
    of = dict(zip(old.problem.op_names, device, strict=True))
    with pytest.raises(InputError, match=r"^old: has 'blocks\.0\..* is on one device; give a plan"):
        check_blocks_whole(problem, np.array([of[name] for name in names]), "old")
