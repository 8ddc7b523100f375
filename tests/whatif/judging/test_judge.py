"""Placements of other tools: read as those tools mean them, valued like any plan."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import placewright as pw
from placewright.cluster import Cluster, Device, Link
from placewright.costs.catalog import complete
from placewright.errors import FormatError, InfeasibleError, InputError, OptionError
from placewright.graph import GraphBuilder
from placewright.whatif.judging.judge import Given, Judgement, judge
from tests.cli.running import run

LAYERS = 8
MIB = 2**20


def model(tied: bool = False) -> pw.Graph:
    """Embedding, a mask of no module, layers of two ops, norm and head; paths as Transformers'."""
    builder = GraphBuilder("tiny")
    group = "tied" if tied else None

    def op(name: str, module: str, inputs: list[int], weights: float = MIB, **more: str) -> int:
        number = builder.add_op(
            name, "op", inputs, flops=1e9, parameter_bytes=weights, module=module, **more
        )
        return builder.add_tensor(number, 1e3)

    x = op("embed", "model.embed_tokens", [], colocate=group)
    mask = op("mask", "model", [], 0.0)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        y = op(f"{layer}.attention", f"{at}.self_attn", [x, mask])
        x = op(f"{layer}.mlp", f"{at}.mlp", [y])
    x = op("norm", "model.norm", [x])
    op("head", "lm_head", [x], 0.0 if tied else MIB, colocate=group)
    return builder.build()


def cluster(cpu: bool = True, memory: float = 1e9) -> Cluster:
    devices = [Device("big", "RTX 4090", memory=memory), Device("small", "RTX 3060", memory=memory)]
    if cpu:
        devices.append(Device("host", "EPYC 7763", memory=1e9))
    names = [each.name for each in devices]
    links = [Link(a, b, 1e9) for k, a in enumerate(names) for b in names[k + 1 :]]
    return complete(Cluster("boxes", tuple(devices), tuple(links)))


def judged(given: Given, graph: pw.Graph | None = None, cpu: bool = True) -> Judgement:
    return judge(graph or model(), cluster(cpu), given)


def where(found: Judgement) -> dict[str, str]:
    return dict(found.plan.device_of())


def device_map(folder: Path, document: object) -> Given:
    path = folder / "map.json"
    path.write_text(json.dumps(document))
    return Given(placement=path)


def layer_devices(found: Judgement) -> list[str]:
    """Of embedding, layers, head."""
    placed = where(found)
    for layer in range(LAYERS):
        assert placed[f"{layer}.attention"] == placed[f"{layer}.mlp"]
    return [placed["embed"], *(placed[f"{n}.mlp"] for n in range(LAYERS)), placed["head"]]


# -- device maps -----------------------------------------------------------------------------------


def test_the_longest_prefix_in_whole_parts_decides(tmp_path: Path) -> None:
    given = device_map(tmp_path, {"model": 0, "model.layers.1": 1, "lm_head": "small"})
    placed = where(judged(given))
    assert {name for name, device in placed.items() if device == "small"} == {
        "1.attention",
        "1.mlp",
        "head",
    }


def test_the_empty_prefix_places_all(tmp_path: Path) -> None:
    assert set(where(judged(device_map(tmp_path, {"": 1}))).values()) == {"small"}


def test_the_empty_prefix_places_weights_of_no_module_beside_others(tmp_path: Path) -> None:
    graph = pw.load("zoo:llama-7b?layers=2&phase=decode").graph
    found = where(judged(device_map(tmp_path, {"": 1, "blocks.0": 0}), graph))
    assert {found[name] for name in ("embedding", "final_norm", "lm_head")} == {"small"}
    assert found["blocks.0.mlp.down"] == "big" and found["blocks.1.mlp.down"] == "small"


def test_numbers_are_accelerators_and_cpu_the_first_cpu(tmp_path: Path) -> None:
    rest = {f"model.layers.{n}": "cuda:1" for n in range(1, LAYERS)}
    given = device_map(
        tmp_path,
        {"model.embed_tokens": "0", "model.layers.0": "cpu", **rest, "model.norm": 1, "lm_head": 0},
    )
    found = judged(given)
    assert layer_devices(found) == ["big", "host", *["small"] * (LAYERS - 1), "big"]
    assert any("computed by big" in text for text in found.remarks)


