"""LSTMs of a training program, written out.

Where the input of an LSTM needs no gradient, as the data that a model is given, torch takes
oneDNN's kernel of inference for it, which keeps nothing for the backward pass: that fails when it
is run, and has no FLOPs to count. Behind an embedding it is written out, step by step. So all are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any


def written_out_lstms() -> AbstractContextManager[Any]:
    """While it is entered, LSTMs are traced as the calls that they are made of."""
    import torch
    from torch.overrides import TorchFunctionMode

    class WrittenOut(TorchFunctionMode):
        def __torch_function__(
            self,
            function: Callable[..., Any],
            _types: Sequence[type],
            args: Sequence[Any] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> Any:
            arguments = kwargs or MappingProxyType({})
            if function is not torch.ops.aten.lstm.input:
                return function(*args, **arguments)
            with torch.backends.mkldnn.flags(enabled=False, deterministic=None, allow_tf32=None):
                return function(*args, **arguments)

    return WrittenOut()
