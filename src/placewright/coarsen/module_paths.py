"""Units of a model by the paths of its modules: the numbered ones, and what stands beside these.

``model.layers.3.mlp.down_proj`` is of unit ``model.layers.3``; ``model.norm`` and ``lm_head`` are
units of their own. The outermost numbers count: ``layers.3.mlp.experts.5`` is of ``layers.3``.
Where the units so found differ and each is a row of like units itself, as stages of a ResNet are,
the inner ones count: ``stages.1.layers.0``. Modules whose names end in a number and that hold
others count too (``encoder.layer0``, ``encoder.layer1``), where no module is a number, or where
they are like each other and none is a row of like units.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from placewright.problem import Problem
from placewright.stash import held_bytes, recomputed_ops

FEWEST = 2  # numbered modules side by side that make a row
MOST_OF = 0.8  # of a stage's ops: what its inner row holds, where that counts

Path = tuple[str, ...]
Signature = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Units:
    """`of[path]`: the unit of a module, "" for what holds units or has no path; `numbered` ones."""

    of: Mapping[str, str]
    numbered: frozenset[str]


def units_of_modules(problem: Problem) -> Units | None:
    """The units that the problem's module paths name; None where they name no row."""
    paths = {module: tuple(module.split(".")) for module in set(problem.op_modules) if module}
    rows = _rows(problem, paths.values())
    if not rows:
        return None
    stages = _stages(problem, rows)
    numbered: dict[str, Path] = {}
    for module, path in paths.items():
        unit = _numbered_unit(path, rows, stages)
        if unit:
            numbered[module] = unit
    above = {unit[:k] for unit in numbered.values() for k in range(len(unit))}
    of = {
        module: ".".join(numbered.get(module) or _unit_beside(path, above))
        for module, path in paths.items()
    }
    found = frozenset(".".join(unit) for unit in numbered.values())
    return Units({**of, "": ""}, found)


def _rows(problem: Problem, paths: Iterable[Path]) -> set[Path]:
    """The rows (see `_row`) of several children that count."""
    children: dict[Path, set[str]] = defaultdict(set)
    holding: dict[Path, set[str]] = defaultdict(set)
    for path in paths:
        for k, part in enumerate(path):
            if row := _row(path, k):
                children[row].add(part)
                if k + 1 < len(path):
                    holding[row].add(part)
    found = {row for row, numbers in children.items() if len(numbers) >= FEWEST}
    plain = {row for row in found if not row[-1]}
    named = {row for row in found - plain if holding[row] == children[row]}
    if not plain:
        return named
    members = _members(problem, plain | named)
    return plain | {
        row
        for row in named & members.keys()
        if _alike(members[row], len(row)) > 0.5 and not _has_inner_rows(members[row], row, plain)
    }


def _row(path: Path, k: int) -> Path | None:
    """The row that part `k` is in: the module that holds it, and its name up to the number."""
    match = re.fullmatch(r"(.*?)[0-9]+", path[k])
    return (*path[:k], match[1]) if match else None


def _numbered_unit(path: Path, rows: set[Path], stages: set[Path]) -> Path:
    """The outermost unit of a row, or the next within where that row is one of stages."""
    found: Path = ()
    for k in range(len(path)):
        row = _row(path, k)
        if row in rows:
            found = path[: k + 1]
            if row not in stages:
                break
    return found


def _unit_beside(path: Path, above: set[Path]) -> Path:
    """The first module on the way to `path` that holds no unit; () if all do."""
    for k in range(1, len(path) + 1):
        if path[:k] not in above:
            return path[:k]
    return ()


def _stages(problem: Problem, rows: set[Path]) -> set[Path]:
    """The outermost rows of which most units are unlike, and are rows of like units."""
    return {
        row
        for row, members in _members(problem, rows).items()
        if _alike(members, len(row)) <= 0.5 and _has_inner_rows(members, row, rows)
    }


def _members(problem: Problem, rows: set[Path]) -> dict[Path, list[tuple[Path, str, float]]]:
    """By row, the outermost ones, path, type and memory of each op in it."""
    outer: dict[Path, list[tuple[Path, str, float]]] = defaultdict(list)
    again, held = recomputed_ops(problem).tolist(), held_bytes(problem).tolist()
    ops = zip(problem.op_modules, problem.op_types, held, again, strict=True)
    for module, type_, memory, is_again in ops:
        path = tuple(module.split("."))
        unit = _numbered_unit(path, rows, set())
        if unit and not is_again:
            row = _row(unit, len(unit) - 1)
            assert row is not None
            outer[row].append((path, type_, memory))
    return outer


def _has_inner_rows(members: list[tuple[Path, str, float]], row: Path, rows: set[Path]) -> bool:
    """Whether one row inside each unit of `row` has most ops, of like units."""
    length = len(row)
    inner: dict[Path, list[tuple[Path, str, float]]] = defaultdict(list)
    for member in members:
        path = member[0]
        depth = next((k for k in range(length, len(path)) if _row(path, k) in rows), None)
        if depth is not None:
            inner[path[length:depth]].append(member)
    if not inner:
        return False
    name, held = max(inner.items(), key=lambda pair: len(pair[1]))
    if len(held) < MOST_OF * len(members):
        return False
    return _alike(held, length + len(name) + 1, within=length) > 0.5


def _alike(members: list[tuple[Path, str, float]], length: int, within: int | None = None) -> float:
    """The share of units (the first `length` parts of paths) that are like another.

    Of all units those of the kind there is most of; `within` the first so many parts, if given,
    those with a like one beside them.
    """
    kinds: dict[Path, Counter[str]] = defaultdict(Counter)
    memory: dict[Path, float] = defaultdict(float)
    for path, type_, bytes_ in members:
        kinds[path[:length]][type_] += 1
        memory[path[:length]] += bytes_
    marks: dict[Path, tuple[Signature, float]] = {
        unit: (tuple(sorted(types.items())), memory[unit]) for unit, types in kinds.items()
    }
    if within is None:
        return max(Counter(marks.values()).values()) / len(marks)
    beside = Counter((unit[:within], mark) for unit, mark in marks.items())
    return sum(beside[unit[:within], mark] > 1 for unit, mark in marks.items()) / len(marks)
