"""Data-parallel pipelines: their steps beside the judge, and the best beside all there are."""

import json
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import placewright as pw
from placewright.bounds import lower_bound
from placewright.errors import InfeasibleError, OptionError
from placewright.exporters.data_parallel import groupings
from placewright.exporters.engines import find_engine
from placewright.exporters.exporting import export
from placewright.exporters.pieces import Pieces
from placewright.exporters.planning import plan_for
from placewright.exporters.stages import block_plan
from placewright.exporters.steps import best_step
from placewright.options import Options
from placewright.plan import Plan
from placewright.planning import make_problem
from placewright.report.engines import engine_record, engine_words
from placewright.runtime.pipelined.running import run_pipeline
from placewright.simulate import evaluate
from placewright.verify import verify
from tests.naive.steps import every_parallel_step, every_step
from tests.strategies.steps import step_problems

DEEPSPEED = find_engine("deepspeed")
LLAMA = "zoo:llama-7b?layers=4&batch=2&context=512"


def as_plan(problem, placement):
    outcome = evaluate(problem, placement)
    return Plan(problem, placement, outcome, outcome.value, 0.0, "none", "by hand")


def shared_by(problem, count, weights):
    """The problem where so many pipelines share the micro-batches, which are as many times more."""
    options = problem.options
    several = replace(options, data_parallel=count, micro_batches=count * options.micro_batches)
    return replace(problem, options=several, op_sync_bytes=weights)


def doubled(problem, latency, per_byte):
    """Each device twice, so far from the others of its kind in the other half."""
    d = problem.device_count
    far = np.full((d, d), 1.0)
    tables = {
        name: np.block([[own, far * amount], [far * amount, own]])
        for name, own, amount in (
            ("link_latency", problem.link_latency, latency),
            ("link_seconds_per_byte", problem.link_seconds_per_byte, per_byte),
        )
    }
    for name in ("host_latency", "host_seconds_per_byte"):
        tables[name] = np.tile(getattr(problem, name), (1, 2))
    return replace(
        problem,
        op_time=np.tile(problem.op_time, (1, 2)),
        device_names=tuple(f"d{k}" for k in range(2 * d)),
        device_kinds=problem.device_kinds * 2,
        device_memory=np.tile(problem.device_memory, 2),
        device_hosts=tuple(["one"] * d + ["two"] * d),
        device_runs=(),
        is_cpu=np.zeros(2 * d, dtype=bool),
        channel_offsets=np.zeros(4 * d * d + 1, dtype=np.int64),
        channels=np.zeros(0, dtype=np.int32),
        channel_names=(),
        batch_time=np.zeros((problem.op_count, 2 * d, 0)),
        **tables,
    )


def weights_of(data, problem):
    sizes = st.sampled_from([0.0, 1.0, 3.0])
    n = problem.op_count
    return np.array(data.draw(st.lists(sizes, min_size=n, max_size=n)))


@given(step_problems(max_devices=4, max_pieces=3), st.data())
def test_the_judge_finds_the_same_step_of_any_pipelines(made, data):
    problem = shared_by(made[0], 2, weights_of(data, made[0]))
    every = list(islice(every_parallel_step(problem, made[1], 2), 200))
    if not every:
        return
    value, placement = data.draw(st.sampled_from(every))
    plan = as_plan(problem, placement)
    report = verify(plan)
    assert report.ok, report.violations
    assert report.value == pytest.approx(value, rel=1e-12)
    assert report.device_memory == pytest.approx(plan.device_memory.tolist())
    assert lower_bound(problem).value <= value * (1 + 1e-9)


@given(step_problems(max_devices=4, max_pieces=3), st.data())
def test_pipelines_that_exchange_nothing_take_as_long_as_the_slowest_alone(made, data):
    problem = shared_by(made[0], 2, np.zeros(made[0].op_count))
    every = list(islice(every_parallel_step(problem, made[1], 2), 200))
    if not every:
        return
    value, placement = data.draw(st.sampled_from(every))
    alone = []
    for row in placement.rows:
        moved = dict(zip(placement.row, row, strict=True))
        device = np.array([moved[each] for each in placement.device.tolist()], dtype=np.int32)
        alone.append(
            evaluate(made[0], replace(placement, device=device, row=row, replicas=())).value
        )
    assert value == pytest.approx(max(alone) / 2, rel=1e-9)


