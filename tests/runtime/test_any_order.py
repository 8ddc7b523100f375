"""No placement and no order deadlocks: random programs on random ranks, in random legal orders."""

from __future__ import annotations

import random
from functools import cache

import pytest

torch = pytest.importorskip("torch")

from placewright.runtime import RunOptions  # noqa: E402
from placewright.runtime.execution import run_assignments  # noqa: E402
from placewright.runtime.reference import max_abs_difference  # noqa: E402
from placewright.runtime.stages.cutting import cut  # noqa: E402
from tests.runtime.programs import Case, case_of, random_assignment  # noqa: E402
from tests.runtime.threads import run_stages  # noqa: E402

pytestmark = pytest.mark.timeout(300)
FEW, PROGRAMS, PLACEMENTS = 4, 10, 50
OPS = (
    lambda x, y: x + y,
    lambda x, y: x @ y,
    lambda x, y: torch.relu(x) - y,
    lambda x, y: torch.cat(torch.split(x, 2), dim=0) * y.t(),
    lambda x, y: torch.where(x > y, x, y),
    lambda x, y: x.topk(4, dim=1)[0] + y.mean(0, keepdim=True),
)


class Random(torch.nn.Module):
    """A dozen ops on values drawn from all that are there, and several outputs."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        source = random.Random(self.seed)
        values = [x, x * 0.5]
        for _ in range(12):
            values.append(source.choice(OPS)(source.choice(values), source.choice(values)))
        return tuple(values[-3:])


@cache
def program(seed: int) -> Case:
    x = torch.rand(4, 4, generator=torch.Generator().manual_seed(seed)) / 4
    return case_of(Random(seed), (x,))


@pytest.mark.parametrize(
    "seed",
    [*range(FEW), *(pytest.param(k, marks=pytest.mark.slow) for k in range(FEW, PROGRAMS))],
)
def test_fifty_placements_in_any_order_end_with_the_outputs_of_one_process(seed: int) -> None:
    case = program(seed)
    for number in range(PLACEMENTS):
        ranks = 2 + number % 3
        # Odd numbers bring an order of their own, see `random_assignment`.
        drawn = random_assignment(case, ranks, 2 * (PLACEMENTS * seed + number) + 1)
        found = run_stages(
            cut(case.program, drawn.device_of, drawn.order, ranks), case.values, timeout=20
        )
        assert max_abs_difference(case.expected, found) == 0


@pytest.mark.usefixtures("temporary")
def test_processes_end_with_them_too() -> None:
    case = program(0)
    drawn = [random_assignment(case, 3, 2 * number + 1) for number in range(20)]
    options = RunOptions(repeats=1, clocked=0, threads=1)
    reports = run_assignments(case.program, case.values, drawn, 3, options=options)
    assert [report.max_abs_difference for report in reports] == [0.0] * 20
