"""Which weights a run gets: those given, those that the source brings, or random ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from placewright.errors import FormatError, OptionError
from placewright.importers.torch.programs import Executable, has_scheme
from placewright.importers.torch.quantised import TYPES
from placewright.importers.torch.sources import FRESH, hf_weights
from placewright.runtime.weights.base import Weights
from placewright.runtime.weights.files import Assembly, FileWeights
from placewright.runtime.weights.fresh import FreshWeights
from placewright.runtime.weights.held import HeldWeights
from placewright.runtime.weights.joined import JoinedWeights
from placewright.runtime.weights.layout import Layout
from placewright.runtime.weights.listings import listing_of
from placewright.runtime.weights.matching import match, may_be_missing


def weights_of(
    source: str,
    executable: Executable,
    module: torch.nn.Module | None,
    given: str | None = None,
    seed: int = 0,
) -> Weights:
    """The weights of the program of `source`; nothing is loaded yet.

    `given` is ``fresh``, a file or a directory (``--weights``). Without it they are those that
    the source brings: ``weights=…`` in its query, its own tensors, its archive (``.pt2``), or the
    safetensors of its directory (``hf:DIRECTORY``). Where it brings none they are random, from
    `seed`. `module` is the source's, None for a program alone.

    Constants, and buffers that are not in the module's state_dict, are the source's own where it
    has values for them, and else made as the module makes them.

    OptionError or FormatError where a weight cannot come from there.
    """
    need = _Need.of(executable, module)
    chosen = given or (hf_weights(source[3:]) if source.startswith("hf:") else None)
    if chosen in TYPES:
        raise OptionError(
            f"weights={chosen} of {source} says how large weights are, for planning; a run needs "
            f"their values: give --weights {FRESH}, or a directory with safetensors"
        )
    place = _place(source, chosen)
    usable = {name for name in need.values if chosen is None or name not in need.state}
    table: dict[str, Assembly] = {}
    if place is not None:
        asked = need.layouts.keys() - (usable if has_scheme(source) else set())
        wanted = {name: layout for name, layout in need.layouts.items() if name in asked}
        table = match(listing_of(place), wanted, module, str(place))
    own = {name: value for name, value in need.values.items() if name in usable - table.keys()}
    rest = [name for name in need.layouts if name not in table and name not in own]
    need.check_rest(rest, source, place)
    files = [(table, FileWeights.of(table, str(place)))] if table else []
    fresh = [(rest, FreshWeights(module, source, seed))] if rest and module is not None else []
    return JoinedWeights([*files, (own, HeldWeights(own)), *fresh])


@dataclass(frozen=True)
class _Need:
    """What a program needs, by names in the module, and which of it the source has values for.

    `state` are the names that a state dict has.
    """

    layouts: Mapping[str, Layout]
    values: Mapping[str, Any]
    state: Collection[str]
    module: torch.nn.Module | None

    @classmethod
    def of(cls, executable: Executable, module: torch.nn.Module | None) -> _Need:
        names = executable.weights
        placeholders = executable.module.graph.find_nodes(op="placeholder")
        shapes = {node.name: node.meta.get("val") for node in placeholders}
        layouts = {
            name: Layout.of(shapes[placeholder])
            for placeholder, name in names.items()
            if isinstance(shapes[placeholder], torch.Tensor)
        }
        values = {
            name: executable.values[placeholder]
            for placeholder, name in names.items()
            if placeholder in executable.values and name in layouts
        }
        if module is None:  # torch.export begins the placeholders of parameters so
            state: Collection[str] = {
                name for placeholder, name in names.items() if placeholder.startswith("p_")
            }
        else:
            state = module.state_dict(keep_vars=True).keys()
        return cls(layouts, values, state, module)

    def check_rest(self, rest: Collection[str], source: str, place: Path | None) -> None:
        """Refuse what no file and no value is there for, and what is not to be made either."""
        made = set[str]()
        if self.module is not None:
            made |= {name for name, _ in self.module.named_parameters(remove_duplicate=False)}
            made |= {name for name, _ in self.module.named_buffers(remove_duplicate=False)}
        for name in rest:
            if self.module is None:
                raise OptionError(
                    f"{place or source}: has no values for '{name}'; give --weights FILE with all "
                    f"weights of {source}"
                )
            if name not in made:
                raise OptionError(
                    f"{source}: its constant '{name}' has a shape but no values (device meta); "
                    "register it as a buffer, or make it in forward"
                )
            if place and name in self.state and not may_be_missing(self.module, name):
                raise FormatError(
                    f"{place}: holds nothing for '{name}' of {source}; give the weights of the "
                    "whole model, or --weights fresh"
                )


def _place(source: str, chosen: str | None) -> Path | None:
    """The file or directory with weights, if there is one."""
    if chosen == FRESH:
        return None
    if chosen is not None:
        place = Path(chosen).expanduser()
        if not place.exists():
            raise OptionError(
                f"weights: there is no '{chosen}'; give '{FRESH}', a file of weights or a "
                "directory with safetensors"
            )
        return place
    if not has_scheme(source):
        return Path(source)
    if source.startswith("hf:"):
        folder = Path(source[3:].partition("?")[0])
        if folder.is_dir() and any(folder.glob("*.safetensors*")):
            return folder
    return None
