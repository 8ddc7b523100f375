"""Exports say to each engine what the plan says, by the engine's own rule, or are refused.

The rules are restated from the file and version that the engine's row names.
"""

import csv
import json
import re
import runpy
import shlex
import sys
import types
from dataclasses import replace

import numpy as np
import pytest

import placewright as pw
from placewright.cluster import Cluster, CudaRun, Device, Link
from placewright.errors import OptionError
from placewright.exporters.engines import ENGINES
from placewright.exporters.exporting import export
from placewright.exporters.llama_cpp.arguments import command
from placewright.exporters.planning import plan_for
from placewright.exporters.requests import plan_requests_for
from placewright.exporters.serving_engines import sglang_settings, vllm_settings
from placewright.exporters.training_engines import megatron_settings
from placewright.simulate import evaluate
from tests.cli.running import run

LLAMA = "zoo:llama-13b?phase=decode&context=512"


def planned(engine, source=LLAMA, cluster="4090+3060", **options):
    return plan_for(source, cluster, engine, free_seconds=0, **options).by_blocks


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: planned(3), "engine is 3; give the name of one, such as 'vllm'"),
        (lambda: plan_for(LLAMA, "2x3090", "vllm", free_seconds="x"), "free_seconds is 'x'; give"),
        (lambda: plan_for(LLAMA, "2x3090", "vllm", free_seconds=-1), "free_seconds is -1; give se"),
        (lambda: planned("megatron", training="no"), "training is 'no'; give True or False"),
        (lambda: plan_requests_for(LLAMA, "2x3090", "vllm", 3), "mix is 3; give text such as"),
        (lambda: plan_requests_for(3, "2x3090", "vllm", "prompt=1,output=1"), "source is 3; give"),
        (lambda: export("p.json", "csv", 3), "path is 3; give the name of a file"),
        (lambda: export("p.json", "onnxruntime", 3), "path is 3; give the name of a folder"),
        (lambda: export("p.json", "csv", "x.csv", 3), "options is 3; give a mapping"),
    ],
)
def test_what_is_asked_for_an_engine_with_something_else_says_what_it_takes(ask, says):
    with pytest.raises(OptionError, match=says):
        ask()


def layer_devices(found):
    """The device of each layer."""
    return found.device[found.blocks.repeated].tolist()


def pipeline_layers(partition, layers):
    """`get_pp_indices` of vLLM and SGLang: each rank's layers."""
    counts = [int(each) for each in partition.split(",")]
    assert sum(counts) == layers
    starts = np.concatenate([[0], np.cumsum(counts)]).tolist()
    return [range(starts[rank], starts[rank + 1]) for rank in range(len(counts))]


@pytest.mark.parametrize(
    ("engine", "settings", "variable", "size"),
    [
        ("vllm", vllm_settings, "VLLM_PP_LAYER_PARTITION", "--pipeline-parallel-size"),
        ("sglang", sglang_settings, "SGLANG_PP_LAYER_PARTITION", "--pp-size"),
    ],
)
def test_a_pipeline_server_gets_each_layer_on_the_gpu_of_the_plan(engine, settings, variable, size):
    found = planned(engine)
    document = settings(found.plan)
    ranks = pipeline_layers(document["environment"][variable], 40)
    visible = [int(each) for each in document["environment"]["CUDA_VISIBLE_DEVICES"].split(",")]
    named = document["arguments"]
    assert int(named[named.index(size) + 1]) == len(ranks) == len(visible)
    of_layer = [gpu for gpu, layers in zip(visible, ranks, strict=True) for _ in layers]
    assert of_layer == layer_devices(found)  # the two GPUs are numbered as in the cluster


