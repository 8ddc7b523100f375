"""A cut model does what the order asks, in as few sub-models as delay nobody."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placewright.errors import InputError
from placewright.runtime.onnx_sessions.cutting import SubModel, Uses, cut, cut_in_runs
from placewright.runtime.onnx_sessions.measuring import per_sample
from placewright.runtime.onnx_sessions.passes import Done, Program
from placewright.runtime.onnx_sessions.stages import in_stages

Ops = dict[str, Uses]


def chain(count: int) -> Ops:
    """``o0`` reads x, each other op what the one before makes."""
    return {f"o{k}": Uses((f"t{k - 1}" if k else "x",), (f"t{k}",)) for k in range(count)}


def lines(parts: Sequence[SubModel]) -> list[tuple[int, tuple[str, ...]]]:
    return [(part.rank, part.ops) for part in parts]


def test_ops_that_follow_one_another_on_a_device_are_one_sub_model() -> None:
    placement = {"o0": 0, "o1": 0, "o2": 1, "o3": 1, "o4": 0}
    parts = cut(list(placement), placement, chain(5), ["t4"])
    assert lines(parts) == [(0, ("o0", "o1")), (0, ("o4",)), (1, ("o2", "o3"))]
    assert [part.reads for part in parts] == [("x",), ("t3",), ("t1",)]
    assert [part.gives for part in parts] == [("t1",), ("t4",), ("t3",)]


def test_a_sub_model_ends_where_another_device_could_go_on() -> None:
    uses = {"a": Uses(("x",), ("h",)), "b": Uses(("x",), ("k",)), "c": Uses(("h",), ("y",))}
    parts = cut(["a", "b", "c"], {"a": 0, "b": 0, "c": 1}, uses, ["k", "y"])
    assert lines(parts) == [(0, ("a",)), (0, ("b",)), (1, ("c",))]


def test_a_sub_model_goes_on_where_the_other_device_waits_for_more_anyway() -> None:
    uses = {"a": Uses(("x",), ("h",)), "b": Uses(("x",), ("k",)), "c": Uses(("h", "k"), ("y",))}
    parts = cut(["a", "b", "c"], {"a": 0, "b": 0, "c": 1}, uses, ["y"])
    assert lines(parts) == [(0, ("a", "b")), (1, ("c",))]


def test_a_sub_model_begins_before_what_must_still_be_waited_for() -> None:
    uses = {"a": Uses(("x",), ("h",)), "b": Uses(("x",), ("k",)), "c": Uses(("h", "k"), ("y",))}
    parts = cut(["a", "b", "c"], {"a": 1, "b": 0, "c": 0}, uses, ["y"])
    assert lines(parts) == [(1, ("a",)), (0, ("b",)), (0, ("c",))]


def test_ops_that_lead_to_no_output_are_left_out() -> None:
    uses = chain(3) | {"dead": Uses(("t0",), ("d",)), "end": Uses(("d",), ("e",))}
    placement = dict.fromkeys(uses, 0) | {"end": 1}
    assert lines(cut(list(uses), placement, uses, ["t2"])) == [(0, ("o0", "o1", "o2"))]


def test_in_runs_a_sub_model_is_what_follows_one_another_in_the_order() -> None:
    uses = {"a": Uses(("x",), ("h",)), "b": Uses(("x",), ("k",)), "c": Uses(("h",), ("y",))}
    parts = cut_in_runs(["a", "b", "c"], {"a": 0, "b": 0, "c": 1}, uses, ["k", "y"])
    assert lines(parts) == [(0, ("a", "b")), (1, ("c",))]


def test_an_order_that_is_not_topological_is_refused() -> None:
    with pytest.raises(InputError, match="has op 'o1' before op 'o0', whose output it needs"):
        cut(["o1", "o0"], {"o0": 0, "o1": 0}, chain(2), ["t1"])


@st.composite
def cuts(draw: st.DrawFn) -> tuple[list[str], Mapping[str, int], Ops]:
    """Any DAG in any legal order, on any devices."""
    count = draw(st.integers(1, 14))
    source = random.Random(draw(st.integers(0, 2**32)))
    edges = {k: {j for j in range(k) if source.random() < 2 / count} for k in range(count)}
    uses = {
        f"o{k}": Uses(tuple(f"t{j}" for j in sorted(before)) or ("x",), (f"t{k}",))
        for k, before in edges.items()
    }
    left, order = list(range(count)), list[int]()
    while left:
        ready = [k for k in left if edges[k] <= set(order)]
        order.append(source.choice(ready))
        left.remove(order[-1])
    devices = draw(st.integers(1, 4))
    return [f"o{k}" for k in order], {op: source.randrange(devices) for op in uses}, uses


def starts(parts: Sequence[SubModel], seconds: Mapping[str, float]) -> dict[str, float]:
    """When each op starts, where sub-models read before their first op and give after the last."""
    waiting = {rank: [p for p in parts if p.rank == rank] for rank in {p.rank for p in parts}}
    there, free, found = {"x": 0.0}, dict.fromkeys(waiting, 0.0), {}
    while any(waiting.values()):
        rank = next(r for r, line in waiting.items() if line and set(line[0].reads) <= set(there))
        part = waiting[rank].pop(0)
        free[rank] = max(free[rank], *(there[name] for name in part.reads))
        for op in part.ops:
            found[op] = free[rank]
            free[rank] += seconds[op]
        there.update(dict.fromkeys(part.gives, free[rank]))
    return found


@given(cuts(), st.randoms(use_true_random=False))
def test_larger_sub_models_start_no_op_later_than_one_for_each_op(
    case: tuple[list[str], Mapping[str, int], Ops], source: random.Random
) -> None:
    """Nor do devices wait for each other for ever."""
    order, rank_of, uses = case
    seconds = {op: float(source.randint(0, 8)) for op in order}
    everything = [name for use in uses.values() for name in use.makes]
    singles = [SubModel(rank_of[op], (op,), uses[op].reads, uses[op].makes) for op in order]
    together = cut(order, rank_of, uses, everything)
    assert starts(together, seconds) == starts(singles, seconds)


@given(cuts())
def test_each_device_keeps_the_order_and_gives_what_others_read(
    case: tuple[list[str], Mapping[str, int], Ops],
) -> None:
    order, rank_of, uses = case
    last = uses[order[-1]].makes
    parts = cut(order, rank_of, uses, last)
    left = {op for part in parts for op in part.ops}
    for rank in set(rank_of.values()):
        line = [op for part in parts if part.rank == rank for op in part.ops]
        assert line == [op for op in order if rank_of[op] == rank and op in left]
    read = {name for part in parts for name in part.reads} - {"x"}
    assert read | set(last) == {name for part in parts for name in part.gives}


# -- pipelines -----------------------------------------------------------------------------------


def test_where_data_goes_along_the_devices_each_is_one_stage() -> None:
    """Even where a late device could begin early."""
    uses = chain(3) | {"early": Uses(("x",), ("e",)), "end": Uses(("e", "t2"), ("y",))}
    placement = {"early": 1, "o0": 2, "o1": 2, "o2": 0, "end": 1}
    order = in_stages(list(placement), placement, uses)
    parts = cut_in_runs(order, placement, uses, ["y"])
    assert lines(parts) == [(2, ("o0", "o1")), (0, ("o2",)), (1, ("early", "end"))]


@given(cuts())
def test_the_order_of_stages_is_topological_whatever_the_placement(
    case: tuple[list[str], Mapping[str, int], Ops],
) -> None:
    order, rank_of, uses = case
    everything = [name for use in uses.values() for name in use.makes]
    parts = cut_in_runs(in_stages(order, rank_of, uses), rank_of, uses, everything)
    assert sorted(op for part in parts for op in part.ops) == sorted(order)


def test_samples_enter_a_pipeline_one_place_after_another() -> None:
    uses = chain(3)
    parts = cut_in_runs(["o0", "o1", "o2"], {"o0": 0, "o1": 1, "o2": 0}, uses, ["t2"])
    program = Program.of(parts, 2, ("t2",), samples=3)
    assert program.tasks[0] == [(0, 0), (1, 0), (2, 0), (0, 2), (1, 2), (2, 2)]
    assert program.tasks[1] == [(0, 1), (1, 1), (2, 1)]


def test_what_one_more_sample_takes_is_the_distance_of_ends_once_all_devices_work() -> None:
    ends = [5.0, 6.0, 8.0, 10.0]
    last = [Done((k, 1), 0.0, end - 1, end, None) for k, end in enumerate(ends)]
    first = [Done((k, 0), 0.0, end - 4, end - 2, None) for k, end in enumerate(ends)]
    assert per_sample([first, last], 4) == 2.0
    assert per_sample([first[:1], last[:1]], 1) == 5.0
