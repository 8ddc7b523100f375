"""Running a plan by what its source is: a program on PyTorch, an ONNX file on ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placewright.importers.kinds import open_source
from placewright.plan import Plan
from placewright.runtime import plans
from placewright.runtime.results import RunReport
from placewright.runtime.run_options import RunOptions

if TYPE_CHECKING:
    from placewright.budget import Progress
    from placewright.runtime.inputs import Inputs


def run_plan(
    plan: Plan,
    options: RunOptions | None = None,
    *,
    inputs: Inputs | None = None,
    on_progress: Progress | None = None,
) -> RunReport:
    """Run a plan: `onnx_sessions.run_onnx_plan` or `plans.run_plan`.

    `inputs` are those of the options, see `RunOptions`.
    """
    if inputs is not None:
        options = replace(options or RunOptions(), inputs=inputs)
    if is_onnx(plan.source):
        from placewright.runtime.onnx_sessions import run_onnx_plan

        return run_onnx_plan(plan, options, on_progress=on_progress)
    return plans.run_plan(plan, options, on_progress=on_progress)


def is_onnx(source: str) -> bool:
    """Whether a plan's source is an ONNX file."""
    scheme, separator, _ = source.partition(":")
    is_file = bool(source) and not (separator and scheme in ("torch", "hf", "zoo"))
    return is_file and open_source(source).kind == "onnx"