def test_gpus_have_the_numbers_that_the_cluster_says():
    devices = [Device(f"gpu{k}", "RTX 3090", run=CudaRun(index)) for k, index in enumerate((5, 2))]
    cluster = Cluster("box", tuple(devices), (Link("gpu0", "gpu1", 1e10, 1e-5),))
    found = planned("vllm", cluster=cluster)
    visible = vllm_settings(found.plan)["environment"]["CUDA_VISIBLE_DEVICES"]
    order = [{0: "5", 1: "2"}[stage.device] for stage in found.stages]
    assert visible == ",".join(order)


def llama_layer_devices(given, layers):
    """`load_tensors` of llama.cpp: the device of each layer and of the output."""
    named = dict(zip(given[::2], given[1::2], strict=True))
    on_gpus = int(named["-ngl"])
    splits = np.array([float(each) for each in named.get("-ts", "").split(",") if each])
    splits = (np.cumsum(splits, dtype=np.float32) / np.float32(splits.sum())).astype(np.float32)
    names = named.get("-dev", "").split(",")
    first, active = max(layers + 1 - on_gpus, 0), min(on_gpus, layers + 1)

    def device(layer):
        if layer < first or layer - first >= active:
            return "CPU"
        share = np.float32(layer - first) / np.float32(active)
        return names[int(np.searchsorted(splits, share, side="right"))]

    return [device(layer) for layer in range(layers + 1)]


@pytest.mark.parametrize("cluster", ["4090+3060", "2x3090", "a100+2xt4+cpu"])
@pytest.mark.parametrize("source", [LLAMA, "zoo:gpt2-xl", "zoo:llama3-8b?context=256"])
def test_llama_cpp_puts_each_layer_where_the_plan_does(cluster, source):
    found = planned("llama-cpp", source, cluster)
    cpu = found.plan.problem.is_cpu
    gpus = [device for device in range(len(cpu)) if not cpu[device]]
    wanted = [*layer_devices(found), int(found.device[-1])]
    names = ["CPU" if cpu[each] else f"CUDA{gpus.index(each)}" for each in wanted]
    assert llama_layer_devices(command(found.plan).arguments, len(wanted) - 1) == names


def test_a_model_larger_than_its_gpus_begins_on_the_cpu_in_llama_cpp():
    found = planned("llama-cpp", "zoo:llama-70b?phase=decode&context=64", "a100+2xt4+cpu")
    given = command(found.plan).arguments
    assert found.plan.problem.is_cpu[layer_devices(found)[0]]
    assert 0 < int(given[given.index("-ngl") + 1]) < 81


@pytest.mark.parametrize("counts", [(1, 1), (7, 4), (3, 1, 29), (13, 17, 50, 1)])
def test_whole_numbers_share_llama_cpp_slots_out_exactly(counts):
    names = [f"CUDA{k}" for k in range(len(counts))]
    given = ["-ngl", str(sum(counts)), "-dev", ",".join(names), "-ts", ",".join(map(str, counts))]
    found = llama_layer_devices(given, sum(counts) - 1)
    assert found == [name for name, count in zip(names, counts, strict=True) for _ in range(count)]


def megatron_stages(layout):
    """`parse_str_to_list` of Megatron-Core for the letters that are used here."""
    stages = []
    for stage in layout.split("|"):
        letters = ""
        while stage:
            count, letter, stage = "1", stage[0], stage[1:]
            if stage.startswith("*"):
                digits = len(stage[1:]) - len(stage[1:].lstrip("0123456789"))
                count, stage = stage[1 : 1 + digits], stage[1 + digits :]
            letters += letter * int(count)
        stages.append(letters)
    return stages


def test_megatron_gets_a_layout_with_the_layers_of_each_stage():
    found = planned("megatron")
    named = megatron_settings(found.plan)["arguments"]
    stages = megatron_stages(named[named.index("--pipeline-model-parallel-layout") + 1])
    assert [stage.count("t") for stage in stages] == found.layers
    letters = "".join(stages)
    assert letters == "E" + 40 * "t" + "L"
    assert named[1] == str(len(stages))


