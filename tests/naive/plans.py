"""A plan file judged the slow way: its raw JSON against docs/problem.md and docs/formats.md.

Shares nothing with the package and reads the file's own fields, so that what loading drops or
fills in is seen too. Pairs instead of sorted sweeps, permutations instead of searches. What is
malformed raises whatever Python raises: such a file should never have been read.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator

TOLERANCE = 1.001e-9  # the judge's, and the last bit
OUTCOMES = {
    "latency": "schedule",
    "throughput": "loads",
    "invocation-latency": "invocations",
    "batch-throughput": "batches",
}
DEFAULTS = {
    "transfer_unit": "tensor", "contention": "link", "memory": "resident", "load": "sum",
    "contiguous": True, "schedule": "pipedream", "replicate": False, "shares": "equal",
    "subgraphs": 1, "batch": 1,
}  # fmt: skip


def faults(document) -> list[str]:
    """What is false in a plan file; nothing, if every claim of it holds."""
    document = plain(document)
    given = Given(document["problem"])
    objective = given.option["objective"]
    found = list(fields_of_another_objective(document, objective))
    check, value = {
        "latency": (latency_faults, latency_value),
        "throughput": (throughput_faults, throughput_value),
        "invocation-latency": (invocation_faults, invocation_value),
        "batch-throughput": (batch_faults, batch_value),
    }[objective]
    found += check(given, document)
    found += claim_faults(document, value(given, document))
    return found


def plain(entry):
    """Numbers as numbers: readers of JSON schemas take 1.0 for 1, ours also "1" and true."""
    if isinstance(entry, dict):
        return {key: plain(value) for key, value in entry.items()}
    if isinstance(entry, list):
        return [plain(value) for value in entry]
    with contextlib.suppress(TypeError, ValueError):
        number = float(entry)
        if math.isfinite(number):
            return int(number) if number == int(number) and abs(number) < 2**53 else number
    return entry


def fields_of_another_objective(document, objective) -> Iterator[str]:
    for other, key in OUTCOMES.items():
        if other != objective and document.get(key) is not None:
            yield f"{key} in a plan for {objective}"
    if document.get("replicas") and objective != "throughput":
        yield f"replicas in a plan for {objective}"
    if document.get("subgraph") is not None and objective != "invocation-latency":
        yield f"subgraph in a plan for {objective}"


def claim_faults(document, value) -> Iterator[str]:
    """The bound itself is not proved again: only that it is none of a better plan than this."""
    claimed, bound = float(document["value"]), float(document["lower_bound"])
    slack = slack_of(value)
    if not abs(claimed - value) <= slack:
        yield f"value {claimed}, it is {value}"
    if not 0 <= bound <= value + slack:
        yield f"lower bound {bound} of a plan of {value}"
    gap = (claimed - bound) / claimed if claimed > 0 else 0.0
    if document["status"] != ("optimal" if gap <= 1e-4 else "feasible"):
        yield f"status {document['status']} with a gap of {gap}"


def slack_of(value):
    return TOLERANCE * max(value, 1e-12)


# -- what is given -------------------------------------------------------------------------------


class Given:
    """The problem of a file, every column spelled out."""

    def __init__(self, entry) -> None:
        ops, devices, routes = entry["ops"], entry["devices"], entry["routes"]
        chosen = {key: value for key, value in entry["options"].items() if value is not None}
        self.option = DEFAULTS | chosen
        self.n, self.d = len(ops["name"]), len(devices["name"])
        column = devices.get("time_column")
        column = list(range(self.d)) if column is None else [int(each) for each in column]
        assert len(column) == self.d
        self.time = [[seconds(row[k]) for k in column] for row in full(ops["time"], self.n)]
        self.memory = numbers(ops["memory"], self.n)
        self.backward = full(ops.get("backward"), self.n, False)
        self.colocation = full(ops.get("colocation"), self.n, -1)
        self.pinned = full(ops.get("pinned"), self.n, -1)
        self.sync = numbers(full(ops.get("sync_bytes"), self.n, 0.0), self.n)
        for name in ("type", "module", "twin"):
            full(ops.get(name), self.n, None)
        tensors = entry["tensors"]
        self.producer = tensors["producer"]
        self.t = len(self.producer)
        self.bytes = numbers(tensors["bytes"], self.t)
        self.consumers = full(tensors["consumers"], self.t)
        self.capacity = [seconds(each) for each in full(devices["memory"], self.d)]
        self.cpu = full(devices.get("cpu"), self.d, False)
        full(devices["kind"], self.d)
        self._routes(routes)
        self.staging = routes.get("staging", "direct")
        nothing = [[0.0] * self.d] * 2
        self.host_latency = table(routes.get("host_latency"), 2, self.d, nothing)
        self.host_per_byte = table(routes.get("host_seconds_per_byte"), 2, self.d, nothing)
        batches = entry.get("batches")
        if batches is not None:
            self.sizes = batches["sizes"]
            self.batch_time = [
                [[seconds(each) for each in full(row[k], len(self.sizes))] for k in column]
                for row in full(batches["time"], self.n)
            ]

    def _routes(self, routes) -> None:
        if routes.get("ways") is None:
            self.latency = table(routes["latency"], self.d, self.d)
            self.per_byte = table(routes["seconds_per_byte"], self.d, self.d)
            rows = full(routes["channels"], self.d)
            self.channels = [full(row, self.d) for row in rows]
            return
        assert not {"latency", "seconds_per_byte", "channels"} & {
            key for key, value in routes.items() if value is not None
        }
        ways = routes["ways"]
        devices = range(self.d)
        self.latency = [[0.0] * self.d for _ in devices]
        self.per_byte = [[0.0] * self.d for _ in devices]
        self.channels = [[[] for _ in devices] for _ in devices]
        seen = [0] * len(ways["latency"])
        for a, b in itertools.product(devices, devices):
            if a == b:
                continue
            way = ways["way"][ways["group"][a]][ways["group"][b]]
            assert way >= 0
            self.latency[a][b] = float(ways["latency"][way])
            self.per_byte[a][b] = float(ways["seconds_per_byte"][way])
            own = ways["between"][way][seen[way]] if ways["between"][way] else []
            seen[way] += 1
            used = {*ways["leaving"][a][way], *ways["arriving"][b][way], *own}
            self.channels[a][b] = sorted(used)

    def to_other(self, tensor, source, target, count=1):
        return self.latency[source][target] + (
            count * self.bytes[tensor] * self.per_byte[source][target]
        )

    def to_host(self, tensor, device, way):
        return self.host_latency[way][device] + self.bytes[tensor] * self.host_per_byte[way][device]

    def resources(self, source, target):
        if self.option["contention"] == "port":
            return {("out", source), ("in", target)}
        if self.option["contention"] == "link":
            return {("channel", each) for each in self.channels[source][target]}
        return set()


def full(column, count, default=None):
    if column is None:
        return [default] * count
    assert len(column) == count, (column, count)
    return column


def numbers(column, count):
    return [float(each) for each in full(column, count)]


def table(rows, height, width, default=None):
    return [numbers(row, width) for row in full(default if rows is None else rows, height)]


def seconds(entry):
    """Null is infinite: not supported, or unlimited."""
    return math.inf if entry is None else float(entry)


def rows_of(columns, *names):
    """The rows of a table of columns, which must be equally long and no others."""
    assert set(columns) == set(names), set(columns) ^ set(names)
    return list(zip(*(columns[name] for name in names), strict=True))


def no_times(*columns):
    """Whether one holds what is no moment of a run."""
    return any(not (math.isfinite(t) and t >= 0) for column in columns for t in column)


# -- what every objective asks of a placement ----------------------------------------------------


def placement_faults(given, devices_of) -> Iterator[str]:
    for op, devices in enumerate(devices_of):
        for device in devices:
            if not (0 <= device < given.d and math.isfinite(given.time[op][device])):
                yield f"op {op} cannot be on {device}"
        if given.pinned[op] >= 0 and set(devices) != {given.pinned[op]}:
            yield f"op {op} is not where it is pinned"


def memory_faults(given, devices_of, besides=None) -> Iterator[str]:
    for device in range(given.d):
        kept = sum(given.memory[op] for op, there in enumerate(devices_of) if device in there)
        kept += besides[device] if besides else 0.0
        if kept > given.capacity[device] * (1 + TOLERANCE):
            yield f"device {device} keeps {kept}"


def together(given):
    """Pairs of ops of one colocation group."""
    for one, two in itertools.combinations(range(given.n), 2):
        if given.colocation[one] >= 0 and given.colocation[one] == given.colocation[two]:
            yield one, two


def at_once(intervals, slack):
    """Pairs of (start, end) that overlap."""
    for (a, b), (c, d) in itertools.combinations(intervals, 2):
        if a < d - slack and c < b - slack:
            yield (a, b), (c, d)


# -- latency -------------------------------------------------------------------------------------

TRANSFERS = ("tensor", "consumer", "source", "target", "start", "finish")


def latency_value(given, document):
    return max(document["schedule"]["op_finish"])


def latency_faults(given, document) -> Iterator[str]:
    where = full(document["placement"], given.n)
    schedule = document["schedule"]
    start, finish = full(schedule["op_start"], given.n), full(schedule["op_finish"], given.n)
    sent = rows_of(schedule["transfers"], *TRANSFERS)
    if no_times(start, finish, *(row[4:] for row in sent)):
        yield "a time that is none"
    slack = slack_of(max(finish))
    yield from placement_faults(given, [[device] for device in where])
    for one, two in together(given):
        if where[one] != where[two]:
            yield f"ops {one} and {two} are apart"
    for op, device in enumerate(where):
        if not abs(finish[op] - start[op] - given.time[op][device]) <= slack:
            yield f"op {op} takes {finish[op] - start[op]}"
    for device in range(given.d):
        there = [(start[op], finish[op]) for op in range(given.n) if where[op] == device]
        yield from (f"ops at once on {device}: {pair}" for pair in at_once(there, slack))
    yield from _sent_faults(given, where, start, finish, sent, slack)
    besides = None
    if given.option["memory"] == "peak":
        besides = peaks(given, where, start, finish, sent)
    yield from memory_faults(given, [[device] for device in where], besides)


def _sent_faults(given, where, start, finish, sent, slack) -> Iterator[str]:
    by_tensor = given.option["transfer_unit"] == "tensor"
    needed = {}  # what has to be sent → the ops that wait for it
    for tensor, producer in enumerate(given.producer):
        for op in given.consumers[tensor]:
            if where[op] != where[producer]:
                label = -1 if by_tensor else op
                key = (tensor, label, where[producer], where[op])
                needed.setdefault(key, []).append(op)
            elif start[op] < finish[producer] - slack:
                yield f"op {op} before {producer} has made its input"
    if sorted(row[:4] for row in sent) != sorted(needed):
        yield "transfers are not those that are needed"
    for tensor, label, source, target, begin, end in sent:
        if begin < finish[given.producer[tensor]] - slack:
            yield f"tensor {tensor} sent before it is made"
        if not abs(end - begin - given.to_other(tensor, source, target)) <= slack:
            yield f"tensor {tensor} goes in {end - begin}"
        for op in needed.get((tensor, label, source, target), []):
            if start[op] < end - slack:
                yield f"op {op} before its input is there"
    for resource in {each for row in sent for each in given.resources(row[2], row[3])}:
        busy = [row[4:] for row in sent if resource in given.resources(row[2], row[3])]
        yield from (f"transfers at once on {resource}: {pair}" for pair in at_once(busy, slack))


def peaks(given, where, start, finish, sent):
    """[device] the most bytes that tensors take: what is alive whenever one comes to life."""
    by_tensor = given.option["transfer_unit"] == "tensor"
    lives = []
    for tensor, producer in enumerate(given.producer):
        readers = given.consumers[tensor]
        home = where[producer]
        ends = [finish[producer], *(finish[op] for op in readers if where[op] == home)]
        for other, label, _, target, begin, end in sent:
            if other == tensor:
                served = [op for op in readers if where[op] == target] if by_tensor else [label]
                until = max([end, *(finish[op] for op in served)])
                lives.append((target, begin, until, given.bytes[tensor]))
                ends.append(end)
        lives.append((home, start[producer], max(ends), given.bytes[tensor]))
    return [
        max(
            (
                sum(size for at, a, b, size in lives if at == device and a <= moment < b)
                for where_born, moment, _, _ in lives
                if where_born == device
            ),
            default=0.0,
        )
        for device in range(given.d)
    ]


# -- throughput ----------------------------------------------------------------------------------


def _stages(given, document):
    """First device → the devices of the stage."""
    stages = {device: (device,) for device in range(given.d)}
    stages.update({stage[0]: tuple(stage) for stage in document.get("replicas") or []})
    return stages


def _shares(document):
    """Device → the part of its stage's inputs that it takes, for the devices of stages."""
    found = {}
    stages = document.get("replicas") or []
    shares = document.get("replica_shares") or [[1 / len(stage)] * len(stage) for stage in stages]
    for stage, parts in zip(stages, shares, strict=True):
        found.update(zip(stage, parts, strict=True))
    return found


