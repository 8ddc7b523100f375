"""Exported pipelines run under torchrun on CPUs, and give what one process gives."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from placewright.cluster import Cluster, CpuRun, CudaRun, Device, Link
from placewright.costs.roofline import CostOptions
from placewright.errors import OptionError
from placewright.exporters.exporting import export
from placewright.exporters.planning import plan_for
from placewright.exporters.scripts import run_pipeline
from placewright.exporters.torch_pipelining import pipeline_document
from placewright.plan import Placement
from placewright.simulate import evaluate
from tests.exporters.test_accelerate import source_of
from tests.runtime import models
from tests.runtime.conftest import temporary  # noqa: F401
from tests.test_stash import saved_bytes

pytestmark = pytest.mark.timeout(300)
UNTIED = "&tie_word_embeddings=false"


def cluster_of(*kinds, runs=()):
    """Devices of these kinds, joined by links that cost next to nothing."""
    runs = runs or [None] * len(kinds)
    devices = tuple(
        Device(f"device{k}", kind, memory=1e12, run=run)
        for k, (kind, run) in enumerate(zip(kinds, runs, strict=True))
    )
    links = tuple(
        Link(one.name, two.name, 1e12) for k, one in enumerate(devices) for two in devices[k + 1 :]
    )
    return Cluster("box", devices, links)


def planned(source, *kinds, runs=(), **options):
    cluster = cluster_of(*kinds, runs=runs)
    return plan_for(source, cluster, "torch-pipelining", free_seconds=0, **options).by_blocks


def on_cpus(source, count, **options):
    found = planned(source, *["EPYC 7763"] * count, **options)
    assert len(found.stages) == count
    return found.plan


def ran(plan, folder: Path, *arguments: str) -> dict:
    """The report of the last rank; the script sees installed packages only."""
    export(plan, "torch-pipelining", folder)
    count = len(json.loads((folder / "stages.json").read_text())["stages"])
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
         str(count), str(folder / "run.py"), *arguments],
        capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# -- runs ------------------------------------------------------------------------------------------


def test_gpt2_on_two_ranks_gives_what_one_process_gives(tmp_path, temporary):  # noqa: F811
    report = ran(on_cpus(source_of("gpt2"), 2), tmp_path / "pipeline", "--check")
    assert report["schedule"] == "gpipe" and report["micro_batches"] == 4
    assert report["max_abs_difference"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama", "mixtral", "qwen2", "bert", "t5"])
def test_a_model_on_three_ranks_gives_what_one_process_gives(kind, tmp_path, temporary):  # noqa: F811
    report = ran(on_cpus(source_of(kind), 3), tmp_path / "pipeline", "--check")
    assert report["max_abs_difference"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("ties", ["", UNTIED])
def test_training_gives_the_losses_and_gradients_of_one_process(
    kind, schedule, ties, tmp_path, temporary  # noqa: F811
):  # fmt: skip
    plan = on_cpus(source_of(kind) + ties, 2, training=True)
    report = ran(plan, tmp_path / "pipeline", "--check", "--schedule", schedule)
    assert report["schedule"] == schedule
    assert report["max_abs_difference"] < 1e-6
    assert report["max_gradient_difference"] < 1e-6


@pytest.mark.parametrize("schedule", ["pipedream", "gpipe"])
def test_the_script_runs_the_steps_that_are_planned(schedule, tmp_path, temporary):  # noqa: F811
    asked = {"training": True, "micro_batches": 3, "schedule": schedule}
    plan = on_cpus(source_of("gpt2"), 2, **asked)
    report = ran(plan, tmp_path / "pipeline")
    assert report["micro_batches"] == 3
    assert report["schedule"] == {"pipedream": "1f1b", "gpipe": "gpipe"}[schedule]


def test_training_that_recomputes_gives_the_gradients_of_one_process(tmp_path, temporary):  # noqa: F811
    plan = on_cpus(source_of("gpt2"), 2, training=True, costs=CostOptions(recompute="block"))
    report = ran(plan, tmp_path / "pipeline", "--check")
    assert report["max_abs_difference"] < 1e-6
    assert report["max_gradient_difference"] < 1e-6
    stages = json.loads((tmp_path / "pipeline" / "stages.json").read_text())["stages"]
    blocks = [name for stage in stages for name in stage["recompute"]]
    assert blocks == [f"transformer.h.{n}" for n in range(3)]


def test_the_script_keeps_what_goes_into_a_block_that_it_recomputes():
    import torch

    stage = torch.nn.Module()
    stage.model, (rows,), _ = models.residual()
    keeping = saved_bytes(stage.model, {"x": rows})
    run_pipeline.recompute(stage, [f"layers.{n}" for n in range(4)])
    again = saved_bytes(stage.model, {"x": rows})
    assert again < keeping / 5
    assert stage.model(rows).requires_grad


def test_each_call_of_a_module_runs_again():
    """In a stage torch has a module for each call: NAME, NAME@1, …"""
    import torch

    stage = torch.nn.Module()
    stage.model = torch.nn.ModuleDict({"0": torch.nn.Linear(4, 4), "0@1": torch.nn.Linear(4, 4),
                                       "1": torch.nn.Linear(4, 4)})  # fmt: skip
    run_pipeline.recompute(stage, ["0"])
    wrapped = {name for name, each in stage.model.items() if "forward" in vars(each)}
    assert wrapped == {"0", "0@1"}


def test_a_batch_norm_that_runs_again_counts_a_micro_batch_once():
    import torch

    stage = torch.nn.Module()
    stage.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    alone = copy.deepcopy(stage.model)
    rows = torch.rand(8, 4, requires_grad=True)
    run_pipeline.recompute(stage, ["1"])
    for model in (stage.model, alone):
        model(rows).square().sum().backward()
    for one, other in zip(stage.model.buffers(), alone.buffers(), strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(stage.model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


FACTORY = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, x):
        return x + torch.relu(self.linear(x))

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))
        self.head = torch.nn.Linear(16, 3)

    def forward(self, x, shift, *, scale):
        for block in self.blocks:
            x = block(x + shift)
        y = self.head(x) * scale
        return {"y": y, "mean": y.mean()}

def make():
    return Net(), (torch.randn(2, 16), torch.tensor(0.5)), {"scale": 2.0}
"""


