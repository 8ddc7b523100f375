"""llama.cpp itself, over RPC servers on loopback, does with a plan what the plan says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from placewright.cluster import Cluster, Device, Link
from placewright.exporters.llama_cpp.arguments import command
from placewright.exporters.llama_cpp.buffers import COPIES, compute_buffer
from placewright.exporters.planning import plan_for
from placewright.importers import load
from placewright.plan import Placement, Plan
from placewright.simulate import evaluate
from tests.exporters.llama_cpp.processes import Ran, run, servers, why_not
from tests.importers.gguf_bytes import llama, write

pytestmark = pytest.mark.slow
LAYERS, CONTEXT = 10, 500
TOKENS = [1, 50, 60, 70, 80]
QUANTISED = {"ffn_up": "Q4_0", "token_embd": "F16"}
ALONE = ["-ngl", "0", "-c", str(CONTEXT)]
FAST, SLOW = 1e12, 1e9


@pytest.fixture(scope="module", autouse=True)
def interpreter() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "dense.gguf"
    write(path, *llama(LAYERS, QUANTISED))
    return path


@pytest.fixture(scope="module")
def alone(model: Path) -> Ran:
    return run(model, TOKENS, ALONE)


@pytest.fixture
def ports(request: pytest.FixtureRequest) -> Iterator[list[int]]:
    with servers(request.param) as found:
        yield found


def planned(model: Path, ports: Sequence[int], shares: Sequence[float]) -> Plan:
    """For a slow CPU and a server at each port, with room for these shares of the model."""
    source = f"{model}?phase=decode&context={CONTEXT}"
    graph = load(source).graph
    whole = float(graph.op_parameter_bytes.sum() + graph.op_state_bytes.sum())
    buffer = compute_buffer(graph, 512, 1, COPIES)
    names = ["main", *(f"server{k}" for k in range(len(ports)))]
    hosts = ["here", *(f"127.0.0.1:{port}" for port in ports)]
    devices = tuple(
        Device(
            name,
            "cpu",
            host=host,
            memory=share * whole + buffer,
            peak_flops={"fp16": SLOW if name == "main" else FAST},
            memory_bandwidth=SLOW if name == "main" else FAST,
        )
        for name, host, share in zip(names, hosts, shares, strict=True)
    )
    links = tuple(Link(name, "lan", bandwidth=1e9, latency=1e-5) for name in names)
    cluster = Cluster("loopback", devices, links, switches=("lan",))
    return plan_for(source, cluster, "llama-cpp", free_seconds=0).plan


def name_of(plan: Plan, arguments: list[str], device: int) -> str:
    """What llama.cpp calls a device: RPC and the place of its server, or the CPU."""
    endpoints = arguments[arguments.index("--rpc") + 1].split(",")
    host = plan.problem.device_host(device)
    return f"RPC{endpoints.index(host)}" if host in endpoints else "CPU"


def expected_devices(plan: Plan, arguments: list[str]) -> list[str]:
    """Of each layer, and of the output."""
    problem, device = plan.problem, plan.placement.device
    first = [problem.op_names.index(f"blk.{layer}.attn_norm") for layer in range(LAYERS)]
    return [
        name_of(plan, arguments, int(device[op]))
        for op in [*first, problem.op_names.index("output")]
    ]


def expected_bytes(plan: Plan, arguments: list[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Per device, those of weights and of the KV cache."""
    problem = plan.problem
    found: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for device, ops in enumerate(plan.device_ops):
        cache = float(problem.op_cache[ops].sum())
        weights = float(problem.op_memory[ops].sum()) - cache
        for sizes, size in zip(found, (weights, cache), strict=True):
            if size:
                sizes[name_of(plan, arguments, device)] = size
    return found


def check(plan: Plan, arguments: list[str], ran: Ran, alone: Ran) -> None:
    """Devices of layers, bytes and logits. Compute buffers are for batches that overlap, if any."""
    assert ran.devices == expected_devices(plan, arguments)
    weights, cache = expected_bytes(plan, arguments)
    assert ran.bytes("model") == pytest.approx(weights, rel=0.02)
    assert ran.bytes("KV") == pytest.approx(cache, rel=0.02)
    largest, buffer = max(ran.bytes("compute").values()), float(plan.planner_options["buffer"])
    if "pipeline parallelism enabled" in ran.log:
        assert buffer == pytest.approx(largest, rel=0.05)
    assert largest <= buffer
    expected = np.array(alone.logits)
    assert np.abs(np.array(ran.logits) - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("ports", "shares"),
    [(2, (0.2, 0.4, 0.7)), (3, (0.2, 0.3, 0.5, 0.4)), (2, (0.5, 0.3, 0.4))],
    ids=["two servers", "three servers", "two servers and the CPU"],
    indirect=["ports"],
)
def test_layers_and_bytes_are_where_the_plan_says(model, alone, ports, shares) -> None:
    plan = planned(model, ports, shares)
    arguments = command(plan).arguments
    ran = run(model, TOKENS, arguments)
    names = set(expected_devices(plan, arguments))
    assert names - {"CPU"} == {f"RPC{k}" for k in range(len(ports))}
    assert ("CPU" in names) == (shares[0] >= 0.5)
    check(plan, arguments, ran, alone)


@pytest.mark.parametrize("ports", [2], indirect=True)
def test_experts_that_a_plan_has_on_the_cpu_are_there(tmp_path, ports) -> None:
    model = tmp_path / "experts.gguf"
    write(model, *llama(LAYERS, QUANTISED, wide=256, experts=4))
    plan = planned(model, ports, (1.0, 0.6, 0.8))
    parted = with_experts(plan, "main", range(3, 8))
    arguments = command(parted).arguments
    rule = arguments[arguments.index("-ot") + 1]
    assert rule == r"blk\.(3|4|5|6|7)\.(ffn_up_exps|ffn_gate_exps|ffn_down_exps)\.=CPU"
    ran = run(model, TOKENS, arguments)
    moved = [line for line in ran.log.splitlines() if "buffer type overridden" in line]
    assert len(moved) == 5 * 3
    check(parted, arguments, ran, run(model, TOKENS, ALONE))


def with_experts(plan: Plan, name: str, layers: range) -> Plan:
    """The plan with the experts of these layers on another device."""
    problem = plan.problem
    device = plan.placement.device.copy()
    to = problem.device_names.index(name)
    for layer in layers:
        for op in ("ffn_up_exps", "ffn_gate_exps", "ffn_silu_exps", "ffn_down_exps"):
            device[problem.op_names.index(f"blk.{layer}.{op}")] = to
    apart = np.full(problem.op_count, -1, dtype=np.int32)
    problem = replace(problem, colocation=apart)
    placement = Placement(device)
    outcome = evaluate(problem, placement)
    return replace(plan, problem=problem, placement=placement, outcome=outcome, value=outcome.value)
