"""Programs that can be run call by call: a source's FX graph and what of its values is known.

Importing (`sources`) makes a `Graph` of a source and forgets the program; measuring needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from placewright.errors import OptionError
from placewright.importers.kinds import open_source

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node
    from torch.nn import Module

    from placewright.importers.costs import Cost
    from placewright.importers.torch.costs import Counter
    from placewright.importers.torch.export import Exported
    from placewright.importers.torch.training import TrainingProgram

    LoadedModule = tuple[Module, tuple[Any, ...], dict[str, Any]]

Arguments = tuple[Sequence[Any], Mapping[str, Any]]
NO_ARGUMENTS: Arguments = ((), {})


@dataclass(frozen=True)
class Executable:
    """A functional program, its ops as `Graph` has them, and the values of its placeholders.

    `values` lacks what is not known: weights of a model on the meta device have shapes only.
    `weights` maps the placeholders that are parameters, buffers or constants to their names in
    the module. Of the graph's flat outputs `results` are the positions of the caller's own.
    `updates` has those that replace a weight after a run (buffers that the module writes to), by
    the weight's name, and `gradients` those of a training program, by the parameter's.
    """

    name: str
    module: GraphModule
    values: Mapping[str, Any]
    weights: Mapping[str, str]
    results: tuple[int, ...]
    updates: Mapping[str, int] = field(default_factory=dict)
    gradients: Mapping[str, int] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The placeholders that are no weights, in their order."""
        nodes = self.module.graph.find_nodes(op="placeholder")
        return tuple(node.name for node in nodes if node.name not in self.weights)

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The graph's flat outputs: nodes, or values that no node makes."""
        values: Any = self.module.graph.output_node().args[0]
        return tuple(values) if isinstance(values, (list, tuple)) else (values,)

    @cached_property
    def calls(self) -> list[Node]:
        """The program's ops, in its own order: every call that makes tensors of its own."""
        from placewright.importers.torch.graph import fold

        owner = fold(self.module.graph)
        nodes: list[Node] = list(self.module.graph.nodes)
        return [node for node in nodes if owner.get(node.name) == node.name]

    def work(self, call: Node) -> Cost:
        """What a call has to do, as `Graph` has it."""
        return self._counter.cost(call)

    @cached_property
    def _counter(self) -> Counter:
        from placewright.importers.torch.costs import Counter

        return Counter()


def load_executable(source: str, *, training: bool = False, batch: int | None = None) -> Executable:
    """The program of ``torch:PACKAGE.MODULE:FACTORY``, ``hf:CONFIG`` or a ``.pt2`` file.

    For another `batch` than the source's own (see `batch_of`) where one is given. OptionError for a
    source that has no program of torch: a zoo model, a published workload, ONNX.
    """
    from placewright.importers.torch import sources

    scheme, _, rest = source.partition(":")
    name = source
    if batch is not None:
        batch_of(source)  # refuses what has none
        name = f"{source} at batch {batch}"
    if not has_scheme(source):
        file = None if training else open_source(source)
        if file is not None and file.kind == "pt2":
            return from_program(sources.load_pt2(file.path, file.content), source)
    elif scheme != "zoo":
        loaded = (
            sources.load_hf(rest, training, batch)
            if scheme == "hf"
            else sources.load_factory(rest, batch)
        )
        return from_module(loaded, name, training=training)
    raise no_program(source, training)


def no_program(source: str, training: bool, kind: str = "") -> OptionError:
    """What is said of a source that has no program of torch; `kind` is that of its file."""
    if training:
        return OptionError(
            f"{source} has no program to run forward and backward; use "
            "torch:PACKAGE.MODULE:FACTORY or hf:CONFIG"
        )
    if kind == "onnx":
        return OptionError(
            f"{source} is an ONNX model, and only programs of torch are compiled (--compiled); "
            "leave that out, or use torch:PACKAGE.MODULE:FACTORY, hf:CONFIG or an exported .pt2"
        )
    return OptionError(
        f"{source} has no program to run; use torch:PACKAGE.MODULE:FACTORY, hf:CONFIG, an "
        "exported .pt2 or an ONNX file"
    )


def from_module(loaded: LoadedModule, name: str, *, training: bool = False) -> Executable:
    """The program of ``(module, args, kwargs)``, with the values that these have."""
    from placewright.importers.torch.export import export_module

    return from_exported(export_module(*loaded, training=training), name, loaded[1:])


def from_exported(program: Exported, name: str, arguments: Arguments = NO_ARGUMENTS) -> Executable:
    """`from_program`, or `from_training` for a joint program."""
    from placewright.importers.torch.training import TrainingProgram

    if isinstance(program, TrainingProgram):
        return from_training(program, name, arguments)
    return from_program(program, name, arguments)