def share_faults(given, document) -> Iterator[str]:
    shares = document.get("replica_shares") or []
    if not shares:
        return
    if given.option["shares"] != "unequal":
        yield "shares where none are allowed"
    replicas = document.get("replicas") or []
    if [len(stage) for stage in shares] != [len(stage) for stage in replicas]:
        yield "not a share for each replica"
    for stage in shares:
        if min(stage, default=0) <= 0 or abs(sum(stage) - 1) > 1.001e-9:
            yield f"shares {stage} are not 1 together"


def throughput_faults(given, document) -> Iterator[str]:
    where = full(document["placement"], given.n)
    replicas = document.get("replicas") or []
    if replicas and not given.option["replicate"]:
        yield "replicas where none are allowed"
    yield from share_faults(given, document)
    named = [device for stage in replicas for device in stage]
    if len(named) > len(set(named)) or not all(0 <= device < given.d for device in named):
        yield "replicas that are no devices, or several times"
    for stage in replicas:
        ops = [op for op in range(given.n) if where[op] == stage[0]]
        if len(stage) < 2 or not ops or any(device in where for device in stage[1:]):
            yield f"{stage} is no stage on several devices whose ops name the first"
        unequal = len({tuple(given.time[op][device] for op in ops) for device in stage}) > 1
        if unequal and given.option["shares"] == "equal":
            yield f"devices of {stage} are not equal"
    stages = _stages(given, document)
    devices_of = [stages[device] for device in where]
    yield from placement_faults(given, devices_of)
    for one, two in together(given):
        if where[one] != where[two]:
            yield f"ops {one} and {two} are apart"
    yield from memory_faults(given, devices_of)
    if given.option["contiguous"] and not contiguous(given, where):
        yield "not contiguous"
    mine = loads(given, document)
    slack = slack_of(mine["value"])
    claimed = document["loads"]
    assert set(claimed) == {"compute", "incoming", "outgoing", "sync", "load"}
    for name in ("compute", "incoming", "outgoing"):
        for way, row in enumerate(table(claimed[name], 2, given.d)):
            for device, took in enumerate(row):
                if not abs(took - mine[name][way][device]) <= slack:
                    yield f"{name} of {device} is {took}"
    for name in ("sync", "load"):
        for device, took in enumerate(numbers(claimed[name], given.d)):
            if not abs(took - mine[name][device]) <= slack:
                yield f"{name} of {device} is {took}"


