"""Search on a string of device numbers: annealing, the (1+1) EA and local search.

The encoding is DiviML's (§V-A): one device per unit, judged by the makespan of the ops in
breadth-first topological order, every transfer sent right after its producer.

Each kernel works on a `State` in place and stops after so many evaluations, so that the caller
can look at the clock; called again it goes on where it stopped, and how often it is called
changes nothing. Random numbers come from the caller's generator, one uniform draw at a time.
"""

from __future__ import annotations

import math

from placewright.kernels.common.rows import copy_into
from placewright.kernels.compiled import kernel
from placewright.kernels.latency.moves import (
    assign,
    below,
    fits,
    mutate,
    other_device,
    reassign,
    take_back,
)
from placewright.kernels.latency.timing import time_sequence
from placewright.kernels.latency.within_memory import OVERFULL, if_memory_counts

CURRENT, BEST = 0, 1  # in State.value
POSITION, SINCE, CHOSEN = 0, 1, 2  # in the scan of `descend`
COLDEST = 1e-300  # seconds; a temperature that still divides


@kernel
def evaluate(p, state, scratch):
    """Seconds: the makespan of the current devices in the current sequence.

    `within_memory.OVERFULL` or more if it does not fit memory of which the peak counts.
    """
    makespan = time_sequence(
        p, state.device, state.sequence, scratch.op_ready, scratch.op_finish,
        scratch.edge_finish, scratch.device_free, scratch.channel_free,
        scratch.nothing, scratch.nothing,
    )  # fmt: skip
    return if_memory_counts(p, state.device, state.sequence, makespan)


@kernel
def keep(state, value):
    """Take the current string, whose value is `value`, for the current and perhaps the best."""
    state.value[CURRENT] = value
    if value < state.value[BEST]:
        state.value[BEST] = value
        copy_into(state.best_unit_device, state.unit_device)
        copy_into(state.best_sequence, state.sequence)


# -- simulated annealing ---------------------------------------------------------------------


@kernel
def anneal(p, space, state, scratch, rng, evaluations, temperature, cooling):
    """Simulated annealing; returns the temperature it ends with, for the next call.

    Before each evaluation the temperature (seconds) is multiplied by `cooling`. A mutation that
    changes nothing or overflows a memory counts as an evaluation too.
    """
    for _ in range(evaluations):
        temperature = max(temperature * cooling, COLDEST)
        count = reassign(p, space, state, scratch, rng)
        if count == 0:
            continue
        if fits(state, scratch, count):
            value = evaluate(p, state, scratch)
            worse = value - state.value[CURRENT]
            if worse <= 0.0 or rng.random() < math.exp(-worse / temperature):
                keep(state, value)
                continue
        take_back(space, state, scratch, count)
    return temperature


@kernel
def mean_worsening(p, space, state, scratch, rng, evaluations):
    """Seconds by which a mutation of the devices makes the current value worse, if it does.

    The mean over those of `evaluations` mutations that are worse and fit, 0 if none is; the
    state stays as it is.
    """
    total, found = 0.0, 0
    for _ in range(evaluations):
        count = reassign(p, space, state, scratch, rng)
        if count > 0 and fits(state, scratch, count):
            worse = evaluate(p, state, scratch) - state.value[CURRENT]
            if 0.0 < worse < OVERFULL:
                total += worse
                found += 1
        take_back(space, state, scratch, count)
    return total / found if found > 0 else 0.0


# -- (1+1) EA --------------------------------------------------------------------------------


@kernel
def evolve(p, space, state, scratch, rng, evaluations):
    """(1+1) EA: each unit gets another device with probability 1/n; kept unless it is worse.

    A child equal to its parent is drawn again; one that overflows a memory counts as evaluated.
    """
    n = len(space.movable)
    log_stay = math.log(1.0 - 1.0 / n) if n > 1 else -math.inf
    for _ in range(evaluations):
        count = 0
        while count == 0:
            place = -1
            while True:
                # How many units stay as they are until the next one that changes.
                place += 1 + int(min(math.log(1.0 - rng.random()) / log_stay, float(n)))
                if place >= n:
                    break
                unit = space.movable[place]
                count = mutate(
                    space, state, scratch, count, unit, other_device(space, state, rng, unit)
                )
        if fits(state, scratch, count):
            value = evaluate(p, state, scratch)
            if value <= state.value[CURRENT]:
                keep(state, value)
                continue
        take_back(space, state, scratch, count)


# -- local search ----------------------------------------------------------------------------


@kernel
def scatter(space, state, order, rng):
    """Every movable unit on a random device where it fits, in the given `order` of units.

    Returns whether all fit; if not, those that did not are where they were and the
    memory may overflow.
    """
    for unit in order:
        state.free[state.unit_device[unit]] += space.unit_memory[unit]
    complete = True
    for unit in order:
        memory = space.unit_memory[unit]
        choices = 0
        for d in range(len(state.free)):
            if space.allowed[unit, d] and memory <= state.free[d]:
                choices += 1
        chosen = state.unit_device[unit]
        if choices == 0:
            complete = False
        else:
            k = below(rng, choices)
            for d in range(len(state.free)):
                if space.allowed[unit, d] and memory <= state.free[d]:
                    if k == 0:
                        chosen = d
                    k -= 1
        state.free[state.unit_device[unit]] -= memory  # what `assign` gives back
        assign(space, state, unit, chosen)
    return complete


@kernel
def descend(p, space, state, scratch, moves, scan, chosen_value, evaluations, best_move):
    """Moves of one unit to another device until none helps.

    Returns how many of the evaluations it did not need: none, unless no move helps any more.
    `moves` are numbers (place in movable · devices + device) and are tried round and round. With
    `best_move` the best of one round is made, otherwise the first that helps. `scan` holds
    POSITION in `moves`, moves tried SINCE the last one made, and the CHOSEN one, -1 at first;
    `chosen_value[0]` its value.
    """
    devices = len(state.free)
    for done in range(evaluations):
        if scan[SINCE] == len(moves):
            if scan[CHOSEN] < 0:
                return evaluations - done
            unit = space.movable[scan[CHOSEN] // devices]
            assign(space, state, unit, scan[CHOSEN] % devices)
            keep(state, chosen_value[0])
            scan[SINCE] = 0
            scan[CHOSEN] = -1
        move = moves[scan[POSITION]]
        scan[POSITION] = (scan[POSITION] + 1) % len(moves)
        scan[SINCE] += 1
        unit, device = space.movable[move // devices], move % devices
        count = mutate(space, state, scratch, 0, unit, device)
        if count > 0 and fits(state, scratch, count):
            value = evaluate(p, state, scratch)
            if value < state.value[CURRENT]:
                if not best_move:
                    keep(state, value)
                    scan[SINCE] = 0
                    continue
                if scan[CHOSEN] < 0 or value < chosen_value[0]:
                    scan[CHOSEN] = move
                    chosen_value[0] = value
        take_back(space, state, scratch, count)
    return 0
