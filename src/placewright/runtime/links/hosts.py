"""Several hosts as one cluster: each describes itself, ranks on all of them measure the links.

The hosts meet in a store at an address that the user gives, held by node 0 or by torchrun. What
they tell each other is text that is checked as a file would be. Each rank of a pair times its own
transfers; node 0 gathers them and makes the cluster, which all then know.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from placewright.budget import Progress
from placewright.cluster import Cluster, Device, Link
from placewright.costs.detect import HOST_MEMORY, detect
from placewright.errors import ClusterError, ExecutionError, OptionError
from placewright.importers.torch.tracing import import_torch
from placewright.runtime.links.measured import cores_of, measurable, with_links
from placewright.runtime.links.pace import Times
from placewright.runtime.links.pairs import Pair
from placewright.runtime.links.ranks import Meeting, process_times
from placewright.runtime.links.stores import hold, join
from placewright.runtime.ranks.launch import loopback_interface
from placewright.units import listed, parse_whole

TORCHRUN = "torchrun"
_LEAVING_SECONDS = 10.0  # for the others to read the result before the store goes


@dataclass(frozen=True)
class Rendezvous:
    """Where hosts meet: `address` and `port` of node 0; this is `node` of `nodes`.

    `interface`: the network interface for transfers. `held`: whether torchrun holds the store.
    """

    address: str
    port: int
    nodes: int
    node: int
    interface: str
    held: bool = False

    @classmethod
    def of(
        cls, where: str, nodes: int | None = None, node: int | None = None, interface: str = ""
    ) -> Rendezvous:
        """From ``HOST:PORT`` with `nodes` and `node`, or from ``torchrun``'s variables.

        OptionError for what is missing or cannot be: without `interface`, only an address of this
        machine's loopback is taken.
        """
        held = False
        if where == TORCHRUN:
            if nodes is not None or node is not None:
                raise OptionError("torchrun says how many nodes there are; leave them out")
            where, nodes, node, held = _from_torchrun(os.environ)
        if nodes is None or node is None:
            raise OptionError("a rendezvous needs --nodes, how many hosts, and --node, which is it")
        if nodes < 2 or not 0 <= node < nodes:
            raise OptionError(
                f"node {node} of {nodes} cannot be; there are 2 nodes or more, counted from 0"
            )
        address, _, port = where.rpartition(":")
        address = address.removeprefix("[").removesuffix("]")
        number = parse_whole(port)
        if not address or number is None or not 0 < number < 2**16:
            raise OptionError(f"the rendezvous is '{where}'; write HOST:PORT, or torchrun")
        return cls(address, number, nodes, node, _interface(address, interface), held)

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


def measure_hosts(
    rendezvous: Rendezvous,
    split_cpu: int | None = None,
    *,
    timeout: float = 60.0,
    on_progress: Progress | None = None,
) -> Cluster:
    """One cluster of all hosts that meet, with measured links between each two CPU devices.

    Every host calls this with its own `node`, and gets the same cluster. Devices are called
    HOST.DEVICE; hosts of one name are told apart by their numbers.

    ExecutionError, which names them, for hosts that have not come after `timeout` seconds, and
    where a rank fails on any; MissingExtraError without torch.
    """
    import_torch("measuring links")
    own = detect(split_cpu, link_cpus=False)
    if not measurable(own):
        raise ClusterError("this machine names no cores to pin a process to, so none is measured")
    board = _Board(rendezvous, timeout)
    parts = [
        Cluster.from_document(document, f"node {node}")
        for node, document in enumerate(board.exchange("cluster", own.to_document()))
    ]
    cluster = merged(parts)
    devices, counts = measurable(cluster), [len(measurable(part)) for part in parts]
    first = sum(counts[: rendezvous.node])
    meeting = Meeting(
        rendezvous.address, rendezvous.port, first, len(devices), rendezvous.interface
    )
    cores = [cores_of(device) for device in measurable(own)]
    times = process_times(cores, meeting=meeting, timeout=timeout, on_progress=on_progress)
    told = board.exchange("times", [[*pair, *vars(each).values()] for pair, each in times.items()])
    board.leave()
    return with_links(cluster, devices, _read_times(told, len(devices)), "gloo", _channel)


# -- where they meet ---------------------------------------------------------------------------


def _from_torchrun(variables: Mapping[str, str]) -> tuple[str, int, int, bool]:
    names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
    missing = [name for name in names if not variables.get(name)]
    if missing:
        raise OptionError(
            f"{missing[0]} is not set; start this with torchrun --nproc-per-node 1 --no-python, or "
            "give --rendezvous HOST:PORT"
        )
    address, port, rank, ranks = (variables[name] for name in names)
    if variables.get("LOCAL_WORLD_SIZE", "1") != "1":
        raise OptionError("torchrun starts several processes here; give it --nproc-per-node 1")
    if not rank.isdecimal() or not ranks.isdecimal():
        raise OptionError(f"RANK is '{rank}' and WORLD_SIZE '{ranks}'; they must be numbers")
    held = variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return f"{address}:{port}", int(ranks), int(rank), held


def _interface(address: str, given: str) -> str:
    """The network interface to use: the one given, or loopback for an address of it."""
    names = [name for _, name in socket.if_nameindex()]
    if given:
        if given not in names:
            raise OptionError(
                f"there is no network interface '{given}'; there are {', '.join(names)}"
            )
        return given
    if not _is_loopback(address):
        raise OptionError(
            f"{address} is no address of this machine alone; say which network interface reaches "
            f"it with --interface, one of {', '.join(names)}"
        )
    return loopback_interface()


def _is_loopback(address: str) -> bool:
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(address, None)}
    except OSError as error:
        raise OptionError(f"the rendezvous {address} is not found ({error.strerror})") from None
    return all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found)


class _Board:
    """Where every node puts one JSON value by each name, and reads those of all."""

    def __init__(self, rendezvous: Rendezvous, timeout: float) -> None:
        meet = hold if rendezvous.node == 0 and not rendezvous.held else join
        self._store = meet(rendezvous.address, rendezvous.port, timeout)
        self._at = rendezvous
        self._patience = datetime.timedelta(seconds=timeout)

    def exchange(self, name: str, value: Any) -> list[Any]:
        """What each node put there, in their order; ExecutionError names those that did not."""
        self._put(name, json.dumps(value))
        keys = self._keys(name)
        try:
            self._store.wait(keys, self._patience)
            return [json.loads(self._store.get(key)) for key in keys]
        except RuntimeError as error:
            raise ExecutionError(self._missing(keys)) from error

    def leave(self) -> None:
        """Say that all is read. Who holds the store waits for the others, not for ever."""
        self._put("left", "")
        if self._at.node == 0:
            waited = datetime.timedelta(seconds=_LEAVING_SECONDS)
            with contextlib.suppress(RuntimeError):
                self._store.wait(self._keys("left"), waited)

    def _put(self, name: str, text: str) -> None:
        try:
            self._store.set(self._keys(name)[self._at.node], text)
        except RuntimeError as error:
            raise ExecutionError(f"node 0 at {self._at} has ended; see what it says") from error

    def _keys(self, name: str) -> list[str]:
        return [f"placewright/{name}/{node}" for node in range(self._at.nodes)]

    def _missing(self, keys: Sequence[str]) -> str:
        try:
            late = [str(node) for node, key in enumerate(keys) if not self._store.check([key])]
        except RuntimeError:
            return f"node 0 at {self._at} has ended; see what it says"
        several = len(late) > 1
        return (
            f"{'nodes' if several else 'node'} {listed(late)} of {self._at.nodes} did not come to "
            f"{self._at} within {self._patience.total_seconds():g} s; start "
            f"{'them' if several else 'it'}, or give a longer --timeout"
        )


# -- one cluster of several --------------------------------------------------------------------


def merged(parts: Sequence[Cluster]) -> Cluster:
    """The devices, switches and links of all hosts, each by the name of its host and its own."""
    names = [part.devices[0].host for part in parts]
    hosts = [f"{name}-{node}" if names.count(name) > 1 else name for node, name in enumerate(names)]
    renamed = [_of_host(part, host) for part, host in zip(parts, hosts, strict=True)]
    return Cluster(
        "hosts",
        tuple(device for part in renamed for device in part.devices),
        tuple(link for part in renamed for link in part.links),
        tuple(switch for part in renamed for switch in part.switches),
        description=" ".join(part.description for part in parts),
    )


def _of_host(part: Cluster, host: str) -> Cluster:
    def named(name: str) -> str:
        return f"{host}.{name}"

    def moved(device: Device) -> Device:
        run = None if device.run is None else replace(device.run, host=host)
        return replace(device, name=named(device.name), host=host, run=run)

    def joined(link: Link) -> Link:
        channel = None if link.channel is None else named(link.channel)
        return replace(link, a=named(link.a), b=named(link.b), channel=channel)

    return replace(
        part,
        devices=tuple(map(moved, part.devices)),
        switches=tuple(map(named, part.switches)),
        links=tuple(map(joined, part.links)),
    )


def _channel(a: Device, b: Device) -> tuple[str, Literal["full", "half"]]:
    """Devices of one host share its memory; those of two, what joins the two, each way apart."""
    if a.host == b.host:
        return f"{a.host}.{HOST_MEMORY}", "half"
    return f"{a.host} – {b.host}", "full"


def _read_times(documents: Sequence[Any], ranks: int) -> dict[Pair, Times]:
    """The times of all pairs; ExecutionError for what no placewright of this version told."""
    found: dict[Pair, Times] = {}
    try:
        for document in documents:
            for a, b, sizes, seconds in document:
                if not 0 <= a < b < ranks:
                    raise ValueError
                found[int(a), int(b)] = Times(tuple(map(int, sizes)), tuple(map(float, seconds)))
    except (TypeError, ValueError):
        raise ExecutionError(
            "a node told of times in a way that is not understood; run the same version of "
            "placewright on all hosts"
        ) from None
    if len(found) < ranks * (ranks - 1) // 2:
        raise ExecutionError(
            f"{len(found)} of {ranks * (ranks - 1) // 2} links were measured; measure again"
        )
    return found
