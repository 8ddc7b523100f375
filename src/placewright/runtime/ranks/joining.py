"""Joining the other ranks, meeting them, and leaving: torch.distributed's process group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placewright.runtime.ranks.channels import GlooChannel


class GlooConnection:
    """See `calls.Connection`: the ranks of torch.distributed's default process group."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout

    def channel(self) -> GlooChannel:
        from placewright.runtime.ranks.channels import GlooChannel

        return GlooChannel(self._timeout)

    def barrier(self) -> None:
        barrier()


def file_store(folder: Path, ranks: int) -> Any:
    """Where ranks of one machine find each other: a file, so there is no port to guess."""
    import torch.distributed as dist

    return dist.FileStore(str(folder / "store"), ranks)  # type: ignore[attr-defined]


def connect(
    store: Any, rank: int, ranks: int, timeout: float, *, under_parent: bool = True
) -> None:
    """Join the process group that meets in `store`, and wait until all are there.

    ChannelError where one is missing at a barrier for `timeout` seconds, or for longer where there
    is a parent that has this patience itself, and then names who is stuck.
    """
    patience = 2 * timeout + 60 if under_parent else timeout
    import datetime

    import torch.distributed as dist

    with channel_errors():
        dist.init_process_group(
            "gloo",
            store=store,
            rank=rank,
            world_size=ranks,
            timeout=datetime.timedelta(seconds=patience),
        )
    barrier()


def barrier() -> None:
    import torch.distributed as dist

    with channel_errors():
        dist.barrier()


def leave() -> None:
    """Part from the process group; nobody does while another still talks to it."""
    import torch.distributed as dist

    barrier()
    dist.destroy_process_group()


@contextmanager
def channel_errors() -> Iterator[None]:
    """What torch raises when another rank is gone, told apart from errors of this one."""
    from placewright.runtime.ranks.channels import ChannelError

    try:
        yield
    except RuntimeError as error:
        raise ChannelError(str(error)) from error
