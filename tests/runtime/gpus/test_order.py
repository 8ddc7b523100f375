"""Two ranks go through the tensors between them in one order, as NCCL needs: it has no tags."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from placewright.runtime.stages.code import Post, Send  # noqa: E402
from placewright.runtime.stages.cutting import Stage, cut  # noqa: E402
from tests.runtime.programs import family, random_assignment  # noqa: E402

RANKS = 3


def between(stage: Stage, other: int) -> list[int]:
    """Tags of what a rank sends to another or receives from it, in the order of its steps."""
    moved = [step.transfer for step in stage.code.steps if isinstance(step, (Send, Post))]
    return [each.tag for each in moved if other in (each.source, each.target)]


@pytest.mark.parametrize("name", ["gpt2", "t5", "mixtral"])
@pytest.mark.parametrize("seed", range(6))
def test_both_ends_send_and_receive_in_the_same_order(name: str, seed: int) -> None:
    case = family(name)
    assignment = random_assignment(case, RANKS, seed)
    stages = cut(case.program, assignment.device_of, assignment.order, RANKS)
    pairs = [(a, b) for a in range(RANKS) for b in range(a)]
    for a, b in pairs:
        assert between(stages[a], b) == between(stages[b], a)
    assert sum(len(between(stages[a], b)) for a, b in pairs) > 3
