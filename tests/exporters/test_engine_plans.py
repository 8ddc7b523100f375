"""Plans for engines keep inside what these can run, and say what that costs."""

from dataclasses import replace

import numpy as np
import pytest

from placewright.analysis.offloading import PAGEABLE_BANDWIDTH
from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions
from placewright.errors import InfeasibleError, OptionError
from placewright.exporters.engines import ENGINES
from placewright.exporters.pieces import pieces_for
from placewright.exporters.planning import engine_costs, plan_for
from placewright.exporters.stages import block_plan, stage_records
from placewright.exporters.timing import judged_blocks
from placewright.importers import load
from placewright.options import Options
from placewright.planning import make_problem
from placewright.report.engines import engine_record, engine_words
from placewright.verify import verify
from tests.cli.running import run

GPT = "zoo:gpt2?layers=6"
LLAMA = "zoo:llama-13b?phase=decode&context=512"


def planned(source, cluster, engine, **options):
    return plan_for(source, cluster, engine, free_seconds=0, **options)


@pytest.mark.parametrize("engine", [name for name, row in ENGINES.items() if row.limits])
def test_a_plan_for_an_engine_splits_no_block_and_holds(engine):
    found = planned(LLAMA, "4090+3060", engine)
    assert verify(found.plan).ok
    assert found.plan.status == "optimal"
    assert sum(found.by_blocks.layers) == 40
    assert found.plan.problem.options.objective == ENGINES[engine].limits.objectives[0]


def test_a_graph_of_training_is_told_apart_from_the_option():
    graph = load("zoo:llama-7b?layers=2", training=True).graph
    with pytest.raises(OptionError, match="or give a graph without backward ops"):
        planned(graph, "2x3090", "vllm")


@pytest.mark.parametrize(
    ("engine", "options", "training"),
    [
        ("vllm", {"objective": "latency"}, False),
        ("megatron", {"objective": "throughput", "micro_batches": 4}, True),
    ],
)
def test_a_ready_problem_is_planned_as_its_source_is(engine, options, training):
    costs = engine_costs(CostOptions(), ENGINES[engine])
    problem, _ = make_problem(
        "zoo:llama-7b?layers=4", "2x3090", options, training=training, costs=costs
    )
    found = plan_for(problem, None, engine, free_seconds=0)
    of_source = planned("zoo:llama-7b?layers=4", "2x3090", engine, training=training, **options)
    assert found.plan.value == of_source.plan.value
    with pytest.raises(OptionError, match="a Problem has its devices and options already"):
        plan_for(problem, None, engine, objective=options["objective"])
    latency = replace(problem, options=Options("latency"))
    with pytest.raises(OptionError, match="plans for deepspeed are for throughput, not latency"):
        plan_for(latency, None, "deepspeed")


def test_tied_weights_bring_accelerate_back_to_its_first_device():
    found = planned("zoo:gpt2-xl", "8xA100", "accelerate")
    whole = found.plan.problem.op_memory.sum()
    devices = found.by_blocks.device
    assert devices[0] == devices[-1] and whole < 80e9


@pytest.mark.parametrize("engine", ["vllm", "deepspeed"])
def test_tied_weights_are_held_once_by_a_stage_that_has_both_ends(engine):
    tied = 50257 * 768 * 2
    several = planned(GPT, "4090+3060", engine)
    assert len(several.by_blocks.stages) == 2
    assert several.plan.planner_options["copied"] == "lm_head"
    whole = several.plan.problem.op_memory.sum()
    alone = planned(GPT, only_one(several.plan, whole - tied / 2), engine)
    assert "copied" not in alone.plan.planner_options
    assert alone.plan.problem.op_memory.sum() == pytest.approx(whole - tied)
    assert verify(alone.plan).ok and alone.plan.status == "optimal"


def only_one(plan, room):
    """A cluster of one GPU that has room for the weights, but not for copies of them as well."""
    cluster = load_cluster("4090+3060")
    share = ENGINES[plan.planner_options["engine"]].limits.memory_share
    gpu = replace(cluster.devices[0], memory=room / share)
    return replace(cluster, devices=(gpu,), links=(), switches=())


def test_the_output_of_llama_cpp_shares_the_embedding_of_its_cpu():
    """The head's copy is on a GPU, and there is none where the CPU has both."""
    tied = 50257 * 768 * 2
    cluster = load_cluster("a100+2xt4+cpu")
    small = [each if each.name == "cpu" else replace(each, memory=1.0) for each in cluster.devices]
    alone = planned(GPT, replace(cluster, devices=tuple(small)), "llama-cpp")
    apart = planned(GPT, cluster, "llama-cpp")
    assert {stage.device for stage in alone.by_blocks.stages} == {3}
    more = apart.plan.problem.op_memory.sum() - alone.plan.problem.op_memory.sum()
    assert more == pytest.approx(tied)


