"""Plan files changed at random: blindly, and by forgers who know what the judge looks at.

`tampered` changes a document in a few places and, half of the time, makes value and status fit
again, so that what is wrong is not seen by them alone. `forge` goes further: it changes a placement
or a problem, and has everything else worked out to fit.
"""

from __future__ import annotations

import copy
import json
import math
from random import Random

import numpy as np

from placewright.errors import PlacewrightError
from placewright.formats.problems import read_problem
from placewright.formats.schema import ProblemEntry
from placewright.plan import Placement
from placewright.simulate import evaluate

NOT_THERE = (
    KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, PlacewrightError
)  # fmt: skip
"""What a change raises where what it changes is gone, or not part of this objective."""

OUTCOMES = {
    "latency": "schedule",
    "throughput": "loads",
    "invocation-latency": "invocations",
    "batch-throughput": "batches",
}
WORDS = [
    "", "optimal", "feasible", "infeasible", "tensor", "edge", "none", "port", "link", "resident",
    "peak", "sum", "overlap", "duplex", "pipedream", "gpipe", "direct", "host", "latency",
    "throughput", "invocation-latency", "batch-throughput", "heft", "placewright.plan/2",
]  # fmt: skip
OPTIONS = {
    "transfer_unit": ["tensor", "edge"],
    "contention": ["none", "port", "link"],
    "memory": ["resident", "peak"],
    "load": ["sum", "overlap", "duplex"],
    "schedule": ["pipedream", "gpipe"],
    "contiguous": [False, True],
    "replicate": [False, True],
    "shares": ["equal", "unequal"],
    "subgraphs": [1, 2, 3],
    "batch": [1, 2, 3],
}


def tampered(document, rng: Random):
    """A changed copy, and the names of the changes."""
    changed, names, before = copy.deepcopy(document), [], json.dumps(document)
    wanted = rng.choice([1, 1, 1, 2, 2, 3])
    while len(names) < wanted or json.dumps(changed) == before:
        change = rng.choice(CHANGES)
        try:
            change(changed, rng)
        except NOT_THERE:
            continue
        names.append(change.__name__)
    if rng.random() < 0.5:
        refit(changed)
        names.append("refit")
    return changed, names


def refit(document) -> None:
    """Value and status as the changed outcome makes them, where it is whole enough for that."""
    try:
        document["value"] = _value(document)
        _refit_status(document)
    except NOT_THERE:
        return


def _refit_status(document) -> None:
    value, bound = document["value"], document["lower_bound"]
    gap = (value - bound) / value if value > 0 else 0.0
    document["status"] = "optimal" if gap <= 1e-4 else "feasible"


def _value(document):
    outcome = document[OUTCOMES[document["problem"]["options"]["objective"]]]
    if "op_finish" in outcome:
        return max(outcome["op_finish"])
    if "batches" in outcome:
        return max(outcome["batches"]["finish"])
    return max(outcome["load"])


# -- blind changes -------------------------------------------------------------------------------


def _places(entry, apart=()):
    """(container, key) of everything inside `entry`, but for what is inside of the keys `apart`."""
    found = []
    for key in entry if isinstance(entry, dict) else range(len(entry)):
        if key not in apart:
            found.append((entry, key))
            if isinstance(entry[key], (dict, list)):
                found += _places(entry[key])
    return found


def _claims(document):
    return _places(document, apart=("problem",))


def _place(document, rng):
    """Somewhere in the file, in the claims three times of four."""
    return rng.choice(_claims(document) if rng.random() < 0.75 else _places(document["problem"]))


def _number(places, rng):
    return rng.choice([
        (container, key)
        for container, key in places
        if isinstance(container[key], (int, float)) and not isinstance(container[key], bool)
    ])  # fmt: skip


def perturb_a_number(document, rng) -> None:
    container, key = _number(_claims(document), rng)
    container[key] = _perturbed(container[key], document, rng)


def perturb_a_number_of_the_problem(document, rng) -> None:
    container, key = _number(_places(document["problem"]), rng)
    container[key] = _perturbed(container[key], document, rng)


