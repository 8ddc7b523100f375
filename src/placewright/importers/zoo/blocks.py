"""`Writer`: adds ops to a graph from shapes, and works out their FLOPs and bytes.

The conventions of every graph of the zoo:

- FLOPs: 2·m·n·k for a matrix product or a convolution; other ops a nominal number per element
  (`_FLOPS_PER_ELEMENT`; an exponential counts as one). Masked and padded elements are computed,
  but for those of a prompt that is served (`attention`).
- Traffic: each op reads its inputs and its parameters once and writes its output once, all in the
  model's number format. Views (`view`) move nothing and cost nothing.
- A parameter used by several ops (tied embeddings) is counted at the first and holds them in one
  colocation group.
- The model's inputs are not ops: they are tensors numbered -1 (`model_input`), whose reading is
  traffic but no edge. Token ids are left out altogether.

>>> writer = Writer("tiny", "fp16")
>>> with writer.scope("mlp"):
...     x = writer.lookup("embedding", rows=100, shape=(1, 8, 16))
...     y = writer.linear("fc", x, 64)
>>> graph = writer.finish()
>>> graph.op_names, float(graph.op_flops[1])
(('mlp.embedding', 'mlp.fc', 'mlp.fc_bias'), 16384.0)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from placewright.errors import OptionError
from placewright.graph import ITEM_BYTES, Graph, GraphBuilder

MAX_OPS = 500_000
"""No spec makes more ops than this: a slip of the pen must not fill the machine's memory."""

_FLOPS_PER_ELEMENT = {
    "layernorm": 7.0, "rmsnorm": 4.0, "softmax": 5.0, "gelu": 8.0, "silu": 4.0, "sigmoid": 3.0,
    "tanh": 4.0, "rope": 3.0, "bn": 2.0,
}  # fmt: skip

Shape = tuple[float, ...]


class Tensor(NamedTuple):
    """A tensor by its number in the graph and its shape.

    The number is -1 where the graph has no such tensor: a model input, or inside a whole op.

    A dimension may be a fraction where it is an expectation (tokens per expert).
    """

    number: int
    shape: Shape

    @property
    def elements(self) -> float:
        return math.prod(self.shape)


def model_input(*shape: float) -> Tensor:
    """What the model is given: on every device when the run starts."""
    return Tensor(-1, shape)


class _Whole:
    """Sums the ops written inside `Writer.whole`."""

    def __init__(self) -> None:
        self.flops = self.read = self.written = self.parameters = self.state = 0.0
        self.inputs: dict[int, None] = {}


