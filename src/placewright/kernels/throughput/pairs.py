"""All good ways to share units between two devices: a dynamic program over their loads.

Units are looked at one after another. A state says on which of the two devices those units are
that share a net with one still to come, as bits; of all ways to get to a state with about the
same load of the first device, the one with the least load of the second is kept. Where the units
make paths and ladders there are few states, and the program is as good as exact.
"""

from __future__ import annotations

import numpy as np

from placewright.kernels.compiled import kernel


@kernel(allocates=True)
def shared_loads(target, first, second, base, rest, cap, bins):
    """Loads of the two devices, nowhere above `cap`, and how to get to each.

    ``target[step, state, choice]`` is the next state if the step's unit is put on device 0 or 1,
    `first` and `second` of the same shape what that adds to the two loads in seconds (never
    below 0); `base` are the two loads without the units, ``rest[step]`` the least that units
    after the step add to both together. The first load is kept in so many `bins` up to `cap`.

    Returns ``loads[device, bin]`` in the last state, 0, infinite where there is no way, and
    ``came[step, state, bin]``: 2 · (state · bins + bin) before + choice.
    """
    steps, states = target.shape[:2]
    loads = np.full((2, 2, states, bins), np.inf)
    came = np.full((steps, states, bins), -1, dtype=np.int32)
    per_second = (bins - 1) / cap if cap > 0.0 else 0.0
    if base[0] <= cap and base[1] <= cap:
        loads[0, 0, 0, int(base[0] * per_second)] = base[0]
        loads[0, 1, 0, int(base[0] * per_second)] = base[1]
    for step in range(steps):
        now, then = loads[step % 2], loads[(step + 1) % 2]
        then[:] = np.inf
        for state in range(states):
            for place in range(bins):
                if now[1, state, place] == np.inf:
                    continue
                for choice in range(2):
                    one = now[0, state, place] + first[step, state, choice]
                    two = now[1, state, place] + second[step, state, choice]
                    if one > cap or two > cap or one + two + rest[step] > 2.0 * cap:
                        continue
                    to, slot = target[step, state, choice], int(one * per_second)
                    if two < then[1, to, slot] or (
                        two == then[1, to, slot] and one < then[0, to, slot]
                    ):
                        then[0, to, slot], then[1, to, slot] = one, two
                        came[step, to, slot] = 2 * (state * bins + place) + choice
    return loads[steps % 2, :, 0].copy(), came


@kernel(allocates=True)
def choices_to(came, place):
    """The choice of every step on the way to bin `place` of the last state."""
    steps, _, bins = came.shape
    choice = np.zeros(steps, dtype=np.int32)
    state = 0
    for step in range(steps - 1, -1, -1):
        code = came[step, state, place]
        choice[step] = code % 2
        state, place = code // 2 // bins, code // 2 % bins
    return choice
