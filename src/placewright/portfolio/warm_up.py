"""Compiling what the members of a portfolio will need, before its time starts to count.

A kernel is compiled when it is first used and kept on disk once that is done. A worker that is
stopped in the middle of it leaves nothing behind, so that runs of some seconds would never get
over it. So the first run on a machine has each of its members plan something tiny, in a process
per core; a file beside the kernels, or in the user's cache, remembers that it did.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import version
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from platformdirs import user_cache_path

from placewright import planners
from placewright.bounds import lower_bound
from placewright.budget import Progress
from placewright.costs.clusters import load_cluster
from placewright.costs.roofline import CostOptions, build_problem
from placewright.importers import load
from placewright.kernels import compiling
from placewright.options import Options
from placewright.portfolio.members import INSTANT, PROMISING, Member
from placewright.portfolio.members.latency import RELAXATION
from placewright.portfolio.work import Task, perform
from placewright.problem import Problem
from placewright.system.processes import start_worker

SOURCE, CLUSTER = "zoo:gpt2?layers=6", "2x3090"  # some blocks repeat
SECONDS = 1.0  # of a member that no count limits, once it is compiled
NOTICEABLE = 0.1  # seconds of compiling
MOST_PASSES = 5
SEARCH = "annealing"  # where no promising member is quicker to compile
LISTENING = 0.1  # seconds between two looks at the clock

Cold = tuple[str, Member]
"""An objective, and a member of its portfolio whose kernels are not compiled."""


def cold_members(objective: str, members: Iterable[Member]) -> list[Member]:
    """Those whose kernels are not compiled on this machine, the most useful first."""
    by_marker = {_marker(objective, each): each for each in members}
    cold = [member for marker, member in by_marker.items() if not marker.exists()]
    return sorted(cold, key=partial(_urgency, objective))


def warm_up(
    objective: str,
    members: Iterable[Member],
    on_progress: Progress,
    seconds: float = math.inf,
    processes: int | None = None,
) -> list[Member]:
    """Have each of `members` plan once, but for those that have on this machine; who could not.

    What a run begins with is compiled in any case, the rest until `seconds` are over. A process
    beside this one for each core, unless there is little to do.
    """
    left = warm_up_all({objective: members}, on_progress, seconds, processes)
    return [member for _, member in left]


def warm_up_all(
    members: Mapping[str, Iterable[Member]],
    on_progress: Progress,
    seconds: float = math.inf,
    processes: int | None = None,
) -> list[Cold]:
    """As `warm_up`, for the members of several objectives."""
    cold = [(each, member) for each in members for member in cold_members(each, members[each])]
    cores = min(processes or os.cpu_count() or 1, len(cold))
    deadline = time.monotonic() + seconds
    if cores > 1:
        return _in_processes(cold, on_progress, deadline, cores)
    count = len(cold)
    while cold and (_is_needed(*cold[0]) or time.monotonic() < deadline):
        objective, member = cold.pop(0)
        on_progress(_stage(member), 1.0 - (len(cold) + 1) / count)
        _compile(objective, member)
    return cold


def _in_processes(
    cold: list[Cold], on_progress: Progress, deadline: float, cores: int
) -> list[Cold]:
    """A process that breaks down costs its member, which is then compiled when it is used."""
    count, busy = len(cold), dict[Connection, Cold]()
    workers = []
    try:
        for _ in range(cores):
            connection, theirs = Pipe()
            workers.append(start_worker(_serve, theirs))
            theirs.close()
            _hand_out(cold, connection, busy)
        while busy and (
            any(_is_needed(*each) for each in busy.values()) or time.monotonic() < deadline
        ):
            share = 1.0 - (len(cold) + len(busy)) / count
            on_progress(_stage(next(iter(busy.values()))[1]), share)
            ended = wait(list(busy), timeout=LISTENING)
            for connection in [each for each in busy if each in ended]:
                del busy[connection]
                with suppress(EOFError, OSError):
                    connection.recv()
                    _hand_out(cold, connection, busy)
        return [*busy.values(), *cold]
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()


def _hand_out(cold: list[Cold], to: Connection, busy: dict[Connection, Cold]) -> None:
    """What a run needs, and of that the first with least in common with what is compiled now.

    Of two processes that need the same kernels one waits for the other, kernel by kernel.
    """
    if cold:
        objectives = {objective for objective, _ in busy.values()}
        names = {member.name for _, member in busy.values()}

        def preference(each: Cold) -> tuple[bool, bool, bool]:
            objective, member = each
            return not _is_needed(*each), objective in objectives, member.name in names

        chosen = min(cold, key=preference)
        cold.remove(chosen)
        busy[to] = chosen
        to.send(chosen)


def _serve(connection: Connection) -> None:
    """In a worker: compile for one member after another."""
    with suppress(EOFError, OSError):  # nothing is left to do
        while True:
            _compile(*connection.recv())
            connection.send(True)


def _compile(objective: str, member: Member) -> None:
    """Plan until nothing is left to compile: that may take the time of what comes later."""
    options = dict(member.options) | dict(member.effort or {})
    task = Task(0, member, options, SECONDS, 0, None, math.inf)
    _warm_up_bounds(member, _tiny(objective))
    lower_bound(_tiny(objective))
    for _ in range(MOST_PASSES):
        with compiling() as seconds:
            perform(_tiny(objective), task, _silence)
        if seconds() < NOTICEABLE:
            break
    marker = _marker(objective, member)
    with suppress(OSError):  # then it is done again the next time, in a moment
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def _stage(member: Member) -> str:
    return f"compiling {member.title} (once on this machine)"


def _is_needed(objective: str, member: Member) -> bool:
    """Nothing is worth beginning without a first plan and somebody to make it better."""
    return member.name in (*INSTANT, _first_search(objective))


def _first_search(objective: str) -> str:
    names = [row.name for row in planners.planners_for(objective)]
    return next((name for name in PROMISING if name in names), SEARCH)


def _urgency(objective: str, member: Member) -> int:
    """What a run needs, the longest first; then what makes plans better, then what proves."""
    if _is_needed(objective, member):
        return 0 if member.name == _first_search(objective) else 1
    return {"search": 2, "prove": 3, "decide": 3, "construct": 4}[member.role]


def _warm_up_bounds(member: Member, problem: Problem) -> None:
    """What compiles for longer than the task lasts."""
    if member.prover == RELAXATION:
        from placewright.bounds.latency.relaxation import warm_up_bounds

        warm_up_bounds(problem)


def _silence(message: object) -> None:
    pass


@cache
def _tiny(objective: str) -> Problem:
    graph, cluster = load(SOURCE).graph, load_cluster(CLUSTER)
    return build_problem(graph, cluster, Options(objective=objective), CostOptions())


def _marker(objective: str, member: Member) -> Path:
    """A file for a member and the kernels as they are."""
    options = " ".join(f"{key}={value}" for key, value in sorted(member.options.items()))
    name = hashlib.sha256(f"{_kernels()} {objective} {member.title} {options}".encode())
    return _folder() / f"warm-{name.hexdigest()[:24]}"


@cache
def _kernels() -> str:
    """Changes with the sources of kernels, the compiler and the interpreter."""
    sources = sorted((Path(__file__).parents[1] / "kernels").rglob("*.py"))
    times = [f"{each.name} {each.stat().st_mtime_ns}" for each in sources]
    return " ".join([version("numba"), sys.version, *times])


@cache
def _folder() -> Path:
    """Where numba keeps the kernels, as far as we know; or a place of our own."""
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(chosen)
    beside = Path(__file__).parents[1] / "kernels" / "__pycache__"
    if os.access(beside if beside.exists() else beside.parent, os.W_OK):
        return beside
    return user_cache_path("placewright")