TRAINED = "zoo:llama-7b?layers=4&context=64&batch=3"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "megatron", "deepspeed"])
@pytest.mark.parametrize(
    ("kind", "named"), [("M2 Max", "Apple M2 Max"), ("Arc B580", "Intel Arc B580")]
)
def test_engines_of_cuda_devices_refuse_others(engine, kind, named, tmp_path):
    figures = {"peak_flops": {"fp16": 1e13, "fp32": 1e13}, "memory_bandwidth": 4e11}
    box = Cluster("box", (Device("gpu", kind, memory=1e12, **figures),), ())
    with pytest.raises(OptionError, match=f"{engine}: device 'gpu' is an {named}, and"):
        export(planned(engine, cluster=box).plan, engine, tmp_path / "out")


def test_gpus_of_rocm_are_called_as_those_of_cuda(tmp_path):
    found = planned("vllm", cluster="8xMI300X")
    (line,) = export(found.plan, "vllm", tmp_path / "out")
    assert "CUDA_VISIBLE_DEVICES=0" in line


def test_megatron_is_started_with_a_rank_for_each_gpu_it_sees(tmp_path):
    found = planned("megatron")
    (line,) = export(found.plan, "megatron", tmp_path / "megatron.json")
    variables = dict(word.split("=") for word in shlex.split(line) if re.match("[A-Z_]+=", word))
    gpus = variables["CUDA_VISIBLE_DEVICES"].split(",")
    assert len(gpus) == len(found.stages) > 1
    assert f"torchrun --nproc-per-node {len(gpus)} pretrain_gpt.py" in line


def megatron_micro_batches(arguments):
    """`num_microbatches_calculator` of Megatron-Core: `global_batch_size //
    (micro_batch_size * data_parallel_size)`, the rest of the division refused."""
    named = dict(zip(arguments[::2], arguments[1::2], strict=True))
    whole, micro = int(named["--global-batch-size"]), int(named["--micro-batch-size"])
    assert whole % micro == 0
    return micro, whole // micro


def test_megatron_gets_the_micro_batches_of_a_step():
    found = planned("megatron", TRAINED, training=True, micro_batches=5)
    assert megatron_micro_batches(megatron_settings(found.plan)["arguments"]) == (3, 5)
    full = planned("megatron", TRAINED, training=True)
    assert "--global-batch-size" not in megatron_settings(full.plan)["arguments"]


def test_deepspeed_gets_the_micro_batches_of_a_step(tmp_path, monkeypatch):
    """`PipelineEngine.micro_batches` is `gradient_accumulation_steps` (runtime/pipe/engine.py)."""
    package = types.ModuleType("deepspeed.pipe")
    package.PipelineModule = object
    monkeypatch.setitem(sys.modules, "deepspeed", types.ModuleType("deepspeed"))
    monkeypatch.setitem(sys.modules, "deepspeed.pipe", package)
    steps = planned("deepspeed", TRAINED, training=True, micro_batches=5)
    lines = export(steps.plan, "deepspeed", tmp_path / "steps.py")
    assert runpy.run_path(str(tmp_path / "steps.py"))["CONFIG"] == {
        "train_micro_batch_size_per_gpu": 3,
        "gradient_accumulation_steps": 5,
    }
    assert lines[0].endswith("and CONFIG")
    # The launcher of DeepSpeed would sort the GPUs (parse_node_config_list, launcher/runner.py).
    start = r"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=\S+ torchrun --standalone "
    assert re.match(rf"{start}--nproc-per-node \d+ SCRIPT\.py  # ", lines[0])
    full = planned("deepspeed", TRAINED, training=True)
    export(full.plan, "deepspeed", tmp_path / "full.py")
    assert "CONFIG" not in runpy.run_path(str(tmp_path / "full.py"))


