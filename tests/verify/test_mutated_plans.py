"""Whatever is changed in a plan file: it is refused, or all that it says is true.

Random small problems of every objective, planned by quick planners or placed at random; their
files changed at random (`tests.verify.tampering`). What the judge lets pass is judged again by
`tests.naive.plans`, which reads the raw file and shares nothing with the package, and its value
compared with the best of all plans, found by trying them.

A lower bound below the value is a claim that the judge does not prove again (docs/bounds.md), so a
changed one is not held against it here.

Others are tried by
``MUTATIONS=50000 MUTATION_SEED=7 pytest -n 0 -m slow tests/verify/test_mutated_plans.py``.
"""

from __future__ import annotations

import itertools
import json
import os
from functools import lru_cache
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption

from placewright.analysis.slots import placement_of, slot_of
from placewright.bounds import lower_bound
from placewright.errors import GraphError, InfeasibleError, InputError, VerificationError
from placewright.formats.problems import read_problem
from placewright.formats.schema import ProblemEntry
from placewright.outcome import BatchSchedule, Schedule
from placewright.plan import Placement, Plan
from placewright.simulate import evaluate
from placewright.solving import quick_planners, solve
from placewright.verify import verify
from tests import naive
from tests.cli.running import run
from tests.formats.test_problems import crowds
from tests.naive import invocation as naive_invocation
from tests.naive import plans as naive_plans
from tests.naive import throughput as naive_throughput
from tests.planners.batch.test_batch import shortest
from tests.strategies import placements, problems
from tests.strategies.batch import batch_problems, rows_of
from tests.strategies.invocation import invocation_problems, invocation_slots
from tests.strategies.throughput import throughput_problems
from tests.verify.tampering import tampered

EACH = 25  # changed copies of a file
MUTATIONS = int(os.environ.get("MUTATIONS", "5000"))
SEED = int(os.environ.get("MUTATION_SEED", "0"))
ROUNDING = 2e-9  # the judge's tolerance for a time, and once more for what it is compared with
NOTHING = 1e-20  # seconds that the judge takes for none

PROBLEMS = {
    "latency": problems(max_ops=5, max_devices=3) | problems(max_ops=5, max_devices=3) | crowds(),
    "throughput": throughput_problems(max_ops=5, contiguous=None, shares=None),
    "invocation-latency": invocation_problems(max_ops=5),
    "batch-throughput": batch_problems(max_ops=4, max_batch=4),
}


# -- plan files ----------------------------------------------------------------------------------


@st.composite
def documents(draw, objective):
    """The file of a plan: of a quick planner, or of a random placement, which sends much more."""
    problem = draw(PROBLEMS[objective].filter(lambda each: each.op_count > 1))
    try:
        problem.check_feasible()
        if draw(st.integers(0, 2)) == 0:
            planner = draw(st.sampled_from(quick_planners(problem)))
            plan = solve(problem, planner, source="random")
        else:
            plan = plan_of(problem, draw(PLACEMENTS[objective](problem)))
    except (InfeasibleError, GraphError):  # no room, or subgraphs in a circle
        assume(False)
    assume(verify(plan).ok)
    if isinstance(plan.outcome, (Schedule, BatchSchedule)) and draw(st.integers(0, 3)):
        assume(len(plan.outcome.transfers))
    return json.loads(json.dumps(plan.to_document()))


def plan_of(problem, placement) -> Plan:
    outcome, bound = evaluate(problem, placement), lower_bound(problem)
    return Plan(problem, placement, outcome, outcome.value, bound.value, bound.source, "drawn")


def latency_placements(problem):
    return placements(problem).map(Placement)


def throughput_placements(problem):
    splits = list(itertools.islice(naive_throughput.all_splits(problem), 500))
    assume(splits)
    return st.sampled_from(splits).flatmap(
        lambda split: st.sampled_from(list(naive_throughput.with_shares(problem, split, 4)))
    )


def invocation_placements(problem):
    return invocation_slots(problem).map(
        lambda slots: placement_of(problem, slot_of(problem, *slots))
    )


