"""Rows of stages are the best there are: beside every row, looked at one by one."""

from dataclasses import replace
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest

from placewright.errors import ProvedInfeasibleError
from placewright.exporters.engines import find_engine
from placewright.exporters.pieces import NO_COPIES, pieces_for
from placewright.exporters.planning import plan_row
from placewright.exporters.sharing import NO_RETURN, exchanging
from placewright.graph import GraphBuilder
from placewright.plan import Placement
from placewright.planning import make_problem
from placewright.simulate import evaluate
from placewright.verify import verify

MODELS = ["zoo:gpt2?layers=5", "zoo:llama-7b?layers=4&context=64", "zoo:bert-base?layers=5"]
GIB = 2**30
FETCHES = "accelerate"


def problem_of(source, cluster, objective, memory=None):
    problem = make_problem(source, cluster, {"objective": objective})[0]
    if memory is not None:
        problem = problem.with_device_memory(np.full(problem.device_count, float(memory)))
    return problem


def every_value(problem, engine, copied=NO_COPIES):
    """The value of each row of whole pieces within memory, by trying all."""
    pieces = pieces_for(problem, find_engine(engine), copied)
    inner, op_piece = pieces.problem, pieces.op_piece
    free = pieces.count if pieces.returns == NO_RETURN else pieces.returns
    for number in range(1, min(inner.device_count, free) + 1):
        for cuts in combinations(range(1, free), number - 1):
            for devices in permutations(range(inner.device_count), number):
                device = np.zeros(pieces.count, dtype=np.int32)
                for each, (first, end) in zip(devices, pairwise([0, *cuts, free]), strict=True):
                    device[first:end] = each
                device[free:] = devices[0]
                if cuts and cuts[0] <= pieces.held and pieces.returns != NO_RETURN:
                    continue
                placed = device[op_piece]
                here = fetched_from_the_cpu(problem, inner, placed) if engine == FETCHES else inner
                kept = np.bincount(placed, inner.op_memory, inner.device_count)
                kept -= held_once(pieces.shared, device, inner.device_count)
                times = here.op_time[np.arange(inner.op_count), placed]
                if (kept <= here.device_memory).all() and np.isfinite(times).all():
                    yield evaluate(here, Placement(placed)).value


def held_once(shared, device, count):
    """Bytes per device that copies of weights would be counted too often."""
    found = np.zeros(count)
    for each in shared:
        there = [device[piece] for piece in each.pieces]
        for one in set(there):
            found[one] += each.bytes * (there.count(one) - 1)
    return found


def fetched_from_the_cpu(problem, inner, placed):
    """The problem where the first GPU computes what is on the CPU, if both are used."""
    cpus = [each for each in set(placed.tolist()) if inner.is_cpu[each]]
    gpus = [each for each in set(placed.tolist()) if not inner.is_cpu[each]]
    if not cpus or not gpus:
        return inner
    cpu, gpu = cpus[0], min(gpus)
    time, memory = inner.op_time.copy(), inner.device_memory.copy()
    latency = problem.link_latency[cpu, gpu]
    rate = max(problem.link_seconds_per_byte[cpu, gpu], 1 / 6e9)  # its memory is not pinned
    largest = 0.0
    for op in range(inner.op_count):
        size = float(problem.op_memory[op])
        if inner.op_names[op] == "lm_head" and not size:
            size = float(problem.op_memory[inner.op_names.index("embedding.tokens")])
        time[op, cpu] = time[op, gpu] + (latency + size * rate if size else 0.0)
        largest = max(largest, size if placed[op] == cpu else 0.0)
    memory[gpu] -= largest
    way, per_byte = inner.link_latency.copy(), inner.link_seconds_per_byte.copy()
    for table in (way, per_byte):
        table[cpu], table[:, cpu] = table[gpu], table[:, gpu]
        table[cpu, gpu] = table[gpu, cpu] = 0.0
    return replace(inner, op_time=time, device_memory=memory, link_latency=way,
                   link_seconds_per_byte=per_byte)  # fmt: skip