@pytest.mark.parametrize("engine", ["megatron", "deepspeed"])
def test_a_micro_batch_of_no_known_size_is_refused(engine, tmp_path):
    plan = planned(engine, TRAINED, training=True, micro_batches=5).plan
    unknown = replace(plan, problem=replace(plan.problem, input_samples=None))
    with pytest.raises(OptionError, match="does not say; give -O samples=NUMBER, or plan without"):
        export(unknown, engine, tmp_path / "out")
    with pytest.raises(OptionError, match="-O samples=0: give a whole number above 0"):
        export(unknown, engine, tmp_path / "out", {"samples": "0"})
    with pytest.raises(OptionError, match="-O samples=4: give 3, as the plan's source says"):
        export(plan, engine, tmp_path / "out", {"samples": "4"})
    assert not (tmp_path / "out").exists()
    export(unknown, engine, tmp_path / "out", {"samples": "7"})
    assert "7" in (tmp_path / "out").read_text()
    export(unknown, engine, tmp_path / "number", {"samples": 7})
    assert (tmp_path / "number").read_text() == (tmp_path / "out").read_text()


@pytest.mark.parametrize(
    ("engine", "settings", "option"),
    [("vllm", vllm_settings, "--max-model-len"), ("sglang", sglang_settings, "--context-length")],
)
def test_a_server_is_told_the_context_that_its_plan_is_for(engine, settings, option):
    arguments = settings(planned(engine).plan)["arguments"]
    assert arguments[arguments.index(option) + 1] == "512"
    forward = settings(planned(engine, "zoo:llama-7b").plan)["arguments"]
    assert option not in forward


@pytest.mark.parametrize(("engine", "kind"), [("vllm", "bert"), ("sglang", "vit")])
def test_servers_of_tokens_refuse_pipelines_of_other_models(engine, kind, tmp_path):
    """vLLM's BERT, and SGLang's, have no pipelines; neither has a ViT by itself."""
    pytest.importorskip("transformers")
    found = planned(engine, f"hf:{kind}?num_hidden_layers=4", "2x3090")
    assert len(found.stages) == 2
    with pytest.raises(OptionError, match=f"{engine} runs pipelines of models that make one token"):
        export(found.plan, engine, tmp_path / "x.json")
    llama = "num_hidden_layers=2&hidden_size=64&intermediate_size=96&vocab_size=100&sequence=8"
    assert export(planned(engine, f"hf:llama?{llama}", "2x3090").plan, engine, tmp_path / "y.json")


@pytest.mark.parametrize("engine", ["accelerate", "vllm", "deepspeed"])
def test_a_plan_that_leaves_the_embedding_in_host_memory_is_llama_cpps_own(engine, tmp_path):
    plan = planned("llama-cpp").plan
    assert export(plan, "llama-cpp", tmp_path / "own")
    with pytest.raises(
        OptionError, match=f"in host memory, as llama.cpp does; plan with --for {engine}"
    ):
        export(plan, engine, tmp_path / "out")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_engines_of_cuda_leave_out_the_gpu_of_an_apple_chip(engine):
    found = planned(engine, "zoo:llama-7b?phase=decode&context=512", "mac+pc")
    used = {found.plan.problem.device_kinds[stage.device] for stage in found.stages}
    assert used == {"RTX 4090"}


def recomputing(engine, **options):
    return planned(
        engine, TRAINED, training=True, costs=pw.CostOptions(recompute="block"), **options
    )


def test_megatron_is_told_to_recompute_each_layer():
    """`TransformerBlock._checkpointed_forward`: ``uniform`` runs every `recompute_num_layers`
    layers again as one (megatron/core/transformer/transformer_block.py)."""
    arguments = megatron_settings(recomputing("megatron", micro_batches=5).plan)["arguments"]
    named = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert named["--recompute-granularity"] == "full"
    assert (named["--recompute-method"], named["--recompute-num-layers"]) == ("uniform", "1")
    keeping = megatron_settings(planned("megatron", TRAINED, training=True).plan)["arguments"]
    assert not any("recompute" in each for each in keeping)


