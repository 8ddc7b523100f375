"""A connection to a Ray cluster, ended by whoever began it.

Ray waits minutes for an address where nothing answers, and takes SIGTERM over: here an address is
tried first, and the handlers stay what they were.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from typing import Any

from placewright.errors import MissingExtraError, OptionError, reason
from placewright.units import parse_whole

ANSWERING = 5.0  # seconds that an address may take to be reached, and to answer
CLIENT = "ray://"
FORMS = "auto (the cluster of this machine), local (a new one), HOST:PORT or ray://HOST:PORT"
ADDRESS_VARIABLE = "RAY_ADDRESS"  # what Ray itself reads for auto
TOKEN_VARIABLE = "RAY_AUTH_MODE"
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # a cluster that we start reports to nobody
    "RAY_CLIENT_INITIAL_CONNECTION_TIMEOUT_S": "5",  # the first of three tries
    "RAY_CLIENT_MAX_CONNECTION_TIMEOUT_S": "5",
}
"""What Ray is told while it connects, unless the user has told it otherwise."""

ANOTHER_PROGRAM = ("failed to import", "No module named 'placewright", "from 'placewright")
"""What Ray and Python say where a worker lacks what it is sent."""


@dataclass(frozen=True)
class RayCluster:
    """A cluster that this process is connected to: its `address` as given, and its `cpus`."""

    address: str
    cpus: int


@contextmanager
def connected(address: str) -> Iterator[RayCluster]:
    """Ray at an address, as `FORMS` says; an ``auto`` that is connected already stays so.

    OptionError, within some 20 seconds, if there is none; MissingExtraError without Ray.
    """
    ray = import_ray()
    if ray.is_initialized():
        _check_same(ray, address)
        yield _cluster(ray, address)
        return
    found = os.environ.get(ADDRESS_VARIABLE) or "auto" if address == "auto" else address
    _check_answers(found)
    with _signals_as_before():
        _init(ray, found)
    try:
        yield _cluster(ray, address)
    finally:
        ray.shutdown()


def import_ray() -> Any:
    """The module `ray`."""
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", "planning on Ray") from None
    return ray


def check_version(version: str, host: str) -> None:
    """OptionError unless the version that a worker on `host` runs is this one."""
    from placewright.version import __version__

    if version != __version__:
        raise OptionError(
            f"the Ray worker on {host} runs placewright {version}, this is {__version__}; install "
            "the same version on every machine of the cluster"
        )


def check_program(error: Exception) -> None:
    """OptionError if a worker's error is that it has no placewright, or too different a one."""
    from placewright.version import __version__

    if any(sign in str(error) for sign in ANOTHER_PROGRAM):
        raise OptionError(
            f"a Ray worker cannot load placewright {__version__}; install this version on every "
            "machine of the cluster"
        ) from None


def _init(ray: Any, address: str) -> None:
    given: dict[str, Any] = {"address": address, "logging_level": logging.ERROR}
    if not address.startswith(CLIENT):
        given["log_to_driver"] = False
    if address == "local":
        given["include_dashboard"] = False
    try:
        with _environment(SETTINGS):
            ray.init(**given)
    except Exception as error:  # of many kinds
        if ray.is_initialized():
            ray.shutdown()
        if address == "auto" and isinstance(error, ConnectionError):
            raise OptionError(
                "no Ray cluster runs on this machine; start one with 'ray start --head', "
                "or give its address, or 'local'"
            ) from None
        why = f"{reason(error)}{_hint(address)}"
        raise OptionError(f"no Ray cluster at '{address}': {why}") from None


def _hint(address: str) -> str:
    """For a cluster that asks for a token Ray looks for one only if it is told to."""
    if address in ("auto", "local") or TOKEN_VARIABLE in os.environ:
        return ""
    return f"; if that asks for a token, set {TOKEN_VARIABLE}=token, as Ray's manual says"


def _cluster(ray: Any, address: str) -> RayCluster:
    cpus = int(ray.cluster_resources().get("CPU", 0))
    if cpus < 1:
        raise OptionError(f"the Ray cluster at '{address}' has no CPUs; add machines to it")
    return RayCluster(address, cpus)


def _check_same(ray: Any, address: str) -> None:
    current = ray.get_runtime_context().gcs_address
    if address not in ("auto", current):
        raise OptionError(
            f"ray is '{address}', but this process is connected to Ray at {current} already; "
            "give 'auto' to use that, or disconnect first"
        )


def _check_answers(address: str) -> None:
    """OptionError unless something that speaks gRPC, as Ray does, is there."""
    if address in ("auto", "local"):
        return
    target = address.removeprefix(CLIENT)
    host, _, port = target.rpartition(":")
    number = parse_whole(port)
    if not host or "/" in target or number is None or not 0 < number < 2**16:
        raise OptionError(f"ray is '{address}'; give {FORMS}")
    if not (_is_open(host.strip("[]"), number) and _speaks_grpc(target)):
        raise OptionError(
            f"no Ray cluster answers at '{address}'; see that it runs and can be reached, or give "
            f"{FORMS}"
        )


def _is_open(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=ANSWERING).close()
    except OSError:
        return False
    return True


def _speaks_grpc(target: str) -> bool:
    """Whether it may be Ray."""
    try:
        import grpc
    except ImportError:
        raise MissingExtraError("ray", "planning on Ray") from None
    if os.environ.get("RAY_USE_TLS", "0") != "0":  # Ray has the keys
        return True
    with grpc.insecure_channel(target) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=ANSWERING)
        except grpc.FutureTimeoutError:
            return False
    return True


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """With values of variables that have none."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


@contextmanager
def _signals_as_before() -> Iterator[None]:
    """SIGTERM's handler is that of before, for Ray would have the process exit at once."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if current_thread() is main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)
