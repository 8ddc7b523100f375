"""Columns and names of a page come back as they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.report.html.columns import column, names, table
from tests.report.html import pages


@given(st.lists(st.floats(allow_nan=False)))
def test_a_column_of_any_numbers_comes_back_exactly(values):
    assert pages.column(column(np.array(values))).tolist() == values


@given(st.lists(st.integers(-(2**31), 2**32 - 1)))
def test_a_column_of_whole_numbers_comes_back_exactly(values):
    assert pages.column(column(np.array(values, dtype=np.int64))).tolist() == values


@pytest.mark.parametrize(
    ("values", "kind"),
    [([0, 255], "u1"), ([256], "u2"), ([70_000], "u4"), ([-1], "i4"), ([0.5], "f4"), ([0.1], "f8")],
)
def test_a_column_is_as_narrow_as_it_can_be(values, kind):
    assert column(values)["type"] == kind


@given(st.lists(st.text("ab.😀ש</", max_size=8)))
def test_names_come_back_as_they_were(texts):
    assert pages.names(names(texts)) == texts


def test_a_table_has_each_text_once():
    made = table(["relu", "add", "relu"])
    assert pages.names(made["names"]) == ["relu", "add"]
    assert pages.column(made["index"]).tolist() == [0, 1, 0]
