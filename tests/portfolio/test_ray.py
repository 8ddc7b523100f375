"""Planning on Ray: the plans of a local workers, whatever becomes of the workers."""

from __future__ import annotations

import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from placewright.analysis.subproblem import subproblem
from placewright.bounds.latency.paths import lower_bound
from placewright.budget import Budget
from placewright.errors import MissingExtraError, OptionError
from placewright.plan import Plan
from placewright.planners.latency.exact.cases import NOTHING, Case, Job, Method
from placewright.planning import make_problem
from placewright.portfolio import Limits, best_plan
from placewright.portfolio.members import Member
from placewright.portfolio.work import Ended, Found, Task
from placewright.system.ray_connection import check_version, connected
from placewright.verify import verify
from tests.portfolio.test_kill import words
from tests.portfolio.test_run import wait_for

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")

from placewright.planners.latency.exact.ray_pool import RayPool  # noqa: E402
from placewright.portfolio.ray_workers import RayWorkers  # noqa: E402
from placewright.system.ray_worker import LOST  # noqa: E402


@pytest.fixture(scope="module")
def settings():
    """A token of its own, or Ray would leave one in the home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "")  # recorded, to be as before in the end: Ray sets it
        patch.delenv("RAY_AUTH_MODE")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield


@pytest.fixture(scope="module")
def cluster(settings):
    """A cluster of two CPUs on this machine."""
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    signal.signal(signal.SIGTERM, handler)
    with connected("auto") as found:
        yield found
    ray.shutdown()


@pytest.fixture(scope="module")
def problem():
    return make_problem("zoo:gpt2?layers=1", "2x3090", {})[0]


def task(name: str, seconds: float = 5.0) -> Task:
    return Task(1, Member(name, "search"), {}, seconds, 0, None, math.inf)


def until(workers, condition):
    told, end = [], time.monotonic() + 60
    while not condition(told):
        assert time.monotonic() < end
        told += workers.hear(0.1)
    return told


def has_free_cpus(count: int) -> bool:
    return ray.available_resources().get("CPU", 0) >= count


def wait_until(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


# -- runs ----------------------------------------------------------------------------------------


def test_a_counted_run_gives_the_file_that_this_machine_gives(cluster, problem, tmp_path):
    limits = Limits(iterations=1, gap=0.0)
    for name, where in (("here", {"processes": 1}), ("there", {"ray": "auto"})):
        best_plan(problem, limits, seed=7, **where).save(tmp_path / name)
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()


def test_a_run_goes_on_without_a_worker_that_is_lost(cluster, problem, monkeypatch):
    given = []

    def give(workers, worker, task):
        usual(workers, worker, task)
        given.append(worker)
        if len(given) == 1:
            ray.kill(workers._workers[worker]._actor)

    usual = RayWorkers.give
    monkeypatch.setattr(RayWorkers, "give", give)
    events: list = []
    limits = Limits(iterations=1, gap=0.0)
    found = best_plan(problem, limits, ray="auto", on_event=events.append)
    assert [event.message for event in events if event.kind == "failure"] == [LOST]
    assert events[-1].source == "iterations"
    assert len(given) > 1
    assert given[0] not in given[1:]
    assert verify(found).ok


def test_a_run_keeps_its_time_and_leaves_nobody_at_work(cluster):
    problem = make_problem("zoo:rwnn?modules=5", "diviml", {})[0]
    started = time.monotonic()
    found = best_plan(problem, Limits(5.0, gap=0.0), ray="auto")
    assert time.monotonic() - started < 5.0 + 2.0
    assert verify(found).ok
    wait_until(lambda: has_free_cpus(2) and not processes())


# -- the workers ---------------------------------------------------------------------------------


def test_workers_tell_on_the_way_and_are_stopped_whatever_they_do(cluster, problem):
    workers = RayWorkers(problem, 2)
    try:
        until(workers, lambda told: len(workers.idle()) == 2)
        workers.give(0, task("heft"))
        workers.give(1, task("annealing", seconds=1000.0))
        assert workers.idle() == []
        told = until(
            workers, lambda told: workers.idle() and any(number == 1 for number, _ in told)
        )
        assert [type(message) for number, message in told if number == 0] == [Found, Ended]
        assert all(isinstance(message, Found) for number, message in told if number == 1)
    finally:
        workers.end()
    wait_until(lambda: has_free_cpus(2) and not processes())


def test_a_lost_worker_ends_its_task_and_the_last_one_is_an_error(cluster, problem):
    workers = RayWorkers(problem, 2)
    try:
        until(workers, lambda told: len(workers.idle()) == 2)
        workers.give(0, task("annealing"))
        ray.kill(workers._workers[0]._actor)
        told = until(workers, lambda told: (0, Ended(error=LOST, lost=True)) in told)
        assert told.count((0, Ended(error=LOST, lost=True))) == 1
        assert workers.idle() == [1]
        ray.kill(workers._workers[1]._actor)
        with pytest.raises(ChildProcessError, match=r"no Ray worker is left: .* lost"):
            until(workers, lambda told: False)
    finally:
        workers.end()


@pytest.mark.slow
def test_workers_beyond_the_cpus_wait_and_where_all_do_it_is_an_error(
    cluster, problem, monkeypatch
):
    others = RayWorkers(problem, 2)
    workers = RayWorkers(problem, 1)
    try:
        until(others, lambda told: len(others.idle()) == 2)
        assert workers.hear(0.5) == [] == workers.idle()
        monkeypatch.setattr(workers, "_deadline", time.monotonic())
        with pytest.raises(ChildProcessError, match="no Ray worker has started"):
            workers.hear(0.1)
    finally:
        others.end()
        workers.end()


def test_a_worker_of_another_version_is_refused(cluster, problem, monkeypatch):
    here = sys.modules["placewright"].__version__
    for module in ("placewright.version", "placewright.system.ray_worker"):
        monkeypatch.setattr(sys.modules[module], "__version__", "99.0")
    workers = RayWorkers(problem, 1)
    try:
        with pytest.raises(OptionError, match=f"runs placewright {here}, this is 99.0; install"):
            until(workers, lambda told: False)
    finally:
        workers.end()


# -- modules -------------------------------------------------------------------------------------


def cases(problem, count: int, **method) -> list[Case]:
    job = Job(subproblem(problem, problem.topological_order))
    return [Case(job, Method(seed=seed, **method), NOTHING) for seed in range(count)]


def small():
    return make_problem("zoo:gpt2?layers=1", "2x3090", {"contention": "none"})[0]


def test_the_pool_finds_what_is_found_here(cluster):
    problem = small()
    pool = RayPool(2)
    answers = dict(pool.run(cases(problem, 2, nodes=20), Budget(60)))
    pool.end()
    for number, case in enumerate(cases(problem, 2, nodes=20)):
        answer, here = answers[number], case.solve(Budget(60))
        assert (answer.value, answer.lower_bound) == (here.value, here.lower_bound)
        assert answer.placement.device.tolist() == here.placement.device.tolist()
    assert sorted(answers) == [0, 1]


def test_the_pool_keeps_the_time_and_leaves_nothing_at_work(cluster):
    problem = make_problem("zoo:rwnn?modules=5", "diviml", {})[0]
    pool = RayPool(2)
    assert len(list(pool.run(cases(small(), 2, nodes=1), Budget(60)))) == 2  # they have begun
    started = time.monotonic()
    answers = dict(pool.run(cases(problem, 2), Budget(2.0)))
    assert time.monotonic() - started < 2.0 + 1.5
    assert all(answer.lower_bound >= lower_bound(problem).value for answer in answers.values())
    pool.end()
    wait_until(lambda: has_free_cpus(2) and not processes())


def test_the_pool_asks_another_worker_where_one_is_lost(cluster):
    problem = make_problem("zoo:rwnn?modules=5", "diviml", {})[0]
    pool = RayPool(1)
    killer = _Killer(pool, times=1)
    [(number, answer)] = pool.run(cases(problem, 1, seconds=1.0), Budget(60))
    pool.end()
    assert (number, killer.times) == (0, 0)
    assert answer.placement is not None


@pytest.mark.slow
def test_the_pool_leaves_a_module_that_kills_its_workers(cluster):
    problem = make_problem("zoo:rwnn?modules=5", "diviml", {})[0]
    pool = RayPool(1)
    _Killer(pool, times=2)
    with pytest.warns(RuntimeWarning, match="left unsolved: 2 Ray workers were lost"):
        [(_, answer)] = pool.run(cases(problem, 1), Budget(60))
    pool.end()
    assert (answer.placement, answer.turns) == (None, 1)


class _Killer:
    """Kills the processes of a pool some times when it is waited for what they were given."""

    def __init__(self, pool: RayPool, times: int) -> None:
        self.pool, self.times, self.usual = pool, times, pool._hear
        self.killed: set[int] = set()
        pool._hear = self.hear

    def hear(self, seconds):
        if self.times and self.pool._busy:
            found = [each for each in processes() if each.pid not in self.killed]
            for process in found:
                process.kill()
            self.killed |= {process.pid for process in found}
            self.times -= bool(found)
        return self.usual(seconds)


def processes() -> list[psutil.Process]:
    """Those that work for this process beside the workers of its cluster."""
    found = psutil.Process().children(recursive=True)
    return [each for each in found if "spawn_main" in " ".join(words(each))]


# -- addresses -----------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("address", ["nonsense", "ray://", "http://x:1", ":1", "host:0", "h:99999"])
def test_what_is_no_address_is_refused(address, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(OptionError, match="; give auto "), connected(address):
        pass


@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_what_does_not_speak_as_ray_does_is_refused(prefix, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr("placewright.system.ray_connection.ANSWERING", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"{prefix}127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(OptionError, match="no Ray cluster answers"), connected(address):
            pass


def test_a_connected_process_stays_with_its_cluster(cluster):
    with pytest.raises(OptionError, match=r"connected to Ray at .* already"), connected("local"):
        pass
    with connected(ray.get_runtime_context().gcs_address) as again:
        assert again.cpus == 2
    assert ray.is_initialized()


def test_versions_that_differ_are_named():
    with pytest.raises(OptionError, match=r"on machine-1 runs placewright 0\.0, this is"):
        check_version("0.0", "machine-1")


def test_without_ray_the_extra_is_named(problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"planning on Ray needs .*placewright\[ray\]"):
        best_plan(problem, Limits(1.0), ray="auto")


# -- the command ---------------------------------------------------------------------------------


def command(*words: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "placewright",
        "plan",
        "zoo:gpt2?layers=2",
        "-c",
        "2x3090",
        *words,
    ]


def test_an_address_where_nothing_is_costs_a_sentence_and_a_few_seconds():
    started = time.monotonic()
    address = f"127.0.0.1:{free_port()}"
    done = subprocess.run(
        command("--ray", address), capture_output=True, text=True, timeout=60, check=False
    )
    assert time.monotonic() - started < 20
    assert done.returncode == 2
    assert done.stderr.startswith(f"placewright: no Ray cluster answers at '{address}'; ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_the_plan_and_ends_the_cluster(settings, tmp_path, end):
    path = tmp_path / "plan.json"
    words = ("--ray", "local", "--gap", "0", "--time-limit", "100", "-o", str(path))
    with subprocess.Popen(
        command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(path)
        started = psutil.Process(process.pid).children(recursive=True)
        assert started
        time.sleep(5.0)
        os.kill(process.pid, end)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert verify(Plan.load(path)).ok
    assert psutil.wait_procs(started, timeout=10)[1] == []