def _perturbed(number, document, rng):
    # None of a round share of a time is just as much as the judge's tolerance.
    relative = rng.choice([1e-15, 1e-12, 1.3171e-10, 3.7319e-9, 1.7213e-8, 1e-6, 1e-3, 0.1, 0.5])
    other_container, other_key = _number(_places(document), rng)
    return rng.choice([
        number * (1 + relative),
        number * (1 - relative),
        number + rng.choice([-2, -1, -0.5, 0.5, 1, 2]),
        number + rng.choice([-1, 1]),
        -number,
        0,
        number * 2,
        rng.choice([-1, 0, 1, 2, 3, 2**31, 10**20, 1e308, 5e-324, math.nan, math.inf]),
        other_container[other_key],
        rng.choice([str(number), bool(number), None, float(number), [number]]),
    ])  # fmt: skip


def change_anything(document, rng) -> None:
    container, key = _place(document, rng)
    old = container[key]
    if isinstance(old, bool):
        container[key] = not old
    elif isinstance(old, (int, float)):
        container[key] = _perturbed(old, document, rng)
    elif isinstance(old, str):
        container[key] = rng.choice(WORDS)
    else:
        container[key] = rng.choice([None, [], {}, 0, "", [old]])


def delete_anything(document, rng) -> None:
    container, key = _place(document, rng)
    del container[key]


def change_a_list(document, rng) -> None:
    found = [
        container[key]
        for container, key in (_places if rng.random() < 0.5 else _claims)(document)
        if isinstance(container[key], list) and container[key]
    ]
    entries = rng.choice(found)
    one, two = rng.randrange(len(entries)), rng.randrange(len(entries))
    how = rng.randrange(5)
    if how == 0:
        entries[one], entries[two] = entries[two], entries[one]
    elif how == 1:
        entries[one] = copy.deepcopy(entries[two])
    elif how == 2:
        entries.insert(two, copy.deepcopy(entries[one]))
    elif how == 3:
        del entries[one]
    else:
        entries.reverse()


def swap_two_places(document, rng) -> None:
    places = (_places if rng.random() < 0.5 else _claims)(document)
    (a, one), (b, two) = rng.choice(places), rng.choice(places)
    a[one], b[two] = copy.deepcopy(b[two]), copy.deepcopy(a[one])


def add_a_field(document, rng) -> None:
    dicts = [document, *(c[k] for c, k in _places(document) if isinstance(c[k], dict))]
    donor, receiver = rng.choice(dicts), rng.choice(dicts)
    key = rng.choice(list(donor))
    receiver[key] = copy.deepcopy(donor[key])


# -- rows of tables ------------------------------------------------------------------------------


def _tables(document):
    """Those of the outcome; one of transfers comes last."""
    schedule = document.get("schedule", {})
    batches = document.get("batches", {})
    invocations = document.get("invocations", {})
    tables = [
        schedule.get("transfers"),
        batches.get("batches"),
        batches.get("transfers"),
        invocations.get("invocations"),
    ]
    return [each for each in tables if each]


def _rows(table):
    return len(next(iter(table.values()), []))


def change_a_row(document, rng) -> None:
    table = rng.choice(_tables(document))
    one, two = rng.randrange(_rows(table)), rng.randrange(_rows(table))
    how = rng.randrange(4)
    for column in table.values():
        if how == 0:
            del column[one]
        elif how == 1:
            column.append(column[one])
        elif how == 2:
            column[one], column[two] = column[two], column[one]
        else:
            column[one] = column[two]


def swap_within_a_column(document, rng) -> None:
    table = rng.choice(_tables(document))
    column = table[rng.choice(list(table))]
    one, two = rng.randrange(len(column)), rng.randrange(len(column))
    column[one], column[two] = column[two], column[one]


def relabel(document, rng) -> None:
    """Another small number in a column of numbers of things."""
    table = rng.choice(_tables(document))
    names = [name for name in table if all(isinstance(each, int) for each in table[name])]
    column = table[rng.choice(names)]
    column[rng.randrange(len(column))] = rng.choice([-1, 0, 1, 2, 3])


def add_a_transfer(document, rng) -> None:
    """One more than is needed: a copy of another, to elsewhere, for others, or of no length."""
    table = _tables(document)[-1]
    number = rng.randrange(max(_rows(table), 1))
    row = {name: column[number] if column else 0 for name, column in table.items()}
    labels = {name: values for name, values in _labels(document).items() if name in row}
    for name in rng.sample(list(labels), rng.choice([0, 1, 1, 2, 3])):
        row[name] = rng.choice(labels[name])
    if rng.random() < 0.5:
        row["finish"] = row["start"] + _takes(document, row)
    for name, column in table.items():
        column.append(row[name])