def throughput_value(given, document):
    return loads(given, document)["value"]


def contiguous(given, where):
    """Whether some row of the devices has forward data go up it, and backward data one way."""
    ends = [
        (given.producer[tensor], op) for tensor in range(given.t) for op in given.consumers[tensor]
    ]
    forward = [(a, b) for a, b in ends if not given.backward[a] and not given.backward[b]]
    backward = [(a, b) for a, b in ends if given.backward[a] and given.backward[b]]
    for row in itertools.permutations(sorted(set(where))):
        up = all(row.index(where[a]) <= row.index(where[b]) for a, b in forward)
        back_up = all(row.index(where[a]) <= row.index(where[b]) for a, b in backward)
        back_down = all(row.index(where[a]) >= row.index(where[b]) for a, b in backward)
        if up and (back_up or back_down):
            return True
    return False


def loads(given, document):
    where, stages = document["placement"], _stages(given, document)
    part = {**dict.fromkeys(range(given.d), 1.0), **_shares(document)}
    devices = range(given.d)
    parts = ("compute", "incoming", "outgoing")
    mine = {name: [[0.0] * given.d, [0.0] * given.d] for name in parts}

    def add(name, way, stage, took):
        for device in stages[stage]:
            mine[name][way][device] += part[device] * took

    for op, stage in enumerate(where):
        for device in stages[stage]:
            took = part[device] * given.time[op][device]
            mine["compute"][int(given.backward[op])][device] += took
    for tensor, producer in enumerate(given.producer):
        source, way = where[producer], int(given.backward[producer])
        targets = sorted({where[op] for op in given.consumers[tensor]} - {source})
        if targets and given.staging == "host":
            took = sum(part[device] * given.to_host(tensor, device, 0) for device in stages[source])
            add("outgoing", way, source, took)
        for target in targets:
            readers = [op for op in given.consumers[tensor] if where[op] == target]
            into = 0 if any(not given.backward[op] for op in readers) else 1
            if given.staging == "host":
                took = sum(
                    part[device] * given.to_host(tensor, device, 1) for device in stages[target]
                )
            else:
                pairs = itertools.product(stages[source], stages[target])
                took = sum(part[a] * part[b] * given.to_other(tensor, a, b) for a, b in pairs)
                add("outgoing", way, source, took)
            add("incoming", into, target, took)
    sync = [0.0] * given.d
    for first, members in stages.items():
        if len(members) > 1:
            weights = sum(given.sync[op] for op in range(given.n) if where[op] == first)
            if given.staging == "host":
                slowest = max(given.host_per_byte[way][m] for way in (0, 1) for m in members)
            else:
                slowest = max(given.per_byte[a][b] for a in members for b in members)
            for device in members:
                sync[device] = (len(members) - 1) / len(members) * weights * slowest

    def combined(device, ways, with_sync):
        parts = [sum(mine[name][way][device] for way in ways) for name in mine]
        extra = sync[device] if with_sync else 0.0
        if given.option["load"] == "sum":
            return sum(parts) + extra
        if given.option["load"] == "overlap":
            return max(parts[0], parts[1] + parts[2], extra)
        return max(*parts, extra)

    if given.option["schedule"] == "gpipe":
        forward = [combined(device, (0,), False) for device in devices]
        backward = [combined(device, (1,), True) for device in devices]
        load = [one + two for one, two in zip(forward, backward, strict=True)]
        value = max(forward) + max(backward)
    else:
        load = [combined(device, (0, 1), True) for device in devices]
        value = max(load)
    return mine | {"sync": sync, "load": load, "value": value}


