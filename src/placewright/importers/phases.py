"""Prefill and decode of one source: two graphs, and which ops of the one are which of the other.

>>> phases = load_phases("zoo:gpt2?layers=2", prompt=8, output=4)
>>> phases.prefill.op_names == phases.decode.op_names, phases.decode.attributes["context"]
(True, 11)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from placewright.errors import OptionError
from placewright.graph import Graph
from placewright.importers.kinds import open_source


@dataclass(frozen=True)
class Phases:
    """`twins`: pairs of an op of `prefill` and one of `decode` that are the same part of the model.

    `decode` is one step at the average context; its state is the cache after the last token.
    """

    prefill: Graph
    decode: Graph
    twins: tuple[tuple[int, int], ...]
    source: str


def load_phases(source: str, prompt: int, output: int) -> Phases:
    """The phases of a request of `prompt` tokens in and `output` tokens out.

    Step i of `output` looks at ``prompt + i`` tokens; the graph of decode is that of their
    average, rounded up. OptionError for a source that has no phases.
    """
    scheme, separator, rest = source.partition(":")
    average = (output + 2) // 2  # of 1 … output, rounded up
    if separator and scheme == "zoo":
        prefill, decode = _zoo(rest, prompt, output, average)
        return Phases(prefill, decode, _same_names(prefill, decode), source)
    if separator and scheme == "hf":
        from placewright.importers.cache.imports import hf_graph

        given = _refuse_given(source, rest, ("phase", "context", "sequence"))
        prefill = hf_graph(f"{given}phase=prefill&context={prompt}")
        cache_tokens = prompt + output
        decode = hf_graph(
            f"{given}phase=decode&context={prompt + average}", cache_tokens=cache_tokens
        )
        return Phases(prefill, decode, _same_modules(prefill, decode), source)
    if not separator or scheme not in ("torch", "zoo", "hf"):
        prefill, decode = _gguf(source, prompt, output, average)
        return Phases(prefill, decode, _same_names(prefill, decode), source)
    raise _no_phases(source)


def with_copies(phases: Phases) -> Phases:
    """The same where ops that share weights have a copy each, and so need not be together."""
    return replace(phases, prefill=phases.prefill.with_copies(), decode=phases.decode.with_copies())


def with_batch(source: str, batch: int) -> str:
    """`source` for so many sequences at once; OptionError if it says how many itself.

    >>> with_batch("zoo:gpt2?layers=2", 8)
    'zoo:gpt2?layers=2&batch=8'
    """
    _, mark, query = source.partition("?")
    _refuse_given(source, f"?{query}", ("batch",))
    return f"{source}{'&' if mark else '?'}batch={batch}"


def _no_phases(source: str) -> OptionError:
    return OptionError(
        f"--mix is for sources with phases, zoo:, hf: and GGUF files; {source} is one program as "
        "it stands"
    )


def _zoo(spec: str, prompt: int, output: int, average: int) -> tuple[Graph, Graph]:
    from placewright.importers import zoo
    from placewright.importers.zoo.options import defaults
    from placewright.importers.zoo.table import TABLE

    given = _refuse_given(f"zoo:{spec}", spec, ("phase", "context", "target"))
    name = spec.partition("?")[0]
    shapes = {model.name: defaults(model.shape) for model in TABLE}
    known = shapes.get(name)
    if known is not None and "phase" not in known:
        serve = [each for each, shape in shapes.items() if "phase" in shape]
        raise OptionError(
            f"zoo model '{name}' has no phases, which --mix needs; take a language model that "
            f"decodes, such as {', '.join(serve[:3])}"
        )

    def graph(phase: str, tokens: int) -> Graph:
        """After `tokens` tokens of the output; an encoder's context is the prompt alone."""
        separate = known is not None and "target" in known
        sizes = f"context={prompt}&target={max(tokens, 1)}"
        sizes = sizes if separate else f"context={prompt + tokens}"
        return zoo.build(f"{given}phase={phase}&{sizes}")

    decode = graph("decode", average)
    return graph("prefill", 0), replace(
        decode, op_state_bytes=graph("decode", output).op_state_bytes
    )


def _gguf(source: str, prompt: int, output: int, average: int) -> tuple[Graph, Graph]:
    from placewright.importers.gguf.model import read_gguf

    file = open_source(source)
    if file.kind != "gguf":
        raise _no_phases(source)
    given = _refuse_given(source, f"?{file.query}", ("phase", "context"))[1:]

    def graph(phase: str, tokens: int) -> Graph:
        return read_gguf(file.path, f"{given}phase={phase}&context={tokens}")

    room = graph("decode", prompt + output).op_state_bytes
    decode = replace(graph("decode", prompt + average), op_state_bytes=room)
    return graph("prefill", prompt), decode


def _refuse_given(source: str, spec: str, names: Sequence[str]) -> str:
    """`spec` up to where more parameters may be written; OptionError if it has one of `names`."""
    base, _, query = spec.partition("?")
    for part in query.split("&"):
        if part.partition("=")[0] in names:
            raise OptionError(
                f"{source}: --mix says what '{part}' would; leave it out of the source"
            )
    return f"{base}?{query}&" if query else f"{base}?"


def _same_names(prefill: Graph, decode: Graph) -> tuple[tuple[int, int], ...]:
    numbers = prefill.op_index
    pairs = ((numbers.get(name), op) for op, name in enumerate(decode.op_names))
    return tuple((first, second) for first, second in pairs if first is not None)


def _same_modules(prefill: Graph, decode: Graph) -> tuple[tuple[int, int], ...]:
    """Ops of one module and type, in their order, where both phases have as many of them.

    Where they have not, those that hold weights, which are the module's in both.
    """
    one, two = _by_module(prefill), _by_module(decode)
    pairs: set[tuple[int, int]] = set()
    for key in one.keys() & two.keys():
        if len(one[key]) == len(two[key]):
            pairs.update(zip(one[key], two[key], strict=True))
            continue
        firsts = [op for op in one[key] if prefill.op_parameter_bytes[op] > 0]
        seconds = [op for op in two[key] if decode.op_parameter_bytes[op] > 0]
        pairs.update((first, second) for first in firsts for second in seconds)
    return tuple(sorted(pairs))


def _by_module(graph: Graph) -> dict[tuple[str, str], list[int]]:
    found: dict[Any, list[int]] = defaultdict(list)
    for op, key in enumerate(zip(graph.op_modules, graph.op_types, strict=True)):
        found[key].append(op)
    return found
