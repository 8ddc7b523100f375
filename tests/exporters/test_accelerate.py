"""Accelerate dispatches exported maps: the same logits, and tied weights stay tied."""

import json
import shlex
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import placewright as pw
from placewright.errors import OptionError
from placewright.exporters.accelerate import device_map, write_load_script
from placewright.exporters.exporting import export
from placewright.exporters.planning import plan_for
from placewright.plan import Placement, Plan
from placewright.simulate import evaluate
from placewright.whatif.judging.judge import Given, judge

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
accelerate = pytest.importorskip("accelerate")

SMALL = "vocab_size=120&sequence=8"
MODELS = {
    "llama": "num_hidden_layers=3&hidden_size=32&intermediate_size=48&num_attention_heads=4"
    "&num_key_value_heads=2",
    "gpt2": "n_layer=3&n_embd=32&n_head=4",
    "qwen2": "num_hidden_layers=3&hidden_size=32&intermediate_size=48&num_attention_heads=4"
    "&num_key_value_heads=2&tie_word_embeddings=true",
    "mixtral": "num_hidden_layers=2&hidden_size=32&intermediate_size=48&num_attention_heads=4"
    "&num_key_value_heads=2&num_local_experts=4",
    "t5": "num_layers=2&d_model=32&d_ff=48&num_heads=4&d_kv=8",
    "bert": "num_hidden_layers=3&hidden_size=32&intermediate_size=48&num_attention_heads=4",
    "opt": "num_hidden_layers=3&hidden_size=32&ffn_dim=48&num_attention_heads=4"
    "&word_embed_proj_dim=32",
    "gpt_neox": "num_hidden_layers=3&hidden_size=32&intermediate_size=48&num_attention_heads=4",
    "gemma2": "num_hidden_layers=3&hidden_size=32&intermediate_size=48&num_attention_heads=4"
    "&num_key_value_heads=2&head_dim=8",
    "bart": "encoder_layers=2&decoder_layers=2&d_model=32&encoder_ffn_dim=48&decoder_ffn_dim=48"
    "&encoder_attention_heads=4&decoder_attention_heads=4",
}


def source_of(kind):
    return f"hf:{kind}?{MODELS[kind]}&{SMALL}"


@cache
def spread(kind, devices=3):
    """A plan for Accelerate on several equal devices of little memory, so that it must part."""
    source = pw.load(source_of(kind))
    whole = plan_for(source, "2x3090", "accelerate", free_seconds=0)
    kept, blocks = whole.plan.problem.op_memory, whole.by_blocks.blocks
    largest = np.bincount(whole.plan.problem.op_unit, kept).max()
    room = max(float(largest) * 1.05, float(kept.sum()) * 0.7)
    cluster = pw.load_cluster("8xA100")
    small = tuple(replace(each, memory=room) for each in cluster.devices)
    assert blocks.count > devices
    found = plan_for(source, replace(cluster, devices=small), "accelerate", free_seconds=0)
    return found.plan


@pytest.mark.parametrize("kind", list(MODELS))
def test_a_dispatched_model_gives_the_same_logits(kind):
    from placewright.importers.torch.configuration import configuration
    from placewright.importers.torch.sources import hf_kind

    plan = spread(kind)
    mapped = device_map(plan)
    assert len(set(mapped.values())) > 1, mapped
    fields = dict(each.split("=") for each in f"{MODELS[kind]}&vocab_size=120".split("&"))
    torch.manual_seed(0)
    factory = getattr(transformers, f"AutoModelFor{hf_kind(source_of(kind)[3:])}")
    model = factory.from_config(configuration(kind, fields, kind)).eval()
    ids = torch.arange(8)[None] + 3
    inputs = {
        "input_ids": ids,
        **({"decoder_input_ids": ids} if "t5" in kind or kind == "bart" else {}),
    }
    with torch.no_grad():
        before = model(**inputs).logits
        dispatched = accelerate.dispatch_model(
            model,
            device_map=dict.fromkeys(mapped, "cpu"),
            main_device="cpu",
            force_hooks=True,
        )
        after = dispatched(**inputs).logits
    assert torch.equal(before, after)
    named = {*dict(model.named_modules()), *model.state_dict()}
    assert set(mapped) <= named


@pytest.mark.parametrize("kind", ["gpt2", "qwen2", "t5", "opt"])
def test_modules_that_share_weights_are_on_one_device(kind):
    mapped = device_map(spread(kind))

    def device(module):
        return next(
            where
            for name, where in mapped.items()
            if module == name or module.startswith(name + ".")
        )

    from placewright.importers.torch.sources import load_hf

    model = load_hf(source_of(kind)[3:])[0]
    owners = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(device(name))
    assert all(len(devices) == 1 for devices in owners.values())


def test_the_map_names_rotary_positions_and_counts_gpus(tmp_path):
    path = tmp_path / "map.json"
    export(spread("llama"), "accelerate", path)
    mapped = json.loads(path.read_text())
    assert "model.rotary_emb" in mapped
    assert set(mapped.values()) <= set(range(8))


