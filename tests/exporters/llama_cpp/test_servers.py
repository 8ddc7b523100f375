"""Plans over several hosts: an RPC server on each, and the order of devices."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from placewright.cluster import Cluster, CpuRun, CudaRun, Device, Link
from placewright.errors import OptionError, ProvedInfeasibleError
from placewright.exporters.exporting import export
from placewright.exporters.llama_cpp.arguments import command
from placewright.exporters.planning import plan_for
from placewright.plan import Placement, Plan
from placewright.simulate import evaluate
from tests.cli.running import run

SOURCE = "zoo:llama-7b?phase=decode&context=512&layers=16"


def planned(*devices: Device) -> Plan:
    """On devices that are all joined by one switch."""
    links = tuple(Link(device.name, "lan", bandwidth=1e9, latency=1e-5) for device in devices)
    cluster = Cluster("hosts", devices, links, switches=("lan",))
    return plan_for(SOURCE, cluster, "llama-cpp", free_seconds=0).plan


def gpu(name: str, host: str, memory: float = 2e9, **fields) -> Device:
    return Device(name, "RTX 3060", host=host, memory=memory, **fields)


def cpu(name: str, host: str, memory: float = 64e9, **fields) -> Device:
    figures = {"peak_flops": {"fp16": 1e11, "fp32": 1e11}, "memory_bandwidth": 2e10}
    return Device(name, "cpu", host=host, memory=memory, **figures, **fields)


def after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


@pytest.fixture(scope="module")
def spread() -> Plan:
    """Sixteen layers of 0.41 GB on four GPUs of 2 GB, of three hosts."""
    return planned(
        cpu("desk-cpu", "desk"),
        gpu("a", "10.0.0.2"),
        gpu("b", "desk"),
        gpu("c", "10.0.0.2"),
        gpu("d", "rack:50060"),
    )


def devices_of_stages(plan: Plan) -> list[str]:
    """The names of those that have layers, along the data."""
    names = [plan.problem.device_names[each] for each in plan.placement.device]
    return [name for name in dict.fromkeys(names) if name != "desk-cpu"]


def test_devices_of_other_hosts_are_rpc_devices_in_the_order_of_the_servers(spread):
    found = command(spread)
    endpoints = after(found.arguments, "--rpc").split(",")
    assert sorted(endpoints) == ["10.0.0.2:50052", "rack:50060"]
    offered = [
        (server.host, name) for server in found.servers for name in server.names
    ]  # what the main host numbers
    local = {"a": ("10.0.0.2", "CUDA0"), "c": ("10.0.0.2", "CUDA1"), "d": ("rack", "CUDA0")}
    expected = [
        "CUDA0" if name == "b" else f"RPC{offered.index(local[name])}"
        for name in devices_of_stages(spread)
    ]
    assert after(found.arguments, "-dev").split(",") == expected
    assert sorted(expected) == ["CUDA0", "RPC0", "RPC1", "RPC2"]
    assert found.arguments.index("--rpc") < found.arguments.index("-dev")
    assert after(found.arguments, "-ngl") == "17"


def test_the_command_of_each_host_is_printed_and_written(spread, tmp_path):
    plan, out = tmp_path / "plan.json", tmp_path / "llama.json"
    spread.save(plan)
    told = run("export", plan, "--to", "llama-cpp", "-o", out, "-O", "rpc-port=50111")
    assert told.code == 0
    *remote, main = told.out.splitlines()[:3]
    order = "CUDA_DEVICE_ORDER=PCI_BUS_ID"
    assert main.startswith(f"{order} llama-server -m MODEL.gguf --rpc ")
    assert any(
        line.startswith(f"on 10.0.0.2: {order} ggml-rpc-server -H 10.0.0.2 -p 50111 -d CUDA")
        for line in remote
    )
    assert f"on rack: {order} ggml-rpc-server -H ADDRESS -p 50060 -d CUDA0" in remote
    document = json.loads(out.read_text())
    for each in (document, *document["servers"]):
        assert each["environment"] == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert {server["port"] for server in document["servers"]} == {50111, 50060}
    assert "10.0.0.2:50111" in after(document["arguments"], "--rpc")


def test_the_main_host_may_be_another(spread):
    with pytest.raises(OptionError, match=r"main-host=attic: no device is there; .* desk, 10"):
        command(spread, main="attic")
    with pytest.raises(OptionError, match=r"embedding in host memory, .* on desk-cpu"):
        command(spread, main="10.0.0.2")


def test_a_main_host_where_hosts_have_no_names_is_refused():
    plan = planned(gpu("one", "", 9e9), gpu("two", "", 9e9))
    with pytest.raises(OptionError, match="no device is there; the plan's host has no name"):
        command(plan, main="attic")


def test_a_host_of_a_run_counts_before_that_of_the_cluster():
    plan = planned(
        cpu("near", "x", run=CpuRun((0,))),
        gpu("far0", "x", 2.6e9, run=CudaRun(3, host="10.0.0.7")),
        gpu("far1", "x", 2.6e9, run=CudaRun(1, host="10.0.0.7")),
        gpu("far2", "x", 2.6e9, run=CudaRun(0, host="10.0.0.8")),
    )
    servers = {server.host: server.arguments for server in command(plan).servers}
    assert sorted(servers["10.0.0.7"][-1].split(",")) == ["CUDA1", "CUDA3"]
    assert servers["10.0.0.8"][-1] == "CUDA0"


def test_cpus_of_other_hosts_are_devices_like_any():
    plan = planned(cpu("one", "n1", 0.5e9), cpu("two", "n2", 4e9), cpu("three", "n3", 4e9))
    found = command(plan)
    assert [server.names for server in found.servers] == [("CPU",), ("CPU",)]
    assert after(found.arguments, "-dev") == "RPC0,RPC1"
    assert after(found.arguments, "-ngl") == "17"


def test_the_gpu_of_an_apple_chip_is_a_metal_device(tmp_path):
    mac = Device("mac", "M2 Max", host="mac", memory=2e9)
    found = command(planned(gpu("gpu", "desk"), mac, cpu("cpu", "desk")))
    (server,) = found.servers
    assert server.names == ("MTL0",) and "environment" not in found.document["servers"][0]
    assert set(after(found.arguments, "-dev").split(",")) == {"CUDA0", "RPC0"}
    alone = command(planned(replace(mac, memory=2e10), cpu("cpu", "mac")))
    assert after(alone.arguments, "-dev") == "MTL0" and "environment" not in alone.document


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("AMD Radeon RX 7900 XTX", "ROCm0"),
        ("RX 7900 XTX", "ROCm0"),
        ("MI300X", "ROCm0"),
        ("Instinct MI250", "ROCm0"),
        ("W7900", "ROCm0"),
        ("Intel Arc A770", "SYCL0"),
        ("Arc B580", "SYCL0"),
        ("RTX 3060", "CUDA0"),
        ("M2 Max", "MTL0"),
    ],
)
def test_a_gpu_is_called_by_the_backend_that_its_kind_tells(kind, name):
    figures = {"peak_flops": {"fp16": 6e13, "fp32": 3e13}, "memory_bandwidth": 8e11}
    card = Device("card", kind, host="desk", memory=2e10, **figures)
    found = command(planned(card, cpu("cpu", "desk")))
    assert after(found.arguments, "-dev") == name
    assert ("environment" in found.document) == (name == "CUDA0")


def test_gpus_of_several_makers_in_a_host_are_numbered_by_maker():
    figures = {"peak_flops": {"fp16": 6e13, "fp32": 3e13}, "memory_bandwidth": 4e11}
    cards = [
        Device(name, kind, host="desk", memory=2.6e9, **figures)
        for name, kind in (("a", "AMD MI210"), ("b", "RTX 3060"), ("c", "AMD MI210"))
    ]
    plan = planned(*cards, cpu("cpu", "desk"))
    assert set(after(command(plan).arguments, "-dev").split(",")) == {"ROCm0", "CUDA0", "ROCm1"}
    told = command(plan, backend="vulkan")
    assert set(after(told.arguments, "-dev").split(",")) == {"Vulkan0", "Vulkan1", "Vulkan2"}
    assert "environment" not in told.document


def test_a_plan_on_one_host_names_no_server(tmp_path):
    plan = planned(cpu("cpu", "desk"), *(gpu(name, "desk", 2.6e9) for name in "abc"))
    export(plan, "llama-cpp", tmp_path / "one.json")
    assert set(json.loads((tmp_path / "one.json").read_text())) == {"arguments", "environment"}
    assert "--rpc" not in command(plan).arguments


def test_the_context_that_memory_was_counted_for_is_in_the_command():
    plan = plan_for(
        f"{SOURCE.replace('512', '1000')}&batch=3", "2x3090", "llama-cpp", free_seconds=0
    ).plan
    words = command(plan).arguments
    assert (after(words, "-c"), after(words, "-np")) == ("3000", "3")


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("two words", "by name or IPv4 address and port, .* devices of 'two words'"),
        ("n2:70000", "devices of 'n2:70000'"),
        ("-d", "devices of '-d'"),
        ("a,b", "devices of 'a,b'"),
    ],
)
def test_hosts_that_are_no_addresses_are_named(spread, host, why, tmp_path):
    hosts = tuple(host if each == "rack:50060" else each for each in spread.problem.device_hosts)
    plan = replace(spread, problem=replace(spread.problem, device_hosts=hosts))
    with pytest.raises(OptionError, match=why):
        command(plan)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rpc-port": "0"}, "rpc-port=0: a port is a whole number from 1 to 65535"),
        ({"rpc-port": "x"}, "rpc-port=x: a port"),
        ({"rpc-port": "9" * 5000}, "9: a port is a whole number"),
        (
            {"port": "1"},
            "-O port: llama-cpp has no such option; it takes rpc-port, main",
        ),
        (
            {"backend": "hip"},
            "backend=hip: unknown; llama.cpp is built for cuda, rocm",
        ),
    ],
)
def test_options_that_do_not_hold_are_refused_and_nothing_is_written(
    spread, options, why, tmp_path: Path
):
    with pytest.raises(OptionError, match=why):
        export(spread, "llama-cpp", tmp_path / "out", options)
    with pytest.raises(OptionError, match="-O rpc-port: csv has no such option; it takes none"):
        export(spread, "csv", tmp_path / "out", {"rpc-port": "1"})
    assert not list(tmp_path.iterdir())


def test_llama_cpp_takes_fifteen_devices_and_the_cpu(tmp_path: Path):
    """`--tensor-split` takes fewer numbers than `llama_max_devices`, which are 16."""
    gpus = [gpu(f"gpu{k}", f"10.0.0.{k // 8 + 1}", 0.75e9) for k in range(16)]  # a layer each
    with pytest.raises(ProvedInfeasibleError, match=r"715\.3 MiB, in 15 stages at most"):
        planned(*gpus)
    plan = planned(cpu("cpu", "10.0.0.1"), *gpus)
    words = command(plan).arguments
    assert after(words, "-ts") == ",".join(["1"] * 14 + ["2"])  # the output is a slot
    device = plan.placement.device.copy()
    device[[each.startswith("blocks.0.") for each in plan.problem.op_modules]] = 16
    assert (plan.placement.device != 16).all()
    placement = Placement(device)
    outcome = evaluate(plan.problem, placement)
    parted = replace(
        plan, placement=placement, outcome=outcome, value=outcome.value, lower_bound=0.0
    )
    with pytest.raises(OptionError, match=r"takes 15 devices beside its CPU at most, .* on 16"):
        export(parted, "llama-cpp", tmp_path / "x.json")
