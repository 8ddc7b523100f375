"""The table of engines: every row is whole, and is described."""

from pathlib import Path

import pytest

from placewright.exporters.engines import ENGINES
from placewright.system.references import referred

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engines.md"


@pytest.mark.parametrize("row", ENGINES.values(), ids=list(ENGINES))
def test_a_row_names_what_was_checked_and_what_writes(row):
    assert row.checked and row.summary
    assert callable(referred(row.write))


@pytest.mark.parametrize("row", ENGINES.values(), ids=list(ENGINES))
def test_an_engine_is_on_its_page_with_its_version(row):
    page = PAGE.read_text("utf-8")
    assert f"`{row.name}`" in page
    if row.limits or row.folder:
        assert row.checked.split(",")[0] in page