def load_module(source: str, *, meta: bool = False, training: bool = False) -> LoadedModule:
    """The ``(module, args, kwargs)`` of ``torch:PACKAGE.MODULE:FACTORY`` or ``hf:CONFIG``.

    That of a factory without memory if `meta`; one of `hf:` never has any. For `training` the
    arguments of `hf:` have labels. OptionError for a source that has no module.
    """
    from placewright.importers.torch import sources
    from placewright.importers.torch.tracing import import_torch

    scheme, _, rest = source.partition(":")
    if not has_scheme(source) or scheme == "zoo":
        raise OptionError(f"{source} has no module; use torch:PACKAGE.MODULE:FACTORY or hf:CONFIG")
    if scheme == "hf":
        return sources.load_hf(rest, training)
    import_torch("importing a torch module")
    import torch

    with torch.device("meta") if meta else nullcontext():
        return sources.load_factory(rest)


def has_scheme(source: str) -> bool:
    """Whether a source is named by a scheme, and no file."""
    return source.partition(":")[0] in ("torch", "hf", "zoo") and ":" in source


def batch_of(source: str) -> int:
    """The batch of a source's example inputs; OptionError where no other can be made."""
    from placewright.importers.torch import sources

    scheme, separator, rest = source.partition(":")
    if separator and scheme == "hf":
        return sources.hf_batch(rest)
    if separator and scheme == "torch":
        return sources.factory_batch(rest)
    raise OptionError(
        f"{source} cannot be made for other batches; use hf:CONFIG?batch=32, or "
        "torch:PACKAGE.MODULE:FACTORY whose function takes a batch"
    )


def first_difference(one: Executable, other: Executable) -> str:
    """The first node at which two programs do not make the same call on the same values.

    Shapes and plain arguments may differ, as they do between batches; empty if nothing else does.
    """
    for first, second in zip_longest(_steps(one), _steps(other)):
        if first != second:
            return (first or second)[0]
    return ""


def _steps(executable: Executable) -> list[tuple[str, ...]]:
    """The nodes of a program, each with what it does and by whose values."""
    from placewright.importers.torch.signature import target_name

    return [
        (
            node.name,
            target_name(node.target) if node.op == "call_function" else node.op,
            *(each.name for each in node.all_input_nodes),
        )
        for node in executable.module.graph.nodes
    ]


def from_program(
    program: ExportedProgram, name: str, arguments: Arguments = NO_ARGUMENTS
) -> Executable:
    """A functional program with its own weights; `arguments` are those it was exported with."""
    from torch.utils._pytree import tree_leaves

    held = {**program.constants, **program.state_dict}
    leaves = iter(tree_leaves((tuple(arguments[0]), dict(arguments[1]))))
    values: dict[str, Any] = {}
    weights = {}
    for spec in program.graph_signature.input_specs:
        placeholder = spec.arg.name
        if spec.kind.name == "USER_INPUT":
            values[placeholder] = next(leaves, None)
        else:
            weights[placeholder] = str(spec.target)
            values[placeholder] = held.get(str(spec.target))
    results, updates = [], {}
    for position, output in enumerate(program.graph_signature.output_specs):
        if output.kind.name == "USER_OUTPUT":
            results.append(position)
        elif output.kind.name == "BUFFER_MUTATION":
            updates[str(output.target)] = position
    return Executable(name, program.graph_module, _real(values), weights, tuple(results), updates)


def from_training(
    program: TrainingProgram, name: str, arguments: Arguments = NO_ARGUMENTS
) -> Executable:
    """A joint program of forward and backward, as `from_program`; its result is the loss.

    The gradient that enters the backward is 1.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    from placewright.importers.torch.training import outputs_of, weight_name

    leaves = tree_leaves((tuple(arguments[0]), dict(arguments[1])))
    values, weights = dict[str, Any](), {}
    for node in program.graph.find_nodes(op="placeholder"):
        meaning = node.meta["desc"]
        if hasattr(meaning, "target"):
            weights[node.name] = weight_name(meaning)
            values[node.name] = program.state[weight_name(meaning)]
        elif getattr(meaning, "idx", None) is not None:
            values[node.name] = leaves[meaning.idx] if len(leaves) > meaning.idx else None
        else:
            value = node.meta["val"]
            values[node.name] = torch.ones(value.shape, dtype=value.dtype)
    loss, gradients, updates = outputs_of(program)
    return Executable(
        name, program.graph_module, _real(values), weights, (loss,), updates, gradients
    )


def _real(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are there: not on the meta device, and no stand-in of tracing."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    def is_real(value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            return not (value.is_meta or isinstance(value, FakeTensor))
        return value is not None

    return {name: value for name, value in values.items() if is_real(value)}
