"""Cutting a program by a placement: one `Stage` per rank.

All ranks follow one topological order of the whole program. A rank runs its own calls in that
order, sends each tensor once to each rank that needs it as soon as it is made, and posts a
receive where the order has the producer, waiting only before the first use. So whatever comes
first in the order among all that is left to do can always be done: no placement and no order
deadlocks.

What belongs to an op but makes no tensor (a size query, an assertion) costs nothing and is run
where its op is and on every other rank that wants its value; `getitem` only where its op is.

A weight is on every rank that reads it. What a run gives for it (the new value of a buffer, the
gradient of a parameter) is sent to all of these, so that each keeps its own up to date. Where it
can be, a new value is written into the memory of the old one (see `inplace`).
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placewright.errors import InputError
from placewright.importers.torch.graph import fold
from placewright.runtime.stages.code import (
    Call,
    Code,
    Post,
    Send,
    Step,
    Transfer,
    Wait,
    references,
    used,
)
from placewright.runtime.stages.inplace import appending, in_place
from placewright.runtime.stages.layout import transfer_of
from placewright.runtime.stages.targets import argument, call_of

if TYPE_CHECKING:
    from torch.fx import Node

    from placewright.importers.torch.programs import Executable


@dataclass(frozen=True)
class Stage:
    """What one rank runs; `print` shows it step by step.

    `code.inputs` are the names in `weights` (each with the parameter, buffer or constant it
    stands for) and those in `inputs` (the program's own inputs). `code.result` lists the
    program's results at the positions `outputs`, then new values of the weights `updates`, then
    gradients of the weights `gradients`. Into the memory of the weights `written` it writes.
    """

    rank: int
    code: Code
    weights: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[int, ...]
    updates: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    written: tuple[str, ...] = ()

    @property
    def calls(self) -> list[Call]:
        return [step for step in self.code.steps if isinstance(step, Call)]

    @property
    def sends(self) -> list[Transfer]:
        return [step.transfer for step in self.code.steps if isinstance(step, Send)]

    def __str__(self) -> str:
        return f"rank {self.rank}:\n{self.code}"


def cut(
    program: Executable,
    device_of: Mapping[str, int],
    order: Sequence[str] | None = None,
    ranks: int | None = None,
) -> list[Stage]:
    """The stages of a functional program, one per rank.

    `device_of` gives every op its rank, from 0; any placement will do, contiguous or not. `order`
    is a topological order of all ops, such as a schedule's; without it, the program's own. There
    are `ranks` stages (by default up to the highest rank used); one without ops has nothing to
    do. Raises InputError for a placement or an order of other ops, or one that is not
    topological.

    >>> import torch
    >>> from placewright.importers.torch.export import export_inference
    >>> from placewright.importers.torch.programs import from_program
    >>> layers = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
    >>> program = from_program(export_inference(layers, (torch.zeros(3, 4),)), "layers")
    >>> first, second = cut(program, {"linear": 0, "relu": 1})
    >>> print(second)
    rank 1:
    post %linear from rank 0
    wait %linear
    %relu = torch.ops.aten.relu.default(%linear)
    return [%relu]
    """
    _refuse_written_inputs(program)
    owner = fold(program.module.graph)
    device_of = {op: int(rank) for op, rank in device_of.items()}
    ranks = _check_placement(device_of, _ops(owner), ranks)
    sequence = list(_sequence(program, owner, order))
    home = {node.name: device_of.get(owner[node.name] or "", 0) for node in sequence}
    where = _where(sequence, owner, home)
    results = _results(program, where, home)
    transfers = _transfers(sequence, where, home, results)
    written = appending(program)
    return [
        _Cutter(rank, where, transfers, written).stage(program, sequence, results)
        for rank in range(ranks)
    ]


# -- what is asked ---------------------------------------------------------------------------


def _refuse_written_inputs(program: Executable) -> None:
    known = {*program.results, *program.updates.values(), *program.gradients.values()}
    for position, value in enumerate(program.outputs):
        if position not in known and value is not None:
            raise InputError(
                f"{program.name}: the program writes into its inputs ('{value}' is the new value "
                "of one), which cannot be run on several devices; return the value instead"
            )


def _ops(owner: Mapping[str, str | None]) -> list[str]:
    return list(dict.fromkeys(op for op in owner.values() if op is not None))


def _check_placement(device_of: Mapping[str, int], ops: Sequence[str], ranks: int | None) -> int:
    """The number of ranks."""
    for op in ops:
        if op not in device_of:
            raise InputError(f"the placement gives op '{op}' no device; plan this program again")
    unknown = sorted(set(device_of) - set(ops))
    if unknown:
        raise InputError(
            f"the placement names op '{unknown[0]}', which this program does not have; "
            "plan this program again"
        )
    highest = max(device_of.values(), default=0)
    count = highest + 1 if ranks is None else ranks
    if min(device_of.values(), default=0) < 0 or highest >= count:
        bad = next(op for op in ops if not 0 <= device_of[op] < count)
        raise InputError(f"op '{bad}' is placed on rank {device_of[bad]} of {count}")
    return count


def _sequence(
    program: Executable, owner: Mapping[str, str | None], order: Sequence[str] | None
) -> Iterator[Node]:
    """All calls in the order in which every rank goes through them.

    An op comes at its place in `order`, what is folded into an op as soon as its inputs are
    there.
    """
    calls = {node.name: node for node in program.module.graph.nodes if node.op == "call_function"}
    if order is None:
        yield from calls.values()
        return
    _check_order(order, _ops(owner))
    done: set[str] = set()

    def release(started: Iterable[Node]) -> Iterator[Node]:
        """These, and each folded call whose last input they bring."""
        waiting = list(started)
        while waiting:
            node = waiting.pop()
            if node.name in done:
                continue
            done.add(node.name)
            if node.op == "call_function":
                yield node
            waiting += [
                user
                for user in node.users
                if user.name in calls and _folded(user, owner) and _inputs(user) <= done
            ]

    yield from release(program.module.graph.find_nodes(op="placeholder"))
    yield from release(
        node for node in calls.values() if _folded(node, owner) and not _inputs(node)
    )
    for op in order:
        lacking = sorted(_inputs(calls[op]) - done)
        if lacking:
            raise InputError(
                f"the order has op '{op}' before op '{owner[lacking[0]]}', whose output it needs; "
                "give a topological order"
            )
        yield from release([calls[op]])


def _inputs(node: Node) -> set[str]:
    """Names of the inputs that are values; bodies of higher-order ops are not."""
    return {each.name for each in node.all_input_nodes if each.op != "get_attr"}


def _folded(node: Node, owner: Mapping[str, str | None]) -> bool:
    return owner[node.name] != node.name


def _check_order(order: Sequence[str], ops: Sequence[str]) -> None:
    if sorted(order) == sorted(ops):
        return
    wrong = set(ops) ^ set(order)
    if not wrong:
        op = next(op for op in order if order.count(op) > 1)
        raise InputError(f"the order has op '{op}' twice; each op runs once")
    op = min(wrong)
    fault = "lacks op" if op in set(ops) else "names a foreign op"
    raise InputError(f"the order {fault} '{op}'; give each of the program's ops once")


# -- where things are ------------------------------------------------------------------------


def _where(
    sequence: Sequence[Node], owner: Mapping[str, str | None], home: Mapping[str, int]
) -> dict[str, set[int]]:
    """Call → the ranks that run it: one, unless it only tells something about a tensor."""
    where: dict[str, set[int]] = {}
    for node in reversed(sequence):
        where[node.name] = {home[node.name]}
        if _folded(node, owner) and node.target is not operator.getitem:
            where[node.name].update(*(where.get(user.name, ()) for user in node.users))
    return where


@dataclass(frozen=True)
class _Result:
    """A value that the program gives back, and the ranks that are to have it.

    `weight` is the one it is for, None where it is the caller's.
    """

    value: Any
    ranks: frozenset[int]
    position: int = -1
    weight: str = ""
    is_gradient: bool = False


def _results(
    program: Executable, where: Mapping[str, set[int]], home: Mapping[str, int]
) -> list[_Result]:
    """The caller's results in their order, then updates, then gradients."""
    node = program.module.graph.output_node()
    values = [argument(value, node) for value in program.outputs]
    readers = _readers(program, where)
    found = []
    for position, place in enumerate(program.results):
        rank = home.get(next(references(values[place]), ""), 0)
        found.append(_Result(values[place], frozenset({rank}), position))
    for is_gradient, places in ((False, program.updates), (True, program.gradients)):
        for name, place in places.items():
            ranks = frozenset(readers.get(name, ()))
            found.append(_Result(values[place], ranks, weight=name, is_gradient=is_gradient))
    return found


def _readers(program: Executable, where: Mapping[str, set[int]]) -> dict[str, set[int]]:
    """Weight → the ranks that read it."""
    readers: dict[str, set[int]] = {}
    for node in program.module.graph.find_nodes(op="placeholder"):
        if node.name in program.weights:
            ranks = readers.setdefault(program.weights[node.name], set())
            ranks.update(*(where.get(user.name, ()) for user in node.users))
    return readers


def _transfers(
    sequence: Sequence[Node],
    where: Mapping[str, set[int]],
    home: Mapping[str, int],
    results: Sequence[_Result],
) -> dict[str, list[Transfer]]:
    """Call → the transfers of its result, tags ascending along the order."""
    needed: dict[str, dict[int, str]] = {}
    for node in sequence:
        for source in node.all_input_nodes:
            if source.op == "call_function":
                for rank in where[node.name] - where[source.name]:
                    needed.setdefault(source.name, {}).setdefault(rank, node.name)
    for result in results:
        for name in references(result.value):
            for rank in result.ranks - where.get(name, result.ranks):
                needed.setdefault(name, {}).setdefault(rank, result.weight)
    transfers: dict[str, list[Transfer]] = {}
    tag = 0
    for node in sequence:
        for rank, user in sorted(needed.get(node.name, {}).items()):
            value = node.meta.get("val")
            made = transfer_of(value, node.name, user, home[node.name], rank, tag)
            transfers.setdefault(node.name, []).append(made)
            tag += 1
    return transfers


def split_inputs(
    program: Executable, names: Collection[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Of the program's placeholders those in `names`: weights (with what they are), and inputs."""
    weights = {name: weight for name, weight in program.weights.items() if name in names}
    return weights, tuple(name for name in program.inputs if name in names)


# -- one rank --------------------------------------------------------------------------------


class _Cutter:
    """Collects what one rank does along the global order."""

    def __init__(
        self,
        rank: int,
        where: Mapping[str, set[int]],
        transfers: Mapping[str, list[Transfer]],
        written: Mapping[str, str],
    ) -> None:
        self.rank = rank
        self.where = where
        self.transfers = transfers
        self.written = written
        self.steps: list[Step] = []
        self.awaited: dict[str, Transfer] = {}

    def stage(
        self, program: Executable, sequence: Sequence[Node], results: Sequence[_Result]
    ) -> Stage:
        for node in sequence:
            if self.rank in self.where[node.name]:
                self._run(node)
            self._post(node)
        mine = [result for result in results if self.rank in result.ranks]
        values = [result.value for result in mine]
        self._await(references(values))
        weights, inputs = split_inputs(program, used(self.steps, values))
        return Stage(
            self.rank,
            Code((*weights, *inputs), tuple(self.steps), values),
            weights,
            inputs,
            outputs=tuple(each.position for each in mine if not each.weight),
            updates=tuple(each.weight for each in mine if each.weight and not each.is_gradient),
            gradients=tuple(each.weight for each in mine if each.is_gradient),
            written=tuple(
                weight for call, weight in self.written.items() if self.rank in self.where[call]
            ),
        )

    def _run(self, node: Node) -> None:
        self._await(source.name for source in node.all_input_nodes)
        call = call_of(node)
        self.steps.append(in_place(call) if node.name in self.written else call)
        for transfer in self.transfers.get(node.name, ()):
            if transfer.source == self.rank:
                self.steps.append(Send(transfer))

    def _await(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.awaited:
                self.steps.append(Wait(self.awaited.pop(name)))

    def _post(self, node: Node) -> None:
        for transfer in self.transfers.get(node.name, ()):
            if transfer.target == self.rank:
                self.awaited[node.name] = transfer
                self.steps.append(Post(transfer))
