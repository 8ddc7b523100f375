"""Plans of small random problems of every objective, quickly made."""

from __future__ import annotations

from hypothesis import reject
from hypothesis import strategies as st

from placewright.errors import InfeasibleError
from placewright.plan import Plan
from placewright.solving import solve
from tests.strategies import placements, problems
from tests.strategies.batch import batch_problems
from tests.strategies.invocation import invocation_problems
from tests.strategies.throughput import pipelines

QUICK = {
    "latency": (problems(max_ops=8, max_devices=3), "heft"),
    "throughput": (pipelines(max_ops=6, max_devices=3), "greedy"),
    "invocation-latency": (invocation_problems(max_ops=5), "greedy"),
    "batch-throughput": (batch_problems(max_ops=5, max_devices=3, max_batch=3), "greedy"),
}


@st.composite
def plans(draw, objective: str) -> Plan:
    """A plan of a random problem; of latency often a bad one, so that there are better moves."""
    problem, planner = draw(QUICK[objective][0]), QUICK[objective][1]
    try:
        if objective == "latency" and draw(st.booleans()):
            device = draw(placements(problem))
            pins = dict(enumerate(problem.unit_device(device).tolist()))
            found = solve(problem.with_pins(pins), planner)
            return _of(problem, found)
        return solve(problem, planner)
    except InfeasibleError:
        reject()
        raise


def _of(problem, plan):
    """The plan without the pins that made it."""
    from dataclasses import replace

    from placewright.bounds import lower_bound

    bound = lower_bound(problem)
    return replace(
        plan, problem=problem, lower_bound=min(bound.value, plan.value), bound_source=bound.source
    )
