"""What a checkpoint's files hold for each parameter of a Transformers model, in bytes.

A checkpoint need not have a tensor per parameter: a quantised one has several (packed integers,
scales, zero points), the experts of a mixture may be apart in the files and one tensor in the
model, and names may lack the prefix of the base model. Transformers' own table of renamings says
which tensor goes where; what only a quantised checkpoint has goes to the parameter it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from placewright.errors import FormatError
from placewright.importers.safetensors import Stored

if TYPE_CHECKING:
    import torch

DEEPEST = 3
"""Parts of a name that a quantised tensor has beyond its module: ``weight.quant_state.nf4``."""


Renamed = tuple[list[str], Any, str]
"""The names in the model, what converts to them (None: it is the tensor itself), its pattern."""
Renaming = Callable[[str], Renamed]


@dataclass
class StoredWeights:
    """`bytes` of each parameter (by name) as the files have it.

    `total` counts tied ones once; `dtypes` are bytes by type of the file; `unused` are bytes of
    tensors that the model has no use for.
    """

    bytes: dict[str, float] = field(default_factory=dict)
    dtypes: dict[str, float] = field(default_factory=dict)
    total: float = 0.0
    unused: float = 0.0

    def attributes(self) -> dict[str, Any]:
        """For people to read, among a graph's attributes."""
        facts = {"stored_bytes": self.total, "stored_dtypes": dict(self.dtypes)}
        return facts | ({"stored_unused_bytes": self.unused} if self.unused else {})


def stored_weights(
    module: torch.nn.Module, tensors: Mapping[str, Stored], folder: Path
) -> StoredWeights:
    """The `StoredWeights` of a Transformers model and the tensors of its files.

    FormatError where a tensor has another shape than the configuration gives its parameter, or
    nothing is there for a parameter.
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    owners = Owners(module, parameters)
    found, elements = StoredWeights(), dict[str, int]()
    for name, stored in tensors.items():
        owned = owners.of(name)
        if not owned.names:
            found.unused += stored.bytes
            continue
        if owned.how == "itself" and stored.is_plain:
            _check_shape(name, stored, tuple(parameters[owned.names[0]].shape), folder)
        found.dtypes[stored.dtype] = found.dtypes.get(stored.dtype, 0.0) + stored.bytes
        whole = sum(parameters[each].numel() for each in owned.names)
        for owner in owned.names:
            share = parameters[owner].numel() / whole
            found.bytes[owner] = found.bytes.get(owner, 0.0) + stored.bytes * share
            if owned.how == "part" and stored.is_plain:
                elements[owner] = elements.get(owner, 0) + round(stored.elements * share)
    _check_parts(parameters, elements, folder)
    _share_tied(parameters, found, folder)
    return found


@dataclass(frozen=True)
class Owned:
    """Parameters that a tensor of the files is of: it is one `itself`, `part`, or only `about` it.

    A part is stacked with others, or split, when it is loaded; scales and packed integers are
    about a parameter. A part is of what `pattern`, one of its `converter` (Transformers'
    WeightConverter), stands for.
    """

    names: tuple[str, ...] = ()
    how: Literal["itself", "part", "about"] = "about"
    converter: Any = None
    pattern: str = ""


class Owners:
    """From the name of a tensor in the files to the parameters that its bytes are of."""

    def __init__(self, module: torch.nn.Module, parameters: Mapping[str, Any]) -> None:
        self._parameters = parameters
        self._renamed = _renaming(module, parameters)

    def of(self, name: str) -> Owned:
        if (owned := self._known(name)).names:
            return owned
        parts = name.split(".")
        for cut in range(len(parts) - 1, max(len(parts) - 1 - DEEPEST, 0), -1):
            stem = ".".join(parts[:cut])
            for candidate in (stem, f"{stem}.weight"):
                if (owned := self._known(candidate)).names:
                    return replace(owned, how="about")
        while "_" in parts[-1]:  # such as experts.down_proj_scales, of experts.down_proj
            parts[-1] = parts[-1].rpartition("_")[0]
            if (owned := self._known(".".join(parts))).names:
                return replace(owned, how="about")
        return Owned()

    def _known(self, name: str) -> Owned:
        names, converter, pattern = self._renamed(name)
        found = tuple(each for each in names if each in self._parameters)
        if not found and name in self._parameters:  # it was not to be renamed
            return Owned((name,), "itself")
        return Owned(found, "part" if pattern else "itself", converter, pattern)


def _renaming(module: torch.nn.Module, parameters: Mapping[str, Any]) -> Renaming:
    """Transformers' own way from a tensor of the files to the model's.

    With the converter that changes it, if any, and the pattern of that. Before Transformers 5 a
    checkpoint has the model's names, but for the base model's prefix.
    """
    prefix: str = getattr(module, "base_model_prefix", "") or ""
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import (
            WeightConverter,
            WeightRenaming,
            rename_source_key,
        )
    except ImportError:

        def prefixed(name: str) -> Renamed:
            names = [name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")]
            return [each for each in names if each in parameters][:1], None, ""

        return prefixed
    transforms: Any = get_model_conversion_mapping(module)  # type: ignore[arg-type]
    renamings = [each for each in transforms if isinstance(each, WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, WeightConverter)]
    by_pattern = {pattern: each for each in converters for pattern in each.source_patterns}

    def renamed(name: str) -> Renamed:
        first, pattern = rename_source_key(name, renamings, converters, prefix, dict(parameters))
        converter = by_pattern.get(pattern or "")
        names = converter.target_patterns if converter else []
        if len(names) > 1:  # of one tensor in the files, several in the model
            return [first.replace(names[0], each) for each in names], converter, pattern or ""
        return [first], converter, pattern or ""

    return renamed


def _check_shape(name: str, stored: Stored, shape: tuple[int, ...], folder: Path) -> None:
    if stored.shape != shape:
        raise FormatError(
            f"{folder}: '{name}' has shape {list(stored.shape)} in the files, {list(shape)} by the "
            "configuration; take the config.json that belongs to these files"
        )


def _check_parts(parameters: Mapping[str, Any], elements: Mapping[str, int], folder: Path) -> None:
    for name, count in elements.items():
        if count != parameters[name].numel():
            raise FormatError(
                f"{folder}: its files hold {count} numbers for '{name}', the configuration gives "
                f"it {parameters[name].numel()}; take the config.json that belongs to these files"
            )


def _share_tied(parameters: Mapping[str, Any], found: StoredWeights, folder: Path) -> None:
    """Tied weights are there under one of their names, which the others then share."""
    by_memory = {id(parameters[name]): amount for name, amount in found.bytes.items()}
    for name, parameter in parameters.items():
        if id(parameter) not in by_memory:
            raise FormatError(
                f"{folder}: its files hold nothing for '{name}'; give the path of config.json to "
                "plan without the weights, or take the files of the whole model"
            )
        found.bytes[name] = by_memory[id(parameter)]
    found.total = sum(by_memory.values())
