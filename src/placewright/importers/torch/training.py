"""Forward and backward of a module as one graph: the joint program of AOTAutograd.

The joint program calls the ATen ops of one training step (without the optimizer's): outputs are
the loss, a gradient per parameter, and the new values of buffers that the forward updates.
`TrainingProgram.run` computes them, so that the graph can be shown to be the model's.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placewright.errors import ExecutionError, GraphError, OptionError, PlacewrightWarning
from placewright.graph import Graph
from placewright.importers.torch import activation_checkpoints, own_derivatives, tracing
from placewright.importers.torch import costs as torch_costs
from placewright.importers.torch import graph as torch_graph
from placewright.importers.torch.graph import Program, Weight
from placewright.importers.torch.no_gradients import detach_no_gradients
from placewright.importers.torch.recurrent import written_out_lstms
from placewright.units import printable

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Graph as FxGraph
    from torch.fx import GraphModule, Node

_PREFIX = "model."  # the attribute of `_loss_module` that holds the user's module


@dataclass(frozen=True)
class Step:
    """What one training step gives; names are the module's own (`transformer.wte.weight`)."""

    loss: torch.Tensor
    gradients: dict[str, torch.Tensor]
    updates: dict[str, torch.Tensor]


@dataclass(frozen=True)
class TrainingProgram:
    """A joint forward and backward program.

    `state` maps names of parameters and buffers; `inputs` names the flattened arguments.
    """

    graph_module: GraphModule
    state: Mapping[str, torch.Tensor]
    inputs: tuple[str, ...]

    @property
    def graph(self) -> FxGraph:
        return self.graph_module.graph

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Step:
        """One step on `args` and `kwargs`, with the parameters the module had when exported.

        A weight under several names has its gradient under the one the program reads.
        ExecutionError for a module that was exported without memory (on meta).
        """
        import torch
        from torch._subclasses.fake_tensor import FakeTensor
        from torch.utils._pytree import tree_leaves

        if any(isinstance(tensor, FakeTensor) for tensor in self.state.values()):
            raise ExecutionError(
                "this training program has no weights (its module was on the meta device); "
                "export the module with real weights to run it"
            )
        leaves = tree_leaves((tuple(args), dict(kwargs or {})))
        inputs = [self._input(node, leaves) for node in self.graph.find_nodes(op="placeholder")]
        interpreter = torch.fx.Interpreter(self.graph_module)
        with torch.no_grad():
            outputs = interpreter.run(*inputs, enable_io_processing=False)
        return self._step(outputs)

    def _input(self, node: Node, leaves: list[Any]) -> Any:
        from torch._functorch._aot_autograd import descriptors

        meaning = node.meta["desc"]
        if isinstance(meaning, descriptors.PlainAOTInput):
            return leaves[meaning.idx]
        if isinstance(meaning, descriptors.TangentAOTInput):
            import torch

            value = node.meta["val"]
            return torch.ones(value.shape, dtype=value.dtype)
        return self.state[weight_name(meaning)]

    def _step(self, outputs: Sequence[Any]) -> Step:
        loss, gradients, updates = outputs_of(self)
        return Step(
            outputs[loss],
            {name: outputs[position] for name, position in gradients.items()},
            {name: outputs[position] for name, position in updates.items()},
        )


def outputs_of(program: TrainingProgram) -> tuple[int, dict[str, int], dict[str, int]]:
    """Positions among the flat outputs: of the loss, of gradients and of updates by weight."""
    from torch._functorch._aot_autograd import descriptors

    node = _output(program.graph)
    values = node.args[0]
    assert isinstance(values, (list, tuple))
    losses, gradients, updates = [], {}, {}
    for position, (meaning, value) in enumerate(zip(node.meta["desc"], values, strict=True)):
        if isinstance(meaning, descriptors.PlainAOTOutput):
            losses.append(position)
        elif isinstance(meaning, descriptors.GradAOTOutput) and value is not None:
            if isinstance(meaning.grad_of, descriptors.ParamAOTInput):  # else an input's
                gradients[weight_name(meaning.grad_of)] = position
        elif isinstance(meaning, descriptors.InputMutationAOTOutput):
            updates[weight_name(meaning.mutated_input)] = position
    return losses[0], gradients, updates


