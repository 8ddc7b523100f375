"""A request is one prefill and a step of decode per token, of one placement."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions, build_problem
from placewright.errors import InputError, OptionError, ProvedInfeasibleError
from placewright.graph import Graph, GraphBuilder
from placewright.importers.phases import Phases, load_phases
from placewright.options import Options
from placewright.plan import Placement
from placewright.planning import plan_problem
from placewright.serving.mix import Mix, read_mix
from placewright.serving.planning import judged, plan_request
from placewright.serving.request import BETWEEN, Request, request_of
from placewright.serving.served import ServingPlan
from placewright.simulate import evaluate
from placewright.verify import verify
from tests.naive.latency import shortest_makespan

COSTS = CostOptions(profiles=None)
FORK = ((0, 1), (0, 2), (1, 3), (2, 3))
CHAIN = ((0, 1), (1, 2), (2, 3))


def phase(seed: int, size: float, edges: tuple[tuple[int, int], ...], state: float) -> Graph:
    """Four ops of random times on devices of kinds x and y; each keeps 10 bytes and `state`."""
    draw = np.random.default_rng(seed)
    builder = GraphBuilder(f"phase {seed}")
    builder.attributes["phase"] = "decode" if state else "prefill"
    for op in range(4):
        builder.add_op(f"o{op}", "op", parameter_bytes=10.0, state_bytes=state)
    for producer in range(4):
        readers = [b for a, b in edges if a == producer]
        if readers:
            tensor = builder.add_tensor(producer, size * float(draw.integers(1, 4)))
            for reader in readers:
                builder.connect(tensor, reader)
    builder.times = {kind: draw.integers(1, 9, 4).tolist() for kind in "xy"}
    return builder.build()


def phases_of(seed: int, edges: tuple[tuple[int, int], ...] = CHAIN) -> Phases:
    twins = tuple((op, op) for op in range(4))
    return Phases(phase(seed, 40, edges, 0), phase(seed + 1000, 1, edges, 2), twins, "tiny")


def devices(*latencies: float, memory: float = 1000.0) -> Cluster:
    """x, y, x in a row, joined by links of these latencies and 10 bytes per second."""
    found = tuple(
        Device(f"d{k}", kind, memory=memory) for k, kind in zip(range(3), "xyx", strict=True)
    )
    ends = (("d0", "d1"), ("d1", "d2"), ("d0", "d2"))
    links = tuple(
        Link(a, b, 10.0, latency=latency) for (a, b), latency in zip(ends, latencies, strict=True)
    )
    return Cluster("three", found, links, routing="direct")


def request(phases: Phases, cluster: Cluster, mix: Mix, options: Options) -> Request:
    prefill, decode = (
        build_problem(graph, cluster, options, COSTS) for graph in (phases.prefill, phases.decode)
    )
    return request_of(phases, prefill, decode, mix)


def best_of_all(made: Request) -> float:
    """The least of prefill + output · decode over all placements, each phase by brute force."""
    best = np.inf
    for chosen in product(range(made.prefill.device_count), repeat=made.prefill.op_count):
        pinned = np.array(chosen)
        used = np.bincount(pinned, made.decode.op_memory, made.prefill.device_count)
        if (used > made.prefill.device_memory).any():
            continue
        one, two = (
            shortest_makespan(replace(each, op_pinned=pinned))
            for each in (made.prefill, made.decode)
        )
        best = min(best, one + made.mix.output * two)
    return best


# -- what a plan of the request is worth ----------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("edges", [CHAIN, FORK], ids=["chain", "fork"])
def test_the_plan_is_the_best_over_all_placements_of_both_phases(seed, edges):
    made = request(phases_of(seed, edges), devices(0.5, 0.5, 0.5, memory=30), Mix(7, 5), Options())
    served = judged(made, plan_problem(made.problem, planner="moirai-milp"))
    assert served.value == pytest.approx(best_of_all(made))
    assert served.status == "optimal"


@pytest.mark.parametrize("seed", range(4))
def test_where_routes_differ_value_and_bound_still_hold(seed):
    made = request(phases_of(seed), devices(0.1, 2.0, 5.0), Mix(7, 5), Options())
    served = judged(made, plan_problem(made.problem, planner="moirai-milp"))
    best = best_of_all(made)
    assert served.lower_bound <= best * (1 + 1e-9)
    assert best <= served.value * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("load", ["sum", "overlap", "duplex"])
def test_the_load_of_a_device_is_that_of_prefill_and_of_every_step(seed, load):
    options = Options(objective="throughput", load=load)
    made = request(phases_of(seed), devices(0.5, 0.5, 0.5), Mix(7, 5), options)
    served = judged(made, plan_problem(made.problem, planner="ideal-dp"))
    assert served.value == pytest.approx(served.plan.value)
    assert served.tokens_per_second == pytest.approx(5 / served.value)
    best = min(
        evaluate(made.problem, Placement(np.tile(chosen, 2))).value
        for chosen in product(range(3), repeat=4)
        if _goes_forward(chosen)
    )
    assert served.value == pytest.approx(best)


def _goes_forward(chosen: tuple[int, ...]) -> bool:
    """Of a chain: no device is come back to."""
    runs = [device for k, device in enumerate(chosen) if k == 0 or chosen[k - 1] != device]
    return len(runs) == len(set(runs))


@pytest.mark.parametrize("objective", ["latency", "throughput"])
@pytest.mark.parametrize("cluster", ["2x3090", "a100+2xt4+cpu", "moirai-inter-server", "tarnawski"])
def test_no_transfer_takes_longer_in_the_request_than_it_does(cluster, objective):
    phases = load_phases("zoo:llama-7b?layers=2", 512, 16)
    options = Options(objective=objective)
    made = request(phases, load_cluster(cluster), Mix(512, 16), options)
    through_host = made.prefill.staging == "host" and objective == "throughput"
    tensors = made.prefill.tensor_count + made.decode.tensor_count
    repeats = np.repeat([1.0, 16.0], [made.prefill.tensor_count, made.decode.tensor_count])
    sizes = np.concatenate([made.prefill.tensor_bytes, made.decode.tensor_bytes])
    real, counted = (
        (problem.host_latency, problem.host_seconds_per_byte)
        if through_host
        else (problem.link_latency, problem.link_seconds_per_byte)
        for problem in (made.prefill, made.problem)
    )
    assert not counted[0].any()
    seconds = repeats * (real[0][..., None] + real[1][..., None] * sizes)
    taken = counted[1][..., None] * made.problem.tensor_bytes[:tensors]
    assert (taken <= seconds * (1 + 1e-12)).all()
    if cluster == "2x3090":
        assert taken == pytest.approx(seconds)
    else:  # what is lost of all transfers together
        assert taken.sum() > 0.5 * seconds.sum()


def test_with_one_kind_of_route_the_whole_plan_takes_what_its_phases_take():
    served = plan_request("zoo:gpt2?layers=2", "2x3090", "prompt=64,output=8", planner="heft")
    assert served.plan.value == pytest.approx(served.seconds_per_request)
    assert served.value == served.prefill.value + 8 * served.decode.value
    for plan in (served.plan, served.prefill, served.decode):
        assert verify(plan).ok


def test_no_op_of_decode_starts_before_prefill_is_done():
    served = plan_request("zoo:gpt2?layers=2", "2x3090", "prompt=64,output=8", planner="heft")
    schedule, count = served.plan.schedule, served.prefill.problem.op_count
    between = served.plan.problem.op_names.index(BETWEEN)
    assert schedule.op_finish[:count].max() <= schedule.op_start[between]
    assert schedule.op_start[count:].min() >= schedule.op_start[between]


def test_more_output_counts_decode_more_often():
    few, many = (
        plan_request("zoo:gpt2?layers=2", "2x3090", f"prompt=64,output={n}", planner="heft")
        for n in (1, 100)
    )
    assert many.seconds_to_first_token == pytest.approx(few.seconds_to_first_token)
    assert many.seconds_per_request > 50 * few.seconds_per_token


# -- memory ---------------------------------------------------------------------------------------


def test_weights_and_cache_are_counted_once():
    phases = load_phases("zoo:gpt2?layers=2&dtype=fp16&batch=3", 60, 20)
    cluster = load_cluster("2x3090")
    made = request(phases, cluster, Mix(60, 20), Options())
    weights = float(phases.prefill.op_parameter_bytes.sum())
    cache = 2 * 2 * 3 * 80 * 768 * 2  # layers, keys and values, samples, tokens, width, fp16
    assert made.problem.op_memory.sum() == pytest.approx(weights + cache)
    assert made.problem.op_cache.sum() == pytest.approx(cache)


def test_what_only_prefill_has_is_kept_too():
    """T5's encoder and the keys and values of the prompt run in prefill alone."""
    phases = load_phases("zoo:t5-small", 32, 8)
    made = request(phases, load_cluster("2x3090"), Mix(32, 8), Options())
    weights = float(phases.prefill.op_parameter_bytes.sum())
    assert phases.decode.op_parameter_bytes.sum() < weights
    state = float(phases.decode.op_state_bytes.sum())
    assert made.problem.op_memory.sum() == pytest.approx(weights + state)


