"""A plan of steps says in which order its micro-batches are run."""

from __future__ import annotations

import pytest

from placewright.exporters.planning import plan_for
from placewright.runtime.pipelined.running import planned_schedule


@pytest.mark.parametrize(
    ("schedule", "count", "expected"),
    [("pipedream", 4, "1f1b"), ("gpipe", 4, "gpipe"), ("pipedream", None, "gpipe")],
)
def test_a_step_is_run_as_it_was_planned(schedule: str, count: int | None, expected: str) -> None:
    plan = plan_for(
        "zoo:gpt2?layers=2",
        "4090+3060",
        "torch-pipelining",
        training=True,
        free_seconds=0,
        schedule=schedule,
        micro_batches=count,
    ).plan
    assert planned_schedule(plan, training=True) == expected
    assert planned_schedule(plan, training=False) == "gpipe"
