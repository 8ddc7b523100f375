"""`figures`: plans as SVG and PNG files in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from placewright.errors import MissingExtraError
from placewright.formats.folders import check_new_folder, new_folder
from placewright.plan import Plan
from placewright.report.html.document import plan_labels
from placewright.report.html.runs import Run, read_run_of
from placewright.verify import verify

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXTRA = "figures"
KINDS = ("svg", "png")


def check_figures(folder: Path) -> None:
    """MissingExtraError without matplotlib, FormatError for a folder that has something in it."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError(EXTRA, "drawing figures")
    check_new_folder(folder)


def figures(
    plans: Plan | Sequence[Plan], folder: str | Path, run: str | Path | None = None
) -> list[Path]:
    """Draw plans into a new `folder`, which is there whole or not at all; the files made.

    ``gantt`` (of several plans ``gantt-1``, ``gantt-2``, … in their order), for latency ``memory``,
    where plans have a history ``convergence``, of several plans ``comparison`` and, where they use
    different numbers of devices, ``pareto``; of a plan and its `run`, the file that
    ``placewright run PLAN --json`` printed, ``errors``. Each as SVG and PNG, 3.5 in wide.
    VerificationError for a plan that is wrong; InputError for the run of another.

    >>> figures(plan, "figures")                             # doctest: +SKIP
    [PosixPath('figures/gantt.svg'), PosixPath('figures/gantt.png'), …]
    """
    given = [plans] if isinstance(plans, Plan) else list(plans)
    check_figures(Path(folder))
    measured = read_run_of(given, run)
    for plan in given:
        verify(plan).raise_if_failed()
    from placewright.report.figures.style import drawn, styled

    written: list[str] = []
    with new_folder(folder) as inside, styled():
        for name, figure in _drawings(given, measured):
            for kind in KINDS:
                (inside / f"{name}.{kind}").write_bytes(drawn(figure, kind))
                written.append(f"{name}.{kind}")
    return [Path(folder) / name for name in written]


def _drawings(plans: Sequence[Plan], run: Run | None) -> Iterator[tuple[str, Figure]]:
    """Names of figures, and the figures."""
    from placewright.report.figures.comparison import comparison
    from placewright.report.figures.convergence import convergence
    from placewright.report.figures.errors import errors
    from placewright.report.figures.gantt import gantt
    from placewright.report.figures.memory import memory
    from placewright.report.figures.pareto import is_pareto, pareto

    for number, plan in enumerate(plans, 1):
        suffix = f"-{number}" if len(plans) > 1 else ""
        yield f"gantt{suffix}", gantt(plan)
        if plan.problem.options.objective == "latency":
            yield f"memory{suffix}", memory(plan)
    labels = plan_labels(plans)
    if any(plan.history is not None for plan in plans):
        yield "convergence", convergence(plans, labels)
    if len(plans) > 1:
        yield "comparison", comparison(plans, labels)
    if is_pareto(plans):
        yield "pareto", pareto(plans, labels)
    if run is not None:
        yield "errors", errors(plans[0], run)
