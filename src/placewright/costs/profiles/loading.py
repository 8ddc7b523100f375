"""Which program a source has."""

from __future__ import annotations

from placewright.costs.profiles.program import Program
from placewright.importers.kinds import open_source
from placewright.importers.torch.programs import has_scheme, load_executable


def load_program(source: str, *, training: bool = False) -> Program:
    """The program of a ``torch:`` or ``hf:`` source, of a ``.pt2`` or an ONNX file.

    OptionError for a source that has none: a zoo model, a graph, a published workload.
    """
    if not (training or has_scheme(source)):
        file = open_source(source)
        if file.kind == "onnx":
            from placewright.costs.profiles.onnx.program import load_onnx

            return load_onnx(file)
    from placewright.costs.profiles.torch_program import TorchProgram

    return TorchProgram(load_executable(source, training=training))