def test_the_same_part_of_the_model_is_on_one_device_in_both_phases():
    served = plan_request("zoo:llama-7b?layers=4", "2x3090", "prompt=64,output=8", planner="m-etf")
    prefill = served.prefill.device_of()
    assert prefill.pop("last_token")  # of which a step has no other
    assert prefill == served.decode.device_of()


def test_sequences_fit_where_the_weights_leave_room():
    served = plan_request(
        "zoo:llama-7b?batch=2", "2x3090", "prompt=1000,output=24", planner="memory-fill"
    )
    capacity, problem = served.capacity, served.plan.problem
    one = 2 * 32 * 1024 * 4096 * 2  # keys and values, layers, tokens, width, fp16
    assert capacity.cache.sum() == pytest.approx(2 * one)
    free = problem.device_memory - capacity.weights
    holds = capacity.cache > 0
    expected = np.floor(free[holds] / (capacity.cache[holds] / 2))
    assert capacity.fit == int(expected.min())
    assert (served.plan.device_memory == capacity.weights + capacity.cache).all()


def test_a_model_that_does_not_fit_is_refused_with_the_arithmetic():
    with pytest.raises(ProvedInfeasibleError, match="the model needs"):
        plan_request("zoo:llama-70b", "2x3090", "prompt=64,output=8")


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("model.onnx", "model.onnx: no such file"),
        ("torch:models:make", "--mix is for sources with phases"),
        ("zoo:resnet50", "'resnet50' has no phases, which --mix needs"),
        ("zoo:gpt2?phase=decode", "--mix says what 'phase=decode' would"),
        ("zoo:gpt2?layers=2&context=9", "--mix says what 'context=9' would"),
        ("hf:gpt2?sequence=9", "--mix says what 'sequence=9' would"),
        ("zoo:gtp2", "no zoo model 'gtp2'"),
    ],
)
def test_a_source_without_phases_is_refused(source, sentence):
    with pytest.raises(InputError, match=sentence):
        plan_request(source, "2x3090", "prompt=8,output=8")


