"""Compiling what the members of a portfolio will need, before its time starts to count.

A kernel is compiled when it is first used and kept on disk once that is done. A worker that is
stopped in the middle of it leaves nothing behind, so that runs of some seconds would never get
over it. So the first run on a machine has each of its members plan something tiny; a file beside
the kernels, or in the user's cache, remembers that it did.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from placewright import planners
from placewright.planners.base import Progress
from placewright.portfolio.members import MEMBERS, Member
from placewright.portfolio.work import Task, perform
from placewright.problem import Problem

SOURCE, CLUSTER = "zoo:gpt2?layers=6", "2x3090"  # some blocks repeat
SECONDS = 1.0  # of a member that no count limits, once it is compiled


def warm_up(objective: str, members: Iterable[Member], on_progress: Progress) -> list[str]:
    """Have each of `members` plan once, but for those that have on this machine; who did."""
    cold = {marker: each for each in members if not (marker := _marker(objective, each)).exists()}
    for number, (marker, member) in enumerate(cold.items()):
        on_progress(f"compiling {member.title} (once on this machine)", number / len(cold))
        options = dict(member.options) | dict(member.effort or {})
        task = Task(number, member, options, SECONDS, 0, None, math.inf)
        _rehearse(member, _tiny(objective))
        perform(_tiny(objective), task, _silence)
        with suppress(OSError):  # then it is done again the next time, in a moment
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
    return [each.title for each in cold.values()]


def everybody(objective: str) -> list[Member]:
    """All members there are for an objective, for problems of whatever size and shape."""
    quick = [row.name for row in planners.planners_for(objective) if row.quick]
    return [*(Member(name, "construct", effort={}) for name in quick), *MEMBERS[objective]]


def _rehearse(member: Member, problem: Problem) -> None:
    """What compiles for longer than the task lasts."""
    if member.prover == "relaxation:prove":
        from placewright.bounds.relaxation import rehearse

        rehearse(problem)


def _silence(message: object) -> None:
    pass


@cache
def _tiny(objective: str) -> Problem:
    from placewright.planning import make_problem

    return make_problem(SOURCE, CLUSTER, {"objective": objective})[0]


def _marker(objective: str, member: Member) -> Path:
    """A file for a member and the kernels as they are."""
    options = " ".join(f"{key}={value}" for key, value in sorted(member.options.items()))
    name = hashlib.sha256(f"{_kernels()} {objective} {member.title} {options}".encode())
    return _folder() / f"warm-{name.hexdigest()[:24]}"


@cache
def _kernels() -> str:
    """Changes with the sources of kernels, the compiler and the interpreter."""
    sources = sorted((Path(__file__).parents[1] / "kernels").glob("*.py"))
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
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "placewright"
