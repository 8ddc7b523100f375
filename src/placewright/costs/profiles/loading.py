"""Which program a source has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placewright.costs.profiles.program import Program
from placewright.importers.kinds import open_source
from placewright.importers.torch.programs import has_scheme, load_executable

if TYPE_CHECKING:
    from placewright.importers.torch.once import Source


def load_program(source: str | Source, *, training: bool = False) -> Program:
    """The program of a ``torch:`` or ``hf:`` source, of a ``.pt2`` or an ONNX file.

    A `Source` is exported already, or then. OptionError for a source that has none: a zoo model,
    a graph, a published workload.
    """
    if isinstance(source, str) and not (training or has_scheme(source)):
        file = open_source(source)
        if file.kind == "onnx":
            from placewright.costs.profiles.onnx.program import load_onnx

            return load_onnx(file)
    from placewright.costs.profiles.torch_program import TorchProgram

    if isinstance(source, str):
        return TorchProgram(load_executable(source, training=training))
    return TorchProgram(source.executable)
