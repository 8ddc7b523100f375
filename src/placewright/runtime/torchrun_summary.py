"""What torchrun's summary of a failed job says of a rank: the sentence that the rank says itself.

torchrun gives each process a file of its own for that, and shows of all that failed the one whose
file has the earliest time as the cause. Its own exit code is 1 whatever a rank's was.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from placewright.errors import PlacewrightError

_FILE = "TORCHELASTIC_ERROR_FILE"


def tell_torchrun(sentence: str, *, is_cause: bool = True) -> None:
    """Have torchrun's summary say it, where torchrun started this process.

    What is told first counts. Times are whole seconds there, so that a rank which only noticed
    that another is gone is given the next one.
    """
    path = Path(os.environ.get(_FILE, ""))
    if not path.name or path.exists():
        return
    when = str(int(time.time()) + (not is_cause))
    content = {"message": {"message": sentence, "extraInfo": {"timestamp": when}}}
    with suppress(OSError):  # the sentence is on stderr all the same
        path.write_text(json.dumps(content), encoding="utf-8")


@contextmanager
def errors_told_to_torchrun() -> Iterator[None]:
    """`tell_torchrun` of the error that ends the block."""
    try:
        yield
    except PlacewrightError as error:
        tell_torchrun(str(error))
        raise
