"""`Code` as a Python function: one line per step, one local variable per value.

That costs what the calls cost in hand-written eager code; walking the steps in a loop, or
`torch.fx.Interpreter`, would add microseconds to every op. The text is made of our own variable
names and of literals only, and everything else is looked up in a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placewright.runtime.stages.code import (
    Call,
    Code,
    Named,
    Post,
    Ref,
    Send,
    Step,
    Wait,
    references,
)
from placewright.runtime.stages.targets import constant_of, function_of


class Compiled:
    """Call it with a channel and the values of ``code.inputs``; it gives back ``code.result``.

    With a `clock` it is read before the first step and after each, into `ticks`, which a call
    begins anew. (A GPU has one that notes the moment itself, and gives nothing.)

    >>> from placewright.runtime.stages.code import Call, Code, Ref
    >>> add = Call("sum", "torch.ops.aten.add.Tensor", (Ref("x"), 1), {})
    >>> function = Compiled(Code(("x",), (add,), Ref("sum")))
    >>> print(function.source)
    def run(channel, inputs):
        (v0, ) = inputs
        v1 = k0(v0, 1)
        return v1
    """

    def __init__(self, code: Code, clock: Callable[[], Any] | None = None) -> None:
        self.ticks: list[Any] = []
        writer = _Writer(code, clocked=clock is not None)
        writer.constants |= {"note": self.ticks.append, "clock": clock} if clock else {}
        self.source = "\n".join(writer.lines)
        self._step_of_line = writer.step_of_line
        self._filename = f"<stage {id(self):#x}>"
        scope = writer.constants
        exec(compile(self.source, self._filename, "exec"), scope)
        self._run: Callable[[Any, Sequence[Any]], Any] = scope["run"]

    def __call__(self, channel: Any, inputs: Sequence[Any]) -> Any:
        self.ticks.clear()
        return self._run(channel, inputs)

    def step_of(self, error: BaseException) -> Step | None:
        """The step that raised `error`, or None if it was raised elsewhere."""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._filename:
                return self._step_of_line.get(trace.tb_lineno)
            trace = trace.tb_next
        return None


class _Writer:
    """Writes the lines; `constants` holds what they refer to."""

    def __init__(self, code: Code, *, clocked: bool) -> None:
        self.constants: dict[str, Any] = {}
        self.step_of_line: dict[int, Step] = {}
        self._known: dict[Any, str] = {}
        self._variables: dict[str, str] = {}
        names = "".join(f"{self._variable(name)}, " for name in code.inputs)
        self.lines = ["def run(channel, inputs):", f"    ({names}) = inputs"]
        tick = ["    note(clock())"] if clocked else []
        self.lines += tick
        last_use = _last_uses(code)
        for position, step in enumerate(code.steps):
            self.lines.append(f"    {self._line(step)}")
            self.step_of_line[len(self.lines)] = step
            self._release(last_use.get(position, ()))
            self.lines += tick
        self.lines.append(f"    return {self._text(code.result)}")

    def _line(self, step: Step) -> str:
        match step:
            case Call():
                arguments = [self._text(each) for each in step.args]
                if step.kwargs:  # not as key=value: ATen has arguments named `from`
                    arguments.append(f"**{self._text(step.kwargs)}")
                function = self._constant(step.target, lambda: function_of(step.target))
                return f"{self._variable(step.name)} = {function}({', '.join(arguments)})"
            case Send(transfer):
                return (
                    f"channel.send({self._constant(transfer)}, {self._variable(transfer.tensor)})"
                )
            case Post(transfer):
                variable = self._variable(transfer.tensor)
                return f"{variable} = channel.post({self._constant(transfer)})"
            case Wait(transfer):
                variable = self._variable(transfer.tensor)
                return f"{variable} = channel.wait({variable})"

    def _text(self, value: Any) -> str:
        if isinstance(value, Ref):
            return self._variables[value.name]
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float) and math.isfinite(value):
            return repr(value)
        if isinstance(value, tuple):
            return f"({''.join(self._text(each) + ', ' for each in value)})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._text, value))}]"
        if isinstance(value, Mapping):
            items = (f"{key!r}: {self._text(each)}" for key, each in value.items())
            return f"{{{', '.join(items)}}}"
        if isinstance(value, Named):
            return self._constant(value, lambda: constant_of(value))
        if isinstance(value, Code):
            return self._constant(id(value), lambda: _body(value))
        return self._constant(repr(value), lambda: value)

    def _constant(self, key: Any, make: Callable[[], Any] | None = None) -> str:
        if key not in self._known:
            name = self._known[key] = f"k{len(self._known)}"
            self.constants[name] = make() if make else key
        return self._known[key]

    def _variable(self, name: str) -> str:
        return self._variables.setdefault(name, f"v{len(self._variables)}")

    def _release(self, names: Sequence[str]) -> None:
        if names:
            self.lines.append(f"    del {', '.join(self._variables[name] for name in names)}")


def _last_uses(code: Code) -> dict[int, list[str]]:
    """Position of a step → the values that no later step needs (inputs are the caller's)."""
    last: dict[str, int] = {}
    for position, step in enumerate(code.steps):
        if isinstance(step, Call):
            used = [step.name, *references(step.args), *references(step.kwargs)]
        else:
            used = [step.transfer.tensor]
        last.update(dict.fromkeys(used, position))
    for name in (*code.inputs, *references(code.result)):
        last.pop(name, None)
    by_position: dict[int, list[str]] = {}
    for name, position in last.items():
        by_position.setdefault(position, []).append(name)
    return by_position


def _body(code: Code) -> Callable[..., Any]:
    run = Compiled(code)
    return lambda *inputs: run(None, inputs)
