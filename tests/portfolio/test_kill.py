"""``kill -9`` at any moment leaves a whole, verified plan that is a few seconds old at most."""

import json
import random
import subprocess
import sys
import time

import psutil
import pytest

from placewright.plan import Plan
from placewright.portfolio.checkpoint import SECONDS
from placewright.verify import verify
from tests.portfolio.test_run import wait_for

SOURCE = ("zoo:rwnn?modules=5", "-c", "diviml")
LATE = 3.0  # seconds that a busy machine may take to write


def kill_once(folder, moment: float) -> None:
    path, events = folder / "plan.json", folder / "events.jsonl"
    command = [
        *(sys.executable, "-m", "placewright", "plan", *SOURCE, "--time-limit", "100"),
        *("--gap", "0", "-o", str(path), "--events", str(events)),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        wait_for(path)
        time.sleep(moment)
        process.kill()
        process.wait()
    plan = Plan.load(path)
    assert verify(plan).ok
    told = [json.loads(line) for line in events.read_text().splitlines() if line.endswith("}")]
    last = max(event["seconds"] for event in told)
    old = [event["value"] for event in told if event["seconds"] <= last - SECONDS - LATE]
    assert plan.value <= min((value for value in old if value), default=float("inf"))


@pytest.mark.parametrize("number", range(3))
def test_a_killed_run_leaves_a_verified_plan(number, tmp_path):
    kill_once(tmp_path, random.Random(number).uniform(0.0, 4.0))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_kills_at_random_moments_leave_a_verified_plan_each(tmp_path):
    moments = random.Random(50)
    for number in range(50):
        folder = tmp_path / str(number)
        folder.mkdir()
        kill_once(folder, moments.uniform(0.0, 6.0))


def test_no_worker_outlives_a_killed_run(tmp_path):
    path = tmp_path / "plan.json"
    command = [
        *(sys.executable, "-m", "placewright", "plan", *SOURCE, "--time-limit", "100"),
        *("--gap", "0", "--processes", "2", "-o", str(path)),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(path)
        until = time.monotonic() + 60
        while len(workers := workers_of(process.pid)) < 2:
            assert time.monotonic() < until, "no workers started"
            time.sleep(0.05)
        process.kill()
        process.wait()
    until = time.monotonic() + 60
    while any(is_alive(worker) for worker in workers):
        assert time.monotonic() < until, "a worker goes on"
        time.sleep(0.05)


def workers_of(pid: int) -> list[int]:
    """The processes that its server of worker processes has forked."""
    children = psutil.Process(pid).children()
    servers = [each for each in children if "forkserver" in " ".join(words(each))]
    return [worker.pid for server in servers for worker in server.children()]


def words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def is_alive(pid: int) -> bool:
    found = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return bool(found.stdout.strip()) and not found.stdout.strip().startswith("Z")
