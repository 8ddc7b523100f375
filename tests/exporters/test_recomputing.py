"""Plans that recompute as few layers of each stage as must: beside every way to do that."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.coarsen.recompute import names_recomputed, recomputing
from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions
from placewright.errors import InfeasibleError, OptionError, ProvedInfeasibleError
from placewright.exporters.engines import find_engine
from placewright.exporters.pieces import pieces_for
from placewright.exporters.planning import plan_for
from placewright.exporters.sharing import exchanging, without_spare
from placewright.exporters.training_engines import megatron_settings, write_deepspeed
from placewright.graph import GraphBuilder
from placewright.importers import load
from placewright.plan import Placement
from placewright.planning import make_problem, plan
from placewright.report.engines import engine_record, engine_words
from placewright.simulate.pipeline_steps import kept_bytes
from placewright.simulate.throughput import loads
from placewright.stash import recomputed_ops, views
from placewright.verify import verify
from placewright.whatif.changes import on_cluster
from tests.naive.steps import every_row

NEEDED = CostOptions(recompute="needed")
GPT2 = "zoo:gpt2?layers=3&batch=16"
LLAMA = "zoo:llama-7b?layers=4&context=512&batch=4"


@cache
def trained(source):
    return load(source, training=True)


def cluster_of(preset, *gigabytes):
    """The preset's GPUs, with so much memory each."""
    found = load_cluster(preset)
    memory = iter(gigabytes)
    devices = tuple(
        each if "cpu" in each.name else replace(each, memory=next(memory) * 1e9)
        for each in found.devices
    )
    return replace(found, devices=devices)


def planned(source, cluster, engine, recompute="needed", **options):
    return plan_for(
        trained(source),
        cluster,
        engine,
        costs=CostOptions(recompute=recompute),
        free_seconds=0,
        **{"micro_batches": 4, **options},
    )


def every_way(source, cluster, engine, **options):
    """`(seconds per micro-batch, layers recomputed of each stage)` of all that fits.

    Rows, and how many of the first layers of each stage run again, one by one: each is a problem of
    its own.
    """
    given = {"objective": "throughput", "micro_batches": 4, **options}
    how = {"costs": CostOptions(recompute="block"), "recomputed": ()}
    apart, _ = make_problem(trained(source), cluster, given, **how)
    whole, _ = make_problem(trained(source), cluster, given, together=True, **how)
    is_view = views(trained(source).graph)

    @cache
    def version(names):
        one, two = (recomputing(each, is_view, names) for each in (whole, apart))
        one = exchanging(one, two) if two.op_copied.size else one
        return pieces_for(one, find_engine(engine), two.op_copied)

    plain = version(())
    layers = [plain.blocks.names[k] for k in np.flatnonzero(plain.blocks.repeated)]
    ops = np.array([plain.blocks.names[k] for k in plain.blocks.op_block])
    piece_of = {layer: int(plain.op_piece[ops == layer][0]) for layer in layers}
    for stages in every_row(plain.count, plain.problem.device_count):
        inside = [
            [layer for layer in layers if first <= piece_of[layer] <= last]
            for _, first, last in stages
        ]
        for numbers in product(*(range(len(each) + 1) for each in inside)):
            names = [layer for each, n in zip(inside, numbers, strict=True) for layer in each[:n]]
            pieces = version(tuple(names))
            placement = placed(pieces, stages)
            problem, _ = without_spare(pieces.problem, pieces.shared, by_piece(pieces, stages))
            if fits(problem, placement):
                even = max(numbers)
                is_even = numbers == tuple(min(even, len(each)) for each in inside)
                yield loads(problem, placement).value, is_even


def by_piece(pieces, stages):
    return np.repeat([d for d, _, _ in stages], [last - first + 1 for _, first, last in stages])


def placed(pieces, stages):
    row = tuple(device for device, _, _ in stages)
    return Placement(by_piece(pieces, stages).astype(np.int32)[pieces.op_piece], row=row)


