"""The store in which hosts find each other: held by one of them, at an address the user gives."""

from __future__ import annotations

import contextlib
import datetime
import socket
import threading
import time
from typing import Any

from placewright.errors import ExecutionError, OptionError, reason

_PAUSE_SECONDS = 0.05  # between two attempts at a port where nobody listens yet


def hold(address: str, port: int, timeout: float) -> Any:
    """The store, held by this process, which listens on `address` alone.

    OptionError where it cannot listen there.
    """
    import torch.distributed as dist

    try:
        family, *_ = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server((address, port), family=family)
    except OSError as error:
        raise OptionError(
            f"node 0 cannot listen on {address}:{port} ({error.strerror or reason(error)}); give "
            "an address of this host and a free port as --rendezvous"
        ) from None
    return dist.TCPStore(  # type: ignore[attr-defined]
        address,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=datetime.timedelta(seconds=timeout),
        master_listen_fd=listening.detach(),
    )


def join(address: str, port: int, timeout: float, prefix: str = "") -> Any:
    """The store that another process holds; ExecutionError if none does within the time."""
    import torch.distributed as dist

    if not _listened(address, port, timeout):
        raise ExecutionError(
            f"nobody answered at {address}:{port} for {timeout:g} s; start node 0 there, and see "
            "that the port can be reached"
        )
    store = _answered(address, port, timeout)
    if store is None:
        raise ExecutionError(
            f"what listens at {address}:{port} is neither torchrun nor node 0, for it has not "
            f"answered for {timeout:g} s; give another port"
        )
    if not prefix:
        return store
    return dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]


def _listened(address: str, port: int, timeout: float) -> bool:
    """Whether anything listens there before the time is over.

    Asked apart from torch, which joins again after a pause of its own choice, beyond the time.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((address, port), timeout=timeout).close()
        except OSError:
            if time.monotonic() >= end:
                return False
            time.sleep(_PAUSE_SECONDS)
        else:
            return True


def _answered(address: str, port: int, timeout: float) -> Any:
    """The store there, or None where what listens is none or has gone.

    In a thread of its own: once connected, torch waits for the first answer without end.
    """
    import torch.distributed as dist

    found: list[Any] = []

    def join() -> None:
        with contextlib.suppress(RuntimeError):
            found.append(
                dist.TCPStore(  # type: ignore[attr-defined]
                    address,
                    port,
                    is_master=False,
                    wait_for_workers=False,
                    timeout=datetime.timedelta(seconds=timeout),
                )
            )

    thread = threading.Thread(target=join, daemon=True)
    thread.start()
    thread.join(timeout)
    return found[0] if found else None
