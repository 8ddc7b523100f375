"""A rank's work as data: torch calls and transfers in the order in which they happen.

Plain frozen data, so that it can be printed, compared, and sent to another process without any
pickled code. `compiled.py` turns it into a Python function.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ref:
    """The value of that name: an input, the result of a call, or a received tensor."""

    name: str

    def __repr__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True)
class Named:
    """One of torch's own constants (a dtype, layout or memory format), such as ``float32``."""

    name: str

    def __repr__(self) -> str:
        return f"torch.{self.name}"


@dataclass(frozen=True)
class Transfer:
    """One tensor on its way from rank `source` to rank `target`; no two share a `tag`.

    `shape` and `stride` (in elements) are those the receiver rebuilds. A dimension of stride 0
    is a broadcast: its values travel once. `dtype` is a name such as ``float32``.
    """

    tag: int
    tensor: str
    source: int
    target: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    element_bytes: int

    @property
    def sent_shape(self) -> tuple[int, ...]:
        """The shape without repetition: 1 in every broadcast dimension."""
        return tuple(
            1 if stride == 0 and size > 1 else size
            for size, stride in zip(self.shape, self.stride, strict=True)
        )

    @property
    def elements(self) -> int:
        return math.prod(self.sent_shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.element_bytes


@dataclass(frozen=True)
class Call:
    """``name = target(*args, **kwargs)``; a `target` such as ``torch.ops.aten.linear.default``.

    Arguments are numbers, strings, None, `Ref`, `Named`, devices, `Code` (a body that a
    higher-order op calls), and lists, tuples and dicts of these.
    """

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __str__(self) -> str:
        arguments = [*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.kwargs.items())]
        return f"%{self.name} = {self.target}({', '.join(arguments)})"


@dataclass(frozen=True)
class Send:
    """Start sending, and go on."""

    transfer: Transfer

    def __str__(self) -> str:
        return f"send %{self.transfer.tensor} to rank {self.transfer.target}"


@dataclass(frozen=True)
class Post:
    """Make room for a tensor that another rank will send, and go on."""

    transfer: Transfer

    def __str__(self) -> str:
        return f"post %{self.transfer.tensor} from rank {self.transfer.source}"


@dataclass(frozen=True)
class Wait:
    """Until the posted tensor is here."""

    transfer: Transfer

    def __str__(self) -> str:
        return f"wait %{self.transfer.tensor}"


Step = Call | Send | Post | Wait


@dataclass(frozen=True)
class Code:
    """A straight-line program: `inputs` by name, then `steps`, then `result` built of `Ref`s."""

    inputs: tuple[str, ...]
    steps: tuple[Step, ...]
    result: Any

    def __str__(self) -> str:
        return "\n".join([*map(str, self.steps), f"return {self.result!r}"])


def references(value: Any) -> Iterator[str]:
    """Names of all `Ref`s in an argument or a result. A `Code` in it has names of its own."""
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from references(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from references(each)


def used(steps: Iterable[Step], result: Any) -> set[str]:
    """Names of all `Ref`s in the steps' calls and in the result."""
    names = set(references(result))
    for step in steps:
        if isinstance(step, Call):
            names.update(references(step.args), references(step.kwargs))
    return names


def calls(code: Code) -> Iterator[Call]:
    """All calls, those in the bodies of higher-order ops too."""
    for step in code.steps:
        if isinstance(step, Call):
            yield step
            for argument in (*step.args, *step.kwargs.values()):
                if isinstance(argument, Code):
                    yield from calls(argument)
