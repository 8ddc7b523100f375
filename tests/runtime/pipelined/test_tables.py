"""Action tables can be run to the end, by another's judgement and by torch's."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placewright.errors import ExecutionError, OptionError
from placewright.runtime.pipelined.groups import Groups
from placewright.runtime.pipelined.legality import check_table
from placewright.runtime.pipelined.schedules import longer, method_of
from placewright.runtime.pipelined.tables import Action, Policy, action_table

POLICIES: tuple[Policy, ...] = ("gpipe", "1f1b")


@st.composite
def chains(draw: st.DrawFn) -> list[int]:
    """The rank of each stage: neighbours differ, and ranks are numbered as they come."""
    drawn = draw(st.lists(st.integers(0, 3), min_size=1, max_size=9))
    kept = [each for at, each in enumerate(drawn) if not at or each != drawn[at - 1]]
    numbers = {each: number for number, each in enumerate(dict.fromkeys(kept))}
    return [numbers[each] for each in kept]


@st.composite
def replicated(draw: st.DrawFn) -> Groups:
    """A chain whose stages may have up to three replicas each."""
    group_of = draw(chains())
    sizes = [draw(st.integers(1, 3)) for _ in range(max(group_of) + 1)]
    return Groups(tuple(sizes), tuple(group_of))


@given(replicated(), st.integers(1, 7), st.sampled_from(POLICIES))
def test_a_table_can_be_followed_to_its_end(
    groups: Groups, micro_batches: int, policy: Policy
) -> None:
    check_table(action_table(groups, micro_batches, policy), groups, micro_batches)


@given(chains(), st.integers(1, 6), st.sampled_from(POLICIES))
@settings(max_examples=10)
def test_torch_adds_its_transfers_to_a_table(
    rank_of: list[int], micro_batches: int, policy: Policy
) -> None:
    schedules: Any = pytest.importorskip("torch.distributed.pipelining.schedules")
    table = action_table(Groups.alone(rank_of), micro_batches, policy)
    rows = {
        rank: [schedules._Action.from_str(str(action)) for action in row]
        for rank, row in enumerate(table)
    }
    found = schedules._validate_schedule(rows, len(rows), len(rank_of), micro_batches)
    assert found == dict(enumerate(rank_of))
    crossing = sum(a != b for a, b in pairwise(rank_of))
    lowered = schedules._add_send_recv(rows, rank_of.__getitem__, len(rank_of))
    sends = [each for row in lowered.values() for each in row if "SEND" in str(each)]
    assert len(sends) == 2 * crossing * micro_batches


@given(chains(), st.integers(1, 6))
def test_gpipe_goes_forward_on_all_before_it_goes_back(rank_of: list[int], count: int) -> None:
    for row in action_table(Groups.alone(rank_of), count, "gpipe"):
        kinds = [action.kind for action in row]
        assert kinds == sorted(kinds, reverse=True)


@given(chains(), st.integers(1, 6))
def test_1f1b_keeps_few_micro_batches_at_once(rank_of: list[int], count: int) -> None:
    for row in action_table(Groups.alone(rank_of), count, "1f1b"):
        held: dict[int, int] = {}
        for action in row:
            step = 1 if action.kind == "F" else -1
            held[action.stage] = held.get(action.stage, 0) + step
            assert held[action.stage] <= len(rank_of) - action.stage


def test_of_one_stage_a_rank_1f1b_is_what_everybody_calls_that() -> None:
    rows = [" ".join(map(str, row)) for row in action_table(Groups.alone([0, 1, 2]), 4, "1f1b")]
    assert rows == [
        "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3",
        "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
        "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3",
    ]


# -- what the judge refuses --------------------------------------------------------------------


def test_an_action_that_is_missing_or_doubled_is_refused() -> None:
    table = action_table(Groups.alone([0, 1]), 2, "gpipe")
    with pytest.raises(ExecutionError, match="row of rank 0 has 0B1 0 times instead of 1"):
        check_table([table[0][:-1], table[1]], Groups.alone([0, 1]), 2)
    with pytest.raises(ExecutionError, match="row of rank 1 has 1F0 2 times"):
        check_table([table[0], [table[1][0], *table[1]]], Groups.alone([0, 1]), 2)


def test_a_stage_on_another_rank_is_refused() -> None:
    table = action_table(Groups.alone([0, 1]), 1, "gpipe")
    with pytest.raises(ExecutionError, match="row of rank 0 has"):
        check_table(table[::-1], Groups.alone([0, 1]), 1)


def test_a_missing_row_is_refused() -> None:
    with pytest.raises(ExecutionError, match="1 rows for 2 ranks"):
        check_table(action_table(Groups.alone([0]), 1, "gpipe"), Groups.alone([0, 1]), 1)


def test_micro_batches_out_of_order_are_refused() -> None:
    (row,) = action_table(Groups.alone([0]), 2, "gpipe")
    with pytest.raises(ExecutionError, match="has 0F on micro-batches out of order"):
        check_table([[row[1], row[0], *row[2:]]], Groups.alone([0]), 2)


def test_ranks_that_wait_for_each_other_are_refused() -> None:
    first = [Action(0, "F", 0), Action(2, "B", 0), Action(2, "F", 0), Action(0, "B", 0)]
    second = [Action(1, "F", 0), Action(1, "B", 0)]
    with pytest.raises(ExecutionError, match="stuck: rank 0 can never do 2B0"):
        check_table([first, second], Groups.alone([0, 1, 0]), 1)


def test_most_tables_in_another_order_are_refused() -> None:
    source, refused = random.Random(0), 0
    for _ in range(50):
        table = action_table(Groups.alone([0, 1, 0, 1]), 3, "1f1b")
        for row in table:
            source.shuffle(row)
        try:
            check_table(table, Groups.alone([0, 1, 0, 1]), 3)
        except ExecutionError:
            refused += 1
    assert refused == 50


# -- which schedule of torch it is -------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "rank_of", "method"),
    [
        ("gpipe", [0, 1, 2], "gpipe"),
        ("1f1b", [0, 1, 2], "1f1b"),
        ("interleaved", [0, 1, 2], "interleaved"),
        ("interleaved", [0, 1, 0, 1], "interleaved"),
        ("interleaved", [0, 1, 0], "table"),
        ("interleaved", [0, 1, 2, 1, 0, 2], "table"),
        ("gpipe", [0, 1, 0, 1], "table"),
        ("1f1b", [0, 1, 0], "table"),
    ],
)
def test_torchs_own_schedule_is_taken_where_it_fits(
    schedule: Any, rank_of: list[int], method: str
) -> None:
    assert method_of(schedule, Groups.alone(rank_of), 6) == method


@pytest.mark.parametrize(
    ("schedule", "micro_batches", "message"),
    [
        ("zigzag", 6, "schedule is 'zigzag'; choose gpipe, 1f1b, interleaved"),
        ("1f1b", 2, "needs as many micro-batches as stages, which are 3, and there are 2"),
        ("interleaved", 7, "7 micro-batches do not make 2 equal rounds on 3 ranks"),
    ],
)
def test_numbers_that_a_schedule_cannot_run_are_refused(
    schedule: Any, micro_batches: int, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        method_of(schedule, Groups.alone([0, 1, 2]), micro_batches)


@given(st.integers(1, 40), st.integers(1, 6))
def test_the_longer_batch_is_one_that_every_schedule_can_run(count: int, ranks: int) -> None:
    groups = Groups.alone(range(ranks))
    more = longer(count, groups)
    assert 2 * count <= more < 2 * count + ranks
    for schedule in ("gpipe", "1f1b", "interleaved"):
        method_of(schedule, groups, more)


# -- replicas ----------------------------------------------------------------------------------


def test_replicas_take_turns() -> None:
    groups = Groups((2, 1, 3), (0, 1, 2))
    rows = [" ".join(map(str, row)) for row in action_table(groups, 4, "gpipe")]
    assert rows == [
        "0F0 0F2 0B0 0B2",
        "0F1 0F3 0B1 0B3",
        "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3",
        "2F0 2F3 2B0 2B3",
        "2F1 2B1",
        "2F2 2B2",
    ]


def test_1f1b_keeps_every_rank_busy_where_stages_have_replicas() -> None:
    """Two micro-batches at once, one a stage, would leave the third replica without any."""
    row = action_table(Groups((1, 3), (0, 1)), 6, "1f1b")[0]
    assert " ".join(map(str, row)).startswith("0F0 0F1 0F2 0B0")


def test_a_micro_batch_on_the_replica_whose_turn_it_is_not_is_refused() -> None:
    groups = Groups((2,), (0,))
    table = action_table(groups, 2, "gpipe")
    with pytest.raises(ExecutionError, match="row of rank 0 has 0B0 0 times instead of 1"):
        check_table(table[::-1], groups, 2)


@given(replicated(), st.integers(1, 9))
def test_the_ranks_of_a_stage_share_out_the_micro_batches(groups: Groups, count: int) -> None:
    for stage, group in enumerate(groups.group_of):
        dealt = [groups.turns(rank, count) for rank in groups.ranks(group)]
        assert sorted(number for turns in dealt for number in turns) == list(range(count))
        for rank, turns in zip(groups.ranks(group), dealt, strict=True):
            assert stage in groups.stages(rank)
            assert all(groups.rank(stage, number) == rank for number in turns)


@given(replicated(), st.integers(1, 40))
def test_all_replicas_have_the_same_share_of_what_the_longer_batch_has_more(
    groups: Groups, count: int
) -> None:
    more = longer(count, groups)
    assert more >= 2 * count
    for group in range(len(groups.sizes)):
        added = {
            len(groups.turns(rank, more)) - len(groups.turns(rank, count))
            for rank in groups.ranks(group)
        }
        assert len(added) == 1 or not groups.has_replicas
