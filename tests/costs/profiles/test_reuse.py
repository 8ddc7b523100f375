"""What calls move between two calls of one op."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from placewright.costs.profiles.reuse import bytes_before, median_before
from placewright.importers.costs import Cost

CALLS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=12)


@given(CALLS)
def test_it_is_the_sum_of_what_is_between_when_the_program_is_run_twice(calls) -> None:
    ops, moved = [op for op, _ in calls], [amount for _, amount in calls]
    twice = calls + calls
    for call, found in enumerate(bytes_before(ops, moved)):
        between = 0
        for op, amount in reversed(twice[: len(calls) + call]):
            if op == ops[call]:
                break
            between += amount
        assert found == between


def test_a_signature_has_the_median_of_its_calls() -> None:
    texts = ["aten.view.default(a)", "aten.mm.default(a)", *["aten.view.default(b)"] * 3]
    costs = [Cost(0, each, 0, "float32") for each in (0, 100, 1, 1, 1)]
    found = median_before(texts, costs)
    assert found["aten.view.default(b)"] == 0
    assert found["aten.mm.default(a)"] == 3
    assert found["aten.view.default(a)"] == 0
