"""Running a plan by what its source is: a factory on PyTorch, an ONNX file on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from placewright.errors import OptionError
from placewright.importers.kinds import open_source
from placewright.plan import Plan
from placewright.runtime import distributed
from placewright.runtime.results import RunReport


def run_plan(
    plan: Plan,
    *,
    repeats: int = 5,
    timeout: float = 60.0,
    threads: int | None = None,
    inputs: Mapping[str, Any] | str | Path | None = None,
    on_progress: Callable[[str, float], None] | None = None,
) -> RunReport:
    """Run a plan for ``torch:PACKAGE.MODULE:FACTORY`` or ``FILE.onnx``.

    See `distributed.run_plan` and `onnx_sessions.run_onnx_plan`; only the latter takes `inputs`.
    """
    if _is_onnx(plan.source):
        from placewright.runtime.onnx_sessions import run_onnx_plan

        return run_onnx_plan(
            plan,
            repeats=repeats,
            timeout=timeout,
            threads=threads,
            inputs=inputs,
            on_progress=on_progress,
        )
    if inputs is not None:
        raise OptionError(
            f"the plan's source is '{plan.source}', and inputs are given to ONNX models only; "
            "let the factory return them"
        )
    return distributed.run_plan(
        plan, repeats=repeats, timeout=timeout, threads=threads, on_progress=on_progress
    )


def _is_onnx(source: str) -> bool:
    scheme, separator, _ = source.partition(":")
    is_file = bool(source) and not (separator and scheme in ("torch", "hf", "zoo"))
    return is_file and open_source(source).kind == "onnx"
