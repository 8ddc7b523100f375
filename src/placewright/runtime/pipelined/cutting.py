"""Cutting a program into virtual stages: a chain of pieces, each on one rank or its replicas.

What a later stage needs of an earlier one travels through all stages between them, since stages
talk to their neighbours only. Weights and the program's own inputs do not travel: every stage has
those that it reads. Of a training program the forward part is cut; autograd does the rest.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Node

from placewright.errors import InputError
from placewright.importers.torch.graph import fold
from placewright.importers.torch.programs import Executable
from placewright.runtime.pipelined.chain import Run, chain_of
from placewright.runtime.pipelined.changing import matters
from placewright.runtime.pipelined.checkpoints import checkpointed
from placewright.runtime.pipelined.differentiable import differentiable
from placewright.runtime.pipelined.groups import Groups
from placewright.runtime.stages.code import Call, Code, Ref, used
from placewright.runtime.stages.cutting import split_inputs
from placewright.runtime.stages.targets import argument, call_of


@dataclass(frozen=True)
class VirtualStage:
    """What a rank runs between two of its transfers; `print` shows it step by step.

    `group` are the ranks that do so, see `Groups`: one, or several replicas.
    ``code.inputs`` are `received` (tensors of the stage before), the names in `weights` (each
    with the parameter, buffer or constant it stands for) and `inputs` (the program's own).
    ``code.result`` is a list: first what the next stage gets, named in `sent`, then the program's
    outputs at the positions `results`, then the new values of the weights in `updates`.
    """

    index: int
    group: int
    code: Code
    received: tuple[str, ...]
    weights: Mapping[str, str]
    inputs: tuple[str, ...]
    sent: tuple[str, ...]
    results: tuple[int, ...] = ()
    updates: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"stage {self.index} of group {self.group}:\n{self.code}"


@dataclass(frozen=True)
class Chain:
    """The virtual stages in their order, and the devices of each group of replicas."""

    stages: tuple[VirtualStage, ...]
    members: tuple[tuple[int, ...], ...]

    @property
    def groups(self) -> Groups:
        return Groups(tuple(map(len, self.members)), tuple(stage.group for stage in self.stages))

    @property
    def devices(self) -> tuple[int, ...]:
        """The device of each rank."""
        return tuple(device for members in self.members for device in members)


def cut_chain(
    executable: Executable,
    device_of: Mapping[str, int],
    replicas: Sequence[Sequence[int]] = (),
    block_of: Mapping[str, int] = MappingProxyType({}),
) -> Chain:
    """The virtual stages of a program under a placement.

    `device_of` gives every op a device; ops on the first device of one of the `replicas` run on
    each of them. Groups of replicas, most of one device, are numbered in the order in which the
    chain comes to them. Forward ops of the same block in `block_of` run again in the backward pass.
    The last stage of a training program sends the loss, which is what the backward starts from.

    InputError where the placement is of another program, where an op needs
    no single tensor of another stage, or where a weight that changes is read by several stages or
    by replicas.
    """
    _check_placement(executable, device_of)
    groups = {each[0]: tuple(each) for each in replicas}
    return _Cutter(executable, device_of, groups, block_of).chain()


def _check_placement(executable: Executable, device_of: Mapping[str, int]) -> None:
    ops = {node.name for node in executable.calls}
    if strange := sorted(ops ^ set(device_of)):
        fault = "gives no device to" if strange[0] in ops else "names a foreign"
        raise InputError(f"the placement {fault} op '{strange[0]}'; plan this program again")


def _outputs(executable: Executable) -> list[tuple[int, Any]]:
    """The flat outputs that are computed: all but the gradients."""
    wanted = {*executable.results, *executable.updates.values()}
    outputs = enumerate(executable.outputs)
    return [(position, value) for position, value in outputs if position in wanted]


def _live(executable: Executable) -> dict[str, Node]:
    """The calls that those outputs need, in the program's order."""
    waiting = [value for _, value in _outputs(executable) if isinstance(value, Node)]
    needed: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
    nodes = executable.module.graph.nodes
    return {node.name: node for node in nodes if node in needed and node.op == "call_function"}


def _sources(call: Node, owner: Mapping[str, str | None]) -> set[str]:
    """The ops whose outputs a call reads, itself or through what is recomputed for it."""
    found: set[str] = set()
    waiting = list(call.all_input_nodes)
    while waiting:
        node = waiting.pop()
        op = owner.get(node.name)
        if op is not None and _stays(node, op):
            found.add(op)
        else:
            waiting += node.all_input_nodes
    return found


def _stays(node: Node, op: str) -> bool:
    """Whether a call is made once, where its op is; other calls tell something about a tensor."""
    return op == node.name or node.target is operator.getitem


@dataclass
class _Cutter:
    """Where every value is made and how far it must travel."""

    executable: Executable
    device_of: Mapping[str, int]
    replicas: Mapping[int, tuple[int, ...]]  # first device → all of them
    block_of: Mapping[str, int]
    live: dict[str, Node] = field(init=False)
    owner: Mapping[str, str | None] = field(init=False)
    made_in: dict[str, int] = field(init=False)  # a call → its stage; recomputed ones have none
    read_in: dict[str, set[int]] = field(init=False)  # a value → the stages that read it

    def chain(self) -> Chain:
        self.live = _live(self.executable)
        self.owner = fold(self.executable.module.graph)
        runs = self._runs() or [Run(0, ())]
        devices = list(dict.fromkeys(run.device for run in runs))
        self.made_in = self._made_in(runs)
        calls = self._calls(len(runs))
        self.read_in = self._read_in(calls, len(runs))
        stages = [
            self._stage(index, devices.index(run.device), calls[index])
            for index, run in enumerate(runs)
        ]
        members = tuple(self.replicas.get(device, (device,)) for device in devices)
        self._check_weights(stages)
        self._check_replicas(stages, members)
        return Chain(tuple(stages), members)

    def _runs(self) -> list[Run]:
        """The chain of the ops that the program's outputs need; of a training program, forward."""
        ops = [node.name for node in self.executable.calls if node.name in self.live]
        needs = {op: _sources(self.live[op], self.owner) for op in ops}
        return chain_of(needs, self.device_of)

    def _made_in(self, runs: Sequence[Run]) -> dict[str, int]:
        stage_of = {op: index for index, run in enumerate(runs) for op in run.ops}
        made = {}
        for name, node in self.live.items():
            op = self.owner[name]
            if op is not None and _stays(node, op):
                made[name] = stage_of[op]
        return made

    def _calls(self, count: int) -> list[list[Node]]:
        """The calls of each stage: those made there, and what they need that is no tensor."""
        where: dict[str, set[int]] = {name: set() for name in self.live}
        calls: list[list[Node]] = [[] for _ in range(count)]
        for name, node in reversed(self.live.items()):
            stages = {self.made_in[name]} if name in self.made_in else where[name]
            for source in node.all_input_nodes:
                if source.name in where:
                    where[source.name] |= stages
            for stage in stages:
                calls[stage].append(node)
        return [list(reversed(each)) for each in calls]

    def _read_in(self, calls: Sequence[Sequence[Node]], count: int) -> dict[str, set[int]]:
        read: dict[str, set[int]] = {}
        for stage, nodes in enumerate(calls):
            for node in nodes:
                for source in node.all_input_nodes:
                    if source.op != "get_attr":
                        read.setdefault(source.name, set()).add(stage)
        for name in self._final:
            read.setdefault(name, set()).add(count)
        return read

    @property
    def _final(self) -> tuple[str, ...]:
        """What the last stage sends: the loss of a training program."""
        if not self.executable.gradients:
            return ()
        (loss,) = self.executable.results
        value = dict(_outputs(self.executable))[loss]
        if not isinstance(value, Node) or value.name not in self.made_in:
            raise InputError(f"{self.executable.name}: no op makes the loss; nothing is trained")
        return (value.name,)

    def _stage(self, index: int, group: int, nodes: Sequence[Node]) -> VirtualStage:
        received, sent = self._crossing(index), self._crossing(index + 1)
        outputs = dict(self._own_outputs(index))
        updated = {position: name for name, position in self.executable.updates.items()}
        results = [p for p in outputs if p not in updated and not self.executable.gradients]
        updates = [p for p in outputs if p in updated]
        node = self.executable.module.graph.output_node()
        kept = [argument(outputs[position], node) for position in (*results, *updates)]
        result = [*map(Ref, sent), *kept]
        steps = checkpointed(self._steps(nodes), used([], result))
        weights, inputs = split_inputs(self.executable, used(steps, result))
        return VirtualStage(
            index,
            group,
            Code((*received, *weights, *inputs), steps, result),
            tuple(received),
            weights,
            inputs,
            tuple(sent),
            tuple(results),
            tuple(updated[position] for position in updates),
        )

    def _steps(self, nodes: Sequence[Node]) -> list[tuple[Call, int | None]]:
        """The calls, each with the block of its op where that runs again."""
        written = differentiable if self.executable.gradients else _as_it_is
        return [
            (call, self.block_of.get(self.owner[node.name] or ""))
            for node in nodes
            for call in written(node)
        ]

    def _crossing(self, cut: int) -> list[str]:
        """The values that stage `cut` - 1 gives to stage `cut`."""
        names = [
            name
            for name, stage in self.made_in.items()
            if stage < cut <= max(self.read_in.get(name, ()), default=-1)
        ]
        for name in names:
            if not isinstance(self.live[name].meta.get("val"), torch.Tensor):
                raise InputError(
                    f"'{name}' is needed on another device but is no single tensor; "
                    "place the ops that use it on one device"
                )
        return names

    def _own_outputs(self, index: int) -> Iterable[tuple[int, Any]]:
        """Those made in a stage; what no op makes is given back by the first."""
        for position, value in _outputs(self.executable):
            name = value.name if isinstance(value, Node) else ""
            if name in self.live and name not in self.made_in:
                raise InputError(f"output '{name}' of the program is no tensor; return tensors")
            if self.made_in.get(name, 0) == index:
                yield position, value

    def _check_weights(self, stages: Sequence[VirtualStage]) -> None:
        """A weight that a run changes must have one place."""
        for name in self.executable.updates:
            makers = [stage.index for stage in stages if name in stage.updates]
            readers = [stage.index for stage in stages if name in stage.weights.values()]
            if set(readers) - set(makers):
                raise InputError(
                    f"'{name}' changes with every run and is read by several stages of the "
                    "pipeline; place the ops that use it on one device, next to each other"
                )

    def _check_replicas(
        self, stages: Sequence[VirtualStage], members: Sequence[Sequence[int]]
    ) -> None:
        """What a run leaves for the next one, which another replica makes, must not matter."""
        for stage in stages:
            if len(members[stage.group]) == 1:
                continue
            for name in stage.updates:
                if matters(self.executable, name):
                    raise InputError(
                        f"'{name}' changes with every run and is read by a stage on "
                        f"{len(members[stage.group])} devices, each of which runs a part of the "
                        "micro-batches; plan without --replicate"
                    )


def _as_it_is(node: Node) -> Iterator[Call]:
    yield call_of(node)
