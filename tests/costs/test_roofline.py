"""Times by the roofline, worked out by hand, and the memory that ops keep."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from placewright.cluster import Cluster, CpuRun, Device, Link
from placewright.costs.roofline import CostOptions, build_problem, op_memory, op_times
from placewright.errors import ClusterError, OptionError, PlacewrightWarning
from placewright.graph import Graph, GraphBuilder
from placewright.options import Options
from placewright.planning import make_problem
from placewright.problem import Problem

# 10 TFLOP/s of which half is reached, 100 GB/s of which four fifths are, 10 µs to launch.
GPU = Device(
    "gpu",
    "mine",
    memory=8e9,
    peak_flops={"fp32": 10e12, "fp16": 40e12},
    memory_bandwidth=100e9,
    launch_overhead=10e-6,
    compute_efficiency=0.5,
    memory_efficiency=0.8,
)


def one_op(**figures: object) -> Graph:
    builder = GraphBuilder("one")
    builder.add_op("op", "op", **figures)  # type: ignore[arg-type]
    return builder.build()


def problem_of(graph: Graph, *devices: Device, **options: str) -> Problem:
    links = tuple(Link(a.name, b.name, 1e9, latency=1e-5) for a, b in pairwise(devices))
    return build_problem(
        graph, Cluster("cluster", devices, links), Options(**options), CostOptions()
    )


# -- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "seconds"),
    [
        # 5 GFLOP at 5 TFLOP/s is 1 ms; 8 MB at 80 GB/s is 0.1 ms: bound by computing
        ({"flops": 5e9, "bytes_read": 6e6, "bytes_written": 2e6}, 1e-3 + 10e-6),
        # 0.5 GFLOP is 0.1 ms; 80 MB is 1 ms: bound by memory
        ({"flops": 5e8, "bytes_read": 60e6, "bytes_written": 20e6}, 1e-3 + 10e-6),
        # fp16 has a peak of its own: 5 GFLOP at 20 TFLOP/s
        ({"flops": 5e9, "dtype": "fp16"}, 0.25e-3 + 10e-6),
        # bf16 has none here and runs at the next wider, fp32
        ({"flops": 5e9, "dtype": "bf16"}, 1e-3 + 10e-6),
        # a small op costs its launch
        ({"flops": 1.0}, 10e-6),
        ({"bytes_written": 1.0}, 10e-6),
        # an op that computes and moves nothing takes no time, whatever it keeps
        ({}, 0.0),
        ({"parameter_bytes": 1e9, "state_bytes": 1e9}, 0.0),
    ],
)
def test_an_op_takes_the_larger_of_computing_and_moving_and_its_launch(figures, seconds):
    assert op_times(one_op(**figures), GPU)[0] == pytest.approx(seconds, rel=1e-4)


def test_a_device_that_says_no_efficiency_reaches_its_peaks():
    plain = Device("d", "k", memory=1.0, peak_flops={"fp32": 10e12}, memory_bandwidth=100e9)
    assert op_times(one_op(flops=10e9), plain)[0] == pytest.approx(1e-3)
    assert op_times(one_op(bytes_read=100e6), plain)[0] == pytest.approx(1e-3)


def test_invocations_go_through_the_memory_of_the_first_cpu_where_a_cluster_names_none():
    graph, options = one_op(flops=1.0), Options("invocation-latency")
    cpus = tuple(Device(name, "EPYC 7763", memory=1e9) for name in ("cpu0", "cpu1"))
    devices = (Device("gpu", "RTX 3090"), *cpus)
    links = (Link("gpu", "cpu0", 10e9, latency=1e-5), Link("gpu", "cpu1", 5e9))
    cluster = Cluster("boxes", devices, links)
    for given, seconds in ((cluster, 1e-10), (replace(cluster, host_memory="cpu1"), 2e-10)):
        problem = build_problem(graph, given, options, CostOptions())
        assert problem.staging == "host"
        assert problem.host_seconds_per_byte[:, 0].tolist() == pytest.approx([seconds] * 2)
    direct = build_problem(graph, cluster, Options("throughput"), CostOptions())
    assert direct.staging == "direct"
    desktop, _ = make_problem("zoo:gpt2?layers=1", "2x3090", {"objective": options.objective})
    assert desktop.host_seconds_per_byte.tolist() == [[pytest.approx(1 / 12.5e9)] * 2] * 2
    gpus = (Device("gpu", "RTX 3090"), Device("other", "RTX 3090"))
    without = Cluster("gpus", gpus, (Link("gpu", "other", 10e9),))
    with pytest.warns(PlacewrightWarning, match="'gpus' has neither host_memory nor a CPU"):
        build_problem(graph, without, options, CostOptions())


def test_a_kind_of_the_catalog_needs_no_figures():
    problem = problem_of(one_op(flops=1e12, dtype="fp16"), Device("d", "RTX 3090"))
    assert problem.op_time[0, 0] == pytest.approx(1e12 / (71e12 * 0.6) + 5e-6)
    assert problem.device_memory[0] == 24e9


def test_a_dtype_wider_than_any_peak_is_refused():
    narrow = Device("d", "k", memory=1.0, peak_flops={"fp16": 1e12}, memory_bandwidth=1e9)
    with pytest.raises(ClusterError, match="device 'd' has no peak for fp32 or a wider dtype"):
        op_times(one_op(flops=1.0), narrow)


def measured() -> Graph:
    builder = GraphBuilder("measured")
    builder.add_op("a", "op", flops=5e9)
    builder.add_op("b", "op", flops=5e9)
    builder.times["mine"] = [0.5, math.inf]
    return builder.build()


def test_measured_times_are_used_where_the_graph_has_the_kind():
    assert op_times(measured(), GPU).tolist() == [0.5, math.inf]


@pytest.mark.parametrize("written", ["EPYC 7763", "epyc 7763", "AMD EPYC-7763", "epyc7763"])
def test_measured_times_are_used_however_their_kind_is_written(written):
    builder = GraphBuilder("times")
    builder.add_op("a", "op", flops=1e9)
    builder.times = {written: [1.5], f"{written}@4": [2.5]}
    cluster = Cluster("one", (Device("cpu", "EPYC 7763", memory=1e9, batch_sizes=(1, 4)),), ())
    for objective, expected in (("latency", [1.5]), ("batch-throughput", [1.5, 2.5])):
        options = Options(objective=objective, **({"batch": 4} if objective != "latency" else {}))
        problem = build_problem(builder.build(), cluster, options, CostOptions(profiles=None))
        times = problem.batch_time[0, 0] if objective != "latency" else problem.op_time[0]
        assert times.tolist() == expected


def test_times_under_the_kind_as_the_device_writes_it_win_over_another_spelling():
    builder = GraphBuilder("times")
    builder.add_op("a", "matmul")
    builder.times = {"Tesla T4": [9.0], "T4": [1.0]}
    assert problem_of(builder.build(), Device("d", "T4")).op_time.tolist() == [[1.0]]


def test_times_that_no_device_uses_are_told():
    builder = GraphBuilder("times")
    builder.add_op("a", "op", flops=1e9)
    builder.times["T4"] = [1.0]
    cluster = Cluster("one", (Device("cpu", "EPYC 7763", memory=1e9),), ())
    says = "times has times for T4, .* of kind EPYC 7763: none of these times is used"
    with pytest.warns(PlacewrightWarning, match=says):
        build_problem(builder.build(), cluster, Options(), CostOptions(profiles=None))


def test_other_kinds_are_estimated_beside_measured_ones():
    other = Device("other", "RTX 3090")
    problem = problem_of(measured(), GPU, other)
    assert problem.op_time[:, 0].tolist() == [0.5, math.inf]
    assert problem.op_time[0, 1] == pytest.approx(5e9 / (35.6e12 * 0.6) + 5e-6)


def test_a_kind_that_nothing_tells_the_times_of_is_refused():
    unknown = Device("u", "Z9", memory=1.0)
    with pytest.raises(ClusterError) as caught:
        op_times(measured(), unknown)
    assert str(caught.value) == (
        "device 'u' of kind 'Z9': the graph has no measured times for this kind (it has mine) and "
        "the device has no peak_flops and memory_bandwidth; give them, or name a kind of the "
        "catalog"
    )


def test_a_graph_of_times_alone_is_not_estimated_on_other_kinds():
    builder = GraphBuilder("times")
    builder.add_op("a", "op")
    builder.times["lab"] = [1.0]
    message = r"'gpu' of kind 'mine': the graph has measured times \(it has lab\) and no FLOPs"
    with pytest.raises(ClusterError, match=message):
        op_times(builder.build(), GPU)


# -- memory --------------------------------------------------------------------------------------


def training() -> Graph:
    """f (weights 100, state 7) → g; backward of g reads f's tensor of 30 and gives one of 40."""
    builder = GraphBuilder("training")
    f = builder.add_op("f", "op", flops=1.0, parameter_bytes=100.0, state_bytes=7.0)
    kept = builder.add_tensor(f, 30.0)
    g = builder.add_op("g", "op", [kept])
    gone = builder.add_tensor(g, 20.0)
    builder.add_op("loss", "op", [gone])
    backward = builder.add_op("g'", "op", [kept], backward=True, twin=g)
    gradient = builder.add_tensor(backward, 40.0)
    builder.add_op("f'", "op", [gradient], backward=True, twin=f)
    return builder.build()


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 2), ("momentum", 3), ("adam", 4)])
def test_training_keeps_gradients_optimizer_state_and_activations(optimizer, copies):
    memory = op_memory(training(), Options(), CostOptions(optimizer=optimizer))
    assert memory.tolist() == [copies * 100 + 7 + 30, 0, 0, 0, 0]


