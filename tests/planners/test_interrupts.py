"""Ctrl-C still is an exception after planners that use CP-SAT, which likes to take it over."""

import subprocess
import sys

import pytest

CODE = """
import os, signal
from placewright.planning import make_problem
from placewright.solving import solve

signal.signal(signal.SIGINT, signal.default_int_handler)
if __name__ == "__main__":
    problem, _ = make_problem("zoo:rwnn?modules=1&ops=4", "diviml", {options})
    solve(problem, "{planner}", planner_options={chosen}, time_limit=3.0)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt:
        print("interrupted")
"""

THROUGHPUT = {"objective": "throughput", "contiguous": False}
BATCH = {"objective": "batch-throughput", "batch": 4, "contention": "none"}


@pytest.mark.parametrize(
    ("planner", "options", "chosen"),
    [
        ("cp-sat", {"contention": "none"}, {}),
        ("lns", {"contention": "none"}, {"iterations": "3"}),
        ("milp-split", {"contention": "none"}, {"processes": "1"}),
        ("max-load-ip", THROUGHPUT, {}),
        ("diviml-milp", BATCH, {"solver": "cp-sat"}),
        ("milp-split", BATCH, {"iterations": "2"}),
    ],
)
def test_an_interrupt_after_planning_is_an_exception(planner, options, chosen):
    code = CODE.format(planner=planner, options=options, chosen=chosen)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "interrupted", done.stderr[-500:]
