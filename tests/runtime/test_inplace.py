"""Writing a new value into the memory of the old one: only where nobody can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from placewright.runtime import RunOptions  # noqa: E402
from placewright.runtime.execution import run_assignments  # noqa: E402
from placewright.runtime.stages.inplace import appending  # noqa: E402
from tests.runtime.programs import case_of, random_assignment  # noqa: E402

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("temporary")]


class Keeper(torch.nn.Module):
    """Writes its input into a buffer, row after row, and returns what `use` makes of it."""

    def __init__(self, use: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self.use = use
        self.register_buffer("kept", torch.arange(12.0).reshape(4, 3))
        self.register_buffer("other", torch.zeros(3, 4))
        self.register_buffer("loop", torch.tensor([1, 2, 3, 0]))
        self.register_buffer("row", torch.zeros(1, dtype=torch.long))

    def forward(self, x: torch.Tensor) -> Any:
        return self.use(self, self.row.clone(), x)


def append(keeper: Any, row: Any, x: Any) -> Any:
    keeper.kept.index_copy_(0, row, x + row)
    keeper.row.copy_((row + 1) % 4)
    return keeper.kept


def summed(keeper: Any, row: Any, x: Any) -> Any:
    return append(keeper, row, x).sum(0) * 2


def put(keeper: Any, row: Any, x: Any) -> Any:
    keeper.kept[row] = x + row
    keeper.row.copy_((row + 1) % 4)
    return keeper.kept.t().relu()


def through_a_view(keeper: Any, row: Any, x: Any) -> Any:
    return append(keeper, row, x).t().reshape(12)[2:].exp()


def returned(keeper: Any, row: Any, x: Any) -> Any:
    return append(keeper, row, x)


def returned_as_a_view(keeper: Any, row: Any, x: Any) -> Any:
    return append(keeper, row, x).t()


def read_before(keeper: Any, row: Any, x: Any) -> Any:
    before = keeper.kept.sum(0)
    return append(keeper, row, x).sum(0) + before


def read_through_an_earlier_view(keeper: Any, row: Any, x: Any) -> Any:
    before = keeper.kept.t()
    found = append(keeper, row, x).sum(0)
    return found, before.sum(1)


def indexed_by_itself(keeper: Any, row: Any, x: Any) -> Any:
    keeper.loop[keeper.loop] = row + 1
    return row + x


def written_twice(keeper: Any, row: Any, x: Any) -> Any:
    append(keeper, row, x)
    return append(keeper, (row + 2) % 4, x).sum(0)


def kept_by_another(keeper: Any, row: Any, x: Any) -> Any:
    before = keeper.other * 2
    keeper.other.copy_(append(keeper, row, x).t())
    return before.sum(1)


def of_itself(keeper: Any, row: Any, x: Any) -> Any:
    keeper.kept.index_copy_(0, row, keeper.kept[1:2] + x)
    return keeper.kept.sum(0)


IN_PLACE = [summed, put, through_a_view, read_through_an_earlier_view]
COPIED = [
    returned,
    returned_as_a_view,
    read_before,
    of_itself,
    written_twice,
    kept_by_another,
]


@pytest.mark.parametrize("use", IN_PLACE)
def test_what_alone_reads_a_buffer_writes_into_it(use: Any) -> None:
    assert set(appending(case_of(Keeper(use), (torch.ones(1, 3),)).program).values()) == {"kept"}


@pytest.mark.parametrize("use", [*COPIED, indexed_by_itself])
def test_what_could_be_told_is_copied(use: Any) -> None:
    assert appending(case_of(Keeper(use), (torch.ones(1, 3),)).program) == {}


@pytest.mark.parametrize("use", [*IN_PLACE, *COPIED])
def test_every_call_gives_what_one_process_gives_on_any_placement(use: Any) -> None:
    module, x = Keeper(use), torch.ones(1, 3)
    case = case_of(Keeper(use), (x,))
    with torch.no_grad():
        expected = [torch.utils._pytree.tree_map(torch.clone, module(x)) for _ in range(7)]
    options = RunOptions(launcher="local", repeats=6, clocked=0, threads=1)
    before = case.values.weights.load(["kept"])["kept"].clone()
    assignments = [random_assignment(case, 3, seed) for seed in range(8)]
    for report in run_assignments(case.program, case.values, assignments, 3, options=options):
        assert report.max_abs_difference == 0
        for found, wanted in zip(report.results, expected, strict=True):
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            assert all(map(torch.equal, found, wanted))
    assert torch.equal(case.values.weights.load(["kept"])["kept"], before)
