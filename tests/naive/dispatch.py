"""List scheduling forwards in time, as slowly and plainly as it can be written."""

import math


def dispatch(problem, device, rank):
    """The makespan and the items (op i as i, edge e as -1 - e) in the order in which they begin.

    At each time: first every idle device begins the ready op of least rank, in the order of
    devices; then transfers begin whose channels are free, least rank first (of equal ones, that
    which waits longer); then time goes on to the next end.
    """
    device = [int(each) for each in device]
    tensor_of = problem.edge_tensor.tolist()
    producer, consumer = problem.edge_producer.tolist(), problem.consumers.tolist()
    offsets, channels, _ = problem.active_channels
    by_tensor = problem.options.transfer_unit == "tensor"
    missing = [consumer.count(op) for op in range(problem.op_count)]
    outputs = {op: [] for op in range(problem.op_count)}
    for edge, tensor in enumerate(tensor_of):
        outputs[producer[edge]].append((tensor, edge))
    ready = {op for op in range(problem.op_count) if missing[op] == 0}
    waiting = []  # (rank, number, edges), the number counts up
    running, flying = {}, []  # device: (end, op); (end, source, target, edges)
    items, now, number = [], 0.0, 0

    def arrive(edges):
        for edge in edges:
            missing[consumer[edge]] -= 1
            if missing[consumer[edge]] == 0:
                ready.add(consumer[edge])

    def channels_of(source, target):
        pair = source * problem.device_count + target
        return set(channels[offsets[pair] : offsets[pair + 1]].tolist())

    while True:
        for d in range(problem.device_count):
            here = [op for op in ready if device[op] == d]
            if d not in running and here:
                op = min(here, key=lambda each: rank[each])
                ready.remove(op)
                running[d] = (now + problem.op_time[op, d], op)
                items.append(op)
        for entry in sorted(waiting):
            edges = entry[2]
            source, target = device[producer[edges[0]]], device[consumer[edges[0]]]
            busy = set().union(*(channels_of(s, t) for _, s, t, _ in flying))
            if busy & channels_of(source, target):
                continue
            waiting.remove(entry)
            seconds = problem.link_latency[source, target] + (
                problem.tensor_bytes[tensor_of[edges[0]]]
                * problem.link_seconds_per_byte[source, target]
            )
            flying.append((now + seconds, source, target, edges))
            items += [-1 - edge for edge in edges]
        ends = [end for end, _ in running.values()] + [flight[0] for flight in flying]
        if not ends:
            return now, items
        now = min(ends)
        assert math.isfinite(now)
        for d in range(problem.device_count):
            if d in running and running[d][0] <= now:
                op = running.pop(d)[1]
                for tensor in problem.op_outputs[1][
                    problem.op_outputs[0][op] : problem.op_outputs[0][op + 1]
                ].tolist():
                    edges = sorted(e for t, e in outputs[op] if t == tensor)
                    local = [e for e in edges if device[consumer[e]] == d]
                    items += [-1 - e for e in local]
                    arrive(local)
                    groups = {}
                    for e in edges:
                        if device[consumer[e]] != d:
                            groups.setdefault(device[consumer[e]] if by_tensor else e, []).append(e)
                    for group in sorted(groups.values()):
                        least = min(rank[consumer[e]] for e in group)
                        waiting.append((least, number, group))
                        number += 1
        for flight in [each for each in flying if each[0] <= now]:
            flying.remove(flight)
            arrive(flight[3])
