"""Blocks: the repeated units of a model, found in module paths or by repetition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.analysis.ties import ordered_edges
from placewright.coarsen.blocks import find_blocks, named_blocks
from placewright.coarsen.granularity import with_granularity
from placewright.errors import OptionError
from placewright.graph import GraphBuilder
from placewright.importers.zoo.backward import joint_graph
from placewright.planning import make_problem
from placewright.planning import plan as make_plan
from placewright.verify import verify
from tests.strategies import problems


def line(*modules: str, memory: float = 1e6):
    """A model of one op per module, each reading the one before."""
    builder, tensors = GraphBuilder("line"), []
    for number, module in enumerate(modules):
        op = builder.add_op(
            f"op{number}", "op", tensors[-1:], module=module, flops=1e9, parameter_bytes=memory
        )
        tensors.append(builder.add_tensor(op, 1e3))
    return make_problem(builder.build(), "2x3090")[0]


@pytest.mark.parametrize(
    ("source", "first", "repeated", "last"),
    [
        ("zoo:gpt2", ["embedding"], "blocks", ["lm_head"]),
        ("zoo:llama-7b", ["embedding"], "blocks", ["final_norm", "lm_head"]),
        ("zoo:bert-base", ["embedding"], "blocks", ["pooler"]),
    ],
)
def test_blocks_of_a_stack_are_its_layers_with_what_precedes_and_follows(
    source, first, repeated, last
):
    blocks = find_blocks(make_problem(source, "2x3090")[0])
    layers = [f"{repeated}.{n}" for n in range(int(blocks.repeated.sum()))]
    assert list(blocks.names) == [*first, *layers, *last]


def test_an_encoder_and_a_decoder_are_two_rows():
    blocks = find_blocks(make_problem("zoo:t5-small", "2x3090")[0])
    rows = [name.rpartition(".")[0] for name in np.array(blocks.names)[blocks.repeated]]
    assert rows == ["encoder.blocks"] * 6 + ["decoder.blocks"] * 6


def test_the_units_of_stages_that_differ_are_the_blocks():
    blocks = find_blocks(make_problem("zoo:resnet50", "2x3090")[0])
    assert "stages.2.blocks.5" in blocks.names
    assert blocks.repeated.sum() == 3 + 4 + 6 + 3


def test_the_experts_within_a_layer_are_part_of_it():
    blocks = find_blocks(make_problem("zoo:mixtral-8x7b?layers=3", "2x3090")[0])
    assert [name for name in blocks.names if "expert" in name] == []
    assert blocks.repeated.sum() == 3


def test_what_keeps_no_weights_follows_its_first_reader():
    builder = GraphBuilder("model")
    rotary = builder.add_op("cos", "cos", module="model.rotary", parameter_bytes=256.0)
    angles = builder.add_tensor(rotary, 8.0)
    embedded = builder.add_op("embed", "embedding", module="model.embed", parameter_bytes=1e6)
    state = builder.add_tensor(embedded, 8.0)
    for layer in range(3):
        inputs = [state, angles]
        op = builder.add_op(f"l{layer}", "op", inputs, module=f"model.layers.{layer}", flops=1e9,
                            parameter_bytes=1e6)  # fmt: skip
        state = builder.add_tensor(op, 8.0)
    blocks = find_blocks(make_problem(builder.build(), "2x3090")[0])
    assert blocks.names == ("model.embed", *(f"model.layers.{n}" for n in range(3)))
    assert blocks.names[blocks.op_block[0]] == "model.layers.0"


def test_stages_of_a_unet_are_blocks_though_resnets_and_attentions_in_them_are_numbered():
    stage = ("resnets.0.conv", "attentions.0.proj", "resnets.1.conv", "attentions.1.proj", "down")
    modules = [f"down_blocks.{n}.{each}" for n in range(3) for each in stage[: 5 - n]]
    blocks = find_blocks(line("conv_in", *modules, "mid_block.resnets.0", "mid_block.resnets.1"))
    assert blocks.names[:4] == ("conv_in", *(f"down_blocks.{n}" for n in range(3)))


def test_residual_blocks_as_torchvision_and_onnx_files_name_them_are_blocks():
    paths = [f"layer{stage}.{n}.{each}" for stage in (1, 2) for n in (0, 1)
             for each in ("conv1", "bn1", "relu")]  # fmt: skip
    blocks = find_blocks(line("conv1", "bn1", *paths, "fc"))
    assert blocks.names == (
        "conv1", "bn1", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "fc",
    )  # fmt: skip


def test_blocks_in_a_circle_are_one_block():
    blocks = find_blocks(line("a.0", "a.1", "a.0", "a.2"))
    assert blocks.names == ("a.0", "a.2")
    assert blocks.op_block.tolist() == [0, 0, 0, 1]


def test_the_gradient_of_a_loss_is_with_what_reads_it():
    """As torch exports it: made of nothing, with neither a path nor a forward op of its own."""
    builder = GraphBuilder("training")
    state: list[int] = []
    ops = []
    for module in ("stem", "layers.0", "layers.1", "head"):
        op = builder.add_op(module, "op", state, module=module, flops=1e9, parameter_bytes=1e6)
        ops.append(op)
        state = [builder.add_tensor(op, 8.0)]
    expand = builder.add_op("expand", "expand", backward=True, flops=1.0)
    gradient = [builder.add_tensor(expand, 8.0)]
    for op in reversed(ops):
        back = builder.add_op(f"grad{op}", "op", gradient, backward=True, twin=op, flops=1e9)
        gradient = [builder.add_tensor(back, 8.0)]
    blocks = find_blocks(make_problem(builder.build(), "2x3090")[0])
    assert blocks.names == ("stem", "layers.0", "layers.1", "head")
    assert blocks.names[blocks.op_block[expand]] == "head"


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_activations_make_no_block_of_an_op_without_weights(objective):
    builder, state = GraphBuilder("model"), []
    for module in ("stem", "", "layers.0", "", "layers.1", "", "head"):
        held = 1e6 if module else 0.0
        op = builder.add_op(f"op{builder.op_count}", "op", state, module=module, flops=1e9,
                            parameter_bytes=held)  # fmt: skip
        state = [builder.add_tensor(op, 1e6)]
    graph = joint_graph(builder.build())
    blocks = find_blocks(make_problem(graph, "2x3090", {"objective": objective})[0])
    assert blocks.names == ("stem", "layers.0", "layers.1", "head", "loss")


def test_blocks_without_paths_are_found_by_repetition():
    problem = make_problem("zoo:gpt2", "2x3090")[0]
    object.__setattr__(problem, "op_modules", ("",) * problem.op_count)
    assert named_blocks(problem) is None
    blocks = find_blocks(problem)
    assert blocks.repeated.sum() == 12


def test_a_model_without_blocks_says_so_when_asked_for_them():
    with pytest.raises(OptionError, match=r"no blocks were found.*; plan with --granularity op or"):
        make_plan("zoo:googlenet", "2x3090", granularity="block", planner="heft")


def test_a_model_without_blocks_for_an_engine_is_not_told_to_plan_otherwise():
    problem = make_problem("zoo:googlenet", "2x3090")[0]
    with pytest.raises(
        OptionError, match=r"numbered layers, such as model\.layers\.0 .*--to csv"
    ) as e:
        find_blocks(problem)
    assert "granularity" not in str(e.value)


def test_an_unknown_granularity_is_refused():
    with pytest.raises(OptionError, match="no granularity 'layer'; choose op, module, block"):
        make_plan("zoo:gpt2", "2x3090", granularity="layer", planner="heft")


@given(st.data())
def test_blocks_of_any_modules_are_a_row_that_data_goes_along(data):
    problem = data.draw(problems(memory=False))
    names = st.sampled_from(["", "a.0", "a.1", "a.2.b", "c", "d.0", "d.1"])
    modules = data.draw(st.lists(names, min_size=problem.op_count, max_size=problem.op_count))
    object.__setattr__(problem, "op_modules", tuple(modules))
    blocks = named_blocks(problem)
    if blocks is not None:
        source, target = ordered_edges(problem, blocks.op_block, mirrored=True)
        assert (source < target).all()
        assert set(blocks.op_block.tolist()) == set(range(blocks.count))


@pytest.mark.parametrize("granularity", ["module", "block"])
@pytest.mark.parametrize("planner", ["heft", "m-topo"])
def test_a_plan_splits_nothing_that_its_granularity_keeps_whole(granularity, planner):
    plan = make_plan("zoo:gpt2?layers=4", "2x3090", granularity=granularity, planner=planner)
    assert verify(plan).ok
    blocks = find_blocks(plan.problem)
    if granularity == "block":
        for block in range(blocks.count):
            assert len(set(plan.placement.device[blocks.op_block == block].tolist())) == 1
    for module in set(plan.problem.op_modules) - {""}:
        ops = [op for op, each in enumerate(plan.problem.op_modules) if each == module]
        assert len(set(plan.placement.device[ops].tolist())) == 1


def test_the_bound_of_a_granularity_is_below_its_plans():
    coarse = make_plan("zoo:gpt2?layers=4", "4090+3060", granularity="block", planner="heft")
    fine = make_plan("zoo:gpt2?layers=4", "4090+3060", planner="heft")
    assert fine.lower_bound <= coarse.lower_bound <= coarse.value


def test_blocks_stay_the_same_in_the_problem_that_keeps_them_whole():
    problem = make_problem("zoo:gpt2", "2x3090")[0]
    again = find_blocks(with_granularity(problem, "block"))
    assert again.names == find_blocks(problem).names


def names_of(*modules: str) -> list[str]:
    blocks = find_blocks(line(*modules))
    return [name for name, repeated in zip(blocks.names, blocks.repeated, strict=True) if repeated]


def test_modules_whose_names_end_in_a_number_are_units_too():
    layers = [f"layers.layer{n}" for n in range(3)]
    assert names_of("embed", *(f"{layer}.{part}" for layer in layers for part in "ab")) == layers


def test_numbers_within_named_layers_are_part_of_them():
    layers = [f"layers.layer{n}" for n in range(3)]
    within = [f"{layer}.net.{part}" for layer in layers for part in ("0", "1.a", "1.b")]
    assert names_of("embed", *within, "head") == layers


def test_rows_of_numbers_within_named_towers_are_the_units():
    layers = [f"{tower}.layers.{n}" for tower in ("tower1", "tower2") for n in range(3)]
    assert names_of("embed", *(f"{layer}.{part}" for layer in layers for part in "ab")) == layers


def test_single_ops_of_numbered_names_are_no_units():
    layers = [f"layers.{n}" for n in range(3)]
    within = [f"{layer}.{part}" for layer in layers for part in ("linear1", "linear2")]
    assert names_of("fc1", *within, "fc2") == layers
