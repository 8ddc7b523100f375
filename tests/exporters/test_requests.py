"""Plans of requests for engines are the best rows of stages: beside every row, one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest

from placewright.coarsen.blocks import find_blocks
from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions
from placewright.errors import InfeasibleError, OptionError, ProvedInfeasibleError
from placewright.exporters.engines import find_engine
from placewright.exporters.exporting import export
from placewright.exporters.pieces import pieces_for
from placewright.exporters.planning import counted
from placewright.exporters.request_batches import Tried, best_batch, tried_batches
from placewright.exporters.requests import plan_requests_for
from placewright.importers import Imported
from placewright.importers.phases import load_phases
from placewright.options import Options
from placewright.plan import Placement
from placewright.serving.capacity import cache_capacity
from placewright.serving.mix import read_kinds
from placewright.serving.planning import phase_problems
from placewright.simulate import evaluate
from placewright.simulate.latency import dispatch_placement
from placewright.verify import verify
from tests.exporters.test_rows import held_once

COSTS = CostOptions(profiles=None)
SMALL = "zoo:llama-7b?layers=4"
TIED = "zoo:gpt2?layers=5"
P, N = 48, 16
MIX = f"prompt={P},output={N}"
SETTINGS = [
    ("vllm", "throughput"),
    ("vllm", "latency"),
    ("sglang", "throughput"),
    ("sglang", "latency"),
    ("llama-cpp", "latency"),
    ("accelerate", "latency"),
]


BESIDE = {SMALL: 0.18e9, TIED: 0.04e9}
"""About what vLLM takes for a batch of 2048 tokens, over the share of memory that it takes."""


def cluster_of(name, room=None, source=SMALL, engine=""):
    """The cluster, with so many times the model's weights of memory on each device."""
    cluster = load_cluster(name)
    if room is None:
        return cluster
    size = room * float(load_phases(source, P, N).decode.op_parameter_bytes.sum())
    size += BESIDE[source] if engine == "vllm" else 0.0
    return replace(cluster, devices=tuple(replace(each, memory=size) for each in cluster.devices))


def timed(problem, device):
    """The quicker of the two schedules that there are for a placement."""
    outcome = evaluate(problem, Placement(device))
    if problem.options.objective != "latency":
        return outcome
    other = evaluate(problem, dispatch_placement(problem, np.asarray(device, dtype=np.int32)))
    return min(outcome, other, key=lambda each: each.value)


def every_request(source, cluster, engine, objective, **options):
    """`(value, stages)` of each row within memory, both phases run where their blocks are."""
    row = find_engine(engine)
    phases = load_phases(source, P, N)
    chosen = Options(objective=objective, **options)
    prefill, decode = phase_problems(phases, cluster, chosen, COSTS)
    attributes = {**phases.decode.attributes, "context": P + N, "requests": True}
    graph = replace(phases.decode, attributes=attributes)
    decode = counted(decode, Imported(graph, source=source), row)[0]
    pieces = pieces_for(decode, row)
    names, op_block = pieces.blocks.names, pieces.blocks.op_block
    own = find_blocks(prefill)
    block = np.array([names.index(own.names[each]) for each in own.op_block])
    of_block = np.zeros(len(names), dtype=int)
    of_block[op_block] = pieces.op_piece
    inner = pieces.problem
    count, free = inner.device_count, pieces.count
    for stages in range(1, min(count, free) + 1):
        for cuts in combinations(range(1, free), stages - 1):
            for devices in permutations(range(count), stages):
                device = np.zeros(free, dtype=np.int32)
                for each, (first, end) in zip(devices, pairwise([0, *cuts, free]), strict=True):
                    device[first:end] = each
                placed = device[pieces.op_piece]
                batches = stages if objective == "throughput" else 1
                kept = np.bincount(placed, inner.op_memory, count)
                kept += (batches - 1) * np.bincount(placed, inner.op_cache, count)
                kept -= held_once(pieces.shared, device, count)
                times = inner.op_time[np.arange(inner.op_count), placed]
                if engine == "sglang":  # as much as the stage has that has most
                    caches = batches * np.bincount(placed, inner.op_cache, count)
                    kept[list(devices)] += (caches.max() - caches)[list(devices)]
                if (kept > inner.device_memory).any() or not np.isfinite(times).all():
                    continue
                first, step = timed(prefill, device[of_block[block]]), timed(decode, placed)
                if objective == "latency":
                    yield first.value + N * step.value, stages
                    continue
                parts = [
                    one.sum(axis=0) + N * two.sum(axis=0)
                    for one, two in (
                        (first.compute, step.compute),
                        (first.incoming, step.incoming),
                        (first.outgoing, step.outgoing),
                    )
                ]
                load = {
                    "sum": parts[0] + parts[1] + parts[2],
                    "overlap": np.maximum(parts[0], parts[1] + parts[2]),
                    "duplex": np.maximum(parts[0], np.maximum(parts[1], parts[2])),
                }[chosen.load]
                yield float(load.max()), stages