# -- invocation latency --------------------------------------------------------------------------

INVOCATIONS = ("device", "subgraph", "start", "incoming", "compute", "outgoing")


def invocation_value(given, document):
    return max(document["invocations"]["op_finish"])


def invocation_faults(given, document) -> Iterator[str]:
    where = full(document["placement"], given.n)
    number = document["subgraph"]
    assert len(number) == given.n
    finish = full(document["invocations"]["op_finish"], given.n)
    rows = rows_of(document["invocations"]["invocations"], *INVOCATIONS)
    if no_times(finish, *(row[2:] for row in rows)):
        yield "a time that is none"
    slack = slack_of(max(finish))
    yield from placement_faults(given, [[device] for device in where])
    for one, two in together(given):
        if where[one] != where[two]:
            yield f"ops {one} and {two} are apart"
    yield from memory_faults(given, [[device] for device in where])
    ops_of = {}
    for op, device in enumerate(where):
        if not given.cpu[device]:
            ops_of.setdefault((device, number[op]), []).append(op)
        elif number[op] != -1:
            yield f"op {op} is on a CPU and in subgraph {number[op]}"
    yield from _subgraph_faults(given, where, number, ops_of)
    if sorted(row[:2] for row in rows) != sorted(ops_of):
        yield "invocations are not those of the subgraphs"
        return
    begin = {(device, k): start for device, k, start, *_ in rows}
    end = {(device, k): sum(row[2:]) for row in rows for device, k in [row[:2]]}
    for device, k, _, *took in rows:
        for claimed, right in zip(took, _takes(given, ops_of, device, k), strict=True):
            if not abs(claimed - right) <= slack:
                yield f"subgraph {k} of {device} takes {claimed} for {right}"
    for device in range(given.d):
        mine = sorted(slot for slot in ops_of if slot[0] == device)
        yield from at_once_in([(begin[slot], end[slot]) for slot in mine], slack)
        for before, after in itertools.pairwise(mine):
            if begin[before] > begin[after] + slack:
                yield f"subgraphs {before} and {after} are not numbered in their order"
    for op in range(given.n):
        slot = (where[op], number[op])
        read = [
            finish[given.producer[tensor]]
            for tensor in range(given.t)
            if op in given.consumers[tensor]
            and (given.cpu[where[op]] or given.producer[tensor] not in ops_of[slot])
        ]
        if given.cpu[where[op]]:
            if finish[op] < max([0.0, *read]) + given.time[op][where[op]] - slack:
                yield f"op {op} ends at {finish[op]}"
        else:
            if begin[slot] < max([0.0, *read]) - slack:
                yield f"{slot} begins before its inputs are there"
            if not abs(finish[op] - end[slot]) <= slack:
                yield f"op {op} is not ready when {slot} ends"


