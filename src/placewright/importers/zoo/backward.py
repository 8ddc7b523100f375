"""Forward and backward in one graph, from a forward graph.

The joint graph has the forward ops in their order, a ``loss`` op that reads every tensor nobody
consumes, and then, in reverse order, for each forward op ``name`` of type ``type``:

- ``name.grad_input`` (type ``type_backward``): the gradients of the tensors it read, one tensor
  each, with as many bytes. A product of two activations costs its FLOPs once per gradient, every
  other op once. An ``add`` passes its gradient on and only sums what was broadcast; a ``concat``
  and whatever cost nothing forward cost nothing backward.
- ``name.grad_weight`` (type ``type_weight_backward``) if it holds parameters: their gradient, again
  for its FLOPs once.
- ``name.grad_sum`` (type ``add``) before these, where several ops sent a gradient for what
  ``name`` produced; ``name.grad_weight_sum`` at the end for tied parameters.
- ``name.step`` (type ``sgd`` or ``adam``), if asked for: the update of its parameters. ``adam``
  reads and writes two moments, and a copy of the parameters if they have fewer than 4 bytes, in
  fp32.

What training keeps besides (gradients, optimizer state) is not in the graph: the memory model
adds it for every training graph alike (`costs.roofline`).

All of these are marked backward, and their twin is the forward op (that of ``loss.grad_input`` is
``loss``). The forward tensors that a gradient needs (the stash) are inputs of its op, after the
table `_STASH`. An op that stands for a whole module stashes only its inputs, and runs its forward
again in ``grad_input`` (activation checkpointing).

An op that holds parameters, all ops that read them backward or update them, and ops that share
them (tied: in one colocation group with their holder and holding none) are one colocation group.
No gradient is made for what depends on no parameter.

Where tied ops have a copy each (`Graph.with_copies`), each is together with its own backward ops
only. The gradient of a copy then goes to the holder's sum, and the holder's forward op hands the
new parameters to the copies: as many bytes each way as an all-reduce between two sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from placewright.errors import OptionError
from placewright.graph import ITEM_BYTES, CopyTensor, Graph, GraphBuilder

_OUTPUT, _INPUTS, _NOTHING = "output", "inputs", "nothing"

_STASH = {
    "softmax": _OUTPUT, "relu": _OUTPUT, "sigmoid": _OUTPUT, "tanh": _OUTPUT,
    "topk": _OUTPUT,
    "add": _NOTHING, "scale": _NOTHING, "mask": _NOTHING, "rope": _NOTHING, "concat": _NOTHING,
    "embedding": _NOTHING, "mean": _NOTHING, "avgpool": _NOTHING, "window": _NOTHING,
    "reshape": _NOTHING, "transpose": _NOTHING, "slice": _NOTHING, "gather": _NOTHING,
}  # fmt: skip
"""Which forward tensors the gradient of an op needs; its inputs where the type is not named."""

_PRODUCTS = frozenset({"matmul", "conv"})
_WHOLE_MODULES = frozenset({
    "unit", "stem", "pair_bias", "column_attention", "transition", "outer_product_mean",
    "triangle_multiplication", "triangle_attention",
})  # fmt: skip

_STEP_FLOPS = {"sgd": 2.0, "adam": 12.0}
LOSS_FLOPS = 5.0
"""FLOPs of the loss per element it reads, and again for its gradient."""


def joint_graph(graph: Graph, optimizer: str = "none") -> Graph:
    """Forward and backward of `graph` (see above); `optimizer`: ``none``, ``sgd`` or ``adam``.

    OptionError if the graph has backward ops already or the optimizer is unknown.
    """
    if graph.is_training:
        raise OptionError(f"graph '{graph.name}' already has backward ops; give a forward graph")
    if optimizer != "none" and optimizer not in _STEP_FLOPS:
        raise OptionError(f"optimizer '{optimizer}' is unknown; use none, sgd or adam")
    joint = _Joint(graph, optimizer)
    joint.copy_forward()
    joint.add_loss()
    for op in reversed(graph.topological_order.tolist()):
        joint.differentiate(op)
    joint.add_steps()
    joint.say_copies()
    return joint.builder.build()


class _Joint:
    """The joint graph as it grows; forward ops and tensors keep their numbers."""

    def __init__(self, graph: Graph, optimizer: str) -> None:
        self.graph, self.optimizer = graph, optimizer
        self.builder = GraphBuilder(graph.name)
        self.builder.attributes = {**graph.attributes, "training": True, "optimizer": optimizer}
        self.builder.input_samples = graph.input_samples
        self.names, self.types, self.modules = graph.op_names, graph.op_types, graph.op_modules
        self.inputs, self.outputs = _tensors_by_op(graph)
        self.flops = graph.op_flops.tolist()
        self.read = graph.op_bytes_read.tolist()
        self.written = graph.op_bytes_written.tolist()
        self.held = graph.op_parameter_bytes.tolist()
        self.bytes = graph.tensor_bytes.tolist()
        self.group = graph.colocation.tolist()
        self.holder = self._holders()
        self.differentiable = self._differentiable()
        self.gradients: list[list[int]] = [[] for _ in self.bytes]
        self.weight_gradients: dict[int, list[int]] = {}
        self.copy_groups: dict[int, str] = {}

    def _holders(self) -> list[int]:
        """The op whose parameters each op uses: itself, the one it is tied to, or -1."""
        first = {
            self.group[op]: op
            for op in reversed(range(len(self.held)))
            if self.group[op] >= 0 and self.held[op]
        }
        return [
            op if held else first.get(group, -1)
            for op, (held, group) in enumerate(zip(self.held, self.group, strict=True))
        ]

    def _differentiable(self) -> list[bool]:
        """Which tensors depend on a parameter."""
        flags = [False] * len(self.bytes)
        for op in self.graph.topological_order.tolist():
            if self.holder[op] >= 0 or any(flags[tensor] for tensor in self.inputs[op]):
                for tensor in self.outputs[op]:
                    flags[tensor] = True
        return flags

    # -- forward -------------------------------------------------------------------------------

    def copy_forward(self) -> None:
        graph = self.graph
        state = graph.op_state_bytes.tolist()
        for op, name in enumerate(graph.op_names):
            together = self._colocate(op)
            self._note_copy(op, op, together)
            self.builder.add_op(
                name,
                graph.op_types[op],
                flops=self.flops[op],
                bytes_read=self.read[op],
                bytes_written=self.written[op],
                parameter_bytes=self.held[op],
                state_bytes=state[op],
                module=graph.op_modules[op],
                dtype=graph.op_dtypes[op],
                colocate=together,
            )
        producers = graph.tensor_producer.tolist()
        for tensor, name in enumerate(graph.tensor_names):
            self.builder.add_tensor(producers[tensor], self.bytes[tensor], name)
        for op, tensors in enumerate(self.inputs):
            for tensor in tensors:
                self.builder.connect(tensor, op)

    def _colocate(self, op: int) -> str | None:
        if self.group[op] >= 0:
            return f"group {self.group[op]}"
        return f"parameters of {op}" if self.holder[op] >= 0 else None

    def _note_copy(self, number: int, op: int, colocate: str | None) -> None:
        """What op `number`, of forward op `op`, is together with where tied ops have copies."""
        if colocate is None:
            return
        group = int(self.graph.copy_colocation[op])
        self.copy_groups[number] = f"group {group}" if group >= 0 else f"parameters of {op}"

    def add_loss(self) -> None:
        """The loss and its gradient, which starts the backward pass."""
        consumers = np.diff(self.graph.consumer_offsets)
        results = np.flatnonzero(consumers == 0).tolist()
        total = self._size(results)
        dtype = self.graph.op_dtypes[-1]
        flops = LOSS_FLOPS * total / ITEM_BYTES[dtype]
        name = "loss"
        while name in self.graph.op_index:
            name += "_"
        loss = self.builder.add_op(
            name, "loss", results,
            flops=flops, bytes_read=total, bytes_written=4.0, module=name, dtype=dtype,
        )  # fmt: skip
        value = self.builder.add_tensor(loss, 4.0, name)
        wanted = [tensor for tensor in results if self.differentiable[tensor]]
        backward = self.builder.add_op(
            f"{name}.grad_input", "loss_backward", [value, *results],
            flops=flops, bytes_read=total, bytes_written=self._size(wanted),
            module=name, dtype=dtype, backward=True, twin=loss,
        )  # fmt: skip
        self._send_gradients(backward, wanted)

    # -- backward ------------------------------------------------------------------------------

    def differentiate(self, op: int) -> None:
        """Add the backward ops of forward op `op`, whose consumers all have theirs."""
        reached = [tensor for tensor in self.outputs[op] if self.gradients[tensor]]
        if not reached:
            return
        received = [self._gradient(op, tensor) for tensor in reached]
        size = self._size(reached)
        if self.holder[op] >= 0:
            self._add_grad_weight(op, received, size)
        wanted = [tensor for tensor in self.inputs[op] if self.differentiable[tensor]]
        if wanted:
            self._add_grad_input(op, wanted, received, size)

    def _size(self, tensors: list[int]) -> float:
        """Bytes of forward tensors, together."""
        return float(sum([self.bytes[tensor] for tensor in tensors]))

    def _gradient(self, op: int, tensor: int) -> int:
        """The gradient of `tensor`, which `op` produced; added up if it came in parts."""
        parts = self.gradients[tensor]
        if len(parts) == 1:
            return parts[0]
        position = self.outputs[op].index(tensor)
        suffix = f"grad_sum_{position}" if position else "grad_sum"
        return self._add_sum(op, suffix, parts, self.bytes[tensor])

    def _add_sum(
        self, op: int, suffix: str, parts: list[int], size: float, colocate: str | None = None
    ) -> int:
        """An op that adds gradients of `size` bytes each; its output."""
        item = ITEM_BYTES[self.graph.op_dtypes[op]]
        total = self._add(
            op, suffix, "add", parts, colocate=colocate,
            flops=(len(parts) - 1) * size / item, bytes_read=len(parts) * size, bytes_written=size,
        )  # fmt: skip
        return self.builder.add_tensor(total, size, f"{self.names[op]}.{suffix}")

    def _add_grad_input(
        self, op: int, wanted: list[int], received: list[int], received_bytes: float
    ) -> None:
        type = self.types[op]
        multiplies = type in _PRODUCTS and self.holder[op] >= 0
        stash = [] if multiplies else self._stash(op)
        reads_weights = self.holder[op] >= 0 and type not in ("add", "embedding")
        flops, read, written = self._input_costs(op, wanted, received_bytes)
        if type not in _WHOLE_MODULES:  # whose forward traffic has both already
            read += self._size(stash) + (self.held[self.holder[op]] if reads_weights else 0.0)
        backward = self._add(
            op, "grad_input", f"{type}_backward", [*received, *stash],
            flops=flops, bytes_read=read, bytes_written=written,
            colocate=self._colocate(op) if reads_weights else None,
        )  # fmt: skip
        self._send_gradients(backward, wanted)

    def _input_costs(
        self, op: int, wanted: list[int], received: float
    ) -> tuple[float, float, float]:
        """FLOPs, bytes read (besides stash and parameters) and written by ``grad_input``."""
        type = self.types[op]
        flops, read, written = self.flops[op], self.read[op], self.written[op]
        sent = self._size(wanted)
        if type == "concat" or not (flops or read or written):
            return 0.0, 0.0, 0.0
        if type == "add":  # what was broadcast is summed, the rest is passed on
            summed = [self.bytes[t] for t in wanted if self.bytes[t] != received]
            return flops * len(summed), received * len(summed), sum(summed)
        if type in _WHOLE_MODULES:  # forward again, then backward
            return 2 * flops, 2 * read + received, 2 * written + sent
        if type in _PRODUCTS and self.holder[op] < 0:
            return flops * len(wanted), received * len(wanted), sent
        return flops, received, sent

    def _add_grad_weight(self, op: int, received: list[int], received_bytes: float) -> None:
        holder = self.holder[op]
        size = self.held[holder]
        type = self.types[op]
        stash = [] if type in ("add", "embedding") else self.inputs[op]
        backward = self._add(
            op, "grad_weight", f"{type}_weight_backward", [*received, *stash],
            flops=self.flops[op],
            bytes_read=received_bytes + self._size(stash),
            bytes_written=size,
            colocate=self._colocate(op),
        )  # fmt: skip
        name = f"{self.names[op]}.grad_weight"
        gradient = self.builder.add_tensor(backward, size, name)
        self.weight_gradients.setdefault(holder, []).append(gradient)

    def _stash(self, op: int) -> list[int]:
        """Forward tensors that the gradient of the inputs needs."""
        kind = _STASH.get(self.types[op], _INPUTS)
        if kind == _NOTHING:
            return []
        return self.outputs[op] if kind == _OUTPUT else self.inputs[op]

    def _send_gradients(self, backward: int, tensors: list[int]) -> None:
        """`backward` produces the gradients of `tensors`."""
        names = self.graph.tensor_names
        for tensor in tensors:
            gradient = self.builder.add_tensor(
                backward, self.bytes[tensor], f"{names[tensor]}.grad"
            )
            self.gradients[tensor].append(gradient)

    def _add(self, op: int, suffix: str, type: str, inputs: Sequence[int], **costs: Any) -> int:
        """Add a backward op of forward op `op`."""
        self._note_copy(self.builder.op_count, op, costs.get("colocate"))
        return self.builder.add_op(
            f"{self.names[op]}.{suffix}",
            type,
            inputs,
            module=self.modules[op],
            dtype=self.graph.op_dtypes[op],
            backward=True,
            twin=op,
            **costs,
        )

    # -- parameters ----------------------------------------------------------------------------

    def add_steps(self) -> None:
        """Add up the gradients of tied parameters, and update all parameters if asked to."""
        for holder, parts in self.weight_gradients.items():
            gradient = parts[0]
            if len(parts) > 1:
                group = self._colocate(holder)
                gradient = self._add_sum(
                    holder, "grad_weight_sum", parts, self.held[holder], colocate=group
                )
            if self.optimizer != "none":
                self._add_step(holder, gradient)

    def _add_step(self, op: int, gradient: int) -> None:
        size = self.held[op]
        item = ITEM_BYTES[self.graph.op_dtypes[op]]
        count = size / item
        copies = 0 if self.optimizer == "sgd" else 2 if item >= 4 else 3
        state = copies * max(4.0, item) * count
        self._add(
            op, "step", self.optimizer, [gradient],
            flops=_STEP_FLOPS[self.optimizer] * count,
            bytes_read=2 * size + state,
            bytes_written=size + state,
            colocate=self._colocate(op),
        )  # fmt: skip

    def say_copies(self) -> None:
        """What tied ops hold, and are sent, where each has a copy."""
        held = self.graph.op_copy_bytes.tolist()
        copies: dict[int, list[int]] = {}
        for op, size in enumerate(held):
            if size and self.holder[op] in self.weight_gradients:
                copies.setdefault(self.holder[op], []).append(op)
        self.builder.say_copies(
            {op: size for op, size in enumerate(held) if size},
            self.copy_groups,
            [CopyTensor(holder, self.held[holder], tuple(ops)) for holder, ops in copies.items()],
        )


def _tensors_by_op(graph: Graph) -> tuple[list[list[int]], list[list[int]]]:
    """`(inputs[op], outputs[op])`: numbers of the tensors each op reads and produces."""
    inputs: list[list[int]] = [[] for _ in graph.op_names]
    outputs: list[list[int]] = [[] for _ in graph.op_names]
    offsets, consumers = graph.consumer_offsets.tolist(), graph.consumers.tolist()
    for tensor, producer in enumerate(graph.tensor_producer.tolist()):
        outputs[producer].append(tensor)
        for op in consumers[offsets[tensor] : offsets[tensor + 1]]:
            inputs[op].append(tensor)
    return inputs, outputs
