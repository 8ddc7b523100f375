"""Layers of which a plan has parts on the CPU: what ``-ot`` says, and what it cannot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import placewright as pw
from placewright.cluster import Cluster, Device, Link
from placewright.errors import OptionError
from placewright.exporters.llama_cpp.arguments import command
from placewright.plan import Placement, Plan
from placewright.simulate import evaluate
from tests.importers.gguf_bytes import llama, write

EXPERTS = ("ffn_up_exps", "ffn_gate_exps", "ffn_silu_exps", "ffn_down_exps")
RULE = r"\.(ffn_up_exps|ffn_gate_exps|ffn_down_exps)\.=CPU"
CLUSTER = Cluster(
    "box",
    (
        Device("cpu", "cpu", memory=64e9, peak_flops={"fp16": 1e11}, memory_bandwidth=2e10),
        Device("gpu0", "RTX 3060"),
        Device("gpu1", "RTX 3060"),
    ),
    tuple(
        Link(one, two, bandwidth=1e10, latency=1e-5)
        for one, two in (("cpu", "gpu0"), ("cpu", "gpu1"), ("gpu0", "gpu1"))
    ),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "experts.gguf"
    write(path, *llama(layers=4, wide=256, experts=4))
    return path


def moved(source: str, ops: Iterable[str], to: str = "cpu", rest: int = 1) -> Plan:
    """All on a GPU but the input embedding and these ops, which are on another device.

    With a time for every op, also for those that llama.cpp has in one kernel.
    """
    costs = pw.CostOptions(kernels="program")
    plan = pw.plan(source, CLUSTER, planner="single-device", costs=costs)
    device = np.full(plan.problem.op_count, rest, dtype=np.int32)
    names = plan.problem.op_names
    device[0] = 0
    for op in ops:
        device[names.index(op)] = plan.problem.device_names.index(to)
    placement = Placement(device)
    outcome = evaluate(plan.problem, placement)
    return replace(plan, placement=placement, outcome=outcome, value=outcome.value)


def experts(layers: Iterable[int], parts: Iterable[str] = EXPERTS) -> list[str]:
    return [f"blk.{layer}.{part}" for layer in layers for part in parts]


def rules(plan: Plan) -> list[str]:
    words = command(plan).arguments
    return [words[k + 1] for k, word in enumerate(words) if word == "-ot"]


def test_experts_on_the_cpu_are_named_by_their_tensors(path):
    plan = moved(f"{path}?phase=decode&context=64", experts((1, 3)))
    words = command(plan).arguments
    assert rules(plan) == [rf"blk\.(1|3){RULE}"]
    assert words[:6] == ["-sm", "layer", "-ngl", "5", "-dev", "CUDA0"]
    assert "--no-op-offload" in words  # or a GPU computes with them, for many tokens


def test_every_layer_is_said_in_short(path):
    plan = moved(f"{path}?phase=decode&context=64", experts(range(4)))
    assert rules(plan) == [rf"blk\.(\d+){RULE}"]


def test_layers_with_other_parts_have_rules_of_their_own(path):
    ops = [*experts((0,)), "blk.2.ffn_down_exps"]
    plan = moved(f"{path}?phase=decode&context=64", ops)
    assert rules(plan) == [rf"blk\.(0){RULE}", r"blk\.(2)\.(ffn_down_exps)\.=CPU"]


def test_a_plan_that_parts_no_layer_needs_no_rule(path):
    words = command(moved(f"{path}?phase=decode&context=64", ())).arguments
    assert "-ot" not in words and "--no-op-offload" not in words


@pytest.mark.parametrize(
    ("ops", "why"),
    [
        (["blk.1.k_cache"], "has KV cache and attention where the layer is, .* blk.1.k_cache"),
        (["blk.1.attention"], "has KV cache and attention where the layer is"),
        (
            experts((1,), ("ffn_up_exps", "ffn_gate_exps", "ffn_down_exps")),
            "computes blk.1.ffn_silu_exps on cpu, with the weights around it, and .* on gpu0",
        ),
        ([*experts((1,)), "blk.1.ffn_combine"], "computes blk.1.ffn_combine on gpu0"),
    ],
)
def test_what_llama_cpp_computes_elsewhere_is_refused(path, ops, why):
    plan = moved(f"{path}?phase=decode&context=64", ops)
    with pytest.raises(OptionError, match=why):
        command(plan)


def test_a_layer_on_two_gpus_is_refused(path):
    plan = moved(f"{path}?phase=decode&context=64", experts((1,)), to="gpu1")
    with pytest.raises(OptionError, match=r"takes whole blocks, and the plan splits blk\.1"):
        command(plan)


def test_weights_that_no_file_names_are_refused():
    source = "zoo:llama-7b?layers=2&context=64&phase=decode"
    plan = pw.plan(source, CLUSTER, planner="single-device")
    op = next(name for name in plan.problem.op_names if "blocks.1" in name and "down" in name)
    with pytest.raises(OptionError, match=f"tensors of a GGUF file, and the plan has {op}"):
        command(moved(source, [op]))