@pytest.mark.parametrize("source", [SMALL, TIED])
@pytest.mark.parametrize(("engine", "objective"), SETTINGS[:5])
@pytest.mark.parametrize("cluster", ["4090+3060", "3090+2x3060"])
@pytest.mark.parametrize("room", [None, 0.9])
def test_the_plan_of_requests_is_the_best_row_there_is(source, engine, objective, cluster, room):
    devices = cluster_of(cluster, room, source, engine)
    found = plan_requests_for(
        source, devices, engine, MIX, objective=objective, costs=COSTS, free_seconds=0
    )
    best = min(every_request(source, devices, engine, objective))[0]
    served = found.served
    assert served.value == pytest.approx(best, rel=1e-9)
    assert served.lower_bound <= best and served.status == "optimal"
    assert all(verify(plan).ok for plan in (served.plan, served.prefill, served.decode))


@pytest.mark.parametrize("load", ["sum", "overlap", "duplex"])
def test_a_pipeline_of_requests_is_the_best_under_every_load(load):
    devices = cluster_of("4090+3060")
    found = plan_requests_for(SMALL, devices, "vllm", MIX, costs=COSTS, free_seconds=0, load=load)
    best = min(every_request(SMALL, devices, "vllm", "throughput", load=load))[0]
    assert found.served.value == pytest.approx(best, rel=1e-9)


def test_a_request_whose_weights_wait_on_a_cpu_is_prefill_and_steps():
    devices = cluster_of("4090+cpu", 0.8)
    found = plan_requests_for(SMALL, devices, "accelerate", MIX, costs=COSTS, free_seconds=0)
    served = found.served
    assert found.by_blocks.plan.planner_options["offload"] == "rtx4090"
    whole = served.prefill.value + N * served.decode.value
    assert served.value == pytest.approx(whole, rel=1e-9)
    assert served.lower_bound <= served.value and served.gap < 1e-4


def test_a_pipeline_has_room_for_the_caches_of_a_batch_per_stage():
    """With room for one batch on each device, but not for one per stage, a row is refused."""
    source = f"{SMALL}&batch=512"
    weights = float(load_phases(source, P, N).decode.op_parameter_bytes.sum())
    cache = float(load_phases(source, P, N).decode.op_state_bytes.sum())
    cluster = load_cluster("2x3090")

    def with_memory(size):
        devices = tuple(replace(each, memory=size / 0.9) for each in cluster.devices)
        return replace(cluster, devices=devices)

    enough = with_memory(0.7 * weights + 2 * 0.7 * cache)
    found = plan_requests_for(source, enough, "vllm", MIX, costs=COSTS, free_seconds=0)
    assert len(found.by_blocks.stages) == 2
    assert found.served.capacity.samples == 1024 <= found.served.capacity.fit
    with pytest.raises(InfeasibleError):
        small = with_memory(0.7 * weights + 0.7 * cache)
        plan_requests_for(source, small, "vllm", MIX, costs=COSTS, free_seconds=0)


