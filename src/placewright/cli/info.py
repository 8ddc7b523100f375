"""``placewright info``: what a source holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from placewright.cli import options as o
from placewright.graph import WINDOWS

if TYPE_CHECKING:
    from placewright.importers import Imported

SHOWN_TYPES = 12


def command(source: o.Source, training: o.Training = False, json: o.Json = False) -> None:
    """Describe a model: its ops, weights, FLOPs and tensors; and what a workload brings."""
    from placewright.cli.output import console, print_json
    from placewright.importers import load

    facts = describe(load(source, training=training))
    if json:
        print_json(facts)
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, title=escape(facts["name"]), title_justify="left")
    for label, text in _rows(facts):
        table.add_row(label, escape(text))
    console().print(table)


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from placewright.units import format_bytes, format_count

    ops = f"{facts['ops']}"
    if facts["backward_ops"]:
        ops += f" ({facts['backward_ops']} backward, {facts['ops_with_twin']} with a forward twin)"
    yield "ops", ops
    yield "tensors, edges", f"{facts['tensors']}, {facts['edges']}"
    yield "longest path", f"{facts['depth']} ops"
    if facts["input_samples"]:
        yield "samples per input", str(facts["input_samples"])
    yield "weights", format_bytes(facts["parameter_bytes"])
    yield "other state", format_bytes(facts["state_bytes"])
    yield "FLOPs", format_count(facts["flops"])
    yield "bytes read", format_bytes(facts["bytes_read"])
    yield "bytes written", format_bytes(facts["bytes_written"])
    yield "tensor bytes", format_bytes(facts["tensor_bytes"])
    yield "colocation groups", str(facts["colocation_groups"])
    types = list(facts["op_types"].items())
    shown = ", ".join(f"{kind} {count}" for kind, count in types[:SHOWN_TYPES])
    more = f", and {len(types) - SHOWN_TYPES} more" if len(types) > SHOWN_TYPES else ""
    yield "op types", shown + more
    if facts["measured_on"]:
        yield "measured on", ", ".join(facts["measured_on"])
    if facts["devices"]:
        yield "its devices", ", ".join(facts["devices"])
    for key, value in facts["attributes"].items():
        yield key, str(value)


def describe(imported: Imported) -> dict[str, Any]:
    """The facts that ``info`` prints; counts, bytes and FLOPs."""
    graph, cluster = imported.graph, imported.cluster
    return {
        "name": graph.name,
        "source": imported.source,
        "ops": graph.op_count,
        "backward_ops": int(graph.is_backward.sum()),
        "ops_with_twin": int((graph.forward_twin >= 0).sum()),
        "tensors": graph.tensor_count,
        "edges": len(graph.consumers),
        "depth": graph.depth,
        "input_samples": graph.input_samples,
        "flops": float(graph.op_flops.sum()),
        "bytes_read": float(graph.op_bytes_read.sum()),
        "bytes_written": float(graph.op_bytes_written.sum()),
        "parameter_bytes": float(graph.op_parameter_bytes.sum()),
        "state_bytes": float(graph.op_state_bytes.sum()),
        "tensor_bytes": float(graph.tensor_bytes.sum()),
        "colocation_groups": len(set(graph.colocation[graph.colocation >= 0].tolist())),
        "op_types": dict(Counter(graph.op_types).most_common()),
        "measured_on": list(graph.times),
        "devices": list(cluster.device_names) if cluster else [],
        "options": dict(imported.options),
        "attributes": {
            key: _plain(value) for key, value in graph.attributes.items() if key != WINDOWS
        },
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