def fits(problem, placement):
    time = problem.op_time[np.arange(problem.op_count), placement.device]
    kept = kept_bytes(problem, placement)
    return np.isfinite(time).all() and (kept <= problem.device_memory * (1 + 1e-12)).all()


MEMORIES = [
    (GPT2, "2x3090", (5.5, 5.5)),
    (GPT2, "2x3090", (3.6, 3.6)),
    (GPT2, "4090+3060", (4.0, 4.0)),
    (GPT2, "4090+3060", (3.2, 3.0)),
    (GPT2, "4090+3060", (2.2, 4.0)),
    (LLAMA, "2x3090", (10.0, 10.0)),
    (LLAMA, "2x3090", (8.0, 8.0)),
    (LLAMA, "4090+3060", (16.0, 12.0)),
]


@pytest.mark.parametrize(("source", "preset", "memory"), MEMORIES)
def test_the_plan_is_the_best_of_all_rows_and_numbers_of_layers(source, preset, memory):
    check_best(source, cluster_of(preset, *memory), "deepspeed", {})


@pytest.mark.parametrize(("source", "preset", "memory"), MEMORIES[1:3])
def test_so_it_is_where_all_micro_batches_are_in_flight(source, preset, memory):
    check_best(source, cluster_of(preset, *memory), "torch-pipelining", {"schedule": "gpipe"})


@pytest.mark.parametrize(("source", "preset", "memory"), MEMORIES)
def test_megatrons_plan_is_the_best_of_those_with_as_many_layers_in_each_stage(
    source, preset, memory
):
    check_best(source, cluster_of(preset, *memory), "megatron", {})


def check_best(source, cluster, engine, options):
    ways = every_way(source, cluster, engine, **options)
    even = engine == "megatron"
    every = [value for value, is_even in ways if is_even or not even]
    try:
        found = planned(source, cluster, engine, **options).plan
    except InfeasibleError as error:
        assert not every and isinstance(error, ProvedInfeasibleError)
        return
    assert found.value == pytest.approx(min(every), rel=1e-4)
    assert found.lower_bound <= min(every) * (1 + 1e-9)
    assert found.status == "optimal"
    verify(found).raise_if_failed()


STEP = "zoo:llama-7b?layers=16&batch=4"


def test_fewer_layers_recomputed_are_quicker_than_all_and_than_stages_that_need_none():
    none, block, needed = (
        planned(STEP, "8xA100", "deepspeed", how, micro_batches=8)
        for how in ("none", "block", "needed")
    )
    assert needed.plan.value < 0.9 * min(none.plan.value, block.plan.value)
    assert needed.plan.status == "optimal"
    again = [len(needed.by_blocks.again_in(stage)) for stage in needed.by_blocks.stages]
    assert again == sorted(again, reverse=True) and 0 < sum(again) < 16
    records = engine_record(needed)["stages"]
    assert [each["recomputed"] for each in records] == again
    words = engine_words(needed)
    assert f", {again[0]} layer" in words[0] and words[0].endswith("recomputed")
    assert "recomputed" not in engine_record(none)["stages"][0]


def test_what_is_recomputed_is_told_to_megatron_and_deepspeed(tmp_path):
    even = planned(STEP, "8xA100", "megatron", micro_batches=8).plan
    arguments = megatron_settings(even)["arguments"]
    assert arguments[-6:] == [
        *("--recompute-granularity", "full"),
        *("--recompute-method", "block"),
        *("--recompute-num-layers", "1"),
    ]
    uneven = planned(STEP, "8xA100", "deepspeed", micro_batches=8).plan
    with pytest.raises(OptionError, match="as many layers in each stage, the first"):
        megatron_settings(uneven)
    write_deepspeed(tmp_path / "stages.py", uneven)
    names = {}
    text = (tmp_path / "stages.py").read_text()
    exec(text[text.index("LAYERS =") : text.index("class")], names)
    layers = [names["LAYERS"][k] for k in names["RECOMPUTED"]]
    assert layers == names_recomputed(uneven.problem)