def test_a_stage_exchanges_its_gradients_in_a_ring_when_all_have_made_theirs():
    problem, _ = make_problem(LLAMA, "2x3090", {"objective": "throughput", "micro_batches": 4,
                              "data_parallel": 2}, training=True, together=True)  # fmt: skip
    plan = plan_for(LLAMA, "2x3090", "deepspeed", training=True, micro_batches=4, data_parallel=2,
                    costs=pw.CostOptions(profiles=None), free_seconds=0).plan  # fmt: skip
    assert plan.placement.replicas == ((0, 1),)
    single = plan_for(LLAMA, "2x3090", "deepspeed", training=True, micro_batches=2,
                      costs=pw.CostOptions(profiles=None), free_seconds=0).plan  # fmt: skip
    size, rate = problem.op_sync_bytes.sum(), problem.link_seconds_per_byte[0, 1]
    ring = 2 * (problem.link_latency[0, 1] + size / 2 * rate)
    alone = evaluate(
        single.problem,
        replace(single.placement, device=np.zeros(problem.op_count, dtype=np.int32), row=(0,)),
    )
    assert 4 * plan.value == pytest.approx(2 * alone.value + ring, rel=1e-9)


@given(step_problems(max_devices=2, max_pieces=3), st.data())
def test_no_row_in_alike_groups_takes_less_than_the_bound_and_none_is_left_out(made, data):
    small = replace(made[0], device_hosts=())
    latency, per_byte = data.draw(st.sampled_from([(0.0, 1.0), (1.0, 0.5), (2.0, 3.0)]))
    problem = shared_by(doubled(small, latency, per_byte), 2, weights_of(data, made[0]))
    ways = groupings(problem, 2)
    assert ways
    values = []
    for groups in ways:
        own = set(groups.members[0])
        for _, one in every_step(problem, made[1]):
            if own >= set(one.row):
                placement = replace(one, replicas=groups.replicas(one.row))
                values.append(evaluate(problem, placement).value)
    try:
        timed, bound = best_step(Pieces(problem, None, made[1]), DEEPSPEED)
    except InfeasibleError:
        assert not values
        return
    assert bound <= min(values) * (1 + 1e-9)
    assert timed.value >= min(values) * (1 - 1e-9)
    if problem.staging == "direct":  # all rows are looked at
        assert timed.value <= min(values) * (1 + 1e-4)
    assert verify(as_plan(timed.own.problem, timed.own.placement)).ok


TWO_HOSTS = """
format: placewright.cluster/1
name: two hosts
devices:
  - {name: a0, kind: A100, host: one}
  - {name: b0, kind: A100, host: two}
  - {name: a1, kind: A100, host: one}
  - {name: b1, kind: A100, host: two}
links:
  - {between: [a0, a1], bandwidth: 300 GB/s, latency: 3 us}
  - {between: [b0, b1], bandwidth: 300 GB/s, latency: 3 us}
  - {between: [a0, b0], bandwidth: 10 GB/s, latency: 20 us}
  - {between: [a0, b1], bandwidth: 10 GB/s, latency: 20 us}
  - {between: [a1, b0], bandwidth: 10 GB/s, latency: 20 us}
  - {between: [a1, b1], bandwidth: 10 GB/s, latency: 20 us}
"""


def test_groups_are_of_equal_devices_within_hosts_and_over_them(tmp_path):
    path = tmp_path / "hosts.yaml"
    path.write_text(TWO_HOSTS)
    problem, _ = make_problem("zoo:gpt2?layers=2", path)
    across, within = (each.members for each in groupings(problem, 2))
    hosts = [problem.device_host(device) for device in range(problem.device_count)]
    assert all({hosts[d] for d in group} == {"one", "two"} for group in across)
    assert all(len({hosts[d] for d in group}) == 1 for group in within)
    assert all(
        sorted(d for group in way for d in group) == list(range(4)) for way in (across, within)
    )
    (alone,) = groupings(problem, 4)
    assert sorted(alone.members) == [(0,), (1,), (2,), (3,)]
    assert groupings(problem, 3) == []