# -- changes with a purpose ----------------------------------------------------------------------


def _moments(document):
    """(list, list) columns of starts and finishes, and how many rows they have."""
    schedule, batches = document.get("schedule"), document.get("batches")
    if schedule:
        sent = schedule["transfers"]
        return [(schedule["op_start"], schedule["op_finish"]), (sent["start"], sent["finish"])]
    return [(batches[name]["start"], batches[name]["finish"]) for name in ("batches", "transfers")]


def move_in_time(document, rng) -> None:
    """An op, batch or transfer earlier or later, as long as it was."""
    starts, ends = rng.choice(_moments(document))
    row = rng.randrange(len(starts))
    other = rng.choice([0.0, *starts, *ends])
    by = rng.choice([other - starts[row], other - ends[row], rng.choice([-1, -0.1, 0.1, 1])])
    starts[row] += by
    ends[row] += by


def run_at_once(document, rng) -> None:
    """An op or batch, or all and the transfers, as soon as its inputs are there.

    Whatever else its device, or the channels, do then.
    """
    (starts, ends), (sent_starts, sent_ends) = _moments(document)
    tensors, table = document["problem"]["tensors"], _tables(document)[-1]
    if document.get("schedule"):
        rows = list(enumerate(document["placement"]))
    else:
        batches = document["batches"]["batches"]
        rows = list(zip(batches["op"], batches["device"], strict=True))
    number = {row: k for k, row in enumerate(rows)}
    every = rng.random() < 0.5
    for _ in rows if every else [0]:
        for k, tensor in enumerate(table["tensor"] if every else []):
            made = ends[number[tensors["producer"][tensor], table["source"][k]]]
            sent_starts[k], sent_ends[k] = made, made + sent_ends[k] - sent_starts[k]
        for k in range(len(rows)) if every else [rng.randrange(len(rows))]:
            op, device = rows[k]
            read = [tensor for tensor, readers in enumerate(tensors["consumers"]) if op in readers]
            made = [(tensors["producer"][tensor], device) for tensor in read]
            ready = [ends[number[row]] for row in made if row in number]
            for j, tensor in enumerate(table["tensor"]):
                if tensor in read and table["target"][j] == device:
                    ready.append(sent_ends[j])
            took, starts[k] = ends[k] - starts[k], max([0.0, *ready])
            ends[k] = starts[k] + took


def change_the_size_of_a_batch(document, rng) -> None:
    """As long as the other size takes."""
    table, times = document["batches"]["batches"], document["problem"]["batches"]
    row, size = rng.randrange(_rows(table)), rng.randrange(len(times["sizes"]))
    took = times["time"][table["op"][row]][table["device"][row]][size]
    table["finish"][row] = table["start"][row] + took
    table["size"][row] = times["sizes"][size]


def relabel_a_transfer(document, rng) -> None:
    """Another tensor, consumer, device or number of inputs, as long as that takes."""
    table = _tables(document)[-1]
    labels = {name: values for name, values in _labels(document).items() if name in table}
    row, name = rng.randrange(_rows(table)), rng.choice(list(labels))
    table[name][row] = rng.choice(labels[name])
    took = _takes(document, {name: column[row] for name, column in table.items()})
    if rng.random() < 0.5:
        table["start"][row] = table["finish"][row] - took
    else:
        table["finish"][row] = table["start"][row] + took


def _labels(document):
    problem = document["problem"]
    devices = range(len(problem["devices"]["name"]))
    return {
        "tensor": range(len(problem["tensors"]["producer"])),
        "consumer": range(-1, len(problem["ops"]["name"])),
        "source": devices,
        "target": devices,
        "inputs": [1, 2, 3],
    }


def _takes(document, row):
    """Seconds of a transfer."""
    problem = document["problem"]
    routes = problem["routes"]
    count = 1 if problem["options"]["contention"] == "none" else row.get("inputs", 1)
    return routes["latency"][row["source"]][row["target"]] + (
        count
        * problem["tensors"]["bytes"][row["tensor"]]
        * routes["seconds_per_byte"][row["source"]][row["target"]]
    )