def at_once_in(intervals, slack):
    return (f"at once: {pair}" for pair in at_once(intervals, slack))


def _subgraph_faults(given, where, number, ops_of) -> Iterator[str]:
    for device in range(given.d):
        mine = sorted(k for other, k in ops_of if other == device)
        if mine != list(range(len(mine))):
            yield f"subgraphs of {device} are numbered {mine}"
        for way in (False, True):
            of_way = [k for k in mine if any(given.backward[o] == way for o in ops_of[device, k])]
            if len(of_way) > given.option["subgraphs"]:
                yield f"{device} has {len(of_way)} subgraphs"
    for slot, ops in ops_of.items():
        if len({bool(given.backward[op]) for op in ops}) > 1:
            yield f"{slot} has forward and backward ops"
    # What waits for what: subgraphs (and the one before on the accelerator) and ops on CPUs. A
    # subgraph that a path leaves and comes back to waits for itself.
    part = [op if given.cpu[where[op]] else (where[op], number[op]) for op in range(given.n)]
    edges = [(given.producer[t], op) for t in range(given.t) for op in given.consumers[t]]
    waits = {(part[a], part[b]) for a, b in edges if part[a] != part[b]}
    waits |= {(a, b) for a in ops_of for b in ops_of if a[0] == b[0] and a[1] < b[1]}
    left = set(part)
    while free := {each for each in left if not any(b == each and a in left for a, b in waits)}:
        left -= free
    if left:
        yield f"{left} wait for each other"


