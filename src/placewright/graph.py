"""`Graph`: what a model computes, before any device is known.

Ops and tensors are columns (arrays with one entry per op or tensor). An op reads tensors and
produces tensors; a tensor has one producer and any number of consumers. The model's own inputs
are not tensors here: they are taken to be on every device when the run starts.

>>> builder = GraphBuilder("two")
>>> a = builder.add_op("a", "matmul", flops=2e9, bytes_read=1e6, bytes_written=1e6)
>>> t = builder.add_tensor(a, 1e6)
>>> b = builder.add_op("b", "relu", inputs=[t], bytes_read=1e6, bytes_written=1e6)
>>> graph = builder.build()
>>> graph.op_count, graph.tensor_count, graph.op_names
(2, 1, ('a', 'b'))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from placewright.errors import GraphError
from placewright.stored import Stored

WHOLE_MEMORY = "whole_memory"
"""The attribute of a training graph whose parameter bytes have gradients and all else in them."""

WINDOWS = "windows"
"""The attribute that says, by name of the op, how many tokens a KV cache keeps at most of each
sequence: a sliding window. 0: a state, as large for any number. All others keep all tokens."""

ITEM_BYTES: Mapping[str, float] = {
    "fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0,
    "int4": 0.5,
}  # fmt: skip
DTYPES = tuple(ITEM_BYTES)

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Wide = NDArray[np.int64]
Whole = NDArray[np.signedinteger[Any]]
"""Of either width."""
Flags = NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(values: Any, dtype: Any) -> NDArray[Any]:
    """A read-only contiguous array of `dtype`, copied unless it already is one."""
    if type(values) is np.ndarray and values.dtype == dtype:
        flags = values.flags
        if flags.c_contiguous and not flags.writeable:
            return values
    array = np.ascontiguousarray(values, dtype=dtype)
    if array.flags.writeable:
        if array is values or array.base is not None:
            array = array.copy()
        array.flags.writeable = False
    return array


class ReadOnly:
    """Its arrays stay read-only when it comes out of a pickle.

    Kernels are compiled for the one or the other, so a worker process would compile its own.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        for value in state.values():
            for array in value if isinstance(value, tuple) else (value,):
                if isinstance(array, np.ndarray):
                    array.flags.writeable = False
        self.__dict__.update(state)