def on_two_hosts(tmp_path, replicas):
    """A plan of two stages in two pipelines, its devices called by name."""
    path = tmp_path / "hosts.yaml"
    path.write_text(TWO_HOSTS)
    plan = plan_for(LLAMA, path, "megatron", training=True, micro_batches=4, data_parallel=2,
                    free_seconds=0).plan  # fmt: skip
    assert len(plan.placement.row) == 2
    names = plan.problem.device_names
    stages = [tuple(names.index(name) for name in stage) for stage in replicas]
    moved = {old: stage[0] for old, stage in zip(plan.placement.row, stages, strict=True)}
    device = np.array([moved[each] for each in plan.placement.device.tolist()], dtype=np.int32)
    placement = replace(
        plan.placement, device=device, row=tuple(moved.values()), replicas=tuple(stages)
    )
    outcome = evaluate(plan.problem, placement)
    return replace(plan, placement=placement, outcome=outcome, value=outcome.value, lower_bound=0.0)


def test_jobs_on_several_hosts_are_started_on_each(tmp_path):
    stages_on_hosts = on_two_hosts(tmp_path, [("a0", "a1"), ("b1", "b0")])
    lines = export(stages_on_hosts, "megatron", tmp_path / "m.json")
    assert [line.partition(":")[0] for line in lines] == ["one", "two"]
    for number, (line, gpus) in enumerate(zip(lines, ("0,1", "1,0"), strict=True)):
        assert f"CUDA_VISIBLE_DEVICES={gpus} torchrun --nnodes 2 --node-rank {number} " in line
        assert "--nproc-per-node 2 --master-addr one --master-port 29500 pretrain_gpt.py" in line
        assert "--use-tp-pp-dp-mapping" not in line
    hosts = json.loads((tmp_path / "m.json").read_text())["hosts"]
    assert [(each["host"], each["ranks"]) for each in hosts] == [("one", 2), ("two", 2)]


def test_pipelines_within_hosts_have_their_ranks_one_after_another(tmp_path):
    pipelines_on_hosts = on_two_hosts(tmp_path, [("a0", "b0"), ("a1", "b1")])
    one, two = export(pipelines_on_hosts, "megatron", tmp_path / "m.json")
    assert "CUDA_VISIBLE_DEVICES=0,1" in one and "CUDA_VISIBLE_DEVICES=0,1" in two
    assert "--use-tp-pp-dp-mapping" in one
    one, _ = export(pipelines_on_hosts, "deepspeed", tmp_path / "stages.py")
    text = (tmp_path / "stages.py").read_text()
    assert '"topology": ProcessTopology(axes=["data", "pipe"], dims=[2, 2])' in text
    compile(text, "stages.py", "exec")
    assert "num_stages=2" in one


def test_ranks_that_go_from_host_to_host_and_back_are_refused(tmp_path):
    plan = on_two_hosts(tmp_path, [("a0", "b0"), ("b1", "a1")])
    with pytest.raises(OptionError, match="the plan's stages go over the hosts one, two, one"):
        export(plan, "megatron", tmp_path / "m.json")


def test_the_best_number_is_the_best_of_all_and_bounded_by_all():
    how = {"training": True, "micro_batches": 8, "free_seconds": 0}
    costs = pw.CostOptions(profiles=None)
    plans = {
        number: plan_for(LLAMA, "8xA100", "megatron", costs=costs, data_parallel=number, **how).plan
        for number in (1, 2, 4, 8)
    }
    found = plan_for(LLAMA, "8xA100", "megatron", costs=costs, data_parallel="best", **how)
    values = {number: plan.value for number, plan in plans.items()}
    assert found.plan.value == min(values.values()) < values[1]
    assert found.plan.lower_bound == min(plan.lower_bound for plan in plans.values())
    assert found.plan.status == "optimal"
    number = found.plan.problem.options.data_parallel
    assert number == min(values, key=lambda each: values[each])
    assert engine_record(found)["data_parallel"] == number
    assert any(f"in each of {number} pipelines" in line for line in engine_words(found))


