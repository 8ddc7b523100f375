"""From an FX graph of ATen calls to a `Graph`: what forward programs and joint programs share.

One op per call that makes tensors, under the call's own name. Everything else is folded into an
op: `getitem` into the op whose output it picks (each output is a tensor of that op), size
queries and assertions into the op whose output they look at.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from placewright.errors import GraphError, PlacewrightWarning
from placewright.graph import Graph, GraphBuilder
from placewright.importers.costs import Cost, uncounted_remark
from placewright.importers.torch import costs as torch_costs
from placewright.importers.torch import in_place
from placewright.importers.torch.attention import Attention, attention_of
from placewright.importers.torch.sharing import Sharing, Use
from placewright.importers.torch.signature import signature
from placewright.units import printable

if TYPE_CHECKING:
    from torch.fx import Graph as FxGraph
    from torch.fx import Node

Shared = Literal["colocate", "copy"]


@dataclass(frozen=True)
class Weight:
    """A parameter, buffer or constant: `key` is equal for all names of one memory.

    `bytes` are those it is kept in, `scale` times those of its type in the program: below 1 for
    quantised weights. A parameter may be trained; buffers and constants are none.
    """

    name: str
    key: Any
    bytes: float
    scale: float = 1.0
    is_parameter: bool = True


@dataclass(frozen=True)
class Caches:
    """What a program keeps: the placeholders that it comes in by, and the bytes ops keep of it.

    On a device the KV cache is not copied but appended to: an op that reads one of `inputs` moves
    what is new. `states` are read whole. With `is_served` attention costs what kernels of engines
    that serve take.
    """

    inputs: frozenset[str] = frozenset()
    kept: Mapping[str, float] = field(default_factory=dict)
    states: frozenset[str] = frozenset()
    is_served: bool = False


NO_CACHES = Caches()


@dataclass
class Program:
    """An FX graph with what its metadata means.

    `weights` maps placeholder names; `twins` maps each backward call to a forward call (or None
    where there is none); ``gradients[key]`` are the first call that reads a weight that is trained,
    and those that make its gradient.
    """

    name: str
    graph: FxGraph
    weights: Mapping[str, Weight]
    twins: Mapping[str, str | None] = field(default_factory=dict)
    gradients: Mapping[Any, Sequence[str]] = field(default_factory=dict)
    module_prefix: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    caches: Caches = NO_CACHES


def fold(graph: FxGraph) -> dict[str, str | None]:
    """For every node but the output, the op it is part of; None for inputs and weights."""
    owner: dict[str, str | None] = {}
    for node in graph.nodes:
        if node.op == "call_function" and _makes_tensors(node):
            owner[node.name] = node.name
        elif node.op != "output":
            owners = (owner[source.name] for source in node.all_input_nodes)
            owner[node.name] = next((each for each in owners if each is not None), None)
    return owner


def same_memory(tensor: Any) -> Any:
    """A key that two tensors share exactly when they are the same values in the same memory."""
    storage = tensor.untyped_storage()._cdata
    return storage, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())


def build(program: Program, shared: Shared = "colocate") -> Graph:
    """The program's `Graph`.

    A weight that several ops read is counted at the first and keeps them all on one device
    (`shared="colocate"`), or is counted at each, which may then be anywhere (`"copy"`). What
    training does not train (buffers, frozen parameters) is state: it has no gradients. Parameters
    that no op reads are loaded too, and so counted (`_unread`).
    """
    weights = Sharing(_weight_uses(program), program.twins, program.gradients)
    apart = shared == "copy"
    builder = GraphBuilder(program.name)
    held = weights.held_apart() if apart else weights.held()
    frozen, unread = weights.frozen(), _unread(program, weights.uses)
    for op, amount in unread.items():
        held[op] = held.get(op, 0.0) + amount
        if program.gradients:
            frozen[op] = frozen.get(op, 0.0) + amount
    ops, unknown = _add_ops(program, builder, held, frozen)
    if not ops:
        raise GraphError(f"{program.name}: the program computes nothing; export a model with ops")
    for op, group in (weights.copy_groups if apart else weights.groups()).items():
        builder.colocate(ops[op], group)
    if not apart:
        weights.say_copies(builder, ops)
    for backward, forward in program.twins.items():
        if forward is not None:
            builder.set_twin(ops[backward], ops[forward])
    builder.attributes |= dict(program.attributes)
    if unread:
        builder.attributes["unread_parameter_bytes"] = sum(unread.values())
    if unknown:
        builder.attributes["flops_unknown"] = sorted(unknown)
        remark = f"{program.name}: {uncounted_remark(unknown)}"
        warnings.warn(printable(remark), PlacewrightWarning, stacklevel=2)
    return builder.build()


def module_path(node: Node, prefix: str = "") -> str:
    """Dotted path of the module a call came from, such as ``transformer.h.3.attn``."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    entries = [entry[0] if isinstance(entry, tuple) else entry for entry in stack.values()]
    path = re.sub(r"@\d+", "", str(entries[-1])) if entries else ""
    return f"{path}.".removeprefix(prefix).rstrip(".")


