"""The store in which hosts find each other: held by one of them, at an address the user gives."""

from __future__ import annotations

import datetime
import socket
from typing import Any

from placewright.errors import ExecutionError, OptionError, reason


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

    try:
        store = dist.TCPStore(  # type: ignore[attr-defined]
            address,
            port,
            is_master=False,
            wait_for_workers=False,
            timeout=datetime.timedelta(seconds=timeout),
        )
    except RuntimeError as error:
        raise ExecutionError(
            f"nobody answered at {address}:{port} for {timeout:g} s; start node 0 there, and see "
            "that the port can be reached"
        ) from error
    if not prefix:
        return store
    return dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]