def test_deepspeed_recomputes_the_layers_of_the_plan(tmp_path, monkeypatch):
    """`PipelineModule.forward` recomputes each `activation_checkpoint_interval` layers in a row
    of which `_is_checkpointable` says so (runtime/pipe/module.py)."""

    class Module:
        def __init__(self, layers, num_stages, **given):
            self.given = given

    package = types.ModuleType("deepspeed.pipe")
    package.PipelineModule = Module
    monkeypatch.setitem(sys.modules, "deepspeed", types.ModuleType("deepspeed"))
    monkeypatch.setitem(sys.modules, "deepspeed.pipe", package)
    found = recomputing("deepspeed")
    export(found.plan, "deepspeed", tmp_path / "stages.py")
    made = runpy.run_path(str(tmp_path / "stages.py"))
    again = set()
    for stage in found.stages:
        module = made["PlannedPipelineModule"](made["LAYERS"], num_stages=len(found.stages))
        assert module.given == {"activation_checkpoint_interval": 1}
        module._local_start = stage.first
        module.forward_funcs = [object() for _ in found.names(stage)]
        again |= {
            stage.first + number
            for number, layer in enumerate(module.forward_funcs)
            if module._is_checkpointable([layer])
        }
    assert again == set(np.flatnonzero(found.blocks.repeated).tolist())
    export(planned("deepspeed", TRAINED, training=True).plan, "deepspeed", tmp_path / "keeps.py")
    assert "RECOMPUTED" not in runpy.run_path(str(tmp_path / "keeps.py"))


def test_engines_that_do_not_train_refuse_to_recompute():
    with pytest.raises(OptionError, match="plan --for megatron or deepspeed or torch-pipelining"):
        planned("vllm", costs=pw.CostOptions(recompute="block"))


def test_deepspeed_builds_the_layers_of_its_stage(tmp_path, monkeypatch):
    found = planned("deepspeed")
    path = tmp_path / "stages.py"
    export(found.plan, "deepspeed", path)
    package = types.ModuleType("deepspeed.pipe")
    package.PipelineModule = object
    monkeypatch.setitem(sys.modules, "deepspeed", types.ModuleType("deepspeed"))
    monkeypatch.setitem(sys.modules, "deepspeed.pipe", package)
    made = runpy.run_path(str(path))
    built = []
    for rank, stage in enumerate(found.stages):
        module = made["PlannedPipelineModule"]()
        module._layer_specs, module.global_rank = made["LAYERS"], rank
        module._topo = types.SimpleNamespace(
            get_dim=lambda name: len(found.stages),
            get_coord=lambda rank: types.SimpleNamespace(pipe=rank),
        )
        module._set_bounds = lambda start, stop: built.append(made["LAYERS"][start:stop])
        module._partition_layers()
        assert built[-1] == list(found.names(stage))
        assert made["DEVICES"][rank] == found.device_name(stage)


def test_a_table_has_a_line_per_op(tmp_path):
    plan = pw.plan("zoo:gpt2?layers=2", "2x3090", planner="heft")
    path = tmp_path / "plan.csv"
    export(plan, "csv", path)
    rows = list(csv.DictReader(path.open()))
    assert {row["op"]: row["device"] for row in rows} == plan.device_of()
    assert sum(float(row["memory_bytes"]) for row in rows) == plan.problem.op_memory.sum()


def test_a_graph_has_a_node_per_op_and_names_are_quoted(tmp_path):
    builder = pw.GraphBuilder('a"b\\c')
    op = builder.add_op('first "op"\n', "op", flops=1.0)
    builder.add_op("second", "op", [builder.add_tensor(op, 8.0)], flops=1.0)
    plan = pw.plan(builder.build(), "2x3090", planner="single-device")
    path = tmp_path / "plan.dot"
    export(plan, "dot", path)
    text = path.read_text()
    assert '0 [label="first \\"op\\"\\n"' in text and "0 -> 1;" in text
    assert text.startswith('digraph "a\\"b\\\\c on 2x3090" {')


