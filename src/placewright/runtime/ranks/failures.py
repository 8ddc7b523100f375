"""How a rank failed, in one sentence, wherever it ran: as data that it reports, and as words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from placewright.errors import ExecutionError, PlacewrightError, reason
from placewright.runtime.ranks.job import Event
from placewright.system.memory import missing_memory

_SOURCE_LINE = re.compile(r"^\[[^]]*\.(?:cc|cpp|h):\d+\]\s*")
_LONGEST = 1000  # characters of another library's message
_ALONE = "the single process that the run is compared with"


def event_of(error: BaseException) -> dict[str, Any]:
    """What a rank tells of the error that ends it, as plain JSON values.

    `kind` is ``channel`` where another rank is to blame, ``memory`` where memory was short, else
    ``own``. `type` is empty where the message is a sentence of this package.
    """
    from placewright.runtime.ranks.channels import ChannelError, OpError

    cause = error.__cause__ if isinstance(error, OpError) and error.__cause__ else error
    missing = missing_memory(cause)
    kind = "channel" if isinstance(error, ChannelError) else "own"
    return {
        "kind": kind if missing is None else "memory",
        "type": "" if isinstance(cause, PlacewrightError) else type(cause).__name__,
        "message": _SOURCE_LINE.sub("", reason(cause))[:_LONGEST] if missing is None else missing,
        "where": error.where if isinstance(error, OpError) else None,
    }


def sentence_of(rank: int, event: Event, doing: str = "running its ops") -> str:
    """The sentence of `event_of` about rank `rank`, which was `doing` something."""
    where = event.get("where")
    if event["kind"] == "memory":
        what = f"in {where}" if where else f"while {doing}"
        return f"rank {rank} ran out of memory {what}: {event['message']}; put less on its device"
    if event["type"] == "ChannelTimeoutError":
        return f"rank {rank} {event['message']}; give a longer timeout if the model is slow"
    if event["kind"] == "channel" and not where:
        return f"rank {rank} lost another rank while {doing} ({event['message']})"
    return f"rank {rank} {_failed(event)}"


def _failed(event: Event) -> str:
    where = event.get("where")
    at = f" in {where}" if where else ""
    return f"failed{at}: " + ": ".join(filter(None, (event["type"], event["message"])))


def failure_of(rank: int, error: BaseException, doing: str = "running its ops") -> BaseException:
    """The ExecutionError to raise for what a rank raised; an error with a sentence as it is."""
    if isinstance(error, PlacewrightError) and missing_memory(error) is None:
        return error
    if not isinstance(error, Exception):  # Ctrl-C
        return error
    return ExecutionError(sentence_of(rank, event_of(error), doing))


@contextmanager
def compared_with() -> Iterator[None]:
    """What the single process raises that a run is compared with, as one ExecutionError."""
    try:
        yield
    except PlacewrightError:
        raise
    except Exception as error:
        event = event_of(error)
        if event["kind"] == "memory":
            what = f"ran out of memory: {event['message']}; free some, or make the model smaller"
        else:
            what = _failed(event)
        raise ExecutionError(f"{_ALONE} {what}") from error