def test_under_peak_activations_are_tensors_with_a_life_of_their_own():
    memory = op_memory(training(), Options(memory="peak"), CostOptions(optimizer="adam"))
    assert memory.tolist() == [407, 0, 0, 0, 0]


def test_inference_keeps_weights_and_state_alone():
    graph = one_op(parameter_bytes=100.0, state_bytes=7.0)
    for optimizer in ("sgd", "adam"):
        assert op_memory(graph, Options(), CostOptions(optimizer=optimizer)).tolist() == [107]


def test_the_cache_of_keys_and_values_counts_where_its_op_is():
    from placewright.importers.zoo import build

    forward, decode = build("gpt2?layers=2"), build("gpt2?layers=2&phase=decode")
    assert forward.op_state_bytes.sum() == 0
    # keys and values, 2 layers, 1024 tokens, 768 wide, 2 bytes each
    assert decode.op_state_bytes.sum() == 2 * 2 * 1024 * 768 * 2
    extra = op_memory(decode, Options(), CostOptions()) - decode.op_parameter_bytes
    assert extra.sum() == decode.op_state_bytes.sum()


def test_an_optimizer_that_is_not_known_is_refused():
    with pytest.raises(OptionError, match="optimizer is 'lion'; choose sgd, momentum, adam"):
        CostOptions(optimizer="lion")  # type: ignore[arg-type]


