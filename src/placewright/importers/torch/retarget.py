"""A program for another device than the one it was exported on.

An export writes devices down: ``arange(8, device=cpu)`` makes its tensor there wherever the program
runs. So each call is given the device that it is to run on, where it names one, and where it makes
a tensor of nothing and names none.

An export writes down how tensors lie in memory, too. Kernels of another device may lay theirs out
otherwise (attention does), and then a `view` of one is not possible: it is a `reshape` there, which
copies where it must.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placewright.importers.torch.programs import Executable

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule

AUTOCAST = "wrap_with_autocast"
"""The higher-order op whose first argument is the type of a device, in words."""


def on_device(executable: Executable, device: torch.device) -> Executable:
    """The same program with all its tensors on `device`; names of calls and shapes stay.

    What it holds of values stays where it is.
    """
    return replace(executable, module=module_on(executable.module, device))


def module_on(module: GraphModule, device: torch.device) -> GraphModule:
    """The same graph for tensors on `device`, those that it keeps in itself being there."""
    from torch.fx import GraphModule

    moved = GraphModule(module, copy.deepcopy(module.graph))
    _retarget(moved, device)
    return moved


def call_on(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], device: torch.device
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A call of `target`, for tensors on `device`: what is called there, and with what."""
    import torch

    moved = tuple(_moved(each, device) for each in args)
    named = {name: _moved(each, device) for name, each in kwargs.items()}
    if getattr(target, "_name", "") == AUTOCAST and moved and moved[0] == "cpu":
        moved = (device.type, *moved[1:])
    if _makes_of_nothing(target) and named.get("device") is None:
        named["device"] = device
    if target is torch.ops.aten.view.default:
        target = torch.ops.aten.reshape.default
    return target, moved, named


def _moved(value: Any, device: torch.device) -> Any:
    import torch

    if isinstance(value, torch.device):
        return device
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(each, device) for each in value)
    if isinstance(value, dict):
        return {key: _moved(each, device) for key, each in value.items()}
    return value


def _makes_of_nothing(target: Any) -> bool:
    """Whether it has an argument `device`, and none that is a tensor to be like."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return False
    arguments = {each.name: str(each.type) for each in schema.arguments}
    return "device" in arguments and not any("Tensor" in kind for kind in arguments.values())


def _retarget(module: GraphModule, device: torch.device) -> None:
    """In place; the bodies of higher-order ops are replaced, for others may call them too."""
    import torch
    from torch.fx import GraphModule

    for node in module.graph.nodes:
        if node.op == "call_function":
            node.target, node.args, node.kwargs = call_on(
                node.target, node.args, node.kwargs, device
            )
        elif node.op == "get_attr":
            value = getattr(module, str(node.target), None)
            if isinstance(value, GraphModule):
                setattr(module, str(node.target), module_on(value, device))
            elif isinstance(value, torch.Tensor):
                _hold(module, str(node.target), value.detach().to(device))
    module.recompile()


def _hold(module: GraphModule, name: str, value: torch.Tensor) -> None:
    """Under a name that may be a parameter's, which takes no plain tensor."""
    module._parameters.pop(name, None)
    module._buffers.pop(name, None)
    setattr(module, name, value)
