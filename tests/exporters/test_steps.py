"""Plans of steps of micro-batches: beside every row of stages, looked at one by one."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import placewright as pw
from placewright.errors import InfeasibleError, OptionError
from placewright.exporters.engines import find_engine, limits_of
from placewright.exporters.pieces import Pieces, pieces_for
from placewright.exporters.planning import plan_for, plan_row
from placewright.exporters.sharing import exchanging
from placewright.exporters.step_costs import step_costs
from placewright.exporters.step_rows import best_rows
from placewright.exporters.step_search import best_of_steps
from placewright.exporters.steps import best_step
from placewright.plan import Placement, Plan
from placewright.planning import make_problem
from placewright.report.engines import engine_record, engine_words
from placewright.simulate import evaluate
from placewright.verify import verify
from placewright.whatif.replan import replan
from placewright.whatif.sensitivities import sensitivities
from tests.naive.steps import every_step, least_of_chains
from tests.strategies.steps import step_problems

DEEPSPEED, TORCH = find_engine("deepspeed"), find_engine("torch-pipelining")


def pieces_of(made):
    return Pieces(made[0], None, made[1])


@given(step_problems())
def test_no_row_takes_less_than_the_bound_and_none_is_left_out(made):
    every = [value for value, _ in every_step(*made)]
    try:
        timed, bound = best_step(pieces_of(made), DEEPSPEED)
    except InfeasibleError:
        assert not every
        return
    assert bound <= min(every) * (1 + 1e-9)
    assert timed.value >= min(every) * (1 - 1e-9)


@given(step_problems())
def test_the_bound_is_the_least_of_two_chains_of_any_row(made):
    costs = step_costs(pieces_of(made), limits_of(DEEPSPEED))
    bound, rows = best_rows(costs)
    assert bound == pytest.approx(least_of_chains(costs), rel=1e-9)
    assert min((row.bound for row in rows), default=np.inf) == pytest.approx(bound, rel=1e-9)


@given(step_problems(staging="direct"))
def test_1f1b_of_torch_has_no_more_stages_than_micro_batches(made):
    count = made[0].options.micro_batches
    gpipe = made[0].options.schedule == "gpipe" or not made[0].is_backward.any()
    every = [value for value, _ in every_step(*made, None if gpipe else count)]
    try:
        timed, bound = best_step(pieces_of(made), TORCH)
    except InfeasibleError:
        assert not every
        return
    assert bound <= min(every) * (1 + 1e-9)
    assert gpipe or len(timed.own.placement.row) <= count


def trained(source, cluster, **options):
    """The problem of training for an engine, and what copies of its weights hold."""
    given = {"objective": "throughput", **options}
    apart, _ = make_problem(source, cluster, given, training=True)
    problem, _ = make_problem(source, cluster, given, training=True, together=True)
    return exchanging(problem, apart) if apart.op_copied.size else problem, apart.op_copied


@pytest.mark.parametrize("source", ["zoo:gpt2?layers=5", "zoo:llama-7b?layers=4&context=64"])
@pytest.mark.parametrize("schedule", ["pipedream", "gpipe"])
@pytest.mark.parametrize("micro_batches", [1, 3, 16])
def test_the_plan_on_two_devices_is_the_best_row_there_is(source, schedule, micro_batches):
    options = {"schedule": schedule, "micro_batches": micro_batches}
    problem, copied = trained(source, "4090+3060", **options)
    problem = problem.with_device_memory(np.full(2, 0.8 * float(problem.op_memory.sum())))
    pieces = pieces_for(problem, DEEPSPEED, copied)
    every = [value for value, _ in every_step(pieces.problem, pieces.op_piece)]
    if not every:
        with pytest.raises(InfeasibleError, match="in flight"):
            plan_row(problem, DEEPSPEED, copied=copied)
        return
    plan = plan_row(problem, DEEPSPEED, copied=copied)
    assert verify(plan).ok
    assert plan.lower_bound <= min(every) * (1 + 1e-9)
    assert plan.value == pytest.approx(min(every), rel=1e-4) and plan.status == "optimal"


def test_many_micro_batches_come_near_a_pipeline_kept_full_and_few_do_not():
    full = plan_for("zoo:llama-7b?layers=8", "8xA100", "megatron", training=True, free_seconds=0)
    few, many = (
        plan_for(
            "zoo:llama-7b?layers=8", "8xA100", "megatron", training=True, free_seconds=0,
            micro_batches=count,
        ).plan
        for count in (2, 500)
    )  # fmt: skip
    assert full.plan.value < many.value < 1.1 * full.plan.value < 2 * full.plan.value < few.value


def test_1f1b_fits_where_gpipe_keeps_too_much_in_flight():
    source = "zoo:llama-7b?layers=8&batch=2"
    problem, copied = trained(source, "8xA100", micro_batches=32)
    room = np.full(8, 1.2 * float(problem.op_stash.sum()))
    plan = plan_row(problem.with_device_memory(room), DEEPSPEED, copied=copied)
    assert (plan.device_memory <= room * (1 + 1e-9)).all() and verify(plan).ok
    assert plan.outcome.step.in_flight.tolist() == list(range(len(plan.placement.row), 0, -1))
    gpipe = replace(problem.options, schedule="gpipe")
    with pytest.raises(InfeasibleError, match="activations of the 32 micro-batches"):
        plan_row(replace(problem, options=gpipe).with_device_memory(room), DEEPSPEED, copied=copied)


def test_the_optimizer_and_the_exchange_of_weights_count_once_per_step():
    one = trained("zoo:gpt2?layers=2&optimizer=adam", "4090+3060", micro_batches=1)[0]
    four = trained("zoo:gpt2?layers=2&optimizer=adam", "4090+3060", micro_batches=4)[0]
    ratio = one.op_time[:, 0] / np.maximum(four.op_time[:, 0], 1e-30)
    quarter = [name for name, r in zip(one.op_names, ratio, strict=True) if 3.9 < r < 4.1]
    assert quarter and all(name.endswith(".step") for name in quarter)
    assert sum(name.endswith(".step") for name in one.op_names) == len(quarter)
    parted = np.flatnonzero(one.tensor_bytes != four.tensor_bytes)
    assert [one.op_names[one.tensor_producer[t]] for t in parted] == [
        "lm_head.grad_weight", "embedding.tokens",
    ]  # fmt: skip
    assert (one.tensor_bytes[parted] == 4 * four.tensor_bytes[parted]).all()


def test_a_plan_file_keeps_the_row_and_the_step(tmp_path):
    found = plan_for("zoo:gpt2?layers=4", "2x3090", "deepspeed", training=True, free_seconds=0,
                     micro_batches=4)  # fmt: skip
    found.plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json")
    assert verify(again).ok and again.placement.row == found.plan.placement.row
    assert again.outcome.step.seconds == found.plan.outcome.step.seconds
    assert again.problem.options.micro_batches == 4
    assert again.device_memory.tolist() == found.plan.device_memory.tolist()
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "plan.json").read_bytes()


@pytest.mark.parametrize(
    ("engine", "options", "words"),
    [
        ("vllm", {}, "plan --for megatron, deepspeed, torch-pipelining"),
        ("megatron", {"schedule": "gpipe"}, "megatron runs schedule pipedream, not gpipe"),
    ],
)
def test_steps_that_an_engine_does_not_run_are_refused(engine, options, words):
    with pytest.raises(OptionError, match=words):
        plan_for("zoo:gpt2?layers=2", "2x3090", engine, micro_batches=4, **options)


def test_other_planners_say_that_steps_are_planned_for_engines():
    with pytest.raises(OptionError, match="add --for megatron"):
        pw.plan("zoo:gpt2?layers=2", "2x3090", objective="throughput", micro_batches=4)
    with pytest.raises(OptionError, match="add --for megatron"):
        pw.plan("zoo:gpt2?layers=2", "2x3090", planner="linear-dp", objective="throughput",
                micro_batches=4)  # fmt: skip


@pytest.mark.parametrize(
    ("what", "ask"),
    [
        ("explain", lambda plan: pw.explain(plan, "lm_head")),
        ("improve", pw.improve),
        ("replan", lambda plan: replan(plan, plan.problem)),
        ("what-if", lambda plan: sensitivities(plan, 1)),
    ],
)
def test_plans_of_steps_are_neither_explained_nor_changed(what, ask):
    found = plan_for("zoo:gpt2?layers=2", "2x3090", "deepspeed", micro_batches=4, free_seconds=0)
    says = f"{what} is for pipelines that are kept full, and the plan is of steps of 4 micro"
    with pytest.raises(OptionError, match=says):
        ask(found.plan)


def test_the_price_of_limits_is_beside_a_pipeline_kept_full():
    found = plan_for("zoo:llama-7b?layers=8&batch=4", "8xA100", "megatron", training=True,
                     micro_batches=8)  # fmt: skip
    record, words = engine_record(found), engine_words(found)
    assert record["unrestricted"]["value"] < record["value"]
    assert "in a pipeline kept full: time per micro-batch of 4 samples" in words[-1]


def test_a_plan_of_steps_says_what_a_step_takes_and_keeps():
    found = plan_for("zoo:llama-7b?layers=8&batch=4", "8xA100", "megatron", training=True,
                     micro_batches=8, free_seconds=0)  # fmt: skip
    record, words = engine_record(found), engine_words(found)
    assert record["seconds_per_step"] == pytest.approx(8 * record["value"])
    assert record["seconds_per_sample"] == pytest.approx(record["value"] / 4)
    assert record["micro_batches"] == 8
    stages = record["stages"]
    assert [each["in_flight"] for each in stages] == [8, 7, 6, 5, 4, 3, 2, 1]
    memory = {each["name"]: each["memory"] for each in record["devices"]}
    assert all(each["memory"] == pytest.approx(memory[each["device"]]) for each in stages)
    busy = {each["name"]: each["load"] for each in record["devices"]}
    for each in stages:
        assert each["bubble"] == pytest.approx(1 - busy[each["device"]] / record["value"])
    assert record["bubble"] == pytest.approx(np.mean([each["bubble"] for each in stages]))
    assert "of it activations of 8 micro-batches in flight), idle" in words[0]
    assert "a step of 8 micro-batches (1F1B) takes" in words[-2]


def test_a_source_that_does_not_say_what_activations_take_is_refused():
    problem, copied = trained("zoo:gpt2?layers=2", "2x3090", micro_batches=2)
    with pytest.raises(OptionError, match="does not say what activations"):
        plan_row(replace(problem, op_stash=np.zeros(0)), DEEPSPEED, copied=copied)


def test_a_forward_op_that_reads_of_a_backward_one_is_refused():
    problem, copied = trained("zoo:gpt2?layers=2", "2x3090", micro_batches=2)
    last = int(problem.topological_order[-1])
    backward = np.arange(problem.op_count) != last
    words = f"forward op '{problem.op_names[last]}' reads what backward op"
    with pytest.raises(OptionError, match=words):
        plan_row(
            replace(problem, is_backward=backward & problem.is_backward), DEEPSPEED, copied=copied
        )


@given(step_problems(staging="direct"))
def test_the_search_finds_the_best_row_there_is(made):
    every = [value for value, _ in every_step(*made)]
    pieces = pieces_of(made)
    costs = step_costs(pieces, limits_of(DEEPSPEED))
    stages, is_whole = best_of_steps(pieces, costs, math.inf)
    assert is_whole and (stages is None) == (not every)
    if stages is not None:
        timed, bound = best_step(pieces, DEEPSPEED)
        assert timed.value == pytest.approx(min(every), rel=1e-4)
        assert bound <= min(every) * (1 + 1e-9)
        assert bound >= min(every) * (1 - 1e-4)
        left = [list(members) for members in costs.classes[1]]
        row = [left[one].pop(0) for one, _, _ in stages]
        lengths = [last - first + 1 for _, first, last in stages]
        placement = Placement(np.repeat(row, lengths)[made[1]], row=tuple(row))
        assert evaluate(made[0], placement).value == pytest.approx(min(every), rel=1e-9)


@settings(max_examples=30)
@given(step_problems(staging="direct"), st.integers(0, 100))
def test_a_search_that_ends_early_says_so(made, passes):
    every = [value for value, _ in every_step(*made)]
    pieces = pieces_of(made)
    costs = step_costs(pieces, limits_of(DEEPSPEED))
    stages, is_whole = best_of_steps(pieces, costs, math.inf, passes)
    assert not is_whole or (stages is None) == (not every)


@pytest.mark.parametrize("micro_batches", [6, 12])
def test_the_row_over_unequal_ways_is_the_best_there_is(micro_batches):
    problem, copied = trained("zoo:gpt2?layers=5", "a100+2xt4+cpu", micro_batches=micro_batches)
    faster = problem.link_seconds_per_byte / 30  # so that several stages pay
    problem = replace(problem, link_seconds_per_byte=faster)
    pieces = pieces_for(problem, DEEPSPEED, copied)
    every = [value for value, _ in every_step(pieces.problem, pieces.op_piece)]
    plan = plan_row(problem, DEEPSPEED, copied=copied)
    assert plan.lower_bound <= min(every) * (1 + 1e-9)
    assert plan.value == pytest.approx(min(every), rel=1e-4) and plan.status == "optimal"
    assert len(plan.placement.row) > 1