def _modules(program: Program) -> dict[str, str]:
    """Call → the path of its module; of its weights where torch kept none of numbered modules.

    A region of `torch.autocast` is exported as one call, of the module that it is in, and taken
    apart later: then only weights tell which layer a call was of.
    """
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    found = {node.name: module_path(node, program.module_prefix) for node in calls}
    if any(_is_numbered(path) for path in found.values()):
        return found
    home = {
        name: weight.name.removeprefix(program.module_prefix).rpartition(".")[0]
        for name, weight in program.weights.items()
    }
    for node in calls:
        read = [home[source.name] for source in node.all_input_nodes if source.name in home]
        inside = (each for each in read if f"{each}.".startswith(found[node.name]))
        found[node.name] = next(filter(None, inside), found[node.name])
        if read and len(read) == len(node.all_input_nodes):
            home[node.name] = read[0]  # a weight still: turned, or of another type
    return found


def _is_numbered(path: str) -> bool:
    return any(part.isdigit() for part in path.split("."))


def _makes_tensors(node: Node) -> bool:
    if node.target is operator.getitem:
        return False
    return bool(torch_costs.tensors_in(node.meta.get("val")))


def _add_ops(
    program: Program,
    builder: GraphBuilder,
    resident: Mapping[str, float],
    frozen: Mapping[str, float],
) -> tuple[dict[str, int], set[str]]:
    """The ops by name, and the types of those whose FLOPs nobody can count."""
    counter = torch_costs.Counter()
    scales = _scales(program)
    weights = set(program.weights)
    modules = _modules(program)
    attention = _attention(program)
    ops: dict[str, int] = {}
    outputs: dict[str, list[int]] = {}
    unknown: set[str] = set()
    for node in program.graph.nodes:
        if node.op == "output" or node.name in outputs:
            continue
        sources = [tensor for each in node.all_input_nodes for tensor in outputs[each.name]]
        if node.op != "call_function" or not _makes_tensors(node):
            outputs[node.name] = sources
            continue
        _refuse_mutation(node, program.name)
        cost = _as_kept(counter.cost(node), node, program.caches, scales, attention)
        if cost.uncounted:
            unknown.add(_type(node))
        ops[node.name] = builder.add_op(
            node.name,
            _type(node),
            sources,
            flops=cost.flops,
            bytes_read=cost.bytes_read,
            bytes_written=cost.bytes_written,
            parameter_bytes=resident.get(node.name, 0.0) - frozen.get(node.name, 0.0),
            state_bytes=program.caches.kept.get(node.name, 0.0) + frozen.get(node.name, 0.0),
            dtype=cost.dtype,
            module=modules[node.name],
            backward=node.name in program.twins,
            signature="" if _reads_scaled(node, scales) else signature(node),
        )
        made = attention.made
        if _is_part_of_weight(node, weights):
            weights.add(node.name)
            made = {each.name: 0.0 for each in (node, *node.users)}
        _add_tensors(builder, node, ops[node.name], outputs, made)
    return ops, unknown


def _attention(program: Program) -> Attention:
    caches = program.caches
    cached = caches.kept if caches.inputs else {}
    return attention_of(program.graph, cached if caches.is_served else None)


def _is_part_of_weight(node: Node, weights: Collection[str]) -> bool:
    """Whether it is a view of a weight, or of a view of one.

    Its readers are where the weight is (`Sharing`), so it is never sent, and has no memory besides.
    """
    if not torch_costs.is_view(node) or not node.all_input_nodes:
        return False
    return all(source.name in weights for source in node.all_input_nodes)


def _scales(program: Program) -> dict[str, float]:
    """Of every weight kept in other bytes than the program's, and each view of one, the share."""
    found = {name: each.scale for name, each in program.weights.items() if each.scale != 1.0}
    for node in program.graph.nodes:
        if found and node.op == "call_function" and torch_costs.is_view(node):
            sources = [each.name for each in node.all_input_nodes if each.name in found]
            if sources:
                found[node.name] = found[sources[0]]
    return found


def _reads_scaled(node: Node, scales: Mapping[str, float]) -> bool:
    return any(source.name in scales for source in node.all_input_nodes)


