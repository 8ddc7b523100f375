"""Parts of a forward that run under `torch.no_grad`, as calls of a training program.

Autograd does not look into such a part, so a joint program of forward and backward is right about
it. But nothing in the program says so, and a pipeline, which replays the forward calls with
autograd, would send gradients through it. So what such a part makes of weights is detached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def detach_no_gradients(module: GraphModule) -> None:
    """Put a `detach` behind all that parts without gradients make of what needs a gradient."""
    import torch

    needing: set[Node] = set()
    for node in module.graph.nodes:
        sources = node.all_input_nodes
        if node.op == "get_attr":
            value = _attribute(module, node)
            if isinstance(value, torch.Tensor) and value.requires_grad:
                needing.add(node)
        elif node.op != "call_function" or needing.isdisjoint(sources):
            continue
        elif not _is_without(node):
            if node.target is not torch.ops.aten.detach.default:
                needing.add(node)
        else:
            _detach_outputs(_attribute(module, node.args[1]))


def _is_without(node: Node) -> bool:
    """Whether a call runs its body under `torch.no_grad`."""
    import torch

    return node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and not node.args[0]


def _attribute(module: GraphModule, node: Any) -> Any:
    value: Any = module
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value


def _detach_outputs(body: GraphModule) -> None:
    import torch

    output = body.graph.output_node()

    def detached(value: Node) -> Node:
        if value.op == "placeholder":  # given back as it came, gradients and all
            return value
        with body.graph.inserting_before(output):
            return body.graph.call_function(torch.ops.aten.detach.default, (value,))

    output.args = torch.fx.map_arg(output.args, detached)
    body.recompile()
