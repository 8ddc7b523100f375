"""Why a plan is as it is, as people read it: tables and sentences, and records for ``--json``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from placewright.plan import Plan
from placewright.report.words import value_words
from placewright.units import format_bytes, format_seconds, listed, printable
from placewright.whatif.explain.devices import DeviceExplanation, Without
from placewright.whatif.explain.moved import Move
from placewright.whatif.explain.places import PlaceExplanation, Wait

TIE = 1e-3  # of the value: what changes it by less nearly ties
SHOWN = 12  # steps of a chain that are shown, the last ones

# -- places ----------------------------------------------------------------------------------


def place_words(found: PlaceExplanation) -> str:
    """Where it is, in a sentence or two."""
    plan = found.plan
    names = [plan.problem.device_names[d] for d in found.devices]
    count = f" ({_ops(len(found.ops))})" if found.kind != "op" else ""
    together = f", with {_ops(found.together)} that must be together with it"
    together = together if found.together else ""
    where = f"{found.kind} {printable(found.name)}{count} is on {listed(names)}{together}"
    value = f"{value_words(plan.problem)} {format_seconds(plan.value)}"
    return f"{where}; {value}, {_role(found)}"


def _role(found: PlaceExplanation) -> str:
    """Whether the value hangs on it."""
    plan = found.plan
    if plan.problem.options.objective == "latency":
        on = "on the critical path" if found.critical else "not on the critical path"
        return f"and it is {on}"
    name = plan.problem.device_names[found.slowest]
    here = "it is there" if found.slowest in found.devices else "it is not there"
    busy = format_seconds(float(plan.device_load[found.slowest]))
    return f"{name} is busiest ({busy}), and {here}"


def move_words(plan: Plan, move: Move) -> str:
    """What forbids a move, or what makes it worse or better."""
    names = plan.problem.device_names
    if move.blocked:
        return {
            "support": f"{names[move.device]} does not run it",
            "pin": "it is pinned",
            "colocation": "other ops must be together with it",
            "memory": f"{names[move.full]} lacks {format_bytes(move.short)}",
            "contiguity": "data would go in a circle",
            "replicas": "the devices of that stage are not equally fast for it",
        }[move.blocked]
    if abs(move.change) <= TIE * plan.value:
        return "nearly ties"
    return _better(plan, move) if move.change < 0 else _worse(plan, move)


def _better(plan: Plan, move: Move) -> str:
    parts = _less(plan, "computing takes", move.computing)
    parts += _less(plan, "transfers take", move.transferring)
    return "better" + (f": {' and '.join(parts)}" if parts else "; 'improve' looks for more")


def _less(plan: Plan, what: str, seconds: float) -> list[str]:
    """That it takes less, unless by so little that it is no reason."""
    return [f"{what} {format_seconds(-seconds)} less"] if seconds < -TIE * plan.value else []


def _worse(plan: Plan, move: Move) -> str:
    longest = max(move.computing, move.transferring)
    if longest <= TIE * plan.value:
        name = plan.problem.device_names[move.device]
        return f"ops wait for {name}" if _in_time(plan) else f"{name} has too much to do"
    what = "computing takes" if move.computing >= move.transferring else "transfers take"
    return f"{what} {format_seconds(longest)} more"


def _in_time(plan: Plan) -> bool:
    return plan.problem.options.objective != "throughput"


def places_table(found: PlaceExplanation) -> Table:
    """A line per other device."""
    names = found.plan.problem.device_names
    return _moves_table(
        found.plan,
        f"{found.name} elsewhere, all else where it is",
        "device",
        [(names[move.device], move) for move in (*found.moves, *found.parted)],
    )


def ties_table(plan: Plan, moves: Sequence[Move], title: str) -> Table:
    """A line per move."""
    names = plan.problem.device_names
    rows = [(f"{move.what} → {names[move.device]}", move) for move in moves]
    return _moves_table(plan, title, "move", rows)


def _moves_table(plan: Plan, title: str, first: str, rows: Sequence[tuple[str, Move]]) -> Table:
    table = Table(title=escape(printable(title)), title_justify="left")
    table.add_column(first)
    for column in ("value", "change"):
        table.add_column(column, justify="right")
    table.add_column("why")
    for name, move in rows:
        timed = math.isfinite(move.value)
        table.add_row(
            escape(printable(name)),
            format_seconds(move.value) if timed else "-",
            _change(plan, move) if timed else "-",
            escape(_why(plan, move)),
            style="dim" if move.blocked else "",
        )
    return table


def _change(plan: Plan, move: Move) -> str:
    share = move.change / plan.value if plan.value else 0.0
    return f"{share:+.2%}"


def _why(plan: Plan, move: Move) -> str:
    words = move_words(plan, move)
    if move.blocked and move.change < 0:
        return f"forbidden, though better: {words}"
    return f"forbidden: {words}" if move.blocked else words


def chain_lines(found: PlaceExplanation) -> list[str]:
    """What it waits for, the last first; that there is no such thing, where there is none."""
    plan = found.plan
    if not found.chain:
        return [
            f"what it waits for: a plan for {plan.problem.options.objective} has no one schedule "
            "of ops, so that no op waits for another; the busiest device decides"
        ]
    shown = list(reversed(found.chain))[:SHOWN]
    lines = ["what it waits for, backwards from its start:"]
    lines += [f"  {_wait_words(plan, wait)}" for wait in shown]
    if len(found.chain) > SHOWN:
        lines.append(f"  before that: {len(found.chain) - SHOWN} more (--json has all)")
    return lines


def _wait_words(plan: Plan, wait: Wait) -> str:
    names = plan.problem.device_names
    first, last = (printable(plan.problem.op_names[op]) for op in (wait.first, wait.last))
    when = f"{format_seconds(wait.start)} to {format_seconds(wait.finish)}"
    if wait.target >= 0:
        what = f"transfer of {first}, {names[wait.device]} → {names[wait.target]}"
    elif wait.steps == 1:
        what = f"{first} on {names[wait.device]}"
    else:
        what = f"{wait.steps} ops on {names[wait.device]}, {first} … {last}"
    idle = f", after {format_seconds(wait.idle)} of nothing" if wait.idle > TIE * plan.value else ""
    return f"{when}  {what}{idle}"


# -- devices ---------------------------------------------------------------------------------


def device_lines(found: DeviceExplanation) -> list[str]:
    """Load, idle time, memory, and the plan without it."""
    plan = found.plan
    name = plan.problem.device_names[found.device]
    share = found.load / plan.value if plan.value else 0.0
    slowest = ", the busiest" if found.slowest else ""
    lines = [
        f"device {name} ({plan.problem.device_kinds[found.device]}): {_ops(found.ops)}, busy "
        f"{format_seconds(found.load)} ({share:.0%}{slowest}), idle {format_seconds(found.idle)} "
        f"of {format_seconds(plan.value)}",
        f"memory {format_bytes(found.memory)} of {format_bytes(found.capacity)}",
    ]
    if found.waits:
        shown = [f"{format_seconds(seconds)} {what}" for what, seconds in found.waits]
        lines.append(f"idle in the meantime: {listed(shown, 6)}")
    lines.append(_without_words(plan, name, found.without))
    return lines


def _ops(count: int) -> str:
    return "1 op" if count == 1 else f"{count} ops"


def _without_words(plan: Plan, name: str, without: Without | None) -> str:
    if without is None:
        return f"without {name}: the same, for nothing is on it"
    bound = without.lower_bound
    least = "" if bound is None else f", and no plan takes less than {format_seconds(bound)}"
    stays = f" (if routes that go over {name} stay)" * without.forwards
    if without.value is None:
        return f"without {name}{stays}: no plan was found{least}: {without.error}"
    change = without.value / plan.value - 1.0 if plan.value else 0.0
    return (
        f"without {name}{stays}: {format_seconds(without.value)} ({change:+.1%}) by "
        f"{without.planner}{least}"
    )


def leaving_title(found: DeviceExplanation) -> str:
    """What the table of moves away from a device is over."""
    name = found.plan.problem.device_names[found.device]
    tried = "" if found.tried == found.movable else f" ({found.tried} of {found.movable} tried)"
    return f"what could best leave {name}{tried}"


# -- records ---------------------------------------------------------------------------------


def explanation_record(found: PlaceExplanation | DeviceExplanation) -> dict[str, Any]:
    """What ``explain --json`` prints: seconds and bytes; null for what there is not."""
    if isinstance(found, DeviceExplanation):
        return _device_record(found)
    plan, names = found.plan, found.plan.problem.device_names
    return {
        "kind": found.kind,
        "name": found.name,
        "objective": plan.problem.options.objective,
        "value": plan.value,
        "ops": len(found.ops),
        "together": found.together,
        "devices": [names[d] for d in found.devices],
        "critical": found.critical if found.chain else None,
        "busiest": names[found.slowest],
        "moves": _records(plan, found.moves),
        "parted": _records(plan, found.parted),
        "ties": _records(plan, found.ties),
        "chain": [_wait_record(plan, wait) for wait in found.chain],
    }


def _device_record(found: DeviceExplanation) -> dict[str, Any]:
    plan, without = found.plan, found.without
    return {
        "kind": "device",
        "name": plan.problem.device_names[found.device],
        "objective": plan.problem.options.objective,
        "value": plan.value,
        "ops": found.ops,
        "load": found.load,
        "idle": found.idle,
        "waits": [{"for": what, "seconds": seconds} for what, seconds in found.waits],
        "busiest": found.slowest,
        "memory": found.memory,
        "capacity": _finite(found.capacity),
        "without": None if without is None else vars(without),
        "leaving": _records(plan, found.leaving),
        "tried": found.tried,
        "movable": found.movable,
    }


def _records(plan: Plan, moves: Sequence[Move]) -> list[dict[str, Any]]:
    names = plan.problem.device_names
    return [
        {
            "what": move.what,
            "ops": len(move.ops),
            "device": names[move.device],
            "value": _finite(move.value),
            "change": _finite(move.change),
            "computing": move.computing,
            "transferring": move.transferring,
            "blocked": move.blocked or None,
            "short": {"device": names[move.full], "bytes": move.short} if move.short else None,
            "why": move_words(plan, move),
        }
        for move in moves
    ]


def _wait_record(plan: Plan, wait: Wait) -> dict[str, Any]:
    names, ops = plan.problem.device_names, plan.problem.op_names
    return {
        "kind": "transfer" if wait.target >= 0 else "ops",
        "device": names[wait.device],
        "target": names[wait.target] if wait.target >= 0 else None,
        "first": ops[wait.first],
        "last": ops[wait.last],
        "steps": wait.steps,
        "start": wait.start,
        "finish": wait.finish,
        "idle": wait.idle,
    }


def _finite(amount: float) -> float | None:
    return amount if math.isfinite(amount) else None