@pytest.mark.parametrize(
    ("engine", "named"), [("dot", "a b"), ("model-explorer", "a b/graph.json")]
)
def test_paths_in_commands_are_quoted(engine, named, tmp_path):
    plan = pw.plan("zoo:gpt2?layers=1", "2x3090", planner="single-device")
    (line,) = export(plan, engine, tmp_path / "a b")
    assert str(tmp_path / named) in shlex.split(line)


def test_a_plan_that_splits_blocks_is_refused_by_every_engine():
    plan = pw.plan("zoo:llama-7b?layers=4&context=64", "2x3090", planner="m-topo")
    for name, row in ENGINES.items():
        if row.limits:
            with pytest.raises(OptionError, match=f"(takes whole blocks|{name})"):
                export(plan, name, "never-written.json")


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("onnx", "onnx takes plans of ONNX files, and the plan is of zoo:llama-13b"),
        ("onnxruntime", "onnxruntime takes plans of ONNX files"),
        ("torch-pipelining", "takes plans of modules, and the plan is of zoo:llama-13b"),
        ("nonsense", "no engine 'nonsense'; there are accelerate"),
        ("Llama.cpp", "no engine 'Llama.cpp'; did you mean 'llama-cpp'?"),
        ("llama-cpp", "keeps the input embedding in host memory"),
        ("transformers", "which Transformers does not load"),
    ],
)
def test_what_an_engine_cannot_express_is_refused_with_the_reason(engine, why, tmp_path):
    plan = planned("vllm").plan
    path = tmp_path / "out"
    with pytest.raises(OptionError, match=why):
        export(plan, engine, path)
    assert not path.exists()


def test_an_embedding_on_a_stage_of_its_own_is_refused_by_servers():
    plan = pw.plan("zoo:llama-7b?layers=2", "2x3090", granularity="block", planner="single-device")
    device = np.ones(plan.problem.op_count, dtype=np.int32)
    device[0] = 0
    placement = pw.Placement(device)
    outcome = evaluate(plan.problem, placement)
    parted = replace(plan, placement=placement, outcome=outcome, value=outcome.value)
    with pytest.raises(OptionError, match=r"has embedding on a stage without layers \(gpu0\)"):
        vllm_settings(parted)


@pytest.mark.parametrize("engine", ["vllm", "megatron", "deepspeed"])
def test_cpus_are_refused_with_what_helps(engine, tmp_path):
    figures = {"peak_flops": {"fp32": 1e12}, "memory_bandwidth": 1e11}
    cpu = Cluster("cpus", (Device("cpu", "cpu", memory=1e12, **figures),), ())
    plan = planned(engine, "zoo:gpt2?layers=2", cluster=cpu).plan
    with pytest.raises(OptionError, match=f"{engine} runs on GPUs, .* a cluster with GPUs"):
        export(plan, engine, tmp_path / "out")
    beside = pw.plan("zoo:gpt2?layers=2", "4090+cpu", granularity="block", planner="single-device")
    placement = pw.Placement(np.ones_like(beside.placement.device))
    outcome = evaluate(beside.problem, placement)
    on_cpu = replace(beside, placement=placement, outcome=outcome, value=outcome.value)
    with pytest.raises(OptionError, match=f"{engine} runs on GPUs, .* plan with --for {engine}"):
        export(on_cpu, engine, tmp_path / "out")


