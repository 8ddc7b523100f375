"""A placement made by hand, from a file: the "expert" baseline, or a user's own idea."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from placewright.budget import Budget, Progress
from placewright.coarsen.recompute import called_ops, check_blocks_whole
from placewright.errors import FormatError, InfeasibleError, OptionError
from placewright.formats.placements import PlacementFile, read_op_numbers, read_placement
from placewright.graph import Flags, Floats, Ints
from placewright.plan import Placement
from placewright.planners.base import LatencyPlanner, Proposal
from placewright.problem import Problem
from placewright.stash import RECOMPUTE
from placewright.units import format_bytes, parse_whole

SEPARATORS = "./"  # between the parts of an op's or a module's name


class Expert(LatencyPlanner):
    """Every op where a file says (Tarnawski et al. 2020, §6 and §7: human experts).

    Option `file`: a ``placewright.placement/1`` file, a saved plan, or a published expert
    placement. In the first, a key is an op's name, or a prefix of op or module names that ends at
    a dot or slash; the longest key that fits an op counts, and the key "" fits every op::

        {"format": "placewright.placement/1",
         "placement": {"": "gpu0", "transformer.h.12": "gpu1", "lm_head": "cpu"}}

    A plan without recomputation places what runs again where it ran first, and one with it places
    a problem without. An op that costs nothing, such as a view, and has no key but "" is where its
    first input is made: a file that places layers need not know them.

    A published expert placement names ops by number. They are found by the names the importer
    gives unnamed ops, ``node<number>``; where ops have names of their own, option `workload` is
    the workload file that has the numbers, in the problem's order of ops.

    `content` is what the file says, where that is known already.
    """

    name: ClassVar[str] = "expert"
    counts_peak: ClassVar[bool] = True

    def __init__(
        self, file: str = "", workload: str = "", *, content: PlacementFile | None = None
    ) -> None:
        if not file:
            raise OptionError("planner 'expert' needs a placement file: -O file=PATH")
        self.file = file
        self.workload = workload
        self._content = content

    def plan(self, problem: Problem, budget: Budget, seed: int, on_progress: Progress) -> Proposal:
        content = self._content or read_placement(self.file)
        found = _with_recomputed(problem, self._names(problem, content))
        names = _with_views(problem, found, content.placement.get(""))
        device = self._devices(problem, names)
        check_blocks_whole(problem, device, self.file)
        self._check(problem, device)
        if problem.options.objective == "latency":
            self._check_peak(problem, device)
        return Proposal(Placement(device))

    # -- who is meant

    def _names(self, problem: Problem, content: PlacementFile) -> list[str | None]:
        """`[op]` the name of its device, None where the file says nothing of a view or at all."""
        if content.by_number is not None:
            return self._by_number(problem, content.by_number)
        if content.exact:
            there = set(problem.op_names)
            unknown = [
                name for name in content.placement if name.removesuffix(RECOMPUTE) not in there
            ]
            self._refuse_unknown(unknown, problem.op_names)
            return [content.placement.get(name) for name in problem.op_names]
        return self._by_prefix(problem, content.placement)

    def _by_number(self, problem: Problem, by_number: Mapping[int, str]) -> list[str | None]:
        numbers = self._numbers(problem)
        unknown = sorted(set(by_number) - set(numbers))
        if unknown:
            hint = (
                f"give the placement of {self.workload}"
                if self.workload
                else "name the workload file that has the numbers: -O workload=PATH"
            )
            raise FormatError(
                f"{self.file}: node {unknown[0]} is no op of '{problem.name}' "
                f"({len(unknown)} of {len(by_number)} are not found); {hint}"
            )
        return [None if number is None else by_number.get(number) for number in numbers]

    def _numbers(self, problem: Problem) -> Sequence[int | None]:
        if not self.workload:
            return [_number_in(name) for name in problem.op_names]
        numbers = read_op_numbers(self.workload)
        if len(numbers) != problem.op_count:
            raise OptionError(
                f"planner 'expert': {self.workload} has {len(numbers)} ops, the problem "
                f"'{problem.name}' has {problem.op_count}; give the workload file it is made of"
            )
        return numbers

    def _by_prefix(self, problem: Problem, placement: Mapping[str, str]) -> list[str | None]:
        used: set[str] = set()
        names: list[str | None] = []
        for op, module, view in zip(
            problem.op_names, problem.op_modules, _views(problem).tolist(), strict=True
        ):
            fitting = [key for key in _prefixes(op, module) if key in placement]
            used.update(fitting)
            is_said = fitting and not (view and fitting[0] == "")
            names.append(placement[fitting[0]] if is_said else None)
        unused = [key for key in placement if key and key not in used]
        if unused:
            known = [*problem.op_names, *dict.fromkeys(problem.op_modules)]
            self._refuse_unknown(unused, known)
        return names

    def _refuse_unknown(self, keys: Iterable[str], known: Sequence[str]) -> None:
        there = set(known)
        for key in keys:
            if key not in there:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean '{close[0]}'?" if close else "see the names with 'info'"
                raise FormatError(
                    f"{self.file}: field placement: '{key}' is no op and no prefix of op or "
                    f"module names; {hint}"
                )

    # -- where it may be

    def _devices(self, problem: Problem, names: Sequence[str | None]) -> Ints:
        """`[op]` device numbers; FormatError for an op without a device, or with an unknown one."""
        without = [op for op, name in zip(problem.op_names, names, strict=True) if name is None]
        if without:
            more = f" and {len(without) - 1} other ops" if len(without) > 1 else ""
            raise FormatError(
                f"{self.file}: no device is given for op '{without[0]}'{more}; "
                'place every op (the key "" of placewright.placement/1 places all others)'
            )
        number = {name: device for device, name in enumerate(problem.device_names)}
        for op, name in zip(problem.op_names, names, strict=True):
            if name not in number:
                raise FormatError(
                    f"{self.file}: op '{op}' is placed on '{name}', which is no device; "
                    f"there are {', '.join(problem.device_names)}"
                )
        return np.array([number[str(name)] for name in names], dtype=np.int32)

    def _check(self, problem: Problem, device: Ints) -> None:
        """Say which op cannot be where the file puts it, or which device overflows."""
        first = np.zeros(problem.unit_count, dtype=np.int64)
        first[problem.op_unit[::-1]] = np.arange(problem.op_count)[::-1]
        for op, other in enumerate(first[problem.op_unit]):
            where = problem.device_names[device[op]]
            if device[op] != device[other]:
                raise FormatError(
                    f"{self.file}: ops '{problem.op_names[other]}' and '{problem.op_names[op]}' "
                    f"must be together but are placed on '{problem.device_names[device[other]]}' "
                    f"and '{where}'"
                )
            pinned = problem.op_pinned[op]
            if pinned not in (-1, device[op]):
                raise FormatError(
                    f"{self.file}: op '{problem.op_names[op]}' is placed on '{where}' but pinned "
                    f"to '{problem.device_names[pinned]}'; change one of the two"
                )
            if np.isinf(problem.op_time[op, device[op]]):
                raise InfeasibleError(
                    f"{self.file}: op '{problem.op_names[op]}' is placed on '{where}', which "
                    "cannot run it"
                )
        self._check_memory(problem, device)

    def _check_memory(self, problem: Problem, device: Ints) -> None:
        kept = np.bincount(device, problem.op_memory, problem.device_count)
        needed: Floats = kept.astype(np.float64)
        self._refuse_overfull(problem, needed, needed > problem.device_memory, "")

    def _check_peak(self, problem: Problem, device: Ints) -> None:
        """The same with the tensors that live there, where their peak counts."""
        from placewright.simulate.latency import time_placement
        from placewright.simulate.peak import peak_excess

        placement = Placement(device)
        excess = peak_excess(problem, placement, time_placement(problem, placement))
        needed = problem.device_memory + excess
        beside = ", with the tensors that live there,"
        self._refuse_overfull(problem, needed, excess > 0, beside)

    def _refuse_overfull(self, problem: Problem, needed: Floats, full: Flags, beside: str) -> None:
        over = np.flatnonzero(full)
        if over.size:
            worst = int(over[(needed - problem.device_memory)[over].argmax()])
            more = f" (and {over.size - 1} more devices overflow)" if over.size > 1 else ""
            raise InfeasibleError(
                f"{self.file}: the ops placed on '{problem.device_names[worst]}'{beside} need "
                f"{format_bytes(needed[worst])}, it has "
                f"{format_bytes(problem.device_memory[worst])}{more}"
            )


def _views(problem: Problem) -> Flags:
    """`[op]` whether it costs nothing: no time anywhere, no bytes kept, and placed by itself."""
    times = np.where(np.isfinite(problem.op_time), problem.op_time, 0.0)
    alone = np.bincount(problem.op_unit, minlength=problem.unit_count)[problem.op_unit] == 1
    free: Flags = (times == 0.0).all(axis=1) & (problem.op_memory == 0.0) & alone
    return free


def _with_recomputed(problem: Problem, names: Sequence[str | None]) -> list[str | None]:
    """Ops without a name that run others again: where these are."""
    of = dict(zip(problem.op_names, names, strict=True))
    called = called_ops(problem)
    return [of[call] if name is None else name for call, name in zip(called, names, strict=True)]


def _with_views(
    problem: Problem, names: Sequence[str | None], default: str | None
) -> list[str | None]:
    """Ops without a name that cost nothing: where their first input is made, else `default`."""
    found, views = list(names), _views(problem)
    offsets, inputs = problem.op_inputs
    for op in problem.topological_order.tolist():
        if found[op] is None and views[op]:
            edges = inputs[offsets[op] : offsets[op + 1]]
            made_by = int(problem.edge_producer[edges[0]]) if len(edges) else -1
            found[op] = found[made_by] if made_by >= 0 else default
    return found


def _number_in(name: str) -> int | None:
    """The number of an op the importer named: ``node12`` and ``….#12`` are 12.

    >>> _number_in("node12"), _number_in("relu#3"), _number_in("relu")
    (12, 3, None)
    """
    for mark in ("node", "#"):
        head, found, digits = name.rpartition(mark)
        if found and (mark == "#" or not head) and (number := parse_whole(digits)) is not None:
            return number
    return None


def _prefixes(op: str, module: str) -> list[str]:
    """The keys that fit an op: its name, then prefixes of its name and module, longest first."""
    found = {*_whole_prefixes(op), *_whole_prefixes(module)} - {op, ""}
    return [op, *sorted(found, key=lambda key: (-len(key), key)), ""]


def _whole_prefixes(name: str) -> list[str]:
    """`name` and what precedes each of its separators."""
    return [name, *(name[:k] for k, letter in enumerate(name) if letter in SEPARATORS)]