def test_accelerate_leaves_on_the_cpu_what_no_gpu_has_room_for():
    """Of two GPUs the first computes it, and keeps room for its cache and the largest weights."""
    cluster = load_cluster("a100+2xt4+cpu")
    whole = planned(LLAMA, cluster, "accelerate").plan.problem
    room = {"a100": 0.5, "t4-0": 0.2, "t4-1": 0.0, "cpu": 9.0}
    least = float(whole.op_memory.sum())
    devices = tuple(replace(each, memory=room[each.name] * least) for each in cluster.devices)
    found = planned(LLAMA, replace(cluster, devices=devices), "accelerate").plan
    problem, device = found.problem, found.placement.device
    assert found.status == "optimal" and found.planner_options["offload"] == "a100"
    waits = device == problem.device_names.index("cpu")
    weights = (problem.op_memory - problem.op_cache)[waits]
    kept = problem.op_cache[waits].sum() + weights.max()
    assert problem.device_memory[0] == pytest.approx(room["a100"] * least - kept)
    assert found.value > weights.sum() / PAGEABLE_BANDWIDTH  # slower than the link of the A100


def test_a_model_that_fits_is_not_left_on_the_cpu():
    found = planned(GPT, "a100+2xt4+cpu", "accelerate")
    assert "offload" not in found.plan.planner_options
    assert not found.plan.problem.is_cpu[found.plan.placement.device].any()


def test_an_engine_of_one_host_is_planned_on_the_best_of_them():
    found = planned(LLAMA, "three-hosts", "accelerate").plan
    names = {found.problem.device_names[each] for each in found.placement.device}
    assert names <= {"rtx3090-0", "rtx3090-1"}
    across = planned("zoo:llama-13b", "three-hosts", "vllm").plan
    assert len(set(across.placement.device.tolist())) > 2


def test_llama_cpp_has_the_embedding_on_the_cpu():
    cpu = load_cluster("a100+2xt4+cpu").device_names.index("cpu")
    llama = planned(GPT, "a100+2xt4+cpu", "llama-cpp")
    assert llama.by_blocks.device[0] == cpu
    assert (llama.by_blocks.device[1:] != cpu).all()


@pytest.mark.parametrize("engine", ["accelerate", "llama-cpp", "vllm"])
def test_placements_by_hand_are_judged_by_the_rules_of_the_engine(engine):
    plan = planned(LLAMA, "a100+2xt4+cpu", engine, objective="latency").plan
    row = ENGINES[engine]
    costs = engine_costs(CostOptions(), row)
    problem = make_problem(LLAMA, "a100+2xt4+cpu", {"objective": "latency"}, costs=costs)[0]
    pieces = pieces_for(problem, row)
    again = judged_blocks(pieces, row, block_plan(plan, engine).device)
    assert again.value == pytest.approx(plan.value, rel=1e-9)
    first = 3 if engine == "llama-cpp" else 1
    with pytest.raises(InfeasibleError, match=r"t4-0 is to keep .* and has room for"):
        judged_blocks(pieces, row, [first, *[1] * (pieces.blocks.count - 1)])


def test_a_serving_engine_has_its_share_of_the_memory_only():
    found = planned(LLAMA, "4090+3060", "sglang")
    free = planned(LLAMA, "4090+3060", "megatron")
    assert np.allclose(found.plan.problem.device_memory, 0.9 * free.plan.problem.device_memory)


def test_two_rows_of_layers_are_refused_by_engines_that_number_one():
    with pytest.raises(OptionError, match=r"the model has 2 \(encoder\.blocks, decoder\.blocks\)"):
        planned("zoo:t5-small", "4090+3060", "vllm")
    assert sum(planned("zoo:t5-small", "4090+3060", "deepspeed").by_blocks.layers) == 12


@pytest.mark.parametrize(
    ("engine", "options", "why"),
    [
        ("csv", {}, "takes any plan, so leave out --for"),
        ("tgi", {}, "no engine 'tgi'"),
        ("accelerate", {"objective": "throughput"}, "are for latency, not throughput"),
        ("accelerate", {"training": True}, "plans inference"),
        ("deepspeed", {"replicate": True}, "without replicas"),
    ],
)
def test_what_an_engine_is_not_planned_for_is_refused(engine, options, why):
    with pytest.raises(OptionError, match=why):
        planned(GPT, "4090+3060", engine, **options)


