"""Parts of a module that it runs under `torch.utils.checkpoint`, which export does not show.

The exported program calls what such a part calls, once, and keeps what it makes; the older kind
(`use_reentrant=True`) hides its part from autograd there. So while a program is traced, these parts
run as they are, and it is noted that there are some.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch


@contextlib.contextmanager
def without_checkpoints() -> Iterator[list[Callable[..., Any]]]:
    """Checkpointed functions are called and nothing else; those that were."""
    from torch.utils import checkpoint

    called: list[Callable[..., Any]] = []

    class Reentrant:
        @staticmethod
        def apply(function: Callable[..., Any], _preserve: bool, *args: Any) -> Any:
            called.append(function)
            return function(*args)

    def around(function: Callable[..., Any], *_: Any, **__: Any) -> Iterator[None]:
        called.append(function)
        yield

    with (
        patch.object(checkpoint, "CheckpointFunction", Reentrant),
        patch.object(checkpoint, "_checkpoint_without_reentrant_generator", around),
    ):
        yield called


def remark(count: int) -> str:
    """What a person should know of a module that runs `count` parts so."""
    return (
        f"it runs {count} of its parts under torch.utils.checkpoint, which an exported program "
        "does not show: their activations count as kept, and nothing as computed again, unless the "
        "plan recomputes blocks (--recompute block)"
    )