def test_the_best_batch_is_planned_as_any_other(tmp_path):
    devices = cluster_of("4090+3060", 0.65)
    best = plan_requests_for(
        SMALL, devices, "vllm", f"{MIX},batch=best", costs=COSTS, free_seconds=0
    )
    batch = best.served.batch
    alone = plan_requests_for(
        f"{SMALL}&batch={batch}", devices, "vllm", MIX, costs=COSTS, free_seconds=0
    )
    assert alone.served.tokens_per_second == pytest.approx(best.served.tokens_per_second)
    most = max(each.tokens_per_second or 0 for each in best.tried)
    assert best.served.tokens_per_second >= most / 1.02
    assert [each.batch for each in best.tried] == sorted({each.batch for each in best.tried})
    assert any(each.tokens_per_second is None for each in best.tried)


class Served:
    def __init__(self, rate):
        self.served = self
        self.tokens_per_second = rate
        self.seconds_to_first_token = self.seconds_per_token = 1.0


@pytest.mark.parametrize("largest", [1, 5, 37, 200])
def test_batches_are_doubled_to_where_none_fits_and_then_looked_for_between(largest):
    def plan(batch):
        if batch > largest:
            raise ProvedInfeasibleError("no room")
        return Served(float(batch))

    tried = tried_batches(plan)
    assert best_batch(tried) > 0.85 * largest
    assert max(tried) == 1 << largest.bit_length()


def test_a_larger_batch_that_makes_hardly_more_is_not_worth_the_wait():
    tried = tried_batches(lambda batch: Served(100.0 * (1 - 0.5**batch)))
    rates = {batch: each.tokens_per_second for batch, each in tried.items()}
    best = best_batch(tried)
    assert rates[best] * 1.02 >= max(rates.values())
    assert max(tried) < 64


def test_where_no_batch_fits_the_reason_is_told():
    def plan(batch):
        raise ProvedInfeasibleError("no room")

    with pytest.raises(ProvedInfeasibleError, match="no room"):
        tried_batches(plan)


def test_a_batch_of_many_ties_is_the_smallest():
    tried = {each: Tried(each, rate) for each, rate in ((1, 50.0), (2, 99.0), (4, 100.0))}
    assert best_batch(tried) == 2


def test_exports_say_how_many_sequences_of_how_many_tokens(tmp_path):
    found = plan_requests_for(
        f"{SMALL}&batch=4", "4090+3060", "vllm", MIX, costs=COSTS, free_seconds=0
    )
    plan, stages = found.by_blocks.plan, len(found.by_blocks.stages)
    (line,) = export(plan, "vllm", tmp_path / "vllm.json")
    assert f"--max-num-seqs {4 * stages} --max-model-len {P + N}" in line
    (line,) = export(plan, "sglang", tmp_path / "sglang.json")
    assert f"--max-running-requests {4 * stages} --context-length {P + N}" in line


@pytest.mark.parametrize("said", ["many", "-3", "0", "9" * 5000, "²"])
def test_a_number_of_sequences_that_is_none_is_not_believed(said, tmp_path):
    found = plan_requests_for(SMALL, "4090+3060", "vllm", MIX, costs=COSTS, free_seconds=0)
    plan = found.by_blocks.plan
    told = {**plan.planner_options, "sequences": said}
    assert cache_capacity(replace(plan, planner_options=told)).samples == 1
    (line,) = export(replace(plan, planner_options=told), "vllm", tmp_path / "vllm.json")
    assert "--max-num-seqs" not in line and f"--max-model-len {P + N}" in line
    told["engine"] = "llama-cpp"
    (line,) = export(replace(plan, planner_options=told), "llama-cpp", tmp_path / "llama.json")
    assert " -np " not in line


def test_llama_cpp_is_told_the_context_of_a_whole_request(tmp_path):
    found = plan_requests_for(
        f"{SMALL}&batch=2", "4090+3060", "llama-cpp", MIX, costs=COSTS, free_seconds=0
    )
    (line,) = export(found.by_blocks.plan, "llama-cpp", tmp_path / "llama.json")
    assert f"-c {2 * (P + N)} -np 2" in line