def export_training(
    module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> TrainingProgram:
    """The joint program of `module` in train mode; it must return a scalar loss or a `.loss`.

    Works on real modules and on meta ones (see `tracing.without_meta`). OptionError where
    there is no loss, GraphError where torch cannot follow the module or nothing is trainable.
    """
    tracing.import_torch("exporting a torch module")
    import torch
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    name = type(module).__name__
    module, args, kwargs = _detached(*tracing.without_meta(module, args, kwargs or {}))
    with tracing.mode_of(module, training=True), tracing.tracing(name):
        with (
            activation_checkpoints.without_checkpoints() as checkpointed,
            own_derivatives.own_derivatives() as stated,
        ):
            program = torch.export.export(_loss_module(module), args, kwargs, strict=False)
        forward = program.module(check_guards=False)
        detach_no_gradients(forward)
        with contextlib.ExitStack() as stack, written_out_lstms():
            joint = aot_export_joint_with_descriptors(
                stack,
                forward,
                args,
                kwargs,
                _record_nn_module_stack=True,
            )
    if checkpointed:
        _warn(name, activation_checkpoints.remark(len(checkpointed)))
    if stated:
        _warn(name, own_derivatives.remark(stated))
    if not any(_is_backward(node) for node in joint.graph_module.graph.nodes):
        raise GraphError(
            f"{name}: its training program has no backward ops; "
            "at least one parameter must require a gradient"
        )
    state = {_name(key): value for key, value in program.state_dict.items()}
    state |= {_name(key): value for key, value in program.constants.items()}
    inputs = tuple(_input_names(program))
    return TrainingProgram(joint.graph_module, state, inputs)


def _detached(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tracing.Arguments:
    """The same, inputs without gradients: a step has no use for these, whatever examples ask."""
    import torch
    from torch.utils._pytree import tree_map

    def detached(value: Any) -> Any:
        return value.detach() if isinstance(value, torch.Tensor) else value

    return module, tree_map(detached, args), tree_map(detached, kwargs)


def _warn(name: str, remark: str) -> None:
    warnings.warn(printable(f"{name}: {remark}"), PlacewrightWarning, stacklevel=3)


def graph_from_training(program: TrainingProgram, name: str) -> Graph:
    """The `Graph` of a joint program.

    A backward op's twin is the forward op whose derivative it computes part of. The ops that
    read a parameter, forward and backward, and those that make its gradient share a device.
    """
    weights = _weights(program)
    return torch_graph.build(
        Program(
            name,
            program.graph,
            weights,
            twins=_twins(program.graph, weights),
            gradients=_gradient_groups(program.graph, weights),
            module_prefix=_PREFIX,
            attributes=_attributes(program, weights),
        )
    )


def _loss_module(module: torch.nn.Module) -> torch.nn.Module:
    import torch

    class Loss(torch.nn.Module):
        """Returns the loss alone; other outputs would each ask for a gradient."""

        def __init__(self) -> None:
            super().__init__()
            self.model = module

        def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            return _loss_of(self.model(*args, **kwargs), type(module).__name__)

    return Loss()


def _loss_of(output: Any, name: str) -> torch.Tensor:
    import torch

    loss = output if isinstance(output, torch.Tensor) else getattr(output, "loss", None)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.is_floating_point():
        raise OptionError(
            f"{name} returns no loss; for training its forward must return a scalar "
            "floating-point tensor, or an object whose .loss is one (pass it labels)"
        )
    return loss


# -- what the metadata means -----------------------------------------------------------------


def _name(target: str) -> str:
    return target.removeprefix(_PREFIX)


def weight_name(meaning: Any) -> str:
    """The name of the parameter or buffer that an input's descriptor means."""
    return _name(meaning.target)


def _output(graph: FxGraph) -> Node:
    return graph.output_node()


def _is_backward(node: Node) -> bool:
    return node.op == "call_function" and node.meta.get("partitioner_tag") == "is_backward"


def _input_names(program: ExportedProgram) -> list[str]:
    from torch.export.graph_signature import InputKind

    specs = program.graph_signature.input_specs
    return [spec.arg.name for spec in specs if spec.kind == InputKind.USER_INPUT]


def _weights(program: TrainingProgram) -> dict[str, Weight]:
    from torch._functorch._aot_autograd import descriptors

    weights = {}
    for node in program.graph.find_nodes(op="placeholder"):
        target = getattr(node.meta["desc"], "target", None)
        if target is not None:
            name = _name(target)
            tensor = program.state[name]
            key = torch_graph.same_memory(tensor)
            is_parameter = isinstance(node.meta["desc"], descriptors.ParamAOTInput)
            weights[node.name] = Weight(
                name, key, torch_costs.size_of(tensor), is_parameter=is_parameter
            )
    return weights


def _attributes(program: TrainingProgram, weights: Mapping[str, Weight]) -> dict[str, Any]:
    from torch._functorch._aot_autograd import descriptors

    parameters: dict[Any, int] = {}
    inputs: dict[str, list[int]] = {}
    for node in program.graph.find_nodes(op="placeholder"):
        meaning = node.meta["desc"]
        if isinstance(meaning, descriptors.ParamAOTInput):
            weight = weights[node.name]
            parameters[weight.key] = program.state[weight.name].numel()
        elif torch_costs.tensors_in(node.meta.get("val")) and hasattr(meaning, "idx"):
            inputs[program.inputs[meaning.idx]] = tracing.input_shape(node.meta["val"])
    return tracing.facts(sum(parameters.values()), inputs)


def _twins(graph: FxGraph, weights: Mapping[str, Weight]) -> dict[str, str | None]:
    """For each backward op its forward op.

    Autograd gives a forward op and its derivative one sequence number. Ops that follow without a
    derivative of their own carry the same number, so the first forward op is meant. An op that
    adds gradients up carries none of its own, and the derivative of an op that was in place one
    that no op has any more: these belong to the op whose output's gradient they make, which is
    the last of the twins of those that read it (others add further gradients up), or, for a
    parameter, the first op that reads that.
    """
    owner = torch_graph.fold(graph)
    first: dict[int, str] = {}
    for node in graph.nodes:
        number = node.meta.get("seq_nr")
        if number is not None and owner.get(node.name) == node.name and not _is_backward(node):
            first.setdefault(number, node.name)
    readers = _first_readers(graph, weights, owner)
    place = {node.name: position for position, node in enumerate(graph.nodes)}
    twins: dict[str, str | None] = {}
    for node in reversed(graph.nodes):
        if not _is_backward(node) or owner[node.name] != node.name:
            continue
        twin = None if node.meta.get("is_gradient_acc") else first.get(node.meta.get("seq_nr", -1))
        twins[node.name] = twin or _twin_of_readers(node, twins, readers, owner, place)
    return dict(reversed(twins.items()))


def _twin_of_readers(
    node: Node,
    twins: Mapping[str, str | None],
    readers: Mapping[str, str],
    owner: Mapping[str, str | None],
    place: Mapping[str, int],
) -> str | None:
    if node.name in readers:
        return readers[node.name]
    users = (owner.get(user.name) for user in node.users)
    found = (twins.get(user) for user in users if user is not None)
    return max((twin for twin in found if twin is not None), key=place.__getitem__, default=None)


def _first_readers(
    graph: FxGraph, weights: Mapping[str, Weight], owner: Mapping[str, str | None]
) -> dict[str, str]:
    """For each node that is a parameter's gradient, the first op that reads the parameter."""
    by_name = {weights[node].name: node for node in weights}
    placeholders = {node.name: node for node in graph.find_nodes(op="placeholder")}
    readers = {}
    for gradient, name in _gradients(graph):
        users = (owner.get(user.name) for user in placeholders[by_name[name]].users)
        reader = next((user for user in users if user is not None), None)
        if reader is not None:
            readers[gradient.name] = reader
    return readers


def _gradient_groups(graph: FxGraph, weights: Mapping[str, Weight]) -> dict[Any, list[str]]:
    """By key, each parameter's first reader with the ops that make its gradient.

    From the output backwards, through views and through sums of gradients.
    """
    owner = torch_graph.fold(graph)
    readers = _first_readers(graph, weights, owner)
    key = {weight.name: weight.key for weight in weights.values()}
    groups: dict[Any, list[str]] = {}
    for gradient, name in _gradients(graph):
        if gradient.name in readers:
            makers = (owner[node.name] for node in _makers(gradient))
            group = groups.setdefault(key[name], [readers[gradient.name]])
            group += [each for each in makers if each is not None and each not in group]
    return groups


def _makers(gradient: Node) -> Iterable[Node]:
    waiting, seen = [gradient], {gradient.name}
    while waiting:
        node = waiting.pop()
        yield node
        if torch_costs.is_view(node) or node.meta.get("is_gradient_acc"):
            fresh = [each for each in node.all_input_nodes if each.name not in seen]
            waiting += [each for each in fresh if _is_backward(each)]
            seen.update(each.name for each in fresh)


def _gradients(graph: FxGraph) -> list[tuple[Node, str]]:
    """The gradient nodes of parameters, with the parameters' names."""
    from torch._functorch._aot_autograd import descriptors

    output = _output(graph)
    values = output.args[0]
    assert isinstance(values, (list, tuple))
    return [
        (value, weight_name(meaning.grad_of))
        for value, meaning in zip(values, output.meta["desc"], strict=True)
        if isinstance(meaning, descriptors.GradAOTOutput)
        and isinstance(meaning.grad_of, descriptors.ParamAOTInput)
        and value is not None
    ]
