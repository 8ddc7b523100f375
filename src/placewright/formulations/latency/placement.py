"""The part every formulation shares: which device each unit is on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from placewright.formulations.latency.incumbent import interchangeable_devices
from placewright.formulations.latency.instance import Instance
from placewright.graph import Floats, Ints
from placewright.solvers.mathopt import Program, Term


class PlacementVariables:
    """`on[unit][device]`: 1 where the unit is (Moirai's x_ik); only for devices allowed.

    Ops of one unit share their variables, so colocation costs nothing and pins fix them.
    """

    def __init__(self, program: Program, instance: Instance) -> None:
        self.program, self.instance = program, instance
        self.problem = instance.problem
        self.on: list[dict[int, int]] = []
        for allowed in instance.allowed:
            devices = np.flatnonzero(allowed).tolist()
            lower = 1.0 if len(devices) == 1 else 0.0
            self.on.append({d: program.variable(lower, 1.0, integer=True) for d in devices})

    def of(self, op: int) -> dict[int, int]:
        """Device → variable."""
        return self.on[int(self.problem.op_unit[op])]

    def duration(self, op: int) -> list[Term]:
        """Σ_k p_ik x_ik."""
        times = self.instance.op_time[op]
        return [(variable, float(times[device])) for device, variable in self.of(op).items()]

    def add_rows(self) -> None:
        for variables in self.on:
            self.program.row([(variable, 1.0) for variable in variables.values()], 1.0, 1.0)
        self._memory_rows()
        self._symmetry_rows()

    def _memory_rows(self) -> None:
        """Σ m_i x_ik ≤ M_k, as shares of M_k; left out where everything would fit."""
        problem = self.problem
        for device, capacity in enumerate(problem.device_memory.tolist()):
            here = [(unit, on[device]) for unit, on in enumerate(self.on) if device in on]
            if sum(problem.unit_memory[unit] for unit, _ in here) > capacity:
                shares = [(x, float(problem.unit_memory[unit]) / capacity) for unit, x in here]
                self.program.row(shares, upper=1.0)

    def _symmetry_rows(self) -> None:
        """Of interchangeable devices, the next is used only after the one before it.

        "After" is in the order of units: value precedence, which keeps one of each set of plans
        that differ in the names of devices alone.
        """
        for group in interchangeable_devices(self.problem):
            for device, following in pairwise(group):
                earlier: list[Term] = []
                for on in self.on:
                    if following in on:
                        self.program.row([(on[following], 1.0), *earlier], upper=0.0)
                    if device in on:
                        earlier.append((on[device], -1.0))

    def load(self, ops: list[int], device: int) -> list[Term]:
        """Σ over `ops` of p_ik x_ik for one device k."""
        return [
            (self.of(op)[device], float(self.instance.op_time[op, device]))
            for op in ops
            if device in self.of(op)
        ]

    def fill(self, values: Floats, device: Ints) -> None:
        """Set the variables to the placement `device[op]`."""
        for op, chosen in enumerate(device.tolist()):
            values[self.of(op)[chosen]] = 1.0

    def device_of(self, values: Floats) -> Ints:
        """`[op]` the device chosen."""
        unit_device = [max(on, key=lambda d: float(values[on[d]])) for on in self.on]
        return np.array(unit_device, dtype=np.int32)[self.problem.op_unit]