TIED_AND_FROZEN = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(50, 16)
        self.tokens.weight.requires_grad_(False)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(4))
        self.head = torch.nn.Linear(16, 50, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x, y):
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return torch.nn.functional.cross_entropy(self.head(x), y)

def make():
    return Net(), (torch.randint(50, (8,)), torch.randint(50, (8,)))
"""


def ran_in(folder: Path, plan) -> dict:
    """The report of two ranks that start in a folder with the factory's module."""
    export(plan, "torch-pipelining", folder / "pipeline")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(folder / "pipeline" / "run.py"), "--check"],
        capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_factory_s_module_gives_what_one_process_gives(tmp_path, monkeypatch, temporary):  # noqa: F811
    (tmp_path / "pipelined_net.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    report = ran_in(tmp_path, on_cpus("torch:pipelined_net:make", 2))
    assert report["max_abs_difference"] == 0.0


@pytest.mark.slow
def test_frozen_weights_that_stages_share_have_no_gradients(tmp_path, monkeypatch, temporary):  # noqa: F811
    (tmp_path / "frozen_net.py").write_text(TIED_AND_FROZEN)
    monkeypatch.syspath_prepend(tmp_path)
    report = ran_in(tmp_path, on_cpus("torch:frozen_net:make", 2, training=True))
    assert report["max_gradient_difference"] < 1e-6


# -- what is written -------------------------------------------------------------------------------


def test_each_module_with_weights_is_on_the_stage_of_the_plan():
    found = planned(source_of("llama"), "EPYC 7763", "EPYC 7763")
    document = pipeline_document(found.plan)
    for stage, record in zip(found.stages, document["stages"], strict=True):
        assert record["modules"] == list(found.names(stage))
        assert record["begins_at"] == found.names(stage)[0]
        assert record["run"] == "cpu" and record["device"] == found.device_name(stage)
    assert document["model"]["class"] == "AutoModelForCausalLM"
    assert document["model"]["config"]["hidden_size"] == 32
    assert document["model"]["inputs"]["input_ids"] == {
        "shape": [1, 8], "dtype": "int64", "below": 120,
    }  # fmt: skip


def test_gpus_are_the_ones_of_the_cluster_and_cores_are_told():
    gpus = planned(source_of("llama"), "T4", "T4", runs=(CudaRun(5), CudaRun(2)))
    runs = [each["run"] for each in pipeline_document(gpus.plan)["stages"]]
    assert runs == [{0: "cuda:5", 1: "cuda:2"}[stage.device] for stage in gpus.stages]
    cpus = planned(source_of("llama"), "EPYC 7763", "EPYC 7763", runs=(CpuRun((0,)), None))
    cores = {each["device"]: each["cores"] for each in pipeline_document(cpus.plan)["stages"]}
    assert cores == {"device0": [0], "device1": []}


def test_weights_are_those_of_a_directory_where_the_source_names_one(tmp_path):
    import transformers

    config = transformers.AutoConfig.for_model(
        "gpt2", n_layer=2, n_embd=32, n_head=4, vocab_size=120
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    document = pipeline_document(on_cpus(f"hf:{tmp_path}?sequence=8", 2))
    assert document["model"]["weights"] == str(tmp_path)
    fresh = pipeline_document(on_cpus(source_of("gpt2"), 2))
    assert fresh["model"]["weights"] is None


# -- what is refused -------------------------------------------------------------------------------


def with_devices(found, device):
    """The plan with block number k on `device[k]`."""
    placement = Placement(np.asarray(device, dtype=np.int32)[found.blocks.op_block])
    outcome = evaluate(found.plan.problem, placement)
    return replace(found.plan, placement=placement, outcome=outcome, value=outcome.value)


def test_a_plan_that_comes_back_to_a_device_is_refused():
    found = planned(source_of("llama"), "EPYC 7763", "EPYC 7763")
    plan = with_devices(found, [0, 1, 0, 0, 0, 0])
    with pytest.raises(OptionError, match=r"comes back to device0 for model\.layers\.1"):
        pipeline_document(plan)


def test_a_plan_on_gpus_and_cpus_is_refused():
    found = planned(source_of("llama"), "T4", "EPYC 7763")
    plan = with_devices(found, [1, 0, 0, 0, 0, 0])
    with pytest.raises(OptionError, match="by NCCL on GPUs or by gloo on CPUs, and the plan has"):
        pipeline_document(plan)


def test_a_plan_of_one_phase_of_serving_is_refused():
    source = source_of("llama").replace("sequence=8", "phase=decode&context=8")
    found = planned(source, "EPYC 7763", "EPYC 7763")
    with pytest.raises(OptionError, match="the plan is of phase=decode; plan without phase"):
        pipeline_document(found.plan)


def test_a_plan_on_several_hosts_is_started_on_each(tmp_path):
    one, two = (Device(name, "A100", memory=1e12, host=name) for name in ("one", "two"))
    cluster = Cluster("hosts", (one, two), (Link("one", "two", 1e15),))
    plan = plan_for(source_of("gpt2"), cluster, "torch-pipelining", free_seconds=0).plan
    assert len(set(plan.placement.device.tolist())) == 2
    lines = export(plan, "torch-pipelining", tmp_path / "pipeline")
    starts = [line for line in lines if "torchrun" in line]
    assert len(starts) == 2
    first = starts[0].partition(":")[0]
    for number, line in enumerate(starts):
        assert line.partition(": ")[2].startswith(
            "CUDA_DEVICE_ORDER=PCI_BUS_ID torchrun --nnodes 2 "
        )
        assert f"--node-rank {number} --nproc-per-node 1 --master-addr {first} " in line


MARIAN = (
    "hf:marian?encoder_layers=2&decoder_layers=2&d_model=32&encoder_ffn_dim=48&decoder_ffn_dim=48"
    "&encoder_attention_heads=4&decoder_attention_heads=4&pad_token_id=0&vocab_size=120&sequence=8"
)


def test_an_embedding_in_the_middle_that_shares_weights_leaves_stages_whole(tmp_path, temporary):  # noqa: F811
    """With a copy of the encoder's it is a block, before the positions that its layer follows."""
    plan = on_cpus(MARIAN, 2)
    names = [each["begins_at"] for each in pipeline_document(plan)["stages"]]
    assert names[1] == "model.decoder.embed_tokens"
    report = ran(plan, tmp_path / "pipeline", "--check")
    assert report["max_abs_difference"] == 0.0