def test_a_file_without_phases_is_refused(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x07")
    with pytest.raises(OptionError, match=r"--mix is for sources with phases, .* one program"):
        plan_request(str(path), "2x3090", "prompt=8,output=8")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"objective": "batch-throughput"}, "for objectives latency and throughput"),
        ({"objective": "invocation-latency"}, "for objectives latency and throughput"),
        ({"options": {"memory": "peak"}}, "leave out --memory peak"),
        (
            {"objective": "throughput", "options": {"replicate": True}},
            "leave out --replicate",
        ),
        ({"pinned": {"nothing": "gpu0"}}, "neither phase has an op of that name"),
    ],
)
def test_options_that_a_mix_cannot_have_are_refused(given, sentence):
    with pytest.raises(OptionError, match=sentence):
        plan_request("zoo:gpt2?layers=1", "2x3090", "prompt=8,output=8", **given)


@pytest.mark.parametrize(
    "text", ["", "prompt=8", "prompt=8,output=0", "prompt=8,output=x", "prompt=1,output=2,beam=3",
             "output=2,output=3", "prompt=-1,output=2", "prompt=8;output=2"],
)  # fmt: skip
def test_a_mix_that_is_none_is_refused(text):
    with pytest.raises(OptionError, match="--mix"):
        read_mix(text)


def test_a_pin_holds_in_both_phases():
    served = plan_request(
        "zoo:gpt2?layers=1", "2x3090", "prompt=8,output=8",
        planner="heft", pinned={"blocks.0.mlp.fc1": "gpu1"},
    )  # fmt: skip
    assert isinstance(served, ServingPlan)
    for plan in (served.prefill, served.decode):
        assert plan.device_of()["blocks.0.mlp.fc1"] == "gpu1"


def test_spreads_of_one_phase_are_those_of_the_request_too():
    phases, cluster = phases_of(0), devices(0.5, 0.5, 0.5)
    prefill, decode = (
        build_problem(graph, cluster, Options(), COSTS) for graph in (phases.prefill, phases.decode)
    )
    assert not request_of(phases, prefill, decode, Mix(7, 5)).problem.op_cost_spread.size
    measured = replace(decode, op_cost_spread=np.full((4, 3), 0.25))
    spread = request_of(phases, prefill, measured, Mix(7, 5)).problem.op_cost_spread
    assert spread.tolist() == [[0.0] * 3] * 4 + [[0.25] * 3] * 4 + [[0.0] * 3]