def test_of_several_kinds_the_row_is_the_best_for_the_mean_request():
    """All phases of both kinds, weighed: beside every row on two devices."""
    kinds = read_kinds("prompt=48,output=16,share=1; prompt=8,output=64,share=3")
    devices = cluster_of("4090+3060")
    found = plan_requests_for(SMALL, devices, "vllm", kinds, costs=COSTS, free_seconds=0)
    models = []
    for kind in kinds:
        phases = load_phases(SMALL, kind.prompt, kind.output)
        chosen = Options(objective="throughput")
        models.append((kind, *phase_problems(phases, devices, chosen, COSTS)))
    names, best = find_blocks(models[0][2]).names, np.inf
    layers = [k for k, name in enumerate(names) if name.startswith("blocks.")]
    for cut in [*layers, len(names)]:
        for first in (0, 1):
            load = np.zeros(2)
            for kind, prefill, decode in models:
                for problem, times in ((prefill, 1), (decode, kind.output)):
                    after = find_blocks(problem).op_block >= cut
                    device = np.where(after, 1 - first, first).astype(np.int32)
                    load += kind.share * times * evaluate(problem, Placement(device)).load
            best = min(best, load.max())
    served = found.served
    assert served.value == pytest.approx(best, rel=1e-9) and served.status == "optimal"
    assert served.output == 0.25 * 16 + 0.75 * 64 and served.context == 72
    assert served.seconds_per_request == pytest.approx(
        sum(each.mix.share * each.seconds_per_request for each in served.kinds)
    )
    assert served.seconds_per_token * served.output == pytest.approx(
        served.seconds_per_request - served.seconds_to_first_token
    )


def test_kinds_that_are_the_same_are_one():
    twice = plan_requests_for(
        SMALL, "4090+3060", "llama-cpp", f"{MIX};{MIX}", costs=COSTS, free_seconds=0
    )
    once = plan_requests_for(SMALL, "4090+3060", "llama-cpp", MIX, costs=COSTS, free_seconds=0)
    assert twice.served.value == pytest.approx(once.served.value)
    assert twice.by_blocks.stages == once.by_blocks.stages


def test_a_pinned_op_keeps_its_block_in_both_phases():
    pinned = {"embedding": "rtx3060"}
    name = find_blocks(
        phase_problems(load_phases(SMALL, P, N), load_cluster("4090+3060"), Options(), COSTS)[1]
    ).names[0]
    assert name == "embedding"
    found = plan_requests_for(
        SMALL, "4090+3060", "vllm", MIX, costs=COSTS, free_seconds=0, pinned=pinned
    )
    stage = found.by_blocks.stages[0]
    assert found.by_blocks.device_name(stage) == "rtx3060"


def test_what_cannot_be_planned_is_refused_with_the_reason():
    with pytest.raises(OptionError, match="engines that serve language models"):
        plan_requests_for(SMALL, "4090+3060", "megatron", MIX)
    with pytest.raises(OptionError, match="different blocks"):
        plan_requests_for("zoo:t5-small", "4090+3060", "accelerate", MIX, free_seconds=0)
    with pytest.raises(OptionError, match="decode has no op"):
        plan_requests_for(
            SMALL, "4090+3060", "vllm", MIX, pinned={"nothing": "rtx3060"}, free_seconds=0
        )
    with pytest.raises(OptionError, match="--mix says what 'batch=2' would"):
        plan_requests_for(f"{SMALL}&batch=2", "4090+3060", "vllm", f"{MIX},batch=best")


def test_the_best_plan_without_the_limits_is_no_worse():
    found = plan_requests_for(SMALL, "4090+3060", "vllm", MIX, costs=COSTS, free_seconds=0.5)
    assert found.free is not None and found.free_value <= found.served.value
    assert found.free.lower_bound <= found.served.value * (1 + 1e-9)
