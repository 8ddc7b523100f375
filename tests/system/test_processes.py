"""Worker processes: forked from a server that has imported what they need, or started anew."""

import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest

from placewright.system import processes
from placewright.system.processes import fork_worker, start_worker

SCRIPT = """
import sys
from multiprocessing import Pipe
from placewright.system.processes import expect_workers, fork_worker
from tests.system.test_processes import tell

print("the script")
expect_workers("placewright.portfolio.workers")
here, there = Pipe()
worker = fork_worker(tell, there)
there.close()
print(here.recv())
worker.join()
"""


def tell(connection):
    """In a worker: whether it had imported a module, and whose child it is."""
    connection.send(("placewright.portfolio.workers" in sys.modules, os.getppid()))


def heard(start):
    here, there = Pipe()
    worker = start(tell, there)
    there.close()
    told = here.recv()
    worker.join()
    assert worker.exitcode == 0
    return told


def test_a_worker_is_a_child_of_this_process():
    assert heard(start_worker)[1] == os.getpid()


@pytest.mark.skipif(not processes._can_fork(), reason="the system has no server to fork from")
def test_a_forked_worker_is_a_child_of_the_server():
    assert len({heard(fork_worker)[1], heard(fork_worker)[1], os.getpid()}) == 2


BLOCKED = """
from multiprocessing import forkserver
from pathlib import Path
from placewright.system.processes import expect_workers

expect_workers("placewright.units")
print(Path(f"/proc/{forkserver._forkserver._forkserver_pid}/status").read_text())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc says what is blocked")
@pytest.mark.skipif(not processes._can_fork(), reason="the system has no server to fork from")
def test_an_interrupt_does_not_reach_the_server_while_it_starts():
    found = subprocess.run(
        [sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=True
    )
    lines = dict(line.split(":", 1) for line in found.stdout.splitlines() if ":" in line)
    assert int(lines["SigBlk"], 16) >> (signal.SIGINT - 1) & 1


def test_a_server_that_is_gone_is_told(monkeypatch):
    def gone(self):
        raise EOFError

    context = multiprocessing.get_context(processes.SERVER if processes._can_fork() else "spawn")
    monkeypatch.setattr(context.Process, "start", gone)
    with pytest.raises(ChildProcessError, match="has ended"):
        fork_worker(tell, None)


def test_without_a_server_workers_are_started_anew(monkeypatch):
    monkeypatch.setattr(processes, "_can_fork", lambda: False)
    processes.expect_workers("placewright.units")
    assert heard(fork_worker)[1] == os.getpid()


@pytest.mark.skipif(not processes._can_fork(), reason="the system has no server to fork from")
def test_a_script_without_a_main_guard_runs_once_and_its_workers_know_more(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    here = str(Path(__file__).parents[2])
    found = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": here},
    )
    first, second = found.stdout.splitlines()
    assert first == "the script"
    assert second.startswith("(True,"), second