@pytest.mark.parametrize("source", MODELS)
@pytest.mark.parametrize("engine", ["accelerate", "llama-cpp", "vllm"])
@pytest.mark.parametrize("cluster", ["4090+3060", "a100+2xt4+cpu"])
@pytest.mark.parametrize("room", [None, 0.95])
def test_the_plan_of_one_request_is_the_best_row_there_is(source, engine, cluster, room):
    whole = problem_of(source, cluster, "latency")
    memory = None if room is None else room * float(whole.op_memory.sum())
    problem = problem_of(source, cluster, "latency", memory)
    plan = plan_row(problem, find_engine(engine))
    assert plan.value == pytest.approx(min(every_value(problem, engine)), rel=1e-9)
    assert plan.status == "optimal" and verify(plan).ok


@pytest.mark.parametrize("source", MODELS)
@pytest.mark.parametrize("engine", ["vllm", "deepspeed"])
@pytest.mark.parametrize("load", ["sum", "overlap", "duplex"])
def test_the_plan_of_a_pipeline_on_two_devices_is_the_best_row_there_is(source, engine, load):
    problem = make_problem(source, "4090+3060", {"objective": "throughput", "load": load})[0]
    plan = plan_row(problem, find_engine(engine))
    assert plan.value == pytest.approx(min(every_value(problem, engine)), rel=1e-9)
    assert plan.status == "optimal" and verify(plan).ok


@pytest.mark.parametrize("source", MODELS)
@pytest.mark.parametrize("load", ["sum", "overlap"])
def test_the_plan_of_a_pipeline_over_unequal_ways_is_the_best_row_there_is(source, load):
    given = {"objective": "throughput", "load": load}
    problem = make_problem(source, "a100+2xt4+cpu", given)[0]
    plan = plan_row(problem, find_engine("deepspeed"))
    best = min(every_value(problem, "deepspeed"))
    assert plan.lower_bound <= best == pytest.approx(plan.value, rel=1e-9)
    assert plan.status == "optimal" and verify(plan).ok


@pytest.mark.parametrize("load", ["sum", "overlap", "duplex"])
@pytest.mark.parametrize("room", [None, 0.6])
def test_the_row_that_trains_tied_weights_is_the_best_with_what_its_stages_exchange(load, room):
    """Over ways fast enough for several stages to pay, and where one has no room for all."""
    source, given = "zoo:gpt2?layers=5", {"objective": "throughput", "load": load}
    apart, _ = make_problem(source, "a100+2xt4+cpu", given, training=True)
    problem, _ = make_problem(source, "a100+2xt4+cpu", given, training=True, together=True)
    problem = replace(exchanging(problem, apart),
                      link_seconds_per_byte=problem.link_seconds_per_byte / 30)  # fmt: skip
    if room is not None:
        most = room * float(problem.op_memory.sum())
        problem = problem.with_device_memory(np.full(problem.device_count, most))
    plan = plan_row(problem, find_engine("deepspeed"), copied=apart.op_copied)
    values = list(every_value(problem, "deepspeed", apart.op_copied))
    assert plan.lower_bound <= min(values) == pytest.approx(plan.value, rel=1e-9)
    assert plan.status == "optimal" and verify(plan).ok
    assert room is None or plan.planner_options["copied"] == "lm_head"


def test_a_pipeline_on_many_equal_devices_is_planned_by_counts():
    plan = plan_row(problem_of("zoo:gpt2-xl", "8xH100", "throughput"), find_engine("vllm"))
    assert plan.status == "optimal"
    assert len(set(plan.placement.device.tolist())) == 8


def test_a_model_that_no_row_holds_says_so_with_the_arithmetic():
    builder, tensor = GraphBuilder("three"), []
    for layer in range(3):
        op = builder.add_op(f"op{layer}", "op", tensor, module=f"layers.{layer}", flops=1e9,
                            parameter_bytes=float(8 * GIB))  # fmt: skip
        tensor = [builder.add_tensor(op, 8.0)]
    problem = problem_of(builder.build(), "2x3090", "latency", 15 * GIB)
    with pytest.raises(ProvedInfeasibleError, match=r"24\.0 GiB in 3 pieces, the largest 8\.0 GiB"):
        plan_row(problem, find_engine("accelerate"))
