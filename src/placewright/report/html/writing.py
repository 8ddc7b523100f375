"""`report`: plans as a page of HTML in one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from placewright.errors import InputError
from placewright.plan import Plan

MOST_PLANS = 12


def report(plans: Plan | str | Path | Sequence[Plan | str | Path], path: str | Path) -> None:
    """Write plans, or plan files, as one HTML file that works offline, whole or not at all.

    With several plans it compares them. Each is judged first: VerificationError for a plan that is
    wrong. FormatError for a file that is no plan or cannot be written; InputError for no plan, or
    too many to look at.
    """
    from placewright.formats import files
    from placewright.report.html.document import page_document
    from placewright.report.html.page import page_html
    from placewright.verify import verify

    given = [plans] if isinstance(plans, Plan | str | Path) else list(plans)
    if not 0 < len(given) <= MOST_PLANS:
        raise InputError(f"a report is of 1 to {MOST_PLANS} plans, not of {len(given)}")
    files.check_writable(Path(path))
    loaded = [each if isinstance(each, Plan) else Plan.load(each) for each in given]
    for plan in loaded:
        verify(plan).raise_if_failed()
    files.write_text(path, page_html(page_document(loaded)))