def move_an_invocation_in_time(document, rng) -> None:
    """Half of the time to when its inputs are there, whatever else its accelerator does then."""
    outcome, tensors = document["invocations"], document["problem"]["tensors"]
    table, finish = outcome["invocations"], outcome["op_finish"]
    row = rng.randrange(_rows(table))
    slot = (table["device"][row], table["subgraph"][row])
    slots = list(zip(document["placement"], document["subgraph"], strict=True))
    inside = [op for op, each in enumerate(slots) if each == slot]
    ready = [
        finish[producer]
        for producer, readers in zip(tensors["producer"], tensors["consumers"], strict=True)
        if producer not in inside and set(inside) & set(readers)
    ]
    earliest = max([0.0, *ready])
    by = rng.choice([*3 * [earliest - table["start"][row]], -1, -0.1, 0.1])
    table["start"][row] += by
    for op in inside:
        finish[op] += by


def make_it_later(document, rng) -> None:
    by = rng.choice([1e-12, 1e-6, 0.5, 3.0])
    if document.get("invocations"):
        outcome = document["invocations"]
        columns = [outcome["op_finish"], outcome["invocations"]["start"]]
    else:
        columns = [column for pair in _moments(document) for column in pair]
    for column in columns:
        column[:] = [time + by for time in column]


def scale_all_times(document, rng) -> None:
    by = rng.choice([0.5, 1 - 1e-6, 1 + 1e-6, 2.0])
    for key in OUTCOMES.values():
        for container, name in _places(document.get(key) or {}):
            if isinstance(container[name], float):
                container[name] *= by


def place_elsewhere(document, rng) -> None:
    """An op, or an input of one; the table of invocations or batches sometimes follows."""
    rows = document["placement"]
    op = rng.randrange(len(rows))
    device = rng.randrange(len(document["problem"]["devices"]["name"]))
    if isinstance(rows[op], list):
        rows[op][rng.randrange(len(rows[op]))] = device
    else:
        rows[op] = device
    for table in _tables(document):
        if rng.random() < 0.5 and table.get("op") and op in table["op"]:
            table["device"][table["op"].index(op)] = device


def swap_two_devices(document, rng) -> None:
    """In all that is claimed: true where the devices are alike."""
    devices = len(document["problem"]["devices"]["name"])
    one, two = rng.randrange(devices), rng.randrange(devices)
    other = {one: two, two: one}

    def swapped(column):
        return [
            swapped(each) if isinstance(each, list) else other.get(each, each) for each in column
        ]

    document["placement"] = swapped(document["placement"])
    if "replicas" in document:
        document["replicas"] = swapped(document["replicas"])
    for table in _tables(document):
        for name in {"device", "source", "target"} & set(table):
            table[name] = swapped(table[name])
    for row in (document.get("loads") or {}).values():
        for column in row if isinstance(row[0], list) else [row]:
            column[one], column[two] = column[two], column[one]


def state_a_status(document, rng) -> None:
    document["status"] = rng.choice(["optimal", "feasible"])


def raise_the_bound(document, rng) -> None:
    value = document["value"]
    document["lower_bound"] = rng.choice([
        value, value * (1 + 1e-12), value * (1 + 1e-8), value * 1.5, value * 0.99995, value * 0.99
    ])  # fmt: skip


def lower_the_value(document, rng) -> None:
    document["value"] *= rng.choice([1 - 1e-12, 1 - 1e-8, 0.999, 0.5])


def relabel_subgraphs(document, rng) -> None:
    """Other numbers of subgraphs, in the table too, for one device or for one op."""
    table, numbers = document["invocations"]["invocations"], document["subgraph"]
    if rng.random() < 0.4:
        numbers[rng.randrange(len(numbers))] = rng.choice([-1, 0, 1, 2])
        return
    device = rng.choice(document["placement"])
    slots = zip(document["placement"], numbers, strict=True)
    mine = sorted({number for where, number in slots if where == device})
    if len(mine) > 1:
        one, two = rng.sample(mine, 2)
        swapped = {one: two, two: one}
    else:
        swapped = {0: 1}
    other = rng.choice([swapped, swapped, {0: 1, 1: 2}, {0: 2, 1: 3}, {0: 3}, {0: -1}])
    for op, where in enumerate(document["placement"]):
        if where == device:
            numbers[op] = other.get(numbers[op], numbers[op])
    for row, where in enumerate(table["device"]):
        if where == device:
            table["subgraph"][row] = other.get(table["subgraph"][row], table["subgraph"][row])


