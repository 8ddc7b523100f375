"""A placement becomes a chain of runs: every op once, in an order that can be run, in few runs."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from placewright.runtime.pipelined.chain import Run, chain_of


@st.composite
def placed_programs(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, int]]:
    count = draw(st.integers(1, 12))
    needs: dict[str, list[str]] = {}
    for op in range(count):
        sources = draw(st.sets(st.integers(0, op - 1), max_size=3)) if op else set()
        needs[f"op{op}"] = [f"op{source}" for source in sorted(sources)]
    return needs, {op: draw(st.integers(0, 2)) for op in needs}


@given(placed_programs())
def test_every_op_runs_once_on_its_device_after_those_it_needs(
    program: tuple[dict[str, list[str]], dict[str, int]],
) -> None:
    needs, device_of = program
    done: set[str] = set()
    for run in chain_of(needs, device_of):
        for op in run.ops:
            assert device_of[op] == run.device
            assert set(needs[op]) <= done
            done.add(op)
    assert done == set(needs)


@given(placed_programs())
def test_no_run_could_have_gone_on(
    program: tuple[dict[str, list[str]], dict[str, int]],
) -> None:
    chain = chain_of(*program)
    assert all(run.ops for run in chain)
    assert all(a.device != b.device for a, b in pairwise(chain))


@given(placed_programs())
def test_devices_in_a_row_have_one_run_each(
    program: tuple[dict[str, list[str]], dict[str, int]],
) -> None:
    needs, _ = program
    ops = list(needs)
    device_of = {op: position * 3 // len(ops) for position, op in enumerate(ops)}
    chain = chain_of(needs, device_of)
    assert len(chain) == len(set(device_of.values()))


def test_the_order_of_devices_is_that_of_the_data_not_of_their_numbers() -> None:
    needs = {"a": [], "b": ["a"], "c": [], "d": ["b", "c"]}
    chain = chain_of(needs, {"a": 2, "b": 1, "c": 0, "d": 0})
    assert chain == [Run(2, ("a",)), Run(1, ("b",)), Run(0, ("c", "d"))]


def test_of_two_devices_that_both_wait_later_the_longer_run_goes_first() -> None:
    needs = {"a": [], "b": [], "c": ["b"], "d": ["c", "a"], "e": ["d", "a"]}
    chain = chain_of(needs, {"a": 0, "b": 1, "c": 1, "d": 0, "e": 1})
    assert [run.ops for run in chain] == [("b", "c"), ("a", "d"), ("e",)]