def test_the_load_script_has_the_map_and_the_class(tmp_path):
    plan, path = spread("llama"), tmp_path / "load.py"
    write_load_script(path, plan)
    scope = {"__name__": "loaded"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    assert scope["DEVICE_MAP"] == device_map(plan)
    assert "AutoModelForCausalLM" in scope


def test_the_load_script_loads_a_plan_on_one_device(tmp_path):
    config = transformers.AutoConfig.for_model(
        "gpt2", n_layer=2, n_embd=32, n_head=4, vocab_size=120
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    figures = {"peak_flops": {"fp32": 1e12}, "memory_bandwidth": 1e11}
    cluster = pw.Cluster("box", (pw.Device("cpu", "cpu", memory=1e12, **figures),), ())
    source = f"hf:{tmp_path / 'model'}?sequence=8"
    plan = plan_for(source, cluster, "transformers", free_seconds=0).plan
    path = tmp_path / 'an "odd" name\\N.py'
    (line,) = write_load_script(path, plan)
    words = [sys.executable, *shlex.split(line)[1:-1], str(tmp_path / "model")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "cpu\n"), done.stderr


def test_ties_that_a_plan_parts_are_refused():
    whole = plan_for(source_of("gpt2"), "2x3090", "vllm", free_seconds=0).plan.problem
    room = 0.7 * float(whole.op_memory.sum()) / 0.9  # so that it must part
    cluster = pw.load_cluster("2x3090")
    small = tuple(replace(each, memory=room) for each in cluster.devices)
    cluster = replace(cluster, devices=small)
    found = plan_for(source_of("gpt2"), cluster, "vllm", objective="latency", free_seconds=0)
    with pytest.raises(OptionError, match="keeps tied weights together"):
        device_map(found.plan)


def test_a_cpu_that_computes_beside_gpus_is_refused():
    plan = pw.plan(source_of("llama"), "a100+2xt4+cpu", granularity="block", planner="heft")
    problem = plan.problem
    device = np.zeros(problem.op_count, dtype=np.int32)
    device[problem.op_unit == problem.op_unit[-1]] = list(problem.device_names).index("cpu")
    placement = Placement(device)
    outcome = evaluate(problem, placement)
    mixed = Plan(problem, placement, outcome, outcome.value, 0.0, "", "test", source=plan.source)
    with pytest.raises(
        OptionError, match="to the first GPU, a100, to compute it, and the plan has"
    ):
        device_map(mixed)


def test_an_apple_gpu_is_mps_and_fetches_nothing_from_a_cpu():
    chip = pw.Device("gpu", "M2 Max", memory=1e9)
    figures = {"peak_flops": {"fp32": 1e10}, "memory_bandwidth": 1e9}
    cpu = pw.Device("cpu", "cpu", memory=1e9, **figures)
    mac = pw.Cluster("mac", (chip, cpu), (pw.Link("gpu", "cpu", 1e11),))
    plan = plan_for(source_of("llama"), mac, "accelerate", free_seconds=0).plan
    assert set(device_map(plan).values()) == {"mps"}
    device = plan.placement.device.copy()
    device[plan.problem.op_unit == plan.problem.op_unit[-1]] = 1
    with pytest.raises(OptionError, match="leaves nothing on the CPU where an Apple GPU computes"):
        device_map(replace(plan, placement=Placement(device)))


def test_what_a_cpu_keeps_is_in_the_map_and_judged_as_it_was_planned(tmp_path):
    source, cluster = source_of("llama"), pw.load_cluster("a100+2xt4+cpu")
    kept = plan_for(source, cluster, "accelerate", free_seconds=0).plan.problem.op_memory.sum()
    room = {"a100": 0.7 * kept, "t4-0": 0.0, "t4-1": 0.0}
    cluster = replace(
        cluster,
        devices=tuple(replace(each, memory=room.get(each.name, 1e9)) for each in cluster.devices),
    )
    plan = plan_for(source, cluster, "accelerate", free_seconds=0).plan
    assert plan.planner_options["offload"] == "a100" and plan.gap < 0.05
    path = tmp_path / "map.json"
    export(plan, "accelerate", path)
    assert set(json.loads(path.read_text()).values()) == {0, "cpu"}
    again = judge(source, cluster, Given(placement=path)).plan
    assert again.value == pytest.approx(plan.value, rel=1e-9)


@pytest.mark.parametrize("share", [0.65, 0.7, 0.75, 0.8, 0.85])
def test_rows_beside_the_best_leave_room_for_weights_that_are_fetched(share):
    source = pw.load("hf:gpt2?n_layer=4&n_embd=64&n_head=4&vocab_size=1000&batch=2")
    cluster = pw.load_cluster("4090+cpu")
    kept = plan_for(source, cluster, "accelerate", free_seconds=0).plan.problem.op_memory.sum()
    gpu, cpu = cluster.devices
    cluster = replace(cluster, devices=(replace(gpu, memory=share * kept), cpu))
    plan = plan_for(source, cluster, "accelerate", free_seconds=0).plan
    assert plan.planner_options["offload"] == gpu.name
    assert plan.lower_bound <= plan.value