class Writer:
    """Writes one model; `scope` names the module that the next ops belong to."""

    def __init__(self, name: str, dtype: str) -> None:
        self.builder = GraphBuilder(name)
        self.dtype = dtype
        self.item_bytes = ITEM_BYTES[dtype]
        self.parameters = 0.0
        self._module = ""
        self._prefix = ""
        self._tied: set[str] = set()
        self._copies: dict[int, float] = {}
        self._whole: _Whole | None = None

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Ops written inside belong to the module `name` of the current module."""
        module, prefix = self._module, self._prefix
        self._module = prefix + name
        self._prefix = self._module + "."
        try:
            yield
        finally:
            self._module, self._prefix = module, prefix

    def op(
        self,
        name: str,
        type: str,
        inputs: Sequence[Tensor],
        shape: Shape,
        *,
        flops: float = 0.0,
        parameters: float = 0.0,
        tied: str | None = None,
        read: float | None = None,
        written: float | None = None,
        state: float = 0.0,
    ) -> Tensor:
        """Add an op and its one output tensor; every other method ends here.

        `parameters`, `read` and `written` (memory traffic) and `state` (kept where the op runs)
        count elements; `read` is without the parameters. Ops with the same `tied` use the same
        parameters.
        """
        if read is None:
            read = sum([each.elements for each in inputs])
        if written is None:
            written = math.prod(shape)
        held = 0.0 if tied in self._tied else parameters
        self.parameters += held
        if self._whole is not None:
            whole = self._whole
            whole.flops += flops
            whole.read += read + parameters
            whole.written += written
            whole.parameters += held
            whole.state += state
            whole.inputs.update(dict.fromkeys(each.number for each in inputs if each.number >= 0))
            return Tensor(-1, shape)
        if tied is not None:
            self._tied.add(tied)
        item = self.item_bytes
        if held < parameters:
            self._copies[self.builder.op_count] = (parameters - held) * item
        return self._emit(
            name,
            type,
            [each.number for each in inputs if each.number >= 0],
            shape,
            flops=flops,
            bytes_read=(read + parameters) * item,
            bytes_written=written * item,
            parameter_bytes=held * item,
            state_bytes=state * item,
            colocate=tied,
        )

    def _emit(
        self, name: str, type: str, inputs: Sequence[int], shape: Shape, **costs: Any
    ) -> Tensor:
        builder = self.builder
        if builder.op_count >= MAX_OPS:
            raise OptionError(
                f"zoo model '{builder.name}' makes more than {MAX_OPS:,} ops; "
                "ask for fewer layers, heads or modules"
            )
        full_name = self._prefix + name
        op = builder.add_op(full_name, type, inputs, module=self._module, dtype=self.dtype, **costs)
        number = builder.add_tensor(op, math.prod(shape) * self.item_bytes, full_name)
        return Tensor(number, shape)

    # -- several ops as one --------------------------------------------------------------------

    def whole(self, name: str, type: str, write: Callable[[], Tensor]) -> Tensor:
        """One op for everything that `write` writes: the sums of its costs, its outer inputs."""
        if self._whole is not None:
            return write()
        self._whole = total = _Whole()
        try:
            shape = write().shape
        finally:
            self._whole = None
        item = self.item_bytes
        return self._emit(
            name,
            type,
            list(total.inputs),
            shape,
            flops=total.flops,
            bytes_read=total.read * item,
            bytes_written=total.written * item,
            parameter_bytes=total.parameters * item,
            state_bytes=total.state * item,
        )

    # -- dense ops -----------------------------------------------------------------------------

    def linear(
        self, name: str, x: Tensor, width: int, *, bias: str = "op", tied: str | None = None
    ) -> Tensor:
        """x · W for x[..., k] and W[k, width], then its bias.

        `bias`: ``op`` (an ``add`` of its own, ``<name>_bias``), ``inside`` (part of the matmul)
        or ``none``.
        """
        inner = x.shape[-1]
        shape = (*x.shape[:-1], width)
        elements = math.prod(shape)
        extra = width if bias == "inside" else 0
        y = self.op(
            name,
            "matmul",
            (x,),
            shape,
            flops=2 * elements * inner + (elements if extra else 0),
            parameters=inner * width + extra,
            tied=tied,
        )
        if bias == "op":
            return self.elementwise(name + "_bias", "add", (y,), parameters=width)
        return y

    def matmul(self, name: str, inputs: tuple[Tensor, Tensor], shape: Shape, inner: int) -> Tensor:
        """A product of two activations, each output element a sum of `inner` products."""
        return self.op(name, "matmul", inputs, shape, flops=2 * math.prod(shape) * inner)

    def conv(
        self,
        name: str,
        x: Tensor,
        channels: int,
        kernel: tuple[int, int],
        *,
        stride: int = 1,
        padding: tuple[int, int] = (0, 0),
        groups: int = 1,
        bias: bool = False,
    ) -> Tensor:
        """A 2-D convolution of x[batch, channels, height, width]."""
        shape = (x.shape[0], channels, *self._window(name, x, kernel, stride, padding))
        per_output = x.shape[1] // groups * kernel[0] * kernel[1]
        elements = math.prod(shape)
        return self.op(
            name,
            "conv",
            (x,),
            shape,
            flops=2 * elements * per_output + (elements if bias else 0),
            parameters=channels * per_output + (channels if bias else 0),
        )

    def pool(
        self,
        name: str,
        x: Tensor,
        kernel: int,
        *,
        stride: int,
        padding: int = 0,
        type: str = "maxpool",
        ceil: bool = False,
    ) -> Tensor:
        """A 2-D pooling (``maxpool`` or ``avgpool``); `ceil` rounds the output's size up."""
        sides = self._window(name, x, (kernel, kernel), stride, (padding, padding), ceil)
        shape = (*x.shape[:2], *sides)
        return self.op(name, type, (x,), shape, flops=math.prod(shape) * kernel * kernel)

    def _window(
        self,
        name: str,
        x: Tensor,
        kernel: tuple[int, int],
        stride: int,
        padding: tuple[int, int],
        ceil: bool = False,
    ) -> Shape:
        """Height and width after a sliding window."""
        sides = []
        for side, size, pad in zip(x.shape[2:], kernel, padding, strict=True):
            steps = (side + 2 * pad - size) / stride
            if steps < 0:
                raise OptionError(
                    f"zoo model '{self.builder.name}': the image is too small, "
                    f"'{self._prefix}{name}' has nothing left to read; ask for a larger one"
                )
            sides.append((math.ceil(steps) if ceil else math.floor(steps)) + 1)
        return tuple(sides)

    # -- ops that move more than they compute --------------------------------------------------

    def elementwise(
        self,
        name: str,
        type: str,
        inputs: Sequence[Tensor],
        *,
        shape: Shape | None = None,
        parameters: float = 0,
        state: float = 0,
    ) -> Tensor:
        """An op whose output has the shape of its first input (or `shape`)."""
        shape = inputs[0].shape if shape is None else shape
        steps = max(1, len(inputs) - 1) * _FLOPS_PER_ELEMENT.get(type, 1.0)
        flops = math.prod(shape) * steps
        return self.op(name, type, inputs, shape, flops=flops, parameters=parameters, state=state)

    def norm(self, name: str, x: Tensor, type: str = "layernorm") -> Tensor:
        """Normalise the last dimension: ``layernorm`` (scale and shift) or ``rmsnorm`` (scale)."""
        width = x.shape[-1]
        return self.elementwise(
            name, type, (x,), parameters=2 * width if type == "layernorm" else width
        )

    def batch_norm(self, name: str, x: Tensor) -> Tensor:
        """Scale and shift per channel; the running mean and variance are state."""
        channels = x.shape[1]
        return self.elementwise(name, "bn", (x,), parameters=2 * channels, state=2 * channels)

    def lookup(self, name: str, *, rows: int, shape: Shape, tied: str | None = None) -> Tensor:
        """Rows of a table of parameters [rows, shape[-1]], one per position of `shape`.

        Reads only the rows it needs, so its parameters do not count as traffic.
        """
        table = rows * shape[-1]
        return self.op(
            name, "embedding", (), shape,
            parameters=table, read=math.prod(shape) - table, tied=tied,
        )  # fmt: skip

    def concat(self, name: str, inputs: Sequence[Tensor], shape: Shape) -> Tensor:
        """Copy the inputs side by side."""
        return self.op(name, "concat", inputs, shape)

    def copy(self, name: str, type: str, x: Tensor, shape: Shape) -> Tensor:
        """Move x into another layout or size (pad, roll, partition, gather)."""
        moved = math.prod(shape)
        return self.op(name, type, (x,), shape, read=min(moved, x.elements))

    def view(self, name: str, type: str, x: Tensor, shape: Shape | None = None) -> Tensor:
        """The same bytes seen in another shape: no cost."""
        shape = x.shape if shape is None else shape
        return self.op(name, type, (x,), shape, read=0.0, written=0.0)

    def finish(self) -> Graph:
        """The graph, with its count of parameters among the attributes."""
        self.builder.attributes["parameters"] = round(self.parameters)
        self.builder.say_copies(self._copies, {})
        return self.builder.build()


class ParameterCounter(Writer):
    """A writer that makes no graph: all it is for is `parameters`."""

    def _emit(
        self, name: str, type: str, inputs: Sequence[int], shape: Shape, **costs: Any
    ) -> Tensor:
        return Tensor(-1, shape)


def require(holds: bool, model: str, what: str) -> None:
    """OptionError ``zoo model 'model': what`` unless it holds."""
    if not holds:
        raise OptionError(f"zoo model '{model}': {what}")
