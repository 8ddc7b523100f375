"""Plans for engines keep inside what these can run, and say what that costs."""

import numpy as np
import pytest

from placewright.errors import OptionError
from placewright.exporters.engines import ENGINES
from placewright.exporters.planning import plan_for
from placewright.exporters.stages import stage_records
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


def test_tied_weights_bring_accelerate_back_to_its_first_device():
    found = planned("zoo:gpt2-xl", "8xA100", "accelerate")
    whole = found.plan.problem.op_memory.sum()
    devices = found.by_blocks.device
    assert devices[0] == devices[-1] and whole < 80e9

    small = planned(GPT, "4090+3060", "vllm", objective="latency")
    assert small.plan.planner_options["copied"] == "lm_head"
    extra = (
        small.plan.problem.op_memory.sum()
        - planned(GPT, "4090+3060", "accelerate").plan.problem.op_memory.sum()
    )
    assert extra == pytest.approx(50257 * 768 * 2)


def test_accelerate_leaves_the_cpu_out_and_llama_cpp_has_the_embedding_there():
    names = planned(GPT, "a100+2xt4+cpu", "accelerate")
    cpu = list(names.plan.problem.device_names).index("cpu")
    assert cpu not in names.plan.placement.device
    llama = planned(GPT, "a100+2xt4+cpu", "llama-cpp")
    assert llama.by_blocks.device[0] == cpu
    assert (llama.by_blocks.device[1:] != cpu).all()


def test_a_serving_engine_has_its_share_of_the_memory_only():
    found = planned(LLAMA, "4090+3060", "vllm")
    free = planned(LLAMA, "4090+3060", "megatron")
    assert np.allclose(found.plan.problem.device_memory, 0.9 * free.plan.problem.device_memory)


def test_two_rows_of_layers_are_refused_by_engines_that_number_one():
    with pytest.raises(OptionError, match=r"the model has 2 \(encoder\.blocks, decoder\.blocks\)"):
        planned("zoo:t5-small", "4090+3060", "vllm")
    assert sum(planned("zoo:t5-small", "4090+3060", "deepspeed").by_blocks.layers) == 12


@pytest.mark.parametrize(
    ("engine", "options", "why"),
    [
        ("csv", {}, "nothing plans for a format"),
        ("tgi", {}, "no engine 'tgi'"),
        ("accelerate", {"objective": "throughput"}, "are for latency, not throughput"),
        ("accelerate", {"training": True}, "plans inference"),
        ("megatron", {"training": True}, "share weights across stages"),
        ("deepspeed", {"replicate": True}, "without replicas"),
    ],
)
def test_what_an_engine_is_not_planned_for_is_refused(engine, options, why):
    with pytest.raises(OptionError, match=why):
        planned(GPT, "4090+3060", engine, **options)


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
    words = run("plan", GPT, "-c", "4090+3060", "--for", "accelerate", "--time-limit", 0)
    assert words.code == 0 and "accelerate, stage 1: rtx4090, embedding to lm_head" in words.out
    refused = run("plan", GPT, "-c", "4090+3060", "--for", "vllm", "-p", "heft")
    assert refused.code == 2 and "leave out --planner" in refused.err