def lent(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """A writable copy, for a kernel that searches lend theirs: it is compiled once for both."""
    return array.copy()


def given_up(array: NDArray[Any]) -> NDArray[Any]:
    """The same array, made read-only by its only owner, so that `frozen` need not copy it."""
    array.flags.writeable = False
    return array


class CopyTensor(NamedTuple):
    """A weight of so many `bytes` that op `producer` hands to the ops with copies of it."""

    producer: int
    bytes: float
    consumers: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Graph(Stored):
    """A directed acyclic graph of ops and tensors.

    Per op (index order is the op's number everywhere):

    - `op_names` (unique), `op_types`, `op_modules` (path of the module it came from, ``""`` if
      none), `op_dtypes` (one of `DTYPES`: which peak of a device it can use);
    - `op_flops`; `op_bytes_read`, `op_bytes_written` (memory traffic, parameters included);
      an op with none of the three costs no time anywhere (a view, a placeholder);
    - `op_parameter_bytes` (weights it needs; a parameter shared by several ops is counted at
      the first), `op_state_bytes` (other bytes kept where it runs: a KV cache, and in training what
      is not trained, buffers and frozen parameters);
    - `op_signatures`: the exact call it stands for, ``""`` where nobody knows (see
      `importers.torch.signature`, `importers.onnx.signature`); measured times are found by it;
    - `is_backward`; `forward_twin[op]` the forward op that a backward op belongs to, or -1;
    - `colocation[op]` a group number, or -1: ops of one group must be on one device;
    - `op_copy_bytes`, `copy_colocation`: what the two come to where each op that reads a shared
      weight has a copy of its own (see `with_copies`): the bytes it then holds besides, and the
      groups that are left. Nothing and the same, unless an importer says otherwise. In training
      `copy_tensors` are sent then: what a step made of a weight, from where its gradients are added
      up to each copy.

    Per tensor: `tensor_names`, `tensor_producer`, `tensor_bytes`, and its consumers
    ``consumers[consumer_offsets[t]:consumer_offsets[t + 1]]`` (each op once).

    `times` maps a kind of device to measured seconds per op (`inf` = unsupported there); where
    it has a device's kind, it is used instead of a cost model. `attributes` are free facts about
    the model (``parameters``, ``layers``, …) for people to read; only `WHOLE_MEMORY` and `WINDOWS`
    count.

    `input_samples`: how many samples one input has, what a run of the model takes; None where
    that is not known.
    """

    name: str
    op_names: tuple[str, ...]
    op_types: tuple[str, ...]
    op_modules: tuple[str, ...]
    op_dtypes: tuple[str, ...]
    op_flops: Floats
    op_bytes_read: Floats
    op_bytes_written: Floats
    op_parameter_bytes: Floats
    op_state_bytes: Floats
    is_backward: Flags
    forward_twin: Ints
    colocation: Ints
    tensor_names: tuple[str, ...]
    tensor_producer: Ints
    tensor_bytes: Floats
    consumer_offsets: Wide
    consumers: Ints
    times: Mapping[str, Floats] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    input_samples: int | None = None
    op_signatures: tuple[str, ...] = ()
    op_copy_bytes: Floats = field(default_factory=lambda: np.zeros(0))
    copy_colocation: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    copy_tensors: tuple[CopyTensor, ...] = ()

    def __post_init__(self) -> None:
        if not np.size(self.op_copy_bytes):
            object.__setattr__(self, "op_copy_bytes", np.zeros(len(self.op_names)))
        if not np.size(self.copy_colocation):
            object.__setattr__(self, "copy_colocation", self.colocation)
        if not self.op_signatures:
            object.__setattr__(self, "op_signatures", ("",) * len(self.op_names))
        for name in _FLOAT_COLUMNS:
            self._freeze(name, np.float64)
        for name in (*_INT_COLUMNS, "tensor_producer", "consumers"):
            self._freeze(name, np.int32)
        self._freeze("is_backward", np.bool_)
        self._freeze("consumer_offsets", np.int64)
        times = {kind: self._frozen(f"times[{kind!r}]", self.times[kind]) for kind in self.times}
        object.__setattr__(self, "times", MappingProxyType(times))
        if not isinstance(self.attributes, Mapping):
            raise GraphError(
                f"graph '{self.name}': attributes is {self.attributes!r}; give a mapping"
            )
        object.__setattr__(self, "attributes", MappingProxyType(dict(self.attributes)))
        samples = checked_samples(self.input_samples, f"graph '{self.name}'")
        object.__setattr__(self, "input_samples", samples)
        _check(self)

    def _freeze(self, name: str, dtype: Any) -> None:
        object.__setattr__(self, name, self._frozen(name, getattr(self, name), dtype))

    def _frozen(self, name: str, values: Any, dtype: Any = np.float64) -> NDArray[Any]:
        try:
            column = frozen(values, dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise GraphError(f"graph '{self.name}': {name}: {error}") from None
        if column.ndim != 1:
            raise GraphError(
                f"graph '{self.name}': {name} has shape {np.shape(values)}; give a number for each"
            )
        if column.dtype != np.float64:
            _check_kept(column, values, f"graph '{self.name}': {name}")
        return column

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {self.op_count} ops, {self.tensor_count} tensors>"

    @property
    def op_count(self) -> int:
        return len(self.op_names)

    @property
    def tensor_count(self) -> int:
        return len(self.tensor_names)

    @property
    def is_training(self) -> bool:
        return bool(self.is_backward.any())

    def consumers_of(self, tensor: int) -> Ints:
        return self.consumers[self.consumer_offsets[tensor] : self.consumer_offsets[tensor + 1]]

    @cached_property
    def op_index(self) -> Mapping[str, int]:
        return {name: op for op, name in enumerate(self.op_names)}

    @cached_property
    def edges(self) -> tuple[Ints, Ints]:
        """`(producer[edge], consumer[edge])`, one edge per tensor and consumer, in CSR order."""
        counts = np.diff(self.consumer_offsets)
        return np.repeat(self.tensor_producer, counts).astype(np.int32), self.consumers

    @cached_property
    def edge_tensor(self) -> Ints:
        """`[edge]` the tensor it carries."""
        counts = np.diff(self.consumer_offsets)
        return frozen(np.repeat(np.arange(self.tensor_count), counts), np.int32)

    @cached_property
    def topological_order(self) -> Ints:
        return topological_order(self.op_count, *self.edges, names=self.op_names)

    @cached_property
    def depth(self) -> int:
        """Ops on the longest path."""
        producer, consumer = self.edges
        level = np.ones(self.op_count, dtype=np.int64)
        by_producer = np.argsort(producer, kind="stable")
        offsets = np.searchsorted(producer[by_producer], np.arange(self.op_count + 1)).tolist()
        successors = consumer[by_producer]
        for op in self.topological_order.tolist():
            following = successors[offsets[op] : offsets[op + 1]]
            if len(following):
                level[following] = np.maximum(level[following], level[op] + 1)
        return int(level.max())

    @property
    def may_copy(self) -> bool:
        """Whether ops share weights that each could have a copy of."""
        return bool(self.op_copy_bytes.any())

    def with_copies(self) -> Graph:
        """The graph where ops that share weights have a copy each, and so need not be together.

        In training a copy that is sent nothing is of a frozen weight, and is state.
        """
        sent = self.copy_tensors
        readers = [np.array(each.consumers, dtype=np.int32) for each in sent]
        ends = len(self.consumers) + np.cumsum([len(each) for each in readers], dtype=np.int64)
        trained = np.full(self.op_count, not self.is_training)
        trained[[op for each in sent for op in each.consumers]] = True
        return replace(
            self,
            op_parameter_bytes=self.op_parameter_bytes + self.op_copy_bytes * trained,
            op_state_bytes=self.op_state_bytes + self.op_copy_bytes * ~trained,
            colocation=self.copy_colocation,
            op_copy_bytes=np.zeros(0),
            copy_colocation=np.zeros(0, dtype=np.int32),
            copy_tensors=(),
            tensor_names=(*self.tensor_names, *("" for _ in sent)),
            tensor_producer=np.array([*self.tensor_producer, *(each.producer for each in sent)]),
            tensor_bytes=np.append(self.tensor_bytes, [each.bytes for each in sent]),
            consumer_offsets=np.append(self.consumer_offsets, ends),
            consumers=np.concatenate([self.consumers, *readers]),
        )


class GraphBuilder:
    """Collects ops and tensors in any order that names a tensor before its consumers.

    `add_op` returns the op's number, `add_tensor` the tensor's. `connect` adds a consumer later,
    for importers that meet edges first.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.attributes: dict[str, Any] = {}
        self.times: dict[str, Sequence[float]] = {}
        self.input_samples: int | None = None
        self._columns: dict[str, list[Any]] = {name: [] for name in _OP_COLUMNS}
        self._tensor_names: list[str] = []
        self._producers: list[int] = []
        self._bytes: list[float] = []
        self._consumers: list[dict[int, None]] = []  # a dict keeps order and finds fast
        self._groups: dict[str, int] = {}
        self._copies: Mapping[int, float] = {}
        self._copy_groups: Mapping[int, str] = {}
        self._copy_tensors: tuple[CopyTensor, ...] = ()

    @property
    def op_count(self) -> int:
        return len(self._columns["op_names"])

    def add_op(
        self,
        name: str,
        type: str,
        inputs: Iterable[int] = (),
        *,
        flops: float = 0.0,
        bytes_read: float = 0.0,
        bytes_written: float = 0.0,
        parameter_bytes: float = 0.0,
        state_bytes: float = 0.0,
        module: str = "",
        dtype: str = "fp32",
        backward: bool = False,
        twin: int = -1,
        colocate: str | None = None,
        signature: str = "",
    ) -> int:
        """Add an op (FLOPs, bytes) that reads the tensors `inputs`; its number.

        Ops with the same `colocate` stay together, `twin` is its forward op.
        """
        columns = self._columns
        op = len(columns["op_names"])
        columns["op_names"].append(name)
        columns["op_types"].append(type)
        columns["op_modules"].append(module)
        columns["op_dtypes"].append(dtype)
        columns["op_flops"].append(flops)
        columns["op_bytes_read"].append(bytes_read)
        columns["op_bytes_written"].append(bytes_written)
        columns["op_parameter_bytes"].append(parameter_bytes)
        columns["op_state_bytes"].append(state_bytes)
        columns["op_signatures"].append(signature)
        columns["is_backward"].append(backward)
        columns["forward_twin"].append(twin)
        columns["colocation"].append(-1 if colocate is None else self._group(colocate))
        if not isinstance(inputs, Iterable):
            raise GraphError(
                f"graph '{self.name}': inputs of '{name}' is {inputs!r}; give tensors' numbers"
            )
        for tensor in inputs:
            self.connect(tensor, op)
        return op

    def add_tensor(self, producer: int, bytes: float, name: str = "") -> int:
        """Add a tensor of so many bytes that op `producer` makes; its number."""
        self._tensor_names.append(name)
        self._producers.append(producer)
        self._bytes.append(bytes)
        self._consumers.append({})
        return len(self._producers) - 1

    def connect(self, tensor: int, op: int) -> None:
        """Make `op` a consumer of `tensor` (once, however often it reads it).

        GraphError for a tensor that was not added yet.
        """
        if not isinstance(tensor, int | np.integer) or not 0 <= tensor < len(self._consumers):
            raise GraphError(
                f"graph '{self.name}': there is no tensor {tensor!r}; give a number that "
                "add_tensor gave"
            )
        self._consumers[tensor][op] = None

    def set_twin(self, backward: int, forward: int) -> None:
        """Say which forward op a backward op belongs to."""
        self._columns["forward_twin"][self._known(backward)] = forward

    def colocate(self, op: int, group: str) -> None:
        """Keep `op` on one device with all others of `group`."""
        self._columns["colocation"][self._known(op)] = self._group(group)

    def _known(self, op: int) -> int:
        """An op's number; GraphError for one that was not added yet."""
        if not isinstance(op, int | np.integer) or not 0 <= op < self.op_count:
            raise GraphError(
                f"graph '{self.name}': there is no op {op!r}; give a number that add_op gave"
            )
        return int(op)

    def _group(self, name: str) -> int:
        """The number of a group; GraphError for a name that is none."""
        if not isinstance(name, str):
            raise GraphError(f"graph '{self.name}': the group {name!r} is no text; give its name")
        return self._groups.setdefault(name, len(self._groups))

    def say_copies(
        self,
        bytes: Mapping[int, float],
        groups: Mapping[int, str],
        tensors: Iterable[CopyTensor] = (),
    ) -> None:
        """Say what ops hold besides where each has copies of the weights it shares, which ops must
        be together then, and in training what is sent to the copies; see `Graph.with_copies`.
        """
        self._copies, self._copy_groups, self._copy_tensors = bytes, groups, tuple(tensors)

    def _copy_columns(self) -> dict[str, Any]:
        if not self._copies:
            return {}
        held = [self._copies.get(op, 0.0) for op in range(self.op_count)]
        numbers: dict[str, int] = {}
        groups = [
            numbers.setdefault(self._copy_groups[op], len(numbers))
            if op in self._copy_groups
            else -1
            for op in range(self.op_count)
        ]
        return {
            "op_copy_bytes": np.array(held),
            "copy_colocation": np.array(groups),
            "copy_tensors": self._copy_tensors,
        }

    def build(self) -> Graph:
        """The graph; GraphError if it has a cycle or an impossible figure."""
        offsets = np.zeros(len(self._consumers) + 1, dtype=np.int64)
        np.cumsum([len(each) for each in self._consumers], out=offsets[1:])
        columns: dict[str, Any] = {
            name: tuple(values) if name in _NAME_COLUMNS else values
            for name, values in self._columns.items()
        }
        columns |= {
            "tensor_producer": self._producers,
            "tensor_bytes": self._bytes,
            "consumers": [op for each in self._consumers for op in each],
            "times": self.times,
        }
        return Graph(
            name=self.name,
            **columns,
            tensor_names=tuple(self._tensor_names),
            consumer_offsets=offsets,
            attributes=self.attributes,
            input_samples=self.input_samples,
            **self._copy_columns(),
        )


_NAME_COLUMNS = ("op_names", "op_types", "op_modules", "op_dtypes", "op_signatures")
_OP_FLOATS = (
    "op_flops",
    "op_bytes_read",
    "op_bytes_written",
    "op_parameter_bytes",
    "op_state_bytes",
)
_FLOAT_COLUMNS = (*_OP_FLOATS, "op_copy_bytes", "tensor_bytes")
_INT_COLUMNS = ("forward_twin", "colocation", "copy_colocation")
_OP_COLUMNS = (*_NAME_COLUMNS, *_OP_FLOATS, "is_backward", "forward_twin", "colocation")


def merged(sets: Iterable[Iterable[str]]) -> dict[str, str]:
    """`op → group` for ops that must share a device; sets that overlap become one group.

    An op that is in no set with another has no group, however often a set names it.
    """
    parent: dict[str, str] = {}

    def root(op: str) -> str:
        while (above := parent.setdefault(op, op)) != op:
            parent[op] = op = parent[above]  # of the two targets the left one is set first
        return op

    for first, *others in filter(None, map(dict.fromkeys, sets)):
        for other in others:
            one, two = root(first), root(other)
            parent[two] = one
    return {op: root(op) for op in parent}


def topological_order(
    op_count: int, producer: Ints, consumer: Ints, names: Sequence[str] | None = None
) -> Ints:
    """A topological order of the ops; GraphError naming a cycle if there is none.

    The order is that of the op numbers where these already are one, else Kahn's algorithm with a
    first-in first-out queue, so it is the same on every machine.
    """
    if (producer < consumer).all():
        return frozen(np.arange(op_count), np.int32)
    by_producer = np.argsort(producer, kind="stable")
    offsets = np.searchsorted(producer[by_producer], np.arange(op_count + 1)).tolist()
    successors = consumer[by_producer].tolist()
    waiting = np.bincount(consumer, minlength=op_count).tolist()
    order = [op for op in range(op_count) if waiting[op] == 0]
    for op in order:  # grows while it is read: the queue
        for successor in successors[offsets[op] : offsets[op + 1]]:
            waiting[successor] -= 1
            if waiting[successor] == 0:
                order.append(successor)
    if len(order) < op_count:
        cycle = _find_cycle(waiting, successors, offsets)
        shown = [names[op] if names else str(op) for op in cycle]
        if len(shown) > 6:
            shown = [*shown[:3], f"… {len(shown) - 5} more …", *shown[-2:]]
        raise GraphError("the graph has a cycle, " + " → ".join(shown) + "; a model must be a DAG")
    return frozen(order, np.int32)


def _find_cycle(waiting: list[int], successors: list[int], offsets: list[int]) -> list[int]:
    """One cycle among the ops Kahn's algorithm could not release, as op, …, op.

    Every such op waits for another such op, so walking backwards must close a loop.
    """
    stuck = {op for op, count in enumerate(waiting) if count > 0}
    predecessor = {
        successor: op
        for op in stuck
        for successor in successors[offsets[op] : offsets[op + 1]]
        if successor in stuck
    }
    op, seen = min(predecessor), {}
    walk: list[int] = []
    while op not in seen:
        seen[op] = len(walk)
        walk.append(op)
        op = predecessor[op]
    loop = walk[seen[op] :]
    return [loop[0], *reversed(loop)]


def _check_kept(column: Whole | Flags, given: Any, where: str) -> None:
    """GraphError if a whole number or a flag is not what was given: 1.7 became 1, 'no' True."""
    entries = given if isinstance(given, np.ndarray) else np.asarray(given, dtype=object)
    changed = np.flatnonzero(column != entries)
    if changed.size:
        wanted = "True or False" if column.dtype == np.bool_ else "whole numbers"
        raise GraphError(f"{where} has {given[changed[0]]!r}; give {wanted}")


def checked_samples(count: Any, where: str) -> int | None:
    """A number of samples as Python has it, or None; GraphError for what is neither."""
    if count is None:
        return None
    if not isinstance(count, bool) and isinstance(count, Integral) and int(count) >= 1:
        return int(count)
    raise GraphError(f"{where}: input_samples is {count}; give a whole number above 0, or none")


def check_total(amounts: Floats, column: str, where: str) -> None:
    """GraphError if finite amounts add up to no number."""
    with np.errstate(over="ignore"):
        total = amounts.sum()
    if not np.isfinite(total):
        raise GraphError(
            f"{where}: {column} adds up to more than a number can hold; check its unit"
        )


def check_consumers(offsets: Wide, consumers: Ints, op_count: int, where: str) -> None:
    """GraphError if a tensor lists an op twice: however often an op reads it, it is read once."""
    edge_tensor = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pairs = edge_tensor * op_count + consumers
    if (np.diff(pairs) > 0).all():  # as most are: nothing to sort
        return
    if not np.diff(np.sort(pairs)).all():
        raise GraphError(f"{where}: a tensor lists the same consumer twice; list it once")


def _check(graph: Graph) -> None:
    where = f"graph '{graph.name}'"
    _check_texts(graph, where)
    n, tensor_count = graph.op_count, graph.tensor_count
    if n == 0:
        raise GraphError(f"{where} has no ops")
    of_ops = (*_OP_COLUMNS, "op_copy_bytes", "copy_colocation")
    columns = {name: getattr(graph, name) for name in of_ops}
    columns |= {f"times[{kind!r}]": values for kind, values in graph.times.items()}
    for column, values in columns.items():
        if len(values) != n:
            raise GraphError(f"{where}: {column} has {len(values)} entries for {n} ops")
    if len(graph.tensor_producer) != tensor_count or len(graph.tensor_bytes) != tensor_count:
        raise GraphError(f"{where}: tensor columns differ in length")
    _check_names(graph, where)
    for column in _FLOAT_COLUMNS:
        values = getattr(graph, column)
        bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
        if bad.size:
            names = graph.tensor_names if column == "tensor_bytes" else graph.op_names
            who = names[bad[0]] or f"number {bad[0]}"
            raise GraphError(
                f"{where}: {column} of '{who}' is {values[bad[0]]}; it must be finite and ≥ 0"
            )
    for kind, values in graph.times.items():
        bad = np.flatnonzero(np.isnan(values) | (values < 0))
        if bad.size:
            raise GraphError(
                f"{where}: the time of op '{graph.op_names[bad[0]]}' on {kind} is "
                f"{values[bad[0]]}; it must be ≥ 0 (or null where unsupported)"
            )
    for column in _FLOAT_COLUMNS:
        check_total(getattr(graph, column), column, where)
    _check_references(graph, where)
    if n > 1 or len(graph.consumers):
        try:
            graph.topological_order  # noqa: B018  (raises on a cycle)
        except GraphError as error:
            raise GraphError(f"{where}: {error}") from None
    if graph.copy_tensors:
        _check_copy_tensors(graph, where)


def _check_copy_tensors(graph: Graph, where: str) -> None:
    """They must be tensors that the graph could have."""
    for each in graph.copy_tensors:
        for op in each.consumers:  # of which `with_copies` makes an index
            if not 0 <= op < graph.op_count:
                raise GraphError(
                    f"{where}: copy_tensors names op {op}, but ops go from 0 to "
                    f"{graph.op_count - 1}"
                )
    try:
        graph.with_copies()
    except GraphError as error:
        raise GraphError(f"{where}, with its copy_tensors: {error}") from None


def _check_texts(graph: Graph, where: str) -> None:
    names = {"name": (graph.name,), "tensor_names": graph.tensor_names, "times": tuple(graph.times)}
    names |= {column: getattr(graph, column) for column in _NAME_COLUMNS}
    for column, given in names.items():
        wrong = next((each for each in given if not isinstance(each, str)), "")
        if wrong != "":
            raise GraphError(f"{where}: {column} has {wrong!r}; give text")


def _check_names(graph: Graph, where: str) -> None:
    if len(set(graph.op_names)) < graph.op_count:
        seen: set[str] = set()
        for name in graph.op_names:
            if name in seen:
                raise GraphError(f"{where}: two ops are named '{name}'; names must be unique")
            seen.add(name)
    unknown = set(graph.op_dtypes) - set(DTYPES)
    if unknown:
        raise GraphError(
            f"{where}: dtype '{sorted(unknown)[0]}' is unknown; use one of {', '.join(DTYPES)}"
        )


def _check_references(graph: Graph, where: str) -> None:
    n = graph.op_count
    for column in ("tensor_producer", "consumers"):
        values = getattr(graph, column)
        if values.size and (values.min() < 0 or values.max() >= n):
            bad = values[(values < 0) | (values >= n)][0]
            raise GraphError(f"{where}: {column} names op {bad}, but ops go from 0 to {n - 1}")
    offsets = graph.consumer_offsets
    if len(offsets) != graph.tensor_count + 1 or (np.diff(offsets) < 0).any() or (
        len(offsets) and (offsets[0] != 0 or offsets[-1] != len(graph.consumers))
    ):  # fmt: skip
        raise GraphError(f"{where}: consumer_offsets do not fit the consumers")
    check_consumers(offsets, graph.consumers, n, where)
    for op in np.flatnonzero(graph.forward_twin >= n):
        raise GraphError(
            f"{where}: twin of '{graph.op_names[op]}' is op {graph.forward_twin[op]}, "
            f"but ops go from 0 to {n - 1}"
        )
    with_twin = np.flatnonzero(graph.forward_twin >= 0)
    wrong = with_twin[
        ~graph.is_backward[with_twin] | graph.is_backward[graph.forward_twin[with_twin]]
    ]
    if wrong.size:
        raise GraphError(
            f"{where}: '{graph.op_names[wrong[0]]}' has twin "
            f"'{graph.op_names[graph.forward_twin[wrong[0]]]}'; "
            "a twin joins a backward op to a forward op"
        )
