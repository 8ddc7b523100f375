"""`report`: plans as a page of HTML in one file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placewright.errors import InputError
from placewright.options import check_kind
from placewright.plan import Plan
from placewright.stored import shown_as

if TYPE_CHECKING:
    from placewright.budget import Progress

MOST_PLANS = 12


def _top(plan: Plan) -> str:
    from placewright.report.html.notebook import plan_html

    return plan_html(plan)


shown_as(Plan, _top)


def report(
    plans: Plan | str | Path | Sequence[Plan | str | Path],
    path: str | Path,
    *,
    run: str | Path | None = None,
    what_if: float | None = None,
    on_progress: Progress | None = None,
) -> None:
    """Write plans, or plan files, as one HTML file that works offline, whole or not at all.

    With several plans it compares them; one can have beside it a `run` of it, the file that
    ``placewright run PLAN --json`` printed. With `what_if` seconds for each plan the page says what
    other hardware would do, planned in that time. Each plan is judged first: VerificationError for
    one that is wrong. FormatError for a file that is no plan or no run, or cannot be written;
    InputError for no plan, too many to look at, or the run of another.
    """
    from placewright.formats import files
    from placewright.report.html.document import page_document
    from placewright.report.html.page import page_html
    from placewright.report.html.runs import read_run_of
    from placewright.verify import verify

    check_kind(plans, (Plan, str, Path, Iterable), "plans", "a Plan, its file, or several")
    check_kind(path, (str, Path), "path", "the name of a file")
    check_kind(run, (str, Path, type(None)), "run", "a file that 'placewright run --json' printed")
    given = [plans] if isinstance(plans, Plan | str | Path) else list(plans)
    if not 0 < len(given) <= MOST_PLANS:
        raise InputError(f"a report is of 1 to {MOST_PLANS} plans, not of {len(given)}")
    files.check_writable(Path(path))
    read = [each for each in (*given, run) if isinstance(each, str | Path)]
    if any(Path(each).resolve() == Path(path).resolve() for each in read):
        raise InputError(f"{path}: is what the report is of; give another file")
    loaded = [each if isinstance(each, Plan) else Plan.load(each) for each in given]
    measured = read_run_of(loaded, run)
    for plan in loaded:
        verify(plan).raise_if_failed()
    changed = [] if what_if is None else [_changed(plan, what_if, on_progress) for plan in loaded]
    files.write_text(path, page_html(page_document(loaded, measured, changed)))


def _changed(plan: Plan, seconds: float, on_progress: Progress | None) -> dict[str, Any]:
    from placewright.report.html.sensitivities import sensitivities_record
    from placewright.whatif.sensitivities import sensitivities

    found = sensitivities(plan, seconds, on_progress=on_progress)
    return sensitivities_record(plan, found, seconds)
