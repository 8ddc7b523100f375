"""PyTorch programs as graphs: `torch.export` in, `Graph` out.

>>> import torch
>>> layer = torch.nn.Linear(4, 2)
>>> graph = graph_from_module(layer, (torch.zeros(3, 4),), name="layer")
>>> graph.op_names, graph.op_types, float(graph.op_flops[0]), float(graph.op_parameter_bytes[0])
(('linear',), ('aten.linear',), 48.0, 40.0)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from placewright.graph import Graph
from placewright.importers.torch import costs as torch_costs
from placewright.importers.torch import graph as torch_graph
from placewright.importers.torch.graph import NO_CACHES, Caches, Program, Shared, Weight
from placewright.importers.torch.tracing import (
    facts,
    import_torch,
    input_shape,
    mode_of,
    tracing,
    without_meta,
)

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from placewright.importers.torch.training import TrainingProgram

    Exported = ExportedProgram | TrainingProgram


def export_inference(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> ExportedProgram:
    """`module` in eval mode as a functional ATen program, without running it.

    The same module and inputs give the same node names. A module on the meta device (or with
    meta inputs) is exported as one on the CPU whose tensors have no memory, so its program is
    the one that the real module gives; `module` itself is left as it was. GraphError where
    torch.export cannot follow the module.
    """
    import_torch("exporting a torch module")
    import torch

    module, args, kwargs = without_meta(module, args, kwargs or {})
    with mode_of(module, training=False), torch.no_grad(), tracing(type(module).__name__):
        # Without no_grad rotary embeddings would bring a sub-program that only sets the mode.
        program = torch.export.export(module, args, kwargs, strict=False)
        functional: ExportedProgram = program.run_decompositions({})
    return functional


def op_of_node(program: ExportedProgram) -> dict[str, str | None]:
    """For every FX node but the output, the graph's op it is part of; None for the inputs.

    An op has the name of its node; `getitem`, assertions and size queries belong to the op whose
    output they look at. Who cuts a program by a placement cuts it along this map.
    """
    return torch_graph.fold(program.graph)


def graph_from_program(
    program: ExportedProgram,
    name: str,
    *,
    shared: Shared = "colocate",
    stored: Mapping[str, float] = MappingProxyType({}),
    caches: Caches = NO_CACHES,
    module_prefix: str = "",
) -> Graph:
    """The `Graph` of a functional program (see `export_inference`).

    Views cost nothing; parameters, buffers and constants are counted (bytes) at the first op
    that reads them, and keep all ops that read the same one together (tied embeddings). With
    `shared="copy"` each such op has its own copy instead: an inference may then split the model
    between them. GraphError for a program that writes into its inputs.

    `stored` are the bytes that parameters are kept in, by name, where these are not those of
    their type. `caches` are inputs and calls that a KV cache is kept at. `module_prefix` is left
    out of the ops' modules.
    """
    weights = _weights(program, stored, caches)
    attributes = _attributes(program, weights, caches)
    made = Program(
        name,
        program.graph,
        weights,
        attributes=attributes,
        module_prefix=module_prefix,
        caches=caches,
    )
    return torch_graph.build(made, shared)


def graph_from_module(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    training: bool = False,
    name: str | None = None,
    shared: Shared = "colocate",
    stored: Mapping[str, float] = MappingProxyType({}),
) -> Graph:
    """The `Graph` of a module: one inference, or with `training` forward and backward.

    For training the module must return a scalar loss, or an object with a `.loss`. `stored` (of
    an inference) is as in `graph_from_program`.
    """
    name = name or type(module).__name__
    program = export_module(module, args, kwargs, training=training)
    return graph_from_exported(program, name, shared=shared, stored=stored)


def export_module(
    module: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    training: bool = False,
) -> Exported:
    """`export_inference`, or for `training` the joint program of forward and backward."""
    if training:
        from placewright.importers.torch.training import export_training

        return export_training(module, args, kwargs)
    return export_inference(module, args, kwargs)


def graph_from_exported(
    program: Exported,
    name: str,
    *,
    shared: Shared = "colocate",
    stored: Mapping[str, float] = MappingProxyType({}),
) -> Graph:
    """The `Graph` of what `export_module` gives; arguments as in `graph_from_program`."""
    from placewright.importers.torch.training import TrainingProgram, graph_from_training

    if isinstance(program, TrainingProgram):
        return graph_from_training(program, name)
    return graph_from_program(program, name, shared=shared, stored=stored)


# -- an exported program's weights and facts -------------------------------------------------


def _weights(
    program: ExportedProgram, stored: Mapping[str, float], caches: Caches
) -> dict[str, Weight]:
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    tensors = {**program.constants, **program.state_dict}
    found = {}
    for placeholder, name in names.items():
        if placeholder in caches.inputs:
            continue
        size = torch_costs.size_of(tensors[name])
        kept = stored.get(name, size)
        scale = kept / size if size else 1.0
        is_parameter = placeholder in signature.inputs_to_parameters
        key = torch_graph.same_memory(tensors[name])
        found[placeholder] = Weight(name, key, kept, scale, is_parameter)
    return found


def _attributes(
    program: ExportedProgram, weights: Mapping[str, Weight], caches: Caches
) -> dict[str, Any]:
    parameters = {
        weights[placeholder].key: program.state_dict[name].numel()
        for placeholder, name in program.graph_signature.inputs_to_parameters.items()
    }
    users = set(program.graph_signature.user_inputs) - caches.inputs - caches.states
    inputs = {
        node.name: input_shape(node.meta["val"])
        for node in program.graph.find_nodes(op="placeholder")
        if node.name in users and torch_costs.tensors_in(node.meta.get("val"))
    }
    return facts(sum(parameters.values()), inputs)