def test_what_a_map_leaves_on_the_cpu_crosses_the_link_at_each_call(tmp_path: Path) -> None:
    """A layer of two ops of 1 MiB over a link of 1 GB/s without latency, and nothing else."""
    all_there = judged(device_map(tmp_path, {"": 0}))
    one_waits = judged(device_map(tmp_path, {"": 0, "model.layers.3": "cpu"}))
    more = one_waits.plan.value - all_there.plan.value
    assert more == pytest.approx(2 * MIB / 1e9, rel=1e-6)
    assert one_waits.plan.planner_options["offload"] == "big"
    problem = one_waits.plan.problem
    memory = dict(zip(problem.device_names, problem.device_memory.tolist(), strict=True))
    assert memory["big"] == 1e9 - MIB  # of the largest op that comes


def test_a_map_for_a_pipeline_computes_on_the_cpu_and_says_so(tmp_path: Path) -> None:
    given = device_map(tmp_path, {"": "host", "model": "big"})
    found = judge(model(), cluster(), given, options={"objective": "throughput"})
    assert any("are computed there" in text for text in found.remarks)


def test_ops_of_no_module_are_where_they_are_read(tmp_path: Path) -> None:
    layers = {f"model.layers.{n}": int(n > 3) for n in range(LAYERS)}
    given = device_map(
        tmp_path, {"model.embed_tokens": 1, **layers, "model.norm": 1, "lm_head.weight": 1}
    )
    placed = where(judged(given))
    assert placed["mask"] == placed["0.attention"] == "big"
    assert placed["head"] == "small"


def test_an_entry_that_no_op_is_of_is_told(tmp_path: Path) -> None:
    found = judged(device_map(tmp_path, {"": 0, "model.rotary": 1}))
    assert found.remarks == ("no op is of 'model.rotary'",)


def test_what_shares_a_weight_is_counted_together_and_told(tmp_path: Path) -> None:
    found = judged(device_map(tmp_path, {"model": 0, "lm_head": 1}), model(tied=True))
    assert where(found)["embed"] == where(found)["head"]
    assert "share a weight" in found.remarks[0]


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"model": 0}, r"map\.json: says nothing of op 'head', of module 'lm_head'; place"),
        ({"model.layers": 0, "lm_head": 0}, "says nothing of op 'embed', .* and 1 other ops"),
        ({"model.layer": 0, "": 9}, "is on accelerator 9; the cluster has 2"),
        ({"": "disk"}, "'disk', which is no device of big, small, host; what lies on disk"),
        ({"": "gpu7"}, "'gpu7', which is no device"),
        ({"": True}, "True, which is no device"),
        ({"": -1}, "is on accelerator -1"),
    ],
)
def test_what_a_map_lacks_is_named(tmp_path: Path, document: object, sentence: str) -> None:
    with pytest.raises(FormatError, match=sentence):
        judged(device_map(tmp_path, document))


def test_cpu_without_a_cpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="the cluster has no CPU"):
        judged(device_map(tmp_path, {"": "cpu"}), cpu=False)


def test_other_placement_files_are_taken_too(tmp_path: Path) -> None:
    document = {"format": "placewright.placement/1", "placement": {"": "big", "lm_head": "small"}}
    found = judged(device_map(tmp_path, document))
    assert where(found)["head"] == "small"
    found.plan.save(tmp_path / "plan.json")
    again = judged(Given(placement=tmp_path / "plan.json"))
    assert where(again) == where(found)
    assert again.plan.value == found.plan.value


# -- layers ----------------------------------------------------------------------------------------


def test_tensor_split_shares_out_layers_and_output() -> None:
    found = judged(Given(tensor_split="2,1"))  # 9 slots: 6 and 3
    assert layer_devices(found) == ["host", *["big"] * 6, *["small"] * 2, "small"]
    assert found.remarks == ()
    assert found.plan.planner_options == {"tensor_split": "2,1"}


def test_a_share_that_ends_at_a_slot_leaves_it_to_the_next() -> None:
    found = judged(Given(tensor_split="7,2"))
    assert layer_devices(found) == ["host", *["big"] * 7, "small", "small"]


def test_shares_left_out_are_none() -> None:
    assert set(layer_devices(judged(Given(tensor_split="1")))[1:]) == {"big"}
    assert set(layer_devices(judged(Given(tensor_split="0/1")))[1:]) == {"small"}


