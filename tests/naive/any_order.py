"""Where ops are, in whatever order they run: every placement that fits, path by path."""

import itertools
import math

from tests.naive.latency import inputs_of, transfer_time


def least_by_paths(problem):
    """Seconds of the longest path, or of the busiest device, where that is least; inf if none."""
    return min((_longest(problem, each) for each in _fitting(problem)), default=math.inf)


def _fitting(problem):
    """The device of each op, for every placement that devices hold."""
    places = [[d for d, may in enumerate(row) if may] for row in problem.unit_allowed]
    for unit_device in itertools.product(*places):
        kept = [0.0] * problem.device_count
        for unit, device in enumerate(unit_device):
            kept[device] += float(problem.unit_memory[unit])
        if all(one <= most for one, most in zip(kept, problem.device_memory, strict=True)):
            yield [unit_device[unit] for unit in problem.op_unit]


def _longest(problem, device):
    end, load = {}, [0.0] * problem.device_count
    for op in problem.topological_order.tolist():
        start = 0.0
        for edge in inputs_of(problem, op):
            producer = int(problem.edge_producer[edge])
            tensor, route = int(problem.edge_tensor[edge]), (device[producer], device[op])
            sent = transfer_time(problem, tensor, *route) if route[0] != route[1] else 0.0
            start = max(start, end[producer] + sent)
        time = float(problem.op_time[op, device[op]])
        end[op] = start + time
        load[device[op]] += time
    return max([*end.values(), *load])
