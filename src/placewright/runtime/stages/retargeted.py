"""A stage for another device than the one its program was exported on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placewright.importers.torch.retarget import call_on
from placewright.runtime.stages.code import Call, Code
from placewright.runtime.stages.cutting import Stage
from placewright.runtime.stages.targets import function_of, name_of

if TYPE_CHECKING:
    import torch


def stage_on(stage: Stage, device: torch.device) -> Stage:
    """The same stage with all its tensors on `device`; names, transfers and results stay."""
    return replace(stage, code=_code_on(stage.code, device))


def _code_on(code: Code, device: torch.device) -> Code:
    steps = (_call_on(step, device) if isinstance(step, Call) else step for step in code.steps)
    return replace(code, steps=tuple(steps))


def _call_on(call: Call, device: torch.device) -> Call:
    target, args, kwargs = call_on(function_of(call.target), call.args, call.kwargs, device)
    return replace(
        call,
        target=name_of(target, call.name),
        args=tuple(_body_on(each, device) for each in args),
        kwargs={name: _body_on(each, device) for name, each in kwargs.items()},
    )


def _body_on(value: Any, device: torch.device) -> Any:
    return _code_on(value, device) if isinstance(value, Code) else value
