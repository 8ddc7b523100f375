"""A source whose program is exported once, for what runs its calls and for what plans them."""

from __future__ import annotations

from functools import cached_property

from placewright.graph import Graph
from placewright.importers.kinds import open_source
from placewright.importers.torch import export, programs, sources
from placewright.importers.torch.programs import Executable


class Source:
    """``torch:PACKAGE.MODULE:FACTORY``, ``hf:CONFIG`` or a ``.pt2`` file, loaded when asked for.

    Errors are those of `programs.load_executable`.
    """

    def __init__(self, name: str, *, training: bool = False) -> None:
        self.name, self.training = name, training

    @property
    def executable(self) -> Executable:
        return self._both[0]

    @property
    def graph(self) -> Graph:
        return self._both[1]

    @cached_property
    def _both(self) -> tuple[Executable, Graph]:
        scheme, _, rest = self.name.partition(":")
        if not programs.has_scheme(self.name):
            return self._of_file()
        if scheme == "zoo":
            raise programs.no_program(self.name, self.training)
        is_hf = scheme == "hf"
        loaded = sources.load_hf(rest, self.training) if is_hf else sources.load_factory(rest)
        program = export.export_module(*loaded, training=self.training)
        graph = (
            sources.hf_graph(rest, loaded, program, self.training)
            if is_hf
            else sources.factory_graph(rest, program)
        )
        return programs.from_exported(program, self.name, loaded[1:]), graph

    def _of_file(self) -> tuple[Executable, Graph]:
        file = None if self.training else open_source(self.name)
        if file is None or file.kind != "pt2":
            raise programs.no_program(self.name, self.training, file.kind if file else "")
        program = sources.load_pt2(file.path, file.content)
        graph = export.graph_from_program(program, file.path.stem)
        return programs.from_program(program, self.name), graph