def test_the_command_writes_the_file_and_prints_how_to_use_it(tmp_path):
    plan, out = tmp_path / "plan.json", tmp_path / "vllm.json"
    planned("vllm").plan.save(plan)
    found = run("export", plan, "--to", "vllm", "-o", out)
    assert found.code == 0 and "vllm serve MODEL --pipeline-parallel-size 2" in found.out
    assert set(json.loads(out.read_text())) == {"environment", "arguments"}
    refused = run("export", plan, "--to", "onnx", "-o", tmp_path / "x")
    assert refused.code == 2 and "onnx takes plans of ONNX files" in refused.err
    trace = tmp_path / "trace.json"
    pw.plan("zoo:gpt2?layers=1", "2x3090", planner="heft").save(plan)
    assert run("export", plan, "--to", "perfetto", "-o", trace).code == 0
    assert json.loads(trace.read_text())["traceEvents"]


def served_on(hosts, engine, tmp_path):
    """The lines of an export of a plan with a stage on a device of each of these hosts, in turn."""
    devices = tuple(
        Device(f"gpu{k}", "A100", memory=6e9, host=host) for k, host in enumerate(hosts)
    )
    links = tuple(
        Link(one.name, two.name, 1e12) for k, one in enumerate(devices) for two in devices[k + 1 :]
    )
    source = "zoo:llama-7b?phase=decode&context=64"
    cluster = Cluster("hosts", devices, links)
    plan = plan_for(source, cluster, engine, free_seconds=0).plan
    row = dict.fromkeys(plan.placement.device[plan.problem.topological_order].tolist())
    assert len(row) == len(hosts)
    moved = {old: new for new, old in enumerate(row)}
    device = np.array([moved[each] for each in plan.placement.device.tolist()], dtype=np.int32)
    placement = replace(plan.placement, device=device)
    outcome = evaluate(plan.problem, placement)
    plan = replace(plan, placement=placement, outcome=outcome, value=outcome.value, lower_bound=0.0)
    return export(plan, engine, tmp_path / "settings.json")


@pytest.mark.parametrize(
    ("engine", "joins", "answers"),
    [
        ("vllm", "--master-addr one --master-port 29500", " --headless"),
        ("sglang", "--dist-init-addr one:29500", ""),
    ],
)
def test_a_server_on_several_hosts_is_started_on_each(engine, joins, answers, tmp_path):
    one, two, *_ = served_on(["one", "one", "two", "two"], engine, tmp_path)
    assert one.startswith("one: ") and one.endswith(f"--nnodes 2 --node-rank 0 {joins}")
    assert two.startswith("two: ") and two.endswith(f"--nnodes 2 --node-rank 1 {joins}{answers}")
    assert "CUDA_VISIBLE_DEVICES=0,1" in one and "CUDA_VISIBLE_DEVICES=0,1" in two
    partition = next(word for word in one.split() if "PP_LAYER_PARTITION=" in word)
    assert partition.count(",") == 3 and partition in two
    with pytest.raises(
        OptionError, match=r"as many stages on every host, and .* 2 on one, 1 on two"
    ):
        served_on(["one", "one", "two"], engine, tmp_path)
    with pytest.raises(OptionError, match="the plan's stages go over the hosts one, two, one"):
        served_on(["one", "two", "one"], engine, tmp_path)


@pytest.mark.parametrize(("cluster", "faulty"), [("three-hosts", True), ("2x3090", False)])
def test_a_plan_that_cannot_be_started_on_its_hosts_says_so_at_once(cluster, faulty, tmp_path):
    source, plan = "zoo:llama-7b?layers=8&batch=1&dtype=bf16", tmp_path / "plan.json"
    source = source if faulty else source.replace("layers=8", "layers=2")
    asked = ("--training", "--for", "megatron", "--micro-batches", 8, "--time-limit", 0)
    said = run("plan", source, "-c", cluster, *asked, "-o", plan).err
    refused = run("export", plan, "--to", "megatron", "-o", tmp_path / "settings.json")
    assert (refused.code, "cannot be exported" in said) == ((2, True) if faulty else (0, False))
    fault = refused.err.removeprefix("placewright: ").strip()
    assert not faulty or " ".join(fault.split()) in " ".join(said.split())
