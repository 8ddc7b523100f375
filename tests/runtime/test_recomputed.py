"""Plans that recompute activations, run: the same results, in less memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import placewright as pw  # noqa: E402
from placewright.cluster import Cluster, Device, Link  # noqa: E402
from placewright.coarsen.recompute import names_recomputed, recomputed_blocks  # noqa: E402
from placewright.errors import InfeasibleError, InputError, OptionError  # noqa: E402
from placewright.exporters.planning import plan_for  # noqa: E402
from placewright.importers.torch.graph import fold  # noqa: E402
from placewright.importers.torch.programs import load_executable  # noqa: E402
from placewright.runtime import RunOptions, run_plan  # noqa: E402
from placewright.runtime.pipelined.cutting import cut_chain  # noqa: E402
from placewright.runtime.pipelined.running import run_pipeline  # noqa: E402
from placewright.runtime.stages.code import Call, Code, Ref, calls  # noqa: E402
from placewright.runtime.stages.recomputed import with_recomputed  # noqa: E402
from placewright.runtime.stages.targets import call_draws  # noqa: E402
from placewright.stash import recomputed_ops  # noqa: E402
from placewright.verify import verify  # noqa: E402

SOURCE = "torch:tests.runtime.models:residual"
AGAIN = pw.CostOptions(recompute="block", profiles=None)


def cluster(memory: float = 1e9) -> Cluster:
    devices = tuple(Device(name, "EPYC 7763", memory=memory) for name in ("left", "right"))
    return Cluster("pair", devices, (Link("left", "right", 1e9),))


def planned(source: str = SOURCE, costs: pw.CostOptions = AGAIN, **options: object) -> pw.Plan:
    return pw.plan(source, cluster(), training=True, costs=costs, **options)


def in_two_stages(
    source: str, costs: pw.CostOptions = AGAIN, memory: float = 1e9, **options: int
) -> pw.Plan:
    """Two of the four blocks on each device."""
    plan = plan_for(
        source, cluster(memory), "torch-pipelining", training=True, costs=costs, free_seconds=0,
        pinned={"addmm_4": "left", "addmm_5": "right"}, **options,
    ).plan  # fmt: skip
    assert len(plan.used_devices) == 2
    return plan


def test_a_program_runs_calls_again_as_its_problem_says() -> None:
    plan = planned(planner="single-device")
    problem = plan.problem
    program = with_recomputed(load_executable(SOURCE, training=True), problem)
    owner = fold(program.module.graph)
    assert set(owner.values()) - {None} == set(problem.op_names)
    read = {
        (owner[source.name], owner[node.name])
        for node in program.module.graph.nodes
        if node.op == "call_function"
        for source in node.all_input_nodes
    }
    reads = {(a, b) for a, b in read if None not in (a, b) and a != b}
    names = problem.op_names
    edges = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    said = {(names[maker], names[reader]) for maker, reader in edges}
    assert reads <= said
    again = {names[op] for op in np.flatnonzero(recomputed_ops(problem))}
    waits = said - reads  # for the gradient of what a block made, which no call reads
    assert waits
    assert all(maker not in again and reader in again for maker, reader in waits)
    backward = dict(zip(names, problem.is_backward.tolist(), strict=True))
    assert all(backward[maker] for maker, _ in waits)


def test_a_run_gives_what_one_process_gives() -> None:
    plan = planned(planner="heft")
    assert verify(plan).ok
    report = run_plan(plan, RunOptions(threads=1, repeats=2))
    assert report.max_abs_difference == 0.0


def test_what_does_not_fit_otherwise_runs() -> None:
    """Under memory ``peak`` the judge counts every tensor as long as the schedule has it live."""
    asked = {"training": True, "memory": "peak", "time_limit": 5}
    keeping = replace(AGAIN, recompute="none")
    with pytest.raises(InfeasibleError, match="--recompute block keeps fewer activations"):
        pw.plan(SOURCE, cluster(25e6), costs=keeping, **asked)
    plan = pw.plan(SOURCE, cluster(25e6), costs=AGAIN, **asked)
    assert verify(plan).ok
    report = run_plan(plan, RunOptions(threads=1, repeats=1))
    assert report.max_abs_difference == 0.0


def test_what_draws_at_random_is_refused() -> None:
    plan = planned("torch:tests.runtime.models:dropping", planner="single-device")
    with pytest.raises(OptionError, match="draws at random, and would draw anew when it runs agai"):
        run_plan(plan)


def test_a_program_without_the_ops_is_refused() -> None:
    plan = planned(planner="single-device")
    other = load_executable("torch:tests.runtime.models:chain")
    with pytest.raises(InputError, match=r"has no op '\w+' to run again; plan it again"):
        with_recomputed(other, plan.problem)


def test_a_pipeline_gives_the_gradients_of_one_process() -> None:
    plan = in_two_stages(SOURCE)
    options = RunOptions(threads=1, repeats=1)
    report = run_pipeline(plan, options, schedule="1f1b", micro_batches=3, steps=1)
    assert report.max_gradient_difference == 0.0
    assert report.max_abs_difference == 0.0


def test_so_does_one_where_some_blocks_run_again() -> None:
    needed = replace(AGAIN, recompute="needed")
    plan = in_two_stages(SOURCE, needed, memory=30e6, micro_batches=3)
    assert len(names_recomputed(plan.problem)) == 3
    options = RunOptions(threads=1, repeats=1)
    report = run_pipeline(plan, options, schedule="1f1b", steps=1)
    assert report.max_gradient_difference == 0.0
    assert report.max_abs_difference == 0.0


def test_a_stage_of_a_pipeline_keeps_what_goes_into_its_blocks() -> None:
    plan = in_two_stages(SOURCE)
    names, devices = plan.problem.op_names, plan.placement.device.tolist()
    once = ~recomputed_ops(plan.problem)
    device_of = {names[op]: devices[op] for op in np.flatnonzero(once)}
    program = load_executable(SOURCE, training=True)
    again = recomputed_blocks(plan.problem)
    stages = cut_chain(program, device_of, block_of=again).stages
    bodies = [
        [body for call in stage.code.steps if isinstance(call, Call)
         for body in call.args if isinstance(body, Code)]
        for stage in stages
    ]  # fmt: skip
    assert [len(each) for each in bodies] == [2, 2]
    within = [call.name for each in bodies for body in each for call in calls(body)]
    assert {name for name in within if not name.startswith("getitem")} == set(again)
    assert all(len(body.result) == 1 for each in bodies for body in each)


def test_a_pipeline_that_draws_at_random_is_refused() -> None:
    plan = in_two_stages("torch:tests.runtime.models:dropping")
    with pytest.raises(OptionError, match="draws at random, and would draw anew when it runs agai"):
        run_pipeline(plan)


def test_a_call_that_drops_nothing_does_not_draw() -> None:
    attention = "torch.ops.aten.scaled_dot_product_attention.default"
    dropout = "torch.ops.aten.native_dropout.default"
    three = (Ref("q"), Ref("k"), Ref("v"))
    assert not call_draws(Call("a", "torch.ops.aten.relu.default", (Ref("x"),), {}))
    assert not call_draws(Call("a", attention, three, {}))
    assert not call_draws(Call("a", attention, (*three, None, 0.0), {}))
    assert call_draws(Call("a", attention, three, {"dropout_p": 0.1}))
    assert call_draws(Call("a", dropout, (Ref("x"), 0.1, True), {}))
    assert not call_draws(Call("a", dropout, (Ref("x"), 0.1, False), {}))
    assert not call_draws(Call("a", dropout, (Ref("x"), 0.0, True), {}))
    assert call_draws(Call("a", "torch.ops.aten.randn.default", ([2],), {}))
