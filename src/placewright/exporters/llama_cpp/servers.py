"""Devices of other hosts: llama.cpp reaches them through an RPC server on each.

One host is the main one, where ``llama-server`` runs and the input embedding is. Each other host
of a plan has one server, which offers the devices that the plan uses, in the order of ``-d``. To
the main host these are RPC0, RPC1, …: servers in the order of ``--rpc``, the devices of each in its
own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from placewright.errors import OptionError
from placewright.exporters.llama_cpp.backends import device_name
from placewright.problem import Problem

DEFAULT_PORT = 50052
_ADDRESS = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*)(?::([0-9]{1,5}))?")
_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+){3}")


@dataclass(frozen=True)
class Server:
    """An RPC server at `host`:`port`; `devices` of the problem, with its own `names` for them."""

    host: str
    port: int
    devices: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def endpoint(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def arguments(self) -> list[str]:
        """Of ``ggml-rpc-server``, which binds to numbers only: else ADDRESS stands for them."""
        address = self.host if _NUMBERS.fullmatch(self.host) else "ADDRESS"
        return ["-H", address, "-p", str(self.port), "-d", ",".join(self.names)]


def servers_of(
    problem: Problem,
    devices: Sequence[int],
    main: str,
    port: int = DEFAULT_PORT,
    backend: str | None = None,
) -> list[Server]:
    """The servers for those `devices` that are not of the main host, in the order of these.

    A host's name may end with its port (``10.0.0.2:50053``); OptionError where it is no address.
    """
    found: dict[tuple[str, int], list[int]] = {}
    for device in devices:
        host = problem.device_host(device)
        if host != main:
            found.setdefault(_address(host, port), []).append(device)
    return [
        Server(host, number, tuple(there), _names(problem, there, backend))
        for (host, number), there in found.items()
    ]


def device_names(
    problem: Problem,
    devices: Sequence[int],
    servers: Sequence[Server],
    backend: str | None = None,
) -> list[str]:
    """What the main host calls each of these devices."""
    remote = [device for server in servers for device in server.devices]
    return [
        f"RPC{remote.index(device)}" if device in remote else device_name(problem, device, backend)
        for device in devices
    ]


def _address(host: str, port: int) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(host)
    number = int(match[2] or port) if match else 0
    if match is None or not 0 < number < 2**16:
        said = f"'{host}'" if host else "a host without a name"
        raise OptionError(
            f"llama.cpp reaches RPC servers by name or IPv4 address and port, and the cluster has "
            f"devices of {said}; name hosts as in 10.0.0.2 or rack:50053"
        )
    return match[1], number


def _names(problem: Problem, devices: Sequence[int], backend: str | None) -> tuple[str, ...]:
    names = tuple(device_name(problem, device, backend) for device in devices)
    if len(set(names)) < len(names):
        raise OptionError(
            "an RPC server of llama.cpp offers one CPU, and the plan is on "
            f"{', '.join(problem.device_names[each] for each in devices)} of "
            f"{problem.device_host(devices[0])}; make them one device, or give each server its port"
        )
    return names
