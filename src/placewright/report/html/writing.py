"""`report`: plans as a page of HTML in one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from placewright.errors import InputError
from placewright.plan import Plan

MOST_PLANS = 12


def report(
    plans: Plan | str | Path | Sequence[Plan | str | Path],
    path: str | Path,
    *,
    run: str | Path | None = None,
) -> None:
    """Write plans, or plan files, as one HTML file that works offline, whole or not at all.

    With several plans it compares them; one can have beside it a `run` of it, the file that
    ``placewright run PLAN --json`` printed. Each is judged first: VerificationError for a plan that
    is wrong. FormatError for a file that is no plan or no run, or cannot be written; InputError for
    no plan, too many to look at, or the run of another.
    """
    from placewright.formats import files
    from placewright.report.html.document import page_document
    from placewright.report.html.page import page_html
    from placewright.report.html.runs import read_run
    from placewright.verify import verify

    given = [plans] if isinstance(plans, Plan | str | Path) else list(plans)
    if not 0 < len(given) <= MOST_PLANS:
        raise InputError(f"a report is of 1 to {MOST_PLANS} plans, not of {len(given)}")
    if run is not None and len(given) > 1:
        raise InputError("a run is shown beside the one plan that was run; give that plan alone")
    files.check_writable(Path(path))
    loaded = [each if isinstance(each, Plan) else Plan.load(each) for each in given]
    for plan in loaded:
        verify(plan).raise_if_failed()
    measured = None if run is None else read_run(run)
    files.write_text(path, page_html(page_document(loaded, measured)))
