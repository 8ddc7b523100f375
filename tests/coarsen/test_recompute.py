"""Activation recomputation: what blocks keep, what runs again, and that plans of it hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from placewright.coarsen.blocks import find_blocks
from placewright.coarsen.recompute import recomputing
from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions, build_problem
from placewright.errors import OptionError, ProvedInfeasibleError
from placewright.exporters.planning import plan_for
from placewright.graph import WHOLE_MEMORY, GraphBuilder
from placewright.importers import load
from placewright.importers.zoo.backward import joint_graph
from placewright.options import Options
from placewright.planning import make_problem
from placewright.planning import plan as make_plan
from placewright.stash import recomputed_ops, stashed_bytes, views
from placewright.verify import verify
from tests.naive.recompute import model_of, recomputed

AGAIN = CostOptions(recompute="block")
MOST_UNITS = 10  # of which all placements are tried
TYPES = st.sampled_from(["matmul", "relu", "softmax", "add", "op", "reshape"])


@st.composite
def models(draw):
    """Forward graphs of a stem, two to four layers of up to three ops, and a head."""
    builder, tensors = GraphBuilder("drawn"), []
    layers = [f"layers.{k}" for k in range(draw(st.integers(2, 4)))]
    modules = [each for each in layers for _ in range(draw(st.integers(1, 3)))]
    for module in ["stem", *modules, "head"]:
        sizes = st.integers(1, 9).map(lambda size: size * 1e6)
        inputs = tensors[-1:] + (draw(st.lists(st.sampled_from(tensors), max_size=2))
                                 if tensors else [])  # fmt: skip
        kind = draw(TYPES)
        work = 0.0 if kind == "reshape" else draw(st.integers(1, 9)) * 1e6
        op = builder.add_op(
            f"op{builder.op_count}", kind, dict.fromkeys(inputs), module=module,
            flops=work * 1e3, bytes_read=work,
            parameter_bytes=1e6 if module == "stem" else draw(st.sampled_from([0.0, 4e6])),
        )  # fmt: skip
        tensors += [builder.add_tensor(op, draw(sizes)) for _ in range(draw(st.integers(1, 2)))]
    return builder.build()


def reads_of(model):
    """`Counter` of (reader, maker, bytes)."""
    return Counter((name, maker, size) for maker, size, some in model.tensors for name in some)


@given(models(), st.sampled_from(["latency", "throughput"]))
def test_it_is_what_the_naive_twin_says(graph, objective):
    joint = joint_graph(graph)
    problem = make_problem(joint, "2x3090", {"objective": objective})[0]
    is_view, names = views(joint), problem.op_names
    model = model_of(problem, is_view.tolist())
    assert stashed_bytes(problem, is_view).tolist() == list(model.stashed_bytes().values())
    blocks = find_blocks(problem)
    block = {
        name: blocks.names[b] if blocks.repeated[b] else None
        for name, b in zip(names, blocks.op_block.tolist(), strict=True)
    }
    expected, room = recomputed(model, block)
    if len(expected.backward) == len(names):
        with pytest.raises(OptionError, match="no block keeps activations"):
            recomputing(problem, is_view)
        return
    made = recomputing(problem, is_view)
    again = recomputed_ops(made)
    assert {made.op_names[op] for op in np.flatnonzero(again)} == expected.backward.keys() - {
        *names
    }
    assert reads_of(model_of(made, again)) == reads_of(expected)
    before, after = model.stashed_bytes(), expected.stashed_bytes()
    memory = dict(zip(names, problem.op_memory.tolist(), strict=True))
    for op, name in enumerate(made.op_names):
        kept = 0.0 if again[op] else memory[name] - before[name] + after[name]
        assert made.op_memory[op] == pytest.approx(kept)
        if objective == "throughput":
            assert made.op_stash[op] == after[name]
    assert made.device_memory.tolist() == (problem.device_memory - room).tolist()
    twins = made.forward_twin[again]
    is_view = np.array([expected.view[name] for name in made.op_names])[again]
    assert (made.op_time[again][~is_view] == made.op_time[twins][~is_view]).all()
    assert not made.op_time[again][is_view].any()
    assert (made.op_unit[again] == made.op_unit[twins]).all()


@pytest.mark.parametrize("memory", ["resident", "peak"])
@pytest.mark.parametrize("transfer_unit", ["tensor", "edge"])
@given(graph=models())
def test_plans_for_latency_hold(graph, memory, transfer_unit):
    options = {"memory": memory, "transfer_unit": transfer_unit, "contention": "port"}
    try:
        problem, _ = make_problem(joint_graph(graph), "2x3090", options, costs=AGAIN)
    except OptionError:
        return  # nothing to recompute
    plan = make_plan(problem, planner="heft")
    assert verify(plan).ok
    assert plan.lower_bound <= plan.value


@given(models(), st.sampled_from(["pipedream", "gpipe"]))
def test_rows_of_stages_are_as_good_as_all_placements(graph, schedule):
    options = {"objective": "throughput", "schedule": schedule}
    try:
        problem, _ = make_problem(joint_graph(graph), "2x3090", options, costs=AGAIN)
    except OptionError:
        return
    assume(problem.unit_count <= MOST_UNITS)
    plans = [make_plan(problem, planner=name) for name in ("ideal-dp", "exhaustive")]
    assert plans[0].value == pytest.approx(plans[1].value, rel=1e-9)
    assert all(verify(plan).ok for plan in plans)


def test_ops_beside_the_modules_of_blocks_run_once():
    """Engines checkpoint modules: what is computed between two of them is kept."""
    builder, state = GraphBuilder("between"), []
    for module in ("stem", "layers.0", "", "layers.1", "", "layers.2", "head"):
        for part in range(2 if module.startswith("layers") else 1):
            op = builder.add_op(
                f"{module or 'between'}{builder.op_count}", "softmax", state, module=module,
                flops=1e9, bytes_read=1e6, parameter_bytes=1e6 if module and not part else 0.0,
            )  # fmt: skip
            state = [builder.add_tensor(op, 1e6)]
    problem, _ = make_problem(joint_graph(builder.build()), "2x3090", costs=AGAIN)
    again = [problem.op_names[op] for op in np.flatnonzero(recomputed_ops(problem))]
    assert len(again) == 6
    assert all(name.startswith("layers") for name in again)


def test_ties_that_change_the_blocks_are_refused_for_engines():
    with pytest.raises(OptionError, match=r"has other blocks than without|read the same weights"):
        plan_for("zoo:t5-small?layers=2", "2x3090", "deepspeed", training=True, free_seconds=0,
                 costs=AGAIN)  # fmt: skip


def test_a_problem_without_blocks_is_not_made_with_recomputation():
    graph = load("zoo:gpt2?layers=1", training=True).graph
    with pytest.raises(OptionError, match="build_problem makes problems without recomputation"):
        build_problem(graph, load_cluster("2x3090"), Options(), AGAIN)


def test_training_of_a_graph_that_infers_is_refused():
    with pytest.raises(OptionError, match="training is for sources that are still to be read"):
        make_plan(load("zoo:gpt2?layers=1").graph, "2x3090", planner="heft", training=True)


def in_blocks(problem):
    """`[op]` whether it is of a repeated block."""
    blocks = find_blocks(problem)
    return blocks.repeated[blocks.op_block]


def test_a_transformer_keeps_what_goes_into_its_blocks():
    options = {"objective": "throughput"}
    before = make_problem("zoo:gpt2?batch=2", "2x3090", options, training=True)[0]
    after = make_problem("zoo:gpt2?batch=2", "2x3090", options, training=True, costs=AGAIN)[0]
    state = 2 * 1024 * 768 * 2  # batch, tokens, width, bytes of fp16
    inside = in_blocks(after)
    assert after.op_stash[inside].sum() == 12 * state
    assert before.op_stash[in_blocks(before)].sum() > 12 * 10 * state
    again = recomputed_ops(after)
    forward = inside & ~after.is_backward
    assert after.op_time[again].sum() == pytest.approx(after.op_time[forward].sum())
    assert after.op_time[~again].sum() == pytest.approx(before.op_time.sum())


def test_it_waits_for_the_gradient_of_what_the_block_made():
    plan = make_plan("zoo:gpt2?layers=2", "2x3090", planner="heft", training=True, costs=AGAIN)
    problem, again = plan.problem, recomputed_ops(plan.problem)
    loss = plan.problem.op_names.index("loss.grad_input")
    assert again.sum() > 10
    assert (plan.schedule.op_start[again] >= plan.schedule.op_finish[loss]).all()
    assert verify(plan).ok
    assert problem.is_backward[again].all()


def test_what_does_not_fit_otherwise_is_planned():
    source, cluster = "zoo:llama-7b?layers=16&batch=8", "8xA100"
    asked = {"training": True, "micro_batches": 8, "free_seconds": 0}
    with pytest.raises(ProvedInfeasibleError, match="--recompute needed keeps as little as"):
        plan_for(source, cluster, "megatron", **asked)
    found = plan_for(source, cluster, "megatron", costs=AGAIN, **asked).plan
    assert verify(found).ok
    assert found.status == "optimal"


@pytest.mark.parametrize(
    ("source", "asked", "says"),
    [
        ("zoo:gpt2", {}, "recompute is about training"),
        ("zoo:googlenet", {"training": True}, "only blocks are recomputed"),
    ],
)
def test_what_cannot_be_recomputed_is_refused(source, asked, says):
    with pytest.raises(OptionError, match=says):
        make_problem(source, "2x3090", costs=AGAIN, **asked)


def test_memory_that_is_given_whole_is_refused():
    graph = load("zoo:gpt2?layers=2", training=True).graph
    whole = replace(graph, attributes={WHOLE_MEMORY: True})
    with pytest.raises(OptionError, match="its memory is given whole; leave out recompute"):
        make_problem(whole, "2x3090", costs=AGAIN)


def test_an_unknown_word_is_refused():
    with pytest.raises(OptionError, match="recompute is 'all'; choose none, block"):
        CostOptions(recompute="all")  # type: ignore[arg-type]
