"""How a rank failed, in one sentence, wherever it ran: as data that it reports, and as words."""

from __future__ import annotations

import re
from typing import Any

from placewright.errors import ExecutionError, PlacewrightError, reason
from placewright.runtime.ranks.job import Event
from placewright.system.memory import missing_memory

_SOURCE_LINE = re.compile(r"^\[[^]]*\.(?:cc|cpp|h):\d+\]\s*")
_LONGEST = 1000  # characters of another library's message


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
    at = f" in {where}" if where else ""
    what = ": ".join(filter(None, (event["type"], event["message"])))
    return f"rank {rank} failed{at}: {what}"


def failure_of(rank: int, error: BaseException, doing: str = "running its ops") -> BaseException:
    """The ExecutionError to raise for what a rank raised; an error with a sentence as it is."""
    if isinstance(error, PlacewrightError) and missing_memory(error) is None:
        return error
    if not isinstance(error, Exception):  # Ctrl-C
        return error
    return ExecutionError(sentence_of(rank, event_of(error), doing))