def test_a_plan_file_keeps_the_pipelines_and_exports_number_their_ranks(tmp_path):
    found = plan_for(LLAMA, "8xA100", "megatron", training=True, micro_batches=8, data_parallel=4,
                     free_seconds=0)  # fmt: skip
    found.plan.save(tmp_path / "plan.json")
    plan = pw.Plan.load(tmp_path / "plan.json")
    assert verify(plan).ok
    assert plan.placement.replicas == found.plan.placement.replicas
    stages = len(plan.placement.row)
    (line,) = export(plan, "megatron", tmp_path / "m.json")
    document = json.loads((tmp_path / "m.json").read_text())
    ranks = [int(each) for each in document["environment"]["CUDA_VISIBLE_DEVICES"].split(",")]
    assert ranks == [device for stage in plan.placement.replicas for device in stage]
    assert f"--nproc-per-node {4 * stages} " in line
    arguments = document["arguments"]
    assert arguments[arguments.index("--pipeline-model-parallel-size") + 1] == str(stages)
    assert arguments[arguments.index("--global-batch-size") + 1] == "16"
    (line,) = export(plan, "deepspeed", tmp_path / "stages.py")
    text = (tmp_path / "stages.py").read_text()
    assert '"gradient_accumulation_steps": 2' in text
    assert f"num_stages={stages}" in line and f"--nproc-per-node {4 * stages} " in line
    with pytest.raises(OptionError, match="has one pipeline, and the plan 4"):
        block_plan(plan, "torch-pipelining")
    with pytest.raises(OptionError, match="4 data-parallel pipelines, and run has one"):
        run_pipeline(plan)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data_parallel": 2}, "give micro-batches too"),
        ({"data_parallel": 3, "micro_batches": 8}, "do not share evenly; give a multiple of 3"),
        ({"data_parallel": 0, "micro_batches": 8}, "data-parallel is '0'"),
        ({"data_parallel": "best", "micro_batches": 8}, "data-parallel is 'best'"),
        ({"data_parallel": 2, "objective": "latency"}, "belongs to objective throughput"),
    ],
)
def test_options_that_pipelines_do_not_go_with_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        Options(**{"objective": "throughput", **options})


def test_what_pipelines_cannot_be_is_told():
    how = {"training": True, "micro_batches": 8, "free_seconds": 0}
    with pytest.raises(OptionError, match="torch-pipelining are of one pipeline"):
        plan_for(LLAMA, "2x3090", "torch-pipelining", data_parallel=2, **how)
    with pytest.raises(InfeasibleError, match="do not make 2 data-parallel pipelines"):
        plan_for(LLAMA, "4090+3060", "deepspeed", data_parallel=2, **how)
    with pytest.raises(OptionError, match="'embedding' is pinned to a device"):
        plan_for(LLAMA, "2x3090", "deepspeed", data_parallel=2, pinned={"embedding": "gpu0"}, **how)
    with pytest.raises(OptionError, match="data-parallel best is for steps"):
        plan_for(LLAMA, "2x3090", "deepspeed", training=True, data_parallel="best")
    needed = pw.CostOptions(recompute="needed")
    with pytest.raises(OptionError, match="leave out --data-parallel"):
        plan_for(LLAMA, "2x3090", "deepspeed", data_parallel=2, costs=needed, **how)


def test_claims_about_pipelines_that_are_not_so_are_found():
    plan = plan_for(LLAMA, "8xA100", "megatron", training=True, micro_batches=8, data_parallel=4,
                    free_seconds=0).plan  # fmt: skip
    placement, loads = plan.placement, plan.outcome
    wrong = [
        replace(placement, replicas=()),
        replace(placement, replicas=placement.replicas[::-1]),
        replace(placement, replicas=tuple(stage[:2] for stage in placement.replicas)),
        replace(placement, replicas=(placement.replicas[0],) * 2),
    ]
    assert all(not verify(replace(plan, placement=each)).ok for each in wrong)
    less = replace(loads, sync=np.zeros_like(loads.sync))
    assert not verify(replace(plan, outcome=less)).ok
    early = replace(loads.step, seconds=loads.step.seconds * 0.999)
    assert not verify(replace(plan, outcome=replace(loads, step=early))).ok


@pytest.mark.parametrize(("dtype", "engine", "size"), [
    ("bf16", "megatron", 18), ("bf16", "deepspeed", 18), ("fp16", "megatron", 16),
    ("bf16", "torch-pipelining", 16),
])  # fmt: skip
def test_gradients_of_bf16_are_kept_and_exchanged_in_fp32(dtype, engine, size):
    source = f"zoo:llama-7b?layers=2&context=64&dtype={dtype}"
    plan = plan_for(source, "2x3090", engine, training=True, free_seconds=0).plan
    problem = plan.problem
    op = problem.op_names.index("blocks.0.mlp.gate")
    weights = 4096 * 11008
    stash = problem.op_stash[op] if problem.op_stash.size else 0.0
    assert problem.op_memory[op] - stash == size * weights
    assert problem.op_sync_bytes[op] == (4 if size == 18 else 2) * weights
