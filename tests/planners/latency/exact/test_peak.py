"""Memory option ``peak``: exact planners against brute force that has its own evaluator."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis.errors import UnsatisfiedAssumption

from placewright.errors import InfeasibleError, ProvedInfeasibleError
from placewright.graph import GraphBuilder
from placewright.options import Options
from placewright.portfolio import Limits, best_plan
from placewright.problem import Problem
from placewright.solving import solve
from placewright.verify import verify
from tests.builders import X, Y, plain
from tests.naive import peak as naive_peak
from tests.strategies import graph_columns

SECONDS = 60.0  # far more than any of these takes


def drawn(seed: int, max_ops: int = 5, max_devices: int = 3) -> Problem:
    """A random problem whose memory is so short that the peak decides what is possible."""
    rng = np.random.default_rng(seed)
    n, devices = int(rng.integers(2, max_ops + 1)), int(rng.integers(1, max_devices + 1))
    builder = GraphBuilder(f"peak{seed}")
    for op in range(n):
        builder.add_op(f"op{op}", "op", parameter_bytes=float(rng.integers(0, 5)))
    for op in range(n):
        readers = [later for later in range(op + 1, n) if rng.random() < 0.5][:3]
        if readers or rng.random() < 0.5:
            tensor = builder.add_tensor(op, float(rng.integers(0, 9)))
            for reader in readers:
                builder.connect(tensor, reader)
    graph = builder.build()
    times = rng.integers(0 if rng.random() < 0.2 else 1, 9, (n, devices)).astype(float)
    if devices > 1 and rng.random() < 0.2:
        times[int(rng.integers(n)), int(rng.integers(devices))] = math.inf
    total = float(graph.op_parameter_bytes.sum() + graph.tensor_bytes.sum())
    memory = np.ceil(total * rng.uniform(0.3, 1.0, devices))
    apart = np.ones((devices, devices)) - np.eye(devices)
    port = rng.random() < 0.5
    pairs = [
        [] if a == b else [a * devices + b if port else 0] for a, b in np.ndindex(devices, devices)
    ]
    return Problem(
        name=graph.name,
        **graph_columns(graph),
        op_time=times,
        op_memory=graph.op_parameter_bytes,
        op_pinned=np.full(n, -1),
        device_names=tuple(f"d{d}" for d in range(devices)),
        device_kinds=("kind",) * devices,
        device_memory=memory,
        link_latency=apart * float(rng.integers(0, 3)),
        link_seconds_per_byte=apart * float(rng.choice([0.0, 0.25, 1.0])),
        channel_offsets=np.cumsum([0, *(len(each) for each in pairs)]),
        channels=np.array([c for each in pairs for c in each], dtype=np.int32),
        channel_names=tuple(f"c{k}" for k in range(devices**2)),
        options=Options(
            transfer_unit=str(rng.choice(["tensor", "edge"])),
            contention=str(rng.choice(["none", "port", "link"])),
            memory="peak",
        ),
    )  # fmt: skip


def check(problem: Problem, planner: str) -> str:
    """``optimal`` or ``none``: what the planner says, which must be what brute force finds."""
    best = naive_peak.shortest_makespan(problem)
    try:
        if planner == "auto":
            plan = best_plan(problem, Limits.of(SECONDS), processes=1)
        else:
            plan = solve(problem, planner, time_limit=SECONDS)
    except ProvedInfeasibleError:
        assert best == math.inf, f"{problem.name}: said to be infeasible, {best} is possible"
        return "none"
    assert verify(plan).ok
    assert plan.value == pytest.approx(best, rel=1e-9), problem.name
    assert plan.lower_bound <= best * (1 + 1e-9)
    assert plan.status == "optimal", (problem.name, plan.gap)
    return "optimal"


def planners_of(problem: Problem) -> list[str]:
    exact = ["cp-sat", "moirai-milp"]
    return [*exact, "diviml-milp"] if problem.options.contention == "none" else exact


def check_all(seeds: range, names: list[str] | None = None) -> dict[str, int]:
    said: dict[str, int] = {}
    for seed in seeds:
        problem = drawn(seed)
        for planner in names or planners_of(problem):
            try:
                answer = check(problem, planner)
            except UnsatisfiedAssumption:  # too much for brute force
                answer = "skipped"
            said[answer] = said.get(answer, 0) + 1
    return said


def test_exact_planners_find_the_optimum_or_prove_that_there_is_none():
    said = check_all(range(12))
    assert said["optimal"] > 5 and said["none"] > 0 and said.get("skipped", 0) < 5


def test_the_default_planner_finds_the_optimum_or_says_truly_that_there_is_none():
    best_plan(drawn(26), Limits(iterations=1), processes=1)  # compiles
    said = check_all(range(20, 28), ["auto"])
    assert said["optimal"] > 2 and said["none"] > 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_three_hundred_problems():
    said = check_all(range(300))
    assert said["optimal"] > 300 and said["none"] > 100 and said.get("skipped", 0) < 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_three_hundred_problems_by_the_default_planner():
    said = check_all(range(300), ["auto"])
    assert said["optimal"] > 150 and said["none"] > 50 and said.get("skipped", 0) < 10


def read_at_once(tensor_bytes: list[float], memory: float) -> Problem:
    """Two tensors must come to x and be read there all at one instant: x has room for one."""
    return Problem(
        **plain(3, 2)
        | {
            "op_time": [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]],
            "op_memory": np.zeros(3),
            "op_pinned": [Y, Y, X],
            "tensor_producer": [0, 0, 0, 1],
            "tensor_bytes": [*tensor_bytes, 0.0, 0.0],
            "consumer_offsets": range(5),
            "consumers": [2, 2, 1, 2],
            "device_memory": [memory, np.inf],
            "link_latency": np.zeros((2, 2)),
            "link_seconds_per_byte": np.zeros((2, 2)),
            "options": Options(memory="peak"),
        }
    )


@pytest.mark.parametrize("planner", ["moirai-milp", "cp-sat"])
def test_what_comes_and_is_read_at_one_instant_takes_no_room(planner):
    plan = solve(read_at_once([2.0, 2.0], 3.0), planner, time_limit=SECONDS)
    assert (plan.value, plan.status) == (2.0, "optimal")


@pytest.mark.parametrize("memory", [0.0, 1e-15])
def test_cp_sat_takes_devices_that_have_no_room_for_a_part_of_a_byte(memory):
    """Of a second at least, the last op keeps its copy on x."""
    problem = read_at_once([0.5, 0.5], memory)
    problem = replace(problem, op_time=np.ones((3, 2)))
    with pytest.raises(ProvedInfeasibleError, match="as CP-SAT has proved"):
        solve(problem, "cp-sat", time_limit=SECONDS)


def test_cp_sat_finds_the_plan_of_a_problem_that_its_presolve_proved_impossible():
    """Unless rows that include others are left as they are (`solvers.cp_sat`)."""
    problem = Problem(**plain(5, 3) | {
        "op_time": [[2, 3, 2], [1, 2, 1.5], [1, 0.1, 0.1], [2, 3, 2], [1, 0.5, 0]],
        "op_memory": [4.0, 1.0, 4.0, 1.0, 4.0],
        "tensor_producer": [2, 2],
        "tensor_bytes": [1.0, 1.0],
        "consumer_offsets": [0, 1, 4],
        "consumers": [1, 1, 0, 3],
        "device_memory": [5.0, 5.4, 9.2],
        "link_latency": [[0, 0.1, 0], [0, 0, 0.1], [0, 0.1, 0]],
        "link_seconds_per_byte": [[0, 1, 0.25], [0, 0, 0], [0.25, 0.25, 0]],
        "options": Options(transfer_unit="edge", contention="port", memory="peak"),
    })  # fmt: skip
    plan = solve(problem, "cp-sat", time_limit=SECONDS)
    assert plan.value == pytest.approx(3.6)
    assert plan.status == "optimal"


def test_a_best_plan_that_does_not_fit_when_it_is_timed_is_told_so_whatever_the_time_limit():
    """The solver takes 2 B for no more than the memory of x, which the judge does not."""
    problem = replace(read_at_once([2.0, 0.0], 2.0 - 1e-7), op_time=np.ones((3, 2)))
    with pytest.raises(InfeasibleError, match="does not fit when it is timed"):
        solve(problem, "moirai-milp", time_limit=SECONDS)
