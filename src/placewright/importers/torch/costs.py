"""What one node of an ATen program costs: FLOPs and memory traffic, from shapes alone.

FLOPs are counted by torch's own registry (`torch.utils.flop_counter`), a multiply and an add
being two: matrix products, convolutions and attention count, elementwise work does not, for its
time is memory traffic. A composite op (`aten.linear`) is counted by tracing it on meta tensors.
No formula is evaluated on data, and nothing is run on a device.

Memory traffic is every input once plus every output once, in bytes, with these exceptions: a
view costs nothing; a broadcast dimension (stride 0) is read once; a gather (an embedding) reads
as many bytes of its table as it writes; a grouped product reads the groups that its rows can be
expected to reach; of a tensor that is overwritten, or is there for its shape, nothing is read.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placewright.errors import GraphError
from placewright.importers.costs import Cost
from placewright.importers.torch import kernels

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

# Aliasing, or uninitialised memory: no traffic although their schema does not say so.
_FREE = {
    "aten::_unsafe_view",
    "aten::alias",
    "aten::detach",
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
}
_GATHERS = {
    "aten::embedding",
    "aten::embedding_bag",
    "aten::_embedding_bag",
    "aten::gather",
    "aten::index",
    "aten::index_select",
    "aten::take",
}
_GROUPED = {
    "aten::_grouped_mm",
    "aten::_scaled_grouped_mm",
    "transformers::grouped_mm_fallback",
    "transformers::grouped_mm_fallback_backward",
}
_ROUTERS = {"aten::linear", "aten::matmul", "aten::mm"}
"""What makes the scores that experts are chosen by: before them nothing is chosen."""
_READ_FOR_SHAPE = {
    "aten::copy",
    "aten::fill",
    "aten::full_like",
    "aten::new_full",
    "aten::new_ones",
    "aten::new_zeros",
    "aten::ones_like",
    "aten::zero",
    "aten::zeros_like",
}
"""Ops that look at the shape of their first input only."""
_BUILT_IN = ("aten", "prims", "quantized_decomposed", "higher_order")


def tensors_in(value: Any) -> list[Any]:
    """The tensors in a node's ``meta["val"]``: a tensor, or nested sequences of them."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors_in(each)]
    return []


def size_of(value: Any) -> float:
    """Bytes of all tensors in a ``meta["val"]``, dense."""
    return float(sum(_numel(tensor) * tensor.element_size() for tensor in tensors_in(value)))


def is_view(node: Node) -> bool:
    """Whether the node's output aliases its input (or is uninitialised) and so costs nothing."""
    import torch

    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return bool(target.is_view) or op_name(target) in _FREE


def readers(node: Node) -> Iterator[Node]:
    """Those who read a call's result; an assertion only looks at its type."""
    return (user for user in node.users if user.users or user.op == "output")


class Counter:
    """Counts nodes; equal shapes are counted once, so a deep model costs as much as one layer."""

    def __init__(self) -> None:
        self._flops: dict[str, float | None] = {}

    def cost(self, node: Node) -> Cost:
        """The node's `Cost`; GraphError where a size depends on data, or for a loop."""
        import torch

        if is_view(node):
            return Cost(dtype=_dtype(node, 0.0))
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            bodies = [self._body(body) for body in _bodies(node)]
            if bodies:
                return _combine(node, bodies)
        flops = self._count(node)
        return Cost(
            flops or 0.0,
            _bytes_read(node),
            size_of(node.meta["val"]),
            _dtype(node, flops or 0.0),
            frozenset() if flops is not None else frozenset([op_name(node.target)]),
        )

    def _body(self, body: GraphModule) -> Cost:
        total = Cost()
        for node in body.graph.nodes:
            if node.op == "call_function" and node.target is not operator.getitem:
                total += self.cost(node)
        return total

    def _count(self, node: Node) -> float | None:
        import torch
        from torch.utils.flop_counter import flop_registry

        target: Any = node.target
        packet = getattr(target, "overloadpacket", target)
        name = op_name(target)
        formula = _FORMULAS.get(name) or flop_registry.get(packet)
        composite = isinstance(target, torch._ops.OpOverload) and target._can_decompose()
        if formula is None and not composite:
            return 0.0 if name.partition("::")[0] in _BUILT_IN else None
        args: Any = torch.fx.map_arg(node.args, _on_meta)
        kwargs: Any = torch.fx.map_arg(node.kwargs, _on_meta)
        key = f"{target} {_signature(args)} {_signature(kwargs)}"
        if key not in self._flops:
            self._flops[key] = (
                float(formula(*args, **kwargs, out_val=_meta_like(node.meta["val"], node)))
                if formula is not None
                else _trace(target, args, kwargs)
            )
        return self._flops[key]