@pytest.mark.parametrize("engine", ["vllm", "llama-cpp", "accelerate"])
def test_one_phase_of_an_encoder_decoder_is_refused(engine):
    with pytest.raises(
        OptionError, match=r"loads encoder and decoder, and zoo:t5-small\?phase=deco"
    ):
        planned("zoo:t5-small?phase=decode", "4090+3060", engine)


def test_training_for_which_copies_of_shared_weights_have_no_room_says_how_much_is_missing():
    with pytest.raises(InfeasibleError, match=r"the model needs .*, the devices have 33\.5 GiB"):
        planned("zoo:gpt3-1.3b?batch=4", "4090+3060", "megatron", training=True)


def test_training_with_ties_of_which_nobody_says_what_copies_come_to_is_refused():
    imported = load(GPT, training=True)
    graph = replace(
        imported.graph, op_copy_bytes=np.zeros(0), copy_colocation=np.zeros(0), copy_tensors=()
    )
    with pytest.raises(
        OptionError, match=r"'embedding\.tokens' and .* share weights across stages"
    ):
        planned(replace(imported, graph=graph), "8xA100", "megatron", training=True)


@pytest.mark.parametrize("engine", ["megatron", "deepspeed", "torch-pipelining"])
def test_training_with_ties_is_planned_with_what_stages_exchange(engine):
    """Ends on two stages exchange the gradient of the table; a stage with both does not."""
    table = 2 * 50257 * 768
    several = planned(GPT, "8xA100", engine, training=True).plan
    assert several.status == "optimal" and several.planner_options["copied"] == "lm_head"
    problem, device = several.problem, several.placement.device
    apart = device[problem.edge_producer] != device[problem.consumers]
    assert (apart & (problem.tensor_bytes[problem.edge_tensor] == table)).sum() == 2
    alone = planned(GPT, "4090+3060", engine, training=True)
    assert len(alone.by_blocks.stages) == 1 and "copied" not in alone.plan.planner_options


def test_training_without_ties_is_planned_for_engines_that_train():
    source = "zoo:llama-7b?layers=6&context=64&batch=1"
    found = planned(source, "8xA100", "deepspeed", training=True)
    assert verify(found.plan).ok and sum(found.by_blocks.layers) == 6


def test_the_price_of_the_limits_is_said():
    found = plan_for(GPT, "4090+3060", "vllm", objective="latency", free_seconds=0.5)
    record = engine_record(found)
    assert record["engine"] == "vllm"
    assert record["unrestricted"]["bound"] <= record["unrestricted"]["value"] <= record["value"]
    assert record["stages"] == stage_records(found.by_blocks)
    first = record["stages"][0]
    assert set(first) == {"device", "first", "last", "layers", "memory"}
    assert "without the limits of vllm: latency" in engine_words(found)[-1]


def test_the_command_plans_for_an_engine_and_writes_the_plan(tmp_path):
    path = tmp_path / "plan.json"
    found = run("plan", GPT, "-c", "4090+3060", "--for", "accelerate", "--time-limit", 0.2,
                "-o", path, "--json")  # fmt: skip
    assert found.code == 0 and found.json["status"] == "optimal"
    assert found.json["plan"] == str(path)
    assert run("verify", path).code == 0
    words = run("plan", GPT, "-c", "4090+3060", "--for", "accelerate", "--time-limit", 0, "--wide")
    assert words.code == 0 and "accelerate, stage 1: rtx4090, embedding to lm_head" in words.out
    refused = run("plan", GPT, "-c", "4090+3060", "--for", "vllm", "-p", "heft")
    assert refused.code == 2 and "leave out --planner" in refused.err


@pytest.mark.parametrize(
    "given", [("-O", "tries=3"), ("--gap", 0.3), ("--iterations", 3), ("--processes", 1)]
)
def test_what_a_planner_would_be_told_is_refused_in_plans_for_an_engine(given):
    refused = run("plan", GPT, "-c", "4090+3060", "--for", "accelerate", *given)
    assert refused.code == 2 and "leave out -O, --gap, --iterations" in refused.err


def test_a_model_of_one_layer_has_no_row_and_is_told_so():
    with pytest.raises(OptionError, match="its module paths number no units side by side, and no"):
        planned("zoo:llama-7b?layers=1", "4090+3060", "vllm")
