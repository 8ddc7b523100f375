"""Any plan as plain data: a CSV file with a line per op, and a Graphviz graph."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path

import numpy as np

from placewright.errors import OptionError
from placewright.formats import files
from placewright.plan import Plan

COLOURS = (
    "#8dd3c7", "#ffffb3", "#bebada", "#fb8072", "#80b1d3", "#fdb462", "#b3de69", "#fccde5",
    "#d9d9d9", "#bc80bd", "#ccebc5", "#ffed6f",
)  # fmt: skip
COLUMNS = ("op", "type", "module", "device", "seconds", "memory_bytes")


def write_csv(path: str | Path, plan: Plan) -> list[str]:
    """Write a line per op: name, type, module, device, seconds there and bytes kept.

    Of a plan for batches the device is that of the first input.
    """
    problem, text = plan.problem, io.StringIO()
    device = first_devices(plan)
    seconds = problem.op_time[np.arange(problem.op_count), device]
    rows = csv.writer(text)
    rows.writerow(COLUMNS)
    rows.writerows(
        zip(
            problem.op_names,
            problem.op_types,
            problem.op_modules,
            (problem.device_names[each] for each in device),
            seconds.tolist(),
            problem.op_memory.tolist(),
            strict=True,
        )
    )
    files.write_text(path, text.getvalue())
    return []


def write_dot(path: str | Path, plan: Plan) -> list[str]:
    """Write the graph, ops in the colour of their device; how to draw it."""
    problem, device = plan.problem, first_devices(plan)
    lines = [f"digraph {_quoted(problem.name)} {{", "  node [shape=box, style=filled];"]
    for each, name in enumerate(problem.device_names):
        if (device == each).any():
            key = _quoted(f"device {name}")
            lines.append(f"  {key} [label={_quoted(name)}, fillcolor={_colour(each)}];")
    for op, name in enumerate(problem.op_names):
        lines.append(f"  {op} [label={_quoted(name)}, fillcolor={_colour(int(device[op]))}];")
    ends = zip(problem.edge_producer.tolist(), problem.consumers.tolist(), strict=True)
    lines += [f"  {producer} -> {consumer};" for producer, consumer in ends]
    files.write_text(path, "\n".join([*lines, "}", ""]))
    return [shlex.join(["dot", "-Tsvg", str(path), "-o", "plan.svg"])]


def first_devices(plan: Plan) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """`[op]` its device, or the first of several; OptionError where these have unequal shares."""
    if plan.placement.replica_shares:
        raise OptionError(
            "the plan has replicas that take unequal shares of the inputs, and the file would name "
            "one device for each op; export to perfetto, or plan without --shares unequal"
        )
    return plan.placement.device.reshape(plan.problem.op_count, -1)[:, 0]


def _colour(device: int) -> str:
    return _quoted(COLOURS[device % len(COLOURS)])


def _quoted(text: str) -> str:
    """A DOT string: backslashes and quotes escaped, in one line."""
    return json.dumps(text, ensure_ascii=False)