def test_a_plan_that_recomputes_some_layers_can_be_planned_again_on_another_cluster():
    plan_ = planned(LLAMA, cluster_of("2x3090", 10.0, 10.0), "deepspeed").plan
    assert 0 < len(names_recomputed(plan_.problem)) < 4
    again = on_cluster(replace(plan_, source=LLAMA), cluster_of("4090+3060", 10.0, 10.0))
    assert again.op_names == plan_.problem.op_names
    assert (recomputed_ops(again) == recomputed_ops(plan_.problem)).all()


def test_copies_of_shared_weights_are_counted_where_layers_are_recomputed():
    """Without recomputation they have no room, but the model's ends can be apart all the same."""
    source = "zoo:gpt2?layers=12&batch=128"
    block = planned(source, "2x3090", "deepspeed", "block").plan
    needed = planned(source, "2x3090", "deepspeed").plan
    assert needed.value <= block.value and len(needed.placement.row) == 2
    with pytest.raises(ProvedInfeasibleError, match=r"--recompute needed keeps as little as"):
        planned(source, "2x3090", "deepspeed", "none")


def test_blocks_of_stages_of_stages_stay_the_same_when_some_run_again():
    source = "zoo:resnet50?batch=64"
    found = planned(source, cluster_of("2x3090", 4.0, 4.0), "deepspeed")
    plain = planned(source, "2x3090", "deepspeed", "none")
    assert found.by_blocks.blocks.names == plain.by_blocks.blocks.names
    assert found.by_blocks.recomputed and found.plan.lower_bound <= found.plan.value


def two_layers(seconds):
    """Each of two ops and their backward ops; all that layer 1 makes is a view if it is free."""
    builder = GraphBuilder("two layers")
    made, ops = [], []
    for name in ("0.a", "0.b", "1.a", "1.b"):
        ops.append(builder.add_op(name, "op", made[-1:], flops=1, module=f"layers.{name[0]}"))
        made.append(builder.add_tensor(ops[-1], 5.0))
    for op in reversed(range(4)):
        known = {"flops": 1, "module": f"layers.{op // 2}", "backward": True, "twin": ops[op]}
        back = builder.add_op(f"{op} back", "op", [made[-1], made[op]], **known)
        made.append(builder.add_tensor(back, 5.0))
    builder.times["k"] = seconds
    return builder.build()


@pytest.mark.parametrize("layer_1", [0.0, 1.0])
def test_a_layer_that_takes_no_time_makes_nothing_again(layer_1):
    graph = two_layers([1.0, 1.0, layer_1, layer_1, 1.0, 1.0, 1.0, 1.0])
    devices = tuple(Device(name, "k", memory=100.0) for name in "xy")
    cluster = Cluster("two", devices=devices, links=(Link("x", "y", bandwidth=100.0),))
    how = {"training": True, "free_seconds": 0, "micro_batches": 2}
    some = plan_for(graph, cluster, "deepspeed", costs=NEEDED, **how).plan
    assert some.value == plan_for(graph, cluster, "deepspeed", **how).plan.value


def test_recomputing_what_is_needed_is_for_engines_and_steps():
    with pytest.raises(OptionError, match="for an engine with --micro-batches"):
        plan(trained(LLAMA), "2x3090", costs=NEEDED, time_limit=1)
    with pytest.raises(OptionError, match="give --micro-batches, or --recompute block"):
        planned(LLAMA, "2x3090", "deepspeed", micro_batches=None)
    with pytest.raises(OptionError, match="do not recompute activations"):
        plan_for(LLAMA, "2x3090", "accelerate", costs=NEEDED)
    with pytest.raises(OptionError, match="recompute is about training"):
        plan_for(LLAMA, "2x3090", "deepspeed", costs=NEEDED, micro_batches=2)
