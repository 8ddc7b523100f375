"""Running in this process: the whole program, and how far from it what ranks gave is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten

from placewright.errors import ExecutionError, InputError
from placewright.runtime.stages import Stage

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@dataclass(frozen=True)
class Values:
    """What a program is run on.

    `weights` are the parameters, buffers and constants by their names in the module, `inputs`
    the values of the program's own inputs by placeholder.
    """

    weights: Mapping[str, Any]
    inputs: Mapping[str, Any]

    def of(self, stage: Stage) -> list[Any]:
        """In the order of the stage's ``code.inputs``."""
        weights = [self.weights[name] for name in stage.weights.values()]
        return weights + [self.inputs[name] for name in stage.inputs]


def bind(
    program: ExportedProgram, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> Values:
    """The program's weights, and `args` and `kwargs` as values of its inputs.

    The arguments must be built like those the program was exported with. InputError where they
    are not, or where there are no values, only shapes (a module on the meta device).
    """
    leaves, structure = tree_flatten((tuple(args), dict(kwargs or {})))
    if structure != program.call_spec.in_spec:
        raise InputError(
            "the inputs are not built like those the module was exported with; "
            "give the same arguments in the same order"
        )
    signature = program.graph_signature
    names = [spec.arg.name for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
    weights = {**program.constants, **program.state_dict}
    for name, value in (*weights.items(), *zip(names, leaves, strict=True)):
        if isinstance(value, torch.Tensor) and (value.is_meta or _is_fake(value)):
            raise InputError(
                f"'{name}' has a shape but no values (device meta); "
                "a factory must return real tensors for a run"
            )
    return Values(weights, dict(zip(names, leaves, strict=True)))


def _is_fake(tensor: torch.Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)


def run_single(program: ExportedProgram, values: Values) -> list[Any]:
    """The program's flat outputs, computed without any of this package's cutting."""
    inputs = []
    for spec in program.graph_signature.input_specs:
        held = values.inputs if spec.kind.name == "USER_INPUT" else values.weights
        name = spec.arg.name if held is values.inputs else spec.target
        inputs.append(held[str(name)])
    with torch.no_grad():
        return list(program.graph_module(*inputs))


def time_single(
    program: ExportedProgram, values: Values, repeats: int, threads: int
) -> tuple[list[Any], float]:
    """The outputs, and the median seconds of one run with `threads` threads after a warm-up."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        outputs = run_single(program, values)
        seconds = []
        for _ in range(repeats):
            started = time.perf_counter()
            run_single(program, values)
            seconds.append(time.perf_counter() - started)
    finally:
        torch.set_num_threads(before)
    return outputs, statistics.median(seconds)


def gather(stages: Sequence[Stage], results: Sequence[Sequence[Any]]) -> list[Any]:
    """The stages' results in the order of the program's outputs."""
    by_position = {
        position: value
        for stage, values in zip(stages, results, strict=True)
        for position, value in zip(stage.outputs, values, strict=True)
    }
    return [by_position[position] for position in sorted(by_position)]


def max_abs_difference(expected: Sequence[Any], found: Sequence[Any]) -> float:
    """The largest distance between two lists of outputs; equal NaNs and infinities are equal.

    ExecutionError where the outputs differ in number, kind, dtype or shape.
    """
    if len(expected) != len(found):
        raise ExecutionError(f"the run gave {len(found)} outputs instead of {len(expected)}")
    return max(
        (
            _distance(a, b, position)
            for position, (a, b) in enumerate(zip(expected, found, strict=True))
        ),
        default=0.0,
    )


def _distance(expected: Any, found: Any, position: int) -> float:
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        if type(expected) is type(found) and expected == found:
            return 0.0
        raise ExecutionError(f"output {position} is {found!r} instead of {expected!r}")
    if (expected.shape, expected.dtype) != (found.shape, found.dtype):
        raise ExecutionError(
            f"output {position} is {tuple(found.shape)} of {found.dtype} instead of "
            f"{tuple(expected.shape)} of {expected.dtype}"
        )
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = expected.detach().to(wide), found.detach().to(wide)
    different = ~((a == b) | (a.isnan() & b.isnan()))
    if not different.any():
        return 0.0
    distance = (a - b).abs()[different]
    return float("inf") if distance.isnan().any() else float(distance.max())