@st.composite
def batch_placements(draw, problem):
    rows = draw(rows_of(problem))
    chunk = problem.options.batch // rows.shape[1]
    return Placement(np.repeat(rows, chunk, axis=1)[problem.op_unit])


PLACEMENTS = {
    "latency": latency_placements,
    "throughput": throughput_placements,
    "invocation-latency": invocation_placements,
    "batch-throughput": batch_placements,
}


# -- what is true --------------------------------------------------------------------------------

BEST = {
    "latency": naive.shortest_makespan,
    "throughput": lambda problem: naive_throughput.best_split(problem)[0],
    "invocation-latency": naive_invocation.least_latency,
    "batch-throughput": shortest,
}
MOST_OPS = {"latency": 5, "throughput": 5, "invocation-latency": 5, "batch-throughput": 3}


def optimum(document) -> float:
    """The least value of all plans for the file's problem; 0 where there are too many to try."""
    return _optimum(json.dumps(document["problem"]))


@lru_cache(maxsize=2)  # most changes leave the problem as it is
def _optimum(entry) -> float:
    problem = read_problem(ProblemEntry.model_validate_json(entry))
    objective = problem.options.objective
    if problem.op_count > MOST_OPS[objective] or problem.device_count > 3:
        return 0.0
    if problem.options.shares == "unequal":  # brute force is of a grid of shares, not of all
        return 0.0
    try:
        return BEST[objective](problem.with_device_memory(problem.device_memory * (1 + ROUNDING)))
    except UnsatisfiedAssumption:  # too many for brute force
        return 0.0


def assert_true(document) -> None:
    """All that the file says holds, and no plan for its problem can be better than the best."""
    assert naive_plans.faults(document) == []
    assert float(document["value"]) >= optimum(document) * (1 - ROUNDING) - NOTHING


def assert_proved(document) -> None:
    least = optimum(document)
    assert document["lower_bound"] <= (least or document["value"]) * (1 + ROUNDING)


# -- changes -------------------------------------------------------------------------------------


def verdict(path) -> bool | None:
    """The judge's on a plan file, None for one that cannot be read; other errors fail the test."""
    try:
        return verify(Plan.load(path)).ok
    except InputError:
        return None


def is_seen(document) -> bool:
    """Whether the slow judge too finds a fault in a file, or a shape that is none."""
    try:
        return naive_plans.faults(document) != []
    except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError):
        return True


def passes_on_the_command_line(path) -> bool:
    done = run("verify", path)
    assert done.code in (0, InputError.exit_code, VerificationError.exit_code), done
    assert done.err.count("\n") == (done.code != 0), done
    return done.code == 0


def assert_rightly_judged(document, path) -> None:
    holds = verdict(path)
    if holds:
        assert_true(document)
    elif holds is not None:
        assert is_seen(document)


def try_mutations(objective, count, number, path) -> None:
    @seed(number)
    @settings(
        max_examples=max(count // EACH, 1),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(documents(objective), st.integers(0, 2**32 - 1))
    def mutations(document, start):
        assert_true(document)
        assert_proved(document)
        for k in range(EACH):
            changed, changes = tampered(document, Random(start + k))
            path.write_text(json.dumps(changed))
            try:
                assert_rightly_judged(changed, path)
                if k == 0:
                    assert passes_on_the_command_line(path) == bool(verdict(path))
            except BaseException as error:
                error.add_note(f"{changes} made it {path.read_text()}")
                raise

    mutations()


@pytest.mark.parametrize("objective", PROBLEMS)
def test_a_changed_plan_file_is_refused_or_true(objective, tmp_path):
    try_mutations(objective, 300, 0, tmp_path / "plan.json")


@pytest.mark.slow
@pytest.mark.parametrize("objective", PROBLEMS)
def test_thousands_of_changed_plan_files_are_refused_or_true(objective, tmp_path):
    try_mutations(objective, MUTATIONS // len(PROBLEMS), SEED + 1, tmp_path / "plan.json")