def _trace(target: Any, args: Any, kwargs: Any) -> float | None:
    """FLOPs of a composite op, by torch's counter over what it decomposes into; None: unknown."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            target(*args, **kwargs)
    except (RuntimeError, NotImplementedError):  # it looks at data, which meta tensors lack
        return None
    return float(counter.get_total_flops())


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> float:
    """Scores and weighted sum of all pairs, as torch's counter has it (see `attention`)."""
    scores = math.prod(query.shape[:-1]) * key.shape[-2]
    return float(2 * scores * (query.shape[-1] + value.shape[-1]))


def _attention_backward(_grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> float:
    """Scores again, then the gradients of scores, value, query and key."""
    scores = math.prod(query.shape[:-1]) * key.shape[-2]
    return float(2 * scores * (3 * query.shape[-1] + 2 * value.shape[-1]))


def _grouped(left: Any, right: Any, *_: Any, **__: Any) -> float:
    """Rows sorted by group, each multiplied by its group's matrix: as one product of all rows.

    Where both are two-dimensional the groups divide the inner dimension instead, and where only
    the right one is, its columns: the count is the same product in each case.
    """
    return float(2 * math.prod(left.shape) * right.shape[-1])


def _matrix_vector(matrix: Any, *_: Any, **__: Any) -> float:
    return float(2 * math.prod(matrix.shape))


_FORMULAS: dict[str, Callable[..., float]] = {
    "aten::scaled_dot_product_attention": _attention,
    "aten::_scaled_dot_product_attention_math": _attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten::_int_mm": lambda left, right, **_: 2.0 * math.prod(left.shape) * right.shape[-1],
    "aten::mv": _matrix_vector,
    "aten::dot": _matrix_vector,
    "aten::vdot": _matrix_vector,
    "aten::addmv": lambda _bias, matrix, *rest, **_: _matrix_vector(matrix),
    "aten::addbmm": lambda _bias, left, right, **_: 2.0 * math.prod(left.shape) * right.shape[-1],
    **dict.fromkeys(_GROUPED, _grouped),
    "transformers::grouped_mm_fallback_backward": lambda *args, **_: 2 * _grouped(*args),
    **dict.fromkeys(kernels.OPS, kernels.flops_of),
}


def _bodies(node: Node) -> list[GraphModule]:
    """The sub-programs a higher-order op calls."""
    from torch.fx import GraphModule

    owner = node.graph.owning_module
    found = [getattr(owner, str(each.target)) for each in _attributes(node)]
    return [each for each in found if isinstance(each, GraphModule)]


def _attributes(node: Node) -> Iterator[Node]:
    return (each for each in node.all_input_nodes if each.op == "get_attr")


def _combine(node: Node, bodies: Sequence[Cost]) -> Cost:
    """A branch costs as much as the dearer arm, a wrapper as much as what it wraps."""
    if node.name.startswith(("while_loop", "scan", "associative_scan", "map_impl")):
        raise GraphError(
            f"op '{node.name}' repeats its body a number of times that no shape tells; "
            "unroll the loop in the model"
        )
    dearest = max(bodies, key=lambda cost: (cost.flops, cost.bytes_read + cost.bytes_written))
    return replace(
        dearest,
        bytes_read=max(cost.bytes_read for cost in bodies),
        bytes_written=max(cost.bytes_written for cost in bodies),
    )


def _bytes_read(node: Node) -> float:
    return sum(bytes_of_inputs(node), 0.0)


def bytes_of_inputs(node: Node) -> list[float]:
    """Bytes that a call reads of each of its input nodes."""
    found = []
    name = op_name(node.target)
    written = size_of(node.meta["val"])
    for position, source in enumerate(node.all_input_nodes):
        amount = _touched(source)
        if position == 0 and name in _READ_FOR_SHAPE:
            amount = 0.0
        elif position == 0 and name in _GATHERS:
            amount = min(amount, written)
        elif position == 1 and name in _GROUPED:
            amount *= _reached_groups(node)
        found.append(amount)
    return found


def _touched(source: Node) -> float:
    """Bytes an op reads of one input: broadcast dimensions are there only once."""
    total = 0.0
    for tensor in tensors_in(source.meta.get("val")):
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        kept = [_concrete(size, source) for size, stride in sizes if stride != 0]
        total += float(math.prod(kept)) * tensor.element_size()
    return total


def _reached_groups(node: Node) -> float:
    """The share of a grouped product's matrices that its rows can be expected to reach.

    Each token takes some of them, all as likely as one another.
    """
    rows, groups = (tensors_in(source.meta["val"])[0].shape for source in node.all_input_nodes[:2])
    if len(rows) != 2 or len(groups) != 3:
        return 1.0
    count, all_groups = _concrete(rows[0], node), max(_concrete(groups[0], node), 1)
    chosen = min(_chosen_of_each_token(node, count), all_groups)
    return 1.0 - float((1.0 - chosen / all_groups) ** (count / chosen))


def _chosen_of_each_token(node: Node, rows: int) -> int:
    """How many groups a token takes, by the nearest ``topk`` of so many rows; 1 without any."""
    looked: dict[Node, None] = dict.fromkeys(node.all_input_nodes[2:])
    for each in (waiting := list(looked)):
        if each.op != "call_function" or op_name(each.target) in _ROUTERS:
            continue
        if op_name(each.target) == "aten::topk":
            shape = tensors_in(each.meta["val"])[0].shape
            if math.prod(_concrete(size, each) for size in shape) == rows:
                return max(_concrete(shape[-1], each), 1)
        waiting += [source for source in each.all_input_nodes if source not in looked]
        looked |= dict.fromkeys(each.all_input_nodes)
    return 1


def _dtype(node: Node, flops: float) -> str:
    """A product works in the type of its first operand, any other op in that of its output.

    Convolutions of fp32 are TF32's where a device has it: PyTorch lets cuDNN do that unless it is
    told otherwise (``torch.backends.cudnn.allow_tf32``), and products of matrices not.
    """
    import torch

    if op_name(node.target) in kernels.POINTWISE:
        return "fp32"
    names = {
        torch.float64: "fp64",
        torch.complex128: "fp64",
        torch.float32: "fp32",
        torch.complex64: "fp32",
        torch.bfloat16: "bf16",
        torch.float16: "fp16",
        torch.int8: "int8",
        torch.uint8: "int8",
    }

    def name(tensor: Any) -> str | None:
        if str(tensor.dtype).startswith("torch.float8"):
            return "fp8"
        return names.get(tensor.dtype)

    inputs = [t for source in node.all_input_nodes for t in tensors_in(source.meta.get("val"))]
    outputs = tensors_in(node.meta["val"])
    ordered = [*inputs, *outputs] if flops else [*outputs, *inputs]
    found = [name(tensor) for tensor in ordered]
    floating = [each for each in found if each and (each != "int8" or flops)]
    dtype = floating[0] if floating else "fp32"
    convolves = flops > 0 and "conv" in op_name(node.target)
    return "tf32" if convolves and dtype == "fp32" else dtype


def op_name(target: Any) -> str:
    """``aten::linear`` for every overload of aten.linear; the plain name of anything else."""
    schema = getattr(target, "_schema", None)
    return str(schema.name) if schema is not None else f"higher_order::{target}"


def _concrete(size: Any, node: Node) -> int:
    """An int from a size that may be symbolic: then its value for the example inputs."""
    if isinstance(size, int):
        return size
    if not size.node.has_hint():
        raise GraphError(
            f"op '{node.name}' has a size that depends on data; export the model with static shapes"
        )
    return int(size.node.hint)


def _numel(tensor: Any) -> int:
    numel = tensor.numel()
    if isinstance(numel, int):
        return numel
    if not numel.node.has_hint():
        raise GraphError(
            f"a tensor of shape {tuple(tensor.shape)} has a size that depends on data; "
            "export the model with static shapes"
        )
    return int(numel.node.hint)


def _on_meta(source: Node) -> Any:
    return _meta_like(source.meta.get("val"), source)


def _meta_like(value: Any, node: Node) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return torch.empty_strided(
            [_concrete(size, node) for size in value.shape],
            [_concrete(stride, node) for stride in value.stride()],
            dtype=value.dtype,
            device="meta",
        )
    if isinstance(value, (list, tuple)):
        return type(value)(_meta_like(each, node) for each in value)
    if isinstance(value, torch.SymInt):
        return _concrete(value, node)
    return value


def _signature(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return "(" + ",".join(_signature(each) for each in value) + ")"
    if isinstance(value, dict):
        return ",".join(f"{key}={_signature(each)}" for key, each in value.items())
    return repr(value)