# -- the whole problem ---------------------------------------------------------------------------


def test_a_problem_has_the_columns_of_its_graph_and_cluster():
    graph = training()
    host = replace(GPU, name="host", memory=math.inf)
    problem = problem_of(graph, GPU, host)
    assert problem.name == "training on cluster"
    assert (problem.op_names, problem.op_types) == (graph.op_names, graph.op_types)
    assert (problem.device_names, problem.device_kinds) == (("gpu", "host"), ("mine", "mine"))
    assert problem.device_memory.tolist() == [8e9, math.inf]
    assert problem.link_latency[0, 1] == 1e-5
    assert problem.link_seconds_per_byte[0, 1] == pytest.approx(1e-9)
    assert problem.op_time.shape == (5, 2)
    for column in ("is_backward", "forward_twin", "colocation", "tensor_producer", "consumers"):
        np.testing.assert_array_equal(getattr(problem, column), getattr(graph, column))


def test_a_problem_knows_what_its_devices_are():
    host = replace(GPU, name="host", memory=math.inf, run=CpuRun((0, 1)))
    assert problem_of(training(), GPU, host).device_runs == (None, CpuRun((0, 1)))
    assert problem_of(training(), GPU).device_runs == ()


def test_pins_are_by_name():
    cluster = Cluster("c", (GPU, Device("b", "RTX 3090")), (Link("gpu", "b", 1e9),))

    def pins(pinned: dict[str, str]) -> list[int]:
        problem = build_problem(training(), cluster, Options(), CostOptions(), pinned)
        return problem.op_pinned.tolist()

    assert pins({}) == [-1] * 5
    assert pins({"g": "b", "f": "gpu"}) == [0, 1, -1, -1, -1]
    with pytest.raises(OptionError, match="cannot pin 'h': the graph has no op of that name"):
        pins({"h": "b"})
    with pytest.raises(OptionError, match="cannot pin 'g' to 'moon': the devices are gpu, b"):
        pins({"g": "moon"})


def test_devices_that_cannot_reach_each_other_are_refused():
    cluster = Cluster("apart", (GPU, Device("b", "RTX 3090")))
    with pytest.raises(ClusterError, match="'apart' is disconnected: no route from 'gpu' to 'b'"):
        build_problem(training(), cluster, Options(), CostOptions())
