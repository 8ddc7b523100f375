"""Hosts that meet become one cluster; two processes of this machine play the hosts."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from placewright.cluster import Cluster, CpuRun, Device, Link  # noqa: E402
from placewright.errors import ClusterError, ExecutionError, InputError, OptionError  # noqa: E402
from placewright.runtime.links import Rendezvous, hosts, measure_hosts  # noqa: E402
from placewright.runtime.links.hosts import merged  # noqa: E402
from placewright.system.pinning import refuse_elsewhere  # noqa: E402

pytestmark = pytest.mark.timeout(120)
COMMAND = (sys.executable, "-m", "placewright", "cluster", "detect", "--measure")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def started(*arguments: object, command: Sequence[str] = COMMAND) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def node(number: int, port: int, *more: object) -> subprocess.Popen[str]:
    return started("--rendezvous", f"127.0.0.1:{port}", "--nodes", 2, "--node", number, *more)


# -- meeting -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_hosts_become_one_cluster_which_node_0_writes(tmp_path: Path) -> None:
    port, paths = free_port(), [tmp_path / "0.yaml", tmp_path / "1.yaml"]
    both = [node(number, port, "-o", paths[number], "--json") for number in (0, 1)]
    (out, err), (silent, told) = (each.communicate(timeout=100) for each in both)
    assert [each.returncode for each in both] == [0, 0], (err, told)
    assert not silent and "node 0 of 2 writes the cluster" in told
    assert not paths[1].exists()
    found = Cluster.load(paths[0])
    assert found == Cluster.from_document(json.loads(out))
    host = socket.gethostname()
    assert [device.host for device in found.devices] == [f"{host}-0", f"{host}-1"]
    assert [device.run.host for device in found.devices if device.run] == [f"{host}-0", f"{host}-1"]
    (link,) = found.links
    assert link.measured is not None and link.measured.transport == "gloo"
    assert link.duplex == "full" and link.latency > 0


@pytest.mark.slow
def test_torchrun_says_where_hosts_meet(tmp_path: Path) -> None:
    port = free_port()
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2")
    both = [
        started(
            *("--node-rank", number, "--nproc-per-node", 1, "--master-addr", "127.0.0.1"),
            *("--master-port", port, "--no-python", *COMMAND, "--rendezvous", "torchrun"),
            *("-o", tmp_path / f"{number}.yaml"),
            command=torchrun,
        )
        for number in (0, 1)
    ]
    ends = [each.communicate(timeout=100) for each in both]
    assert [each.returncode for each in both] == [0, 0], ends
    assert len(Cluster.load(tmp_path / "0.yaml").devices) == 2
    assert not (tmp_path / "1.yaml").exists()


def test_a_host_that_does_not_come_is_named() -> None:
    alone = Rendezvous.of(f"127.0.0.1:{free_port()}", 3, 0)
    with pytest.raises(
        ExecutionError, match=r"^nodes 1 and 2 of 3 did not come to 127.* within 0\.5 s; start them"
    ):
        measure_hosts(alone, timeout=0.5)


def test_nobody_at_the_address_is_told() -> None:
    alone = Rendezvous.of(f"127.0.0.1:{free_port()}", 2, 1)
    with pytest.raises(ExecutionError, match=r"^nobody answered at 127.* for 1 s; start node 0"):
        measure_hosts(alone, timeout=1)


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OptionError, match=rf"cannot listen on 127\.0\.0\.1:{port} .*in use"):
            measure_hosts(Rendezvous.of(f"127.0.0.1:{port}", 2, 0), timeout=1)


# -- what is said of where -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "nodes", "number", "interface", "complaint"),
    [
        ("127.0.0.1", 2, 0, "", "the rendezvous is '127.0.0.1'; write HOST:PORT"),
        ("127.0.0.1:99999", 2, 0, "", "write HOST:PORT"),
        ("127.0.0.1:29500", None, 0, "", "needs --nodes"),
        ("127.0.0.1:29500", 2, None, "", "needs --nodes"),
        ("127.0.0.1:29500", 1, 0, "", "node 0 of 1 cannot be"),
        ("127.0.0.1:29500", 2, 2, "", "node 2 of 2 cannot be"),
        ("127.0.0.1:29500", 2, 0, "none0", "there is no network interface 'none0'; there are "),
        ("192.0.2.1:29500", 2, 0, "", "no address of this machine alone; say which network"),
        ("torchrun", 2, 0, "", "leave them out"),
    ],
)
def test_a_rendezvous_that_cannot_be_is_refused(
    where: str, nodes: int | None, number: int | None, interface: str, complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        Rendezvous.of(where, nodes, number, interface)


def test_torchruns_variables_are_read_and_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "RANK": "1", "WORLD_SIZE": "4"}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    found = Rendezvous.of("torchrun")
    assert (found.address, found.port, found.nodes, found.node) == ("localhost", 29500, 4, 1)
    assert found.held and found.interface in ("lo", "lo0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(OptionError, match="several processes here; give it --nproc-per-node 1"):
        Rendezvous.of("torchrun")
    monkeypatch.delenv("RANK")
    with pytest.raises(OptionError, match="RANK is not set; start this with torchrun"):
        Rendezvous.of("torchrun")


def test_an_address_of_ipv6_is_in_brackets() -> None:
    assert Rendezvous.of("[::1]:29500", 2, 0).address == "::1"


# -- one cluster of several ----------------------------------------------------------------------


def part(host: str) -> Cluster:
    devices = (
        Device("gpu0", "A100 40GB", host),
        Device("cpu0", "x", host, memory=1e9, run=CpuRun((0,))),
        Device("cpu1", "x", host, memory=1e9, run=CpuRun((1,))),
    )
    links = (Link("gpu0", "host memory", 2e10, channel="pcie"),)
    return Cluster("this-machine", devices, links, ("host memory",), description=f"It is {host}.")


def test_names_of_all_hosts_are_told_apart() -> None:
    found = merged([part("alpha"), part("beta")])
    assert found.device_names[:4] == ("alpha.gpu0", "alpha.cpu0", "alpha.cpu1", "beta.gpu0")
    assert found.switches == ("alpha.host memory", "beta.host memory")
    assert found.links[1] == Link("beta.gpu0", "beta.host memory", 2e10, channel="beta.pcie")
    assert found.devices[4].run == CpuRun((0,), "beta")
    assert found.description == "It is alpha. It is beta."


def test_hosts_of_one_name_are_numbered() -> None:
    found = merged([part("twin"), part("other"), part("twin")])
    assert [device.host for device in found.devices[::3]] == ["twin-0", "other", "twin-2"]


def test_devices_of_two_hosts_share_their_channel_and_those_of_one_its_memory() -> None:
    alpha, _, beta = merged([part("alpha"), part("beta")]).devices[1:4]
    assert hosts._channel(alpha, beta) == ("alpha – beta", "full")
    assert hosts._channel(alpha, alpha) == ("alpha.host memory", "half")


@pytest.mark.parametrize(
    "told", [[[[0, 1, 2]]], [[[1, 0, [1], [1.0]]]], [None], [[[0, 9, [], []]]]]
)
def test_times_that_are_not_understood_are_refused(told: list[object]) -> None:
    with pytest.raises(ExecutionError, match="run the same version"):
        hosts._read_times(told, 3)


def test_links_that_nobody_measured_are_missed() -> None:
    with pytest.raises(ExecutionError, match="1 of 3 links were measured"):
        hosts._read_times([[[0, 1, [1], [1.0]]], []], 3)


# -- devices elsewhere ---------------------------------------------------------------------------


def test_one_core_of_two_hosts_is_two_cores_and_of_one_host_one() -> None:
    here, there = CpuRun((0,), "alpha"), CpuRun((0,), "beta")
    Cluster("c", (Device("a", "x", run=here), Device("b", "x", run=there)))
    with pytest.raises(ClusterError, match="both run on core 0 of alpha"):
        Cluster("c", (Device("a", "x", run=here), Device("b", "x", run=here)))


def test_a_device_of_another_host_is_refused_where_it_is_needed_here() -> None:
    refuse_elsewhere("mine", "")
    refuse_elsewhere("mine", socket.gethostname())
    with pytest.raises(InputError, match="device 'far' is of host 'nowhere', and this is"):
        refuse_elsewhere("far", "nowhere")
