"""Weights in another type than the configuration's: what a model comes to once it is quantised.

Where there is no quantised checkpoint yet whose headers could be read, its size follows from the
number of bits: matrices are quantised, embeddings, head and vectors stay as they are, as GPTQ, AWQ
and bitsandbytes leave them. For each `GROUP` numbers there is a scale of 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placewright.graph import ITEM_BYTES
from placewright.importers.torch.checkpoint import StoredWeights

if TYPE_CHECKING:
    import torch

TYPES = ("int4", "int8", "fp8")
GROUP, SCALE_BYTES = 128, 2.0


def quantised_weights(module: torch.nn.Module, dtype: str) -> StoredWeights:
    """The `StoredWeights` of a Transformers model with matrices of a type of `TYPES`."""
    ends = (_weight(module, "get_input_embeddings"), _weight(module, "get_output_embeddings"))
    kept = {id(each) for each in ends if each is not None}
    found, seen = StoredWeights(), set[int]()
    for name, parameter in module.named_parameters(remove_duplicate=False):
        size = float(parameter.numel() * parameter.element_size())
        is_quantised = parameter.dim() >= 2 and id(parameter) not in kept
        if is_quantised:
            size = parameter.numel() * (ITEM_BYTES[dtype] + SCALE_BYTES / GROUP)
        found.bytes[name] = size
        if id(parameter) not in seen:
            kind = dtype if is_quantised else str(parameter.dtype).removeprefix("torch.")
            found.dtypes[kind] = found.dtypes.get(kind, 0.0) + size
            found.total += size
        seen.add(id(parameter))
    return found


def _weight(module: torch.nn.Module, getter: str) -> torch.Tensor | None:
    find = getattr(module, getter, None)
    found = find() if find is not None else None
    return getattr(found, "weight", None)