def _as_kept(
    cost: Cost, node: Node, caches: Caches, scales: Mapping[str, float], attention: Attention
) -> Cost:
    """The cost in the model itself: weights as they are kept, writes in place, kernels."""
    if caches.inputs.intersection(source.name for source in node.all_input_nodes):
        new = (each for each in node.all_input_nodes if each.name not in caches.inputs)
        moved = sum((torch_costs.size_of(each.meta.get("val")) for each in new), 0.0)
        return replace(cost, bytes_read=moved, bytes_written=moved)
    call = attention.calls.get(node.name)
    if call is not None:
        flops, read = cost.flops * call.share, sum(call.read)
        cost = replace(cost, flops=flops, bytes_read=read, bytes_written=call.written)
    elif moved_by_model := in_place.traffic(node):
        return replace(cost, bytes_read=moved_by_model[0], bytes_written=moved_by_model[1])
    if not _reads_scaled(node, scales) or torch_costs.is_view(node):
        return cost
    amounts = torch_costs.bytes_of_inputs(node) if call is None else call.read
    spared = sum(
        amount * (1.0 - scales.get(source.name, 1.0))
        for source, amount in zip(node.all_input_nodes, amounts, strict=True)
    )
    return replace(cost, bytes_read=max(cost.bytes_read - spared, 0.0))


def _add_tensors(
    builder: GraphBuilder,
    node: Node,
    op: int,
    outputs: dict[str, list[int]],
    made: Mapping[str, float],
) -> None:
    """One tensor for a single output; one per picked output where there are several.

    It has the bytes that it says, or those of its name in `made`.
    """

    def size(name: str, value: Any) -> float:
        return made[name] if name in made else torch_costs.size_of(value)

    value = node.meta["val"]
    if not isinstance(value, (list, tuple)):
        outputs[node.name] = [builder.add_tensor(op, size(node.name, value), node.name)]
        return
    by_position: dict[int, int] = {}
    for user in node.users:
        if user.target is operator.getitem:
            position = user.args[1]
            assert isinstance(position, int)
            position %= len(value)
            if position not in by_position:
                amount = size(user.name, value[position])
                by_position[position] = builder.add_tensor(op, amount, user.name)
            outputs[user.name] = [by_position[position]]
    if any(user.target is not operator.getitem for user in node.users):
        for position, each in enumerate(value):
            if position not in by_position and torch_costs.tensors_in(each):
                name = f"{node.name}.{position}"
                amount = size(node.name, each)
                by_position[position] = builder.add_tensor(op, amount, name)
    outputs[node.name] = list(by_position.values())


def _refuse_mutation(node: Node, name: str) -> None:
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        raise GraphError(
            f"{name}: op '{node.name}' ({_type(node)}) writes into its input; "
            "make the program functional with program.run_decompositions({})"
        )


def _type(node: Node) -> str:
    """``aten.linear`` for aten.linear.default; the overload matters to nobody who plans."""
    schema = getattr(node.target, "_schema", None)
    return schema.name.replace("::", ".") if schema is not None else str(node.target)


def _unread(program: Program, uses: Mapping[Any, Use]) -> dict[str, float]:
    """Bytes of parameters that no op reads, such as a vision tower's where there are no images.

    Engines load them where the module around them is: at the first op that reads a weight there.
    """
    modules = _modules(program)
    readers = {use.first: modules[use.first] for use in uses.values()}
    unread = {
        weight.key: weight
        for weight in program.weights.values()
        if weight.is_parameter and weight.key not in uses
    }
    found: dict[str, float] = {}
    for weight in unread.values() if readers else ():
        path = weight.name.removeprefix(program.module_prefix).rpartition(".")[0]
        while not (inside := [op for op in readers if _is_within(readers[op], path)]):
            path = path.rpartition(".")[0]
        found[inside[0]] = found.get(inside[0], 0.0) + weight.bytes
    return found


def _is_within(module: str, path: str) -> bool:
    return not path or module == path or module.startswith(f"{path}.")


def _weight_uses(program: Program) -> dict[Any, Use]:
    uses: dict[Any, Use] = {}
    owner = fold(program.graph)
    held: dict[str, list[tuple[Use, str]]] = {}  # view of a weight → (the weight's use, holder)
    for node in program.graph.nodes:
        reader = owner.get(node.name)
        if reader is None:
            continue
        found: list[tuple[Use, str]] = []
        for source in node.all_input_nodes:
            weight = program.weights.get(source.name)
            if weight is not None:
                found.append((uses.setdefault(weight.key, Use(weight.bytes)), reader))
            found += held.get(source.name, [])
        for use, holder in found:
            use.add(holder, reader)
        if node.target is operator.getitem or torch_costs.is_view(node):
            held[node.name] = found
    return uses