def change_the_replicas(document, rng) -> None:
    devices = list(range(len(document["problem"]["devices"]["name"])))
    stages = document.setdefault("replicas", [])
    how = rng.randrange(4)
    if how == 0:
        stages.append(rng.sample(devices, rng.randrange(len(devices) + 1)))
    elif how == 1:
        stages.append([rng.choice(devices)])
    elif how == 2:
        rng.choice(stages).reverse()
    else:
        stages.append([rng.choice(devices), rng.choice(devices)])


def change_the_shares(document, rng) -> None:
    stages = document["replicas"]
    equal = [[1 / len(stage)] * len(stage) for stage in stages]
    shares = document.setdefault("replica_shares", equal)
    stage = rng.choice(shares)
    how = rng.randrange(4)
    if how == 0:
        moved = rng.choice([0.1, 0.5, 1.0]) * stage[0]
        stage[0] -= moved
        stage[-1] += moved
    elif how == 1:
        stage.reverse()
    elif how == 2:
        stage[0] = rng.choice([0.0, -0.5, 1.0, 2.0])
    else:
        stage.append(0.5)


def add_subgraphs(document, rng) -> None:
    document["subgraph"] = [rng.choice([-1, 0, 1]) for _ in document["problem"]["ops"]["name"]]


def add_another_outcome(document, rng) -> None:
    columns = {
        "schedule": {"op_start": [0.0], "op_finish": [1.0], "transfers": {
            "tensor": [], "consumer": [], "source": [], "target": [], "start": [], "finish": []}},
        "loads": {"compute": [[1.0]], "incoming": [[0.0]], "outgoing": [[0.0]], "sync": [0.0],
                  "load": [1.0]},
        "invocations": {"op_finish": [0.0], "invocations": {
            "device": [], "subgraph": [], "start": [], "incoming": [], "compute": [],
            "outgoing": []}},
        "batches": {"batches": {"op": [], "device": [], "size": [], "start": [], "finish": []},
                    "transfers": {"tensor": [], "consumer": [], "source": [], "target": [],
                                  "inputs": [], "start": [], "finish": []}},
    }  # fmt: skip
    key = rng.choice(list(columns))
    document.setdefault(key, columns[key])


def change_an_option(document, rng) -> None:
    options = document["problem"]["options"]
    name = rng.choice([name for name in options if name in OPTIONS])
    options[name] = rng.choice(OPTIONS[name])
    if name == "transfer_unit" and rng.random() < 0.5:
        key = OUTCOMES[options["objective"]]
        sent, tensors = document[key]["transfers"], document["problem"]["tensors"]
        readers = [rng.choice(tensors["consumers"][tensor]) for tensor in sent["tensor"]]
        sent["consumer"] = [-1] * len(readers) if options[name] == "tensor" else readers


def pin_or_colocate(document, rng) -> None:
    ops = document["problem"]["ops"]
    count, name = len(ops["name"]), rng.choice(["pinned", "colocation", "backward", "twin"])
    choices = [False, True] if name == "backward" else [-1, 0, 1]
    column = [rng.choice(choices) for _ in range(count)]
    ops[name] = rng.choice([column, column, [], column[:-1]])


def tighten_memory(document, rng) -> None:
    """To what a device keeps with some of the tensors, or a little less."""
    problem = document["problem"]
    capacity, ops = problem["devices"]["memory"], problem["ops"]
    device, sizes = rng.randrange(len(capacity)), problem["tensors"]["bytes"]
    rows = [each if isinstance(each, list) else [each] for each in document["placement"]]
    needed = sum(ops["memory"][op] for op, row in enumerate(rows) if device in row)
    if "memory" in problem["options"] and rng.random() < 0.7:
        problem["options"]["memory"] = "peak"
        needed += sum(rng.sample(sizes, rng.randrange(len(sizes) + 1)))
    capacity[device] = rng.choice([None, needed, needed * (1 - 1e-6), needed / 2])