def _takes(given, ops_of, device, k):
    """Seconds of reading, computing and writing."""
    ops = ops_of[device, k]
    read = [
        tensor
        for tensor, producer in enumerate(given.producer)
        if producer not in ops and any(op in ops for op in given.consumers[tensor])
    ]
    written = [
        tensor
        for tensor, producer in enumerate(given.producer)
        if producer in ops and any(op not in ops for op in given.consumers[tensor])
    ]
    return (
        sum(given.to_host(tensor, device, 1) for tensor in read),
        sum(given.time[op][device] for op in ops),
        sum(given.to_host(tensor, device, 0) for tensor in written),
    )


# -- batch throughput ----------------------------------------------------------------------------

BATCHES = ("op", "device", "size", "start", "finish")
BATCH_TRANSFERS = ("tensor", "consumer", "source", "target", "inputs", "start", "finish")


def batch_value(given, document):
    return max(document["batches"]["batches"]["finish"])


def batch_faults(given, document) -> Iterator[str]:
    inputs = range(given.option["batch"])
    where = [full(row, len(inputs)) for row in full(document["placement"], given.n)]
    batches = rows_of(document["batches"]["batches"], *BATCHES)
    sent = rows_of(document["batches"]["transfers"], *BATCH_TRANSFERS)
    if no_times(*(row[3:] for row in batches), *(row[5:] for row in sent)):
        yield "a time that is none"
    slack = slack_of(max(row[4] for row in batches))
    yield from placement_faults(given, where)
    for one, two in together(given):
        if where[one] != where[two]:
            yield f"ops {one} and {two} have inputs apart"
    yield from memory_faults(given, where)
    sizes = [
        (op, device, where[op].count(device)) for op in range(given.n) for device in {*where[op]}
    ]
    if sorted(row[:3] for row in batches) != sorted(sizes):
        yield "batches are not those of the inputs"
        return
    begin = {row[:2]: row[3] for row in batches}
    end = {row[:2]: row[4] for row in batches}
    for op, device, size in sizes:
        took = end[op, device] - begin[op, device]
        if size not in given.sizes:
            yield f"device {device} takes no {size} inputs"
        elif not abs(took - given.batch_time[op][device][given.sizes.index(size)]) <= slack:
            yield f"batch of {op} on {device} takes {took}"
    for device in range(given.d):
        there = [(begin[batch], end[batch]) for batch in begin if batch[1] == device]
        yield from at_once_in(there, slack)
    needed: dict[object, set[int]] = {}  # (tensor, label, from, to) → the inputs that need it
    for tensor, producer in enumerate(given.producer):
        for op, each in itertools.product(given.consumers[tensor], inputs):
            source, target = where[producer][each], where[op][each]
            if source == target:
                if begin[op, target] < end[producer, source] - slack:
                    yield f"batch of {op} on {target} before that of {producer} has ended"
                continue
            label = -1 if given.option["transfer_unit"] == "tensor" else op
            needed.setdefault((tensor, label, source, target), set()).add(each)
    wanted = [(*key, len(moved)) for key, moved in needed.items()]
    if sorted(row[:5] for row in sent) != sorted(wanted):
        yield "transfers are not those that are needed"
        return
    for tensor, label, source, target, count, start, finish in sent:
        together_ = 1 if given.option["contention"] == "none" else count
        if not abs(finish - start - given.to_other(tensor, source, target, together_)) <= slack:
            yield f"tensor {tensor} goes in {finish - start}"
        producer = given.producer[tensor]
        if start < end[producer, source] - slack:
            yield f"tensor {tensor} sent before it is made"
        for op in given.consumers[tensor]:
            reads = any(
                where[producer][each] == source and where[op][each] == target for each in inputs
            )
            if label in (-1, op) and reads and begin[op, target] < finish - slack:
                yield f"batch of {op} on {target} before its input is there"
    for resource in {each for row in sent for each in given.resources(row[2], row[3])}:
        busy = [row[5:] for row in sent if resource in given.resources(row[2], row[3])]
        yield from (f"transfers at once on {resource}: {pair}" for pair in at_once(busy, slack))