@pytest.mark.parametrize("count", [0, 1, 3, LAYERS, LAYERS + 1, 99])
def test_the_last_of_the_slots_are_not_on_the_cpu(count: int) -> None:
    found = layer_devices(judged(Given(tensor_split="1,1", gpu_layers=count)))
    on_cpu = [device == "host" for device in found[1:]]
    assert on_cpu == sorted(on_cpu, reverse=True)
    assert sum(on_cpu) == max(0, LAYERS + 1 - count)


def test_without_a_cpu_the_embedding_is_in_memory_that_is_not_counted_and_told() -> None:
    found = judged(Given(tensor_split="1,1"), cpu=False)
    assert layer_devices(found)[0] == "big"
    assert "so its bytes are not counted, and its time is on big" in found.remarks[0]
    assert found.plan.problem.op_memory[0] == 0.0
    with pytest.raises(OptionError, match="-ngl leaves layers on the CPU"):
        judged(Given(tensor_split="1,1", gpu_layers=2), cpu=False)


def test_a_partition_gives_layers_in_order() -> None:
    found = judged(Given(layer_partition="3,5"))
    assert layer_devices(found) == ["big", *["big"] * 3, *["small"] * 5, "small"]
    assert where(found)["norm"] == "small"


def test_a_partition_has_the_memory_that_vllm_takes() -> None:
    found = judged(Given(layer_partition="3,5"))
    assert found.plan.problem.device_memory.tolist() == [0.9e9, 0.9e9, 1e9]
    assert any("takes 90% of a GPU's memory" in each for each in found.remarks)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (Given(), "give a placement in one way: --placement or --tensor-split or"),
        (Given(tensor_split="1", layer_partition="8"), "in one way: --tensor-split or --layer"),
        (Given(layer_partition="8", gpu_layers=3), "-ngl goes with -ts"),
        (Given(tensor_split="a,b"), "write a share for each device"),
        (Given(tensor_split="0,0"), "one of them above 0"),
        (Given(tensor_split="-1,2"), "must be 0 or more"),
        (Given(tensor_split="nan"), "must be 0 or more"),
        (Given(tensor_split="1,1,1"), "has 3 shares; the cluster has 2 accelerators"),
        (Given(layer_partition="3,4"), "has 7 layers; the model has 8"),
        (Given(layer_partition="3,4,1"), "is for 3 devices; the cluster has 2"),
        (Given(layer_partition="x"), "write the layers of each device"),
    ],
)
def test_what_does_not_fit_together_is_refused(given: Given, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        judged(given)


def test_a_model_without_layers_is_refused() -> None:
    builder = GraphBuilder("two")
    first = builder.add_op("a", "op", flops=1e9)
    builder.add_op("b", "op", [builder.add_tensor(first, 1e3)], flops=1e9)
    with pytest.raises(InputError, match="no blocks were found"):
        judged(Given(tensor_split="1,1"), builder.build())


# -- the value -------------------------------------------------------------------------------------


def test_the_value_is_that_of_the_placement_and_the_bound_that_of_the_problem(tmp_path) -> None:
    found = judged(Given(layer_partition="4,4")).plan
    assert pw.verify(found).ok
    best = pw.plan(model(), cluster(), planner="heft")
    assert found.lower_bound <= best.value
    assert found.lower_bound <= found.value
    assert np.isfinite(found.value)


def test_a_device_that_overflows_is_named_with_the_arithmetic() -> None:
    with pytest.raises(InfeasibleError, match=r"placed on 'big' need 18\.0 MiB, it has 9\.5 MiB"):
        judge(model(), cluster(memory=1e7), Given(tensor_split="1,0"))


def test_training_keeps_backward_ops_with_their_forward_ones() -> None:
    found = judge("zoo:gpt2?layers=4", "2x3090", Given(layer_partition="1,3"), training=True)
    twin = found.plan.problem.forward_twin
    device = found.plan.placement.device
    backward = np.flatnonzero(twin >= 0)
    assert (device[backward] == device[twin[backward]]).all()


def test_the_command_prints_what_had_to_be_read_into_it(tmp_path: Path) -> None:
    graph = tmp_path / "graph.json"
    model().save(graph)
    found = run(
        "judge", graph, "-c", "4090+3060", "-ts", "3,1", "--json", "-o", tmp_path / "p.json"
    )
    assert found.code == 0
    assert any("token embedding" in text for text in found.json["remarks"])
    assert run("verify", tmp_path / "p.json").code == 0
    refused = run("judge", graph, "-c", "4090+3060", "--layer-partition", "1,1")
    assert refused.code == 2
    assert "the model has 8" in refused.err