def make_timeless(document, rng) -> None:
    """A problem where nothing takes any time, so that only what waits for what is left."""
    problem = document["problem"]
    ops, routes, batches = problem["ops"], problem["routes"], problem.get("batches")
    tables = [ops["time"], routes["latency"], problem["tensors"]["bytes"]]
    tables += [routes.get("host_latency") or [], batches["time"] if batches else []]
    tables += [document[key] for key in OUTCOMES.values() if document.get(key)]
    for table in tables:
        for container, key in _places(table):
            if isinstance(container[key], float):
                container[key] = 0.0
    document["value"] = document["lower_bound"] = 0.0
    document["status"] = "optimal"


# -- forgeries -----------------------------------------------------------------------------------


def forge(document, rng) -> None:
    """Another placement, or what it would come to in another problem, with all that follows."""
    imagined = {"problem": copy.deepcopy(document["problem"])}
    devices = range(len(imagined["problem"]["devices"]["name"]))
    where = copy.deepcopy(document["placement"])
    replicas = copy.deepcopy(document.get("replicas") or [])
    numbers = copy.deepcopy(document.get("subgraph"))
    shares = copy.deepcopy(document.get("replica_shares") or [])
    how = rng.randrange(4)
    if how == 0:
        rng.choice(IMAGINED)(imagined, rng)
    for _ in range(rng.choice([0, 1, 2]) if how else 0):
        op = rng.randrange(len(where))
        if isinstance(where[op], list):
            where[op][rng.randrange(len(where[op]))] = rng.choice(devices)
        else:
            where[op] = rng.choice(devices)
        if numbers is not None:
            is_cpu = imagined["problem"]["devices"].get("cpu") or [False] * len(devices)
            numbers[op] = -1 if is_cpu[where[op]] else rng.choice([0, 0, 1, 2])
    if how == 1 and document.get("loads"):
        replicas = [rng.sample(devices, rng.randrange(2, len(devices) + 1))]
        parts = [rng.randrange(1, 4) for _ in replicas[0]]
        shares = [[part / sum(parts) for part in parts]] if rng.randrange(2) else []
    problem = read_problem(ProblemEntry.model_validate(imagined["problem"]))
    subgraph = None if numbers is None else np.array(numbers)
    placement = Placement(
        np.array(where), replicas=replicas, subgraph=subgraph, replica_shares=shares
    )
    with np.errstate(over="ignore"):
        outcome = evaluate(problem, placement)
    document["placement"] = where
    if numbers is not None:
        document["subgraph"] = numbers
    if replicas:
        document["replicas"] = replicas
        document["replica_shares"] = shares
    document[OUTCOMES[problem.options.objective]] = outcome.to_document()
    document["value"] = outcome.value
    document["lower_bound"] = min(document["lower_bound"], outcome.value)
    _refit_status(document)


def forget_a_consumer(document, rng) -> None:
    readers = rng.choice(document["problem"]["tensors"]["consumers"])
    del readers[rng.randrange(len(readers))]


def imagine_an_option(document, rng) -> None:
    options = document["problem"]["options"]
    name = rng.choice([name for name in options if name in OPTIONS and name != "batch"])
    options[name] = rng.choice(OPTIONS[name])


IMAGINED = [
    perturb_a_number_of_the_problem,
    perturb_a_number_of_the_problem,
    forget_a_consumer,
    imagine_an_option,
]


BLIND = [
    perturb_a_number,
    perturb_a_number_of_the_problem,
    change_anything,
    delete_anything,
    change_a_list,
    swap_two_places,
    add_a_field,
]
OF_TABLES = [change_a_row, swap_within_a_column, relabel, add_a_transfer]
PURPOSEFUL = [
    move_in_time,
    move_an_invocation_in_time,
    make_it_later,
    scale_all_times,
    place_elsewhere,
    relabel_a_transfer,
    change_the_size_of_a_batch,
    run_at_once,
    swap_two_devices,
    state_a_status,
    raise_the_bound,
    lower_the_value,
    relabel_subgraphs,
    change_the_replicas,
    change_the_shares,
    add_subgraphs,
    add_another_outcome,
    change_an_option,
    pin_or_colocate,
    tighten_memory,
    make_timeless,
]
CHANGES = [*2 * BLIND, *2 * OF_TABLES, *2 * PURPOSEFUL, *12 * [forge]]
