"""Moirai's mixed-integer program (arXiv 2023, §III-D, equations 4–8)."""

from __future__ import annotations

from itertools import combinations

from placewright.analysis.precedence import Region
from placewright.budget import Budget
from placewright.formulations.latency.disjunction import keep_apart
from placewright.formulations.latency.incumbent import Incumbent
from placewright.formulations.latency.instance import Instance
from placewright.formulations.latency.peak import PeakRows
from placewright.formulations.latency.transport import Transfer, span
from placewright.formulations.latency.unordered_program import UnorderedProgram
from placewright.graph import Floats
from placewright.plan import Placement
from placewright.solvers.mathopt import HINT_ROUNDING, Term


class MoiraiProgram(UnorderedProgram):
    """The variables of `UnorderedProgram`, and starts of transfers where these contend.

    Equations 6 and 8 have one order variable per direction (see `disjunction`). Under memory option
    ``peak`` what is alive is added (`peak`).
    """

    def __init__(self, instance: Instance, limit: Budget) -> None:
        self.op_order: list[tuple[int, int, int, int]] = []
        self.transfer_order: list[tuple[int, int, int, int]] = []
        super().__init__(instance, limit)

    @property
    def _sends_one_by_one(self) -> bool:
        return self.problem.options.contention != "none" or self._counts_peak

    @property
    def _counts_peak(self) -> bool:
        return self.problem.options.memory == "peak"

    # -- constraints -----------------------------------------------------------------------------

    def _constraints(self) -> None:
        self.transfers = self.transport.transfers
        super()._constraints()
        self._ops_apart()  # 6
        self._transfers_apart()  # 8
        self.peak = PeakRows(self.placement, self.transport) if self._counts_peak else None

    def _ops_apart(self) -> None:
        for one, two in self.instance.rival_pairs:
            first, second = self.placement.of(one), self.placement.of(two)
            together: list[tuple[list[Term], list[Term]]] = [
                ([(first[device], 1.0)], [(second[device], 1.0)])
                for device in first
                if device in second
            ]
            orders = keep_apart(self.program, self.ops[one], self.ops[two], together)
            self.op_order.append((one, two, *orders))

    def _transfers_apart(self) -> None:
        channels = [self._channel_terms(transfer) for transfer in self.transfers]
        for one, two in combinations(range(len(self.transfers)), 2):
            shared = channels[one].keys() & channels[two].keys()
            if not shared or self._never_meet(self.transfers[one], self.transfers[two]):
                continue
            together = [(channels[one][c], channels[two][c]) for c in sorted(shared)]
            first, second = self.transfers[one].interval, self.transfers[two].interval
            self.transfer_order.append(
                (one, two, *keep_apart(self.program, first, second, together))
            )

    def _channel_terms(self, transfer: Transfer) -> dict[int, list[Term]]:
        """Channel → the 0/1 sum that says whether the transfer uses it."""
        offsets, channels, _ = self.problem.active_channels
        terms: dict[int, list[Term]] = {}
        for (source, target), variable in transfer.used.items():
            pair = source * self.problem.device_count + target
            for channel in channels[offsets[pair] : offsets[pair + 1]].tolist():
                terms.setdefault(channel, []).append((variable, 1.0))
        return terms

    def _never_meet(self, one: Transfer, two: Transfer) -> bool:
        """Whether precedence or the windows keep them apart anyway."""
        position = self.instance.precedence.position
        first, second = (position[self.transport.ends(each.edges[0])[0]] for each in (one, two))
        if one.after >> second & 1 or two.after >> first & 1:
            return True
        a, b = one.interval, two.interval
        return a.latest <= b.earliest or b.latest <= a.earliest

    def _loads(self, region: Region, between: list[Term]) -> None:
        """Between a fork and a join each device and each channel has to do all its work."""
        super()._loads(region, between)
        if self.transfers:
            for load in self._channel_loads(region).values():
                if len(load) > 1:
                    self.program.row([*between, *((u, -time) for u, time in load)], lower=0.0)

    def _channel_loads(self, region: Region) -> dict[int, list[Term]]:
        """Channel → time of the transfers that fall inside the region for sure."""
        first, last, between = region
        inside, loads = set(between), dict[int, list[Term]]()
        for transfer in self.transfers:
            ends = [self.transport.ends(edge) for edge in transfer.edges]
            if not all(p in inside or p == first for p, _ in ends):
                continue
            if not all(c in inside or c == last for _, c in ends):
                continue
            time = dict(transfer.interval.duration)
            for channel, uses in self._channel_terms(transfer).items():
                loads.setdefault(channel, []).extend((u, time[u]) for u, _ in uses)
        return loads

    # -- from and to schedules -------------------------------------------------------------------

    def hint(self, start: Incumbent) -> Floats:
        values = super().hint(start)
        for order, intervals in (
            (self.op_order, self.ops),
            (self.transfer_order, [transfer.interval for transfer in self.transfers]),
        ):
            for one, two, first, second in order:
                a, b = span(intervals[one], values), span(intervals[two], values)
                values[first] = a[1] <= b[0] + HINT_ROUNDING
                values[second] = b[1] <= a[0] + HINT_ROUNDING
        if self.peak:
            self.peak.hint(values)
        return values

    def decode(self, values: Floats) -> Placement:
        device = self.placement.device_of(values)
        return Placement(device, self.transport.sequence(values, device))
