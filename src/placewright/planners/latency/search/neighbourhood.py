"""A neighbourhood of a schedule, placed and ordered anew while everything else stays.

The items of a schedule, ops and transfers, have an order: that of their starts. The free units of
a neighbourhood span a stretch of it. What comes *before* the stretch keeps its times. What comes
*behind* it keeps its devices and its order, and moves as a whole chain of precedences: all that
matters of it to the stretch is, for each of its items, the longest path from there to the end. So a
model of the items of the stretch alone (`frame.Frame`) has the makespan of the whole schedule for
its objective. Ops of the stretch that are not free keep their device and, among each other, their
order.

Nothing is lost by this but freedom: free ops stay between what is before and behind on each device,
and transfers likewise on each channel.

- A transfer that is behind the stretch now may come early, for a free op; or stay there if its
  source does.
- A transfer that was before the stretch for a free op is no longer there if that op moves away.
  Its place remains empty in the model: the simulator times the plan and finds it no longer.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from placewright.formulations.latency.cp_frame import (
    Frame,
    Owed,
    Parcel,
    parcels_of,
    transfer_times,
)
from placewright.formulations.latency.cp_model import Effort, Model, Times
from placewright.graph import Flags, Floats, Ints, frozen
from placewright.plan import Placement
from placewright.planners.latency.search.state import State

# A model looks for plans that are shorter than the present one by this, relatively; durations
# rounded down make a path of some hundred items shorter by less.
GAIN = 1e-5
NEIGHBOURHOOD_TICKS = 100_000_000


class Neighbourhood:
    """The stretch of a schedule that the units `free[unit]` span, as a frame and back.

    All of a free unit's ops are in the stretch. `reach` widens it by so many items on each side.

    >>> neighbourhood = Neighbourhood(state, free)
    >>> better = neighbourhood.improved(Effort(5.0))         # a State that is shorter, or None
    """

    def __init__(self, state: State, free: Flags, reach: int = 0) -> None:
        self.state, self.problem = state, state.problem
        self.free = free[self.problem.op_unit]
        spanned = state.position[self.free]
        self.first = max(0, int(spanned.min()) - reach)
        self.last = min(len(state.sequence) - 1, int(spanned.max()) + reach)
        self.frame = self._frame()

    # -- what is where ---------------------------------------------------------------------------

    @cached_property
    def inside(self) -> Flags:
        """`[op]` in the stretch."""
        position = self.state.position
        flags: Flags = (position >= self.first) & (position <= self.last)
        return flags

    def _frame(self) -> Frame:
        state, problem = self.state, self.problem
        ops = state.sequence[self.first : self.last + 1]
        ops = ops[ops >= 0]
        self.ops: list[int] = ops.tolist()
        unit_device = problem.unit_device(state.device)
        stays = np.arange(problem.device_count) == unit_device[:, None]
        units = np.unique(problem.op_unit[ops])
        moving = np.unique(problem.op_unit[self.free])
        allowed = np.zeros((problem.unit_count, problem.device_count), dtype=bool)
        allowed[units] = stays[units]
        allowed[moving] = problem.unit_allowed[moving]
        others = np.setdiff1d(np.arange(problem.unit_count), units)
        used = np.bincount(unit_device[others], problem.unit_memory[others], problem.device_count)
        self._edges = self._touched_edges()
        return Frame(
            problem=problem,
            ops=self.ops,
            allowed=allowed,
            head=self._heads(),
            tail=self._tails(),
            release=self._release(),
            channel_tail=self._channel_tail(),
            capacity=problem.device_memory - used,
            chains=self._chains(),
            parcels=self._parcels(),
            floor=self._floor(),
        )

    def _touched_edges(self) -> Ints:
        """Edges from or to an op of the stretch."""
        problem = self.problem
        touched = self.inside[problem.edge_producer] | self.inside[problem.consumers]
        return frozen(np.flatnonzero(touched), np.int32)

    @cached_property
    def _before_device(self) -> Floats:
        state = self.state
        free_from = np.zeros(self.problem.device_count)
        before = np.flatnonzero(state.position < self.first)
        np.maximum.at(free_from, state.device[before], state.op_finish[before])
        return free_from

    @cached_property
    def _behind_device(self) -> Floats:
        state = self.state
        tail = np.zeros(self.problem.device_count)
        behind = np.flatnonzero(state.position > self.last)
        np.maximum.at(tail, state.device[behind], state.tails[0][behind])
        return tail

    def _heads(self) -> Floats:
        """Behind what is before on each device, and with what comes from there."""
        problem, state = self.problem, self.state
        place = {op: k for k, op in enumerate(self.ops)}
        head = np.tile(self._before_device, (len(self.ops), 1))
        edges = self._edges[~self.inside[problem.edge_producer[self._edges]]]
        for edge in edges.tolist():
            k, op = place[int(problem.consumers[edge])], int(problem.edge_producer[edge])
            there = state.op_finish[op] + self._delay(edge)[state.device[op]]
            for d, arrival in self._there(edge).items():
                there[d] = arrival
            np.maximum(head[k], there, out=head[k])
        return head

    def _tails(self) -> Floats:
        problem, state = self.problem, self.state
        place = {op: k for k, op in enumerate(self.ops)}
        tail = np.tile(self._behind_device, (len(self.ops), 1))
        edges = self._edges[~self.inside[problem.consumers[self._edges]]]
        for edge in edges.tolist():
            k, op = place[int(problem.edge_producer[edge])], int(problem.consumers[edge])
            needed = self._delay(edge)[:, state.device[op]] + state.tails[0][op]
            np.maximum(tail[k], needed, out=tail[k])
        return tail

    def _delay(self, edge: int) -> Floats:
        return transfer_times(self.problem, int(self.problem.edge_tensor[edge]))

    @property
    def _contends(self) -> bool:
        return self.problem.options.contention != "none"

    def _is_shared(self) -> bool:
        return self.problem.options.transfer_unit == "tensor"

    def _siblings(self, edge: int) -> range:
        """The edges that one transfer may serve with this one."""
        problem, tensor = self.problem, int(self.problem.edge_tensor[edge])
        if not self._is_shared():
            return range(edge, edge + 1)
        return range(*problem.consumer_offsets[tensor : tensor + 2].tolist())

    def _there(self, edge: int) -> dict[int, float]:
        """Where, and when, the edge's tensor is already before the stretch, under contention."""
        if not self._contends:
            return {}
        state, there = self.state, {}
        for other in self._siblings(edge):
            device = int(state.device[self.problem.consumers[other]])
            if self._was_sent_to(other, device):
                there[device] = float(state.arrival[other])
        return there

    # -- channels --------------------------------------------------------------------------------

    def _release(self) -> Floats:
        state, release = self.state, np.zeros(len(self.problem.active_channels[2]))
        edge, channel = state.channel_uses
        before = state.edge_position[edge] < self.first
        np.maximum.at(release, channel[before], state.arrival[edge[before]])
        return release

    def _channel_tail(self) -> Floats:
        state, tail = self.state, np.zeros(len(self.problem.active_channels[2]))
        edge, channel = state.channel_uses
        behind = state.edge_position[edge] > self.last
        np.maximum.at(tail, channel[behind], state.tails[1][edge[behind]])
        return tail

    def _parcels(self) -> list[Parcel]:
        """Transfers of the stretch: for its ops, and those between others that are sent in it."""
        if not self._contends:
            return []
        state, problem = self.state, self.problem
        passing = np.flatnonzero(
            state.crosses & (state.edge_position >= self.first) & (state.edge_position <= self.last)
        )
        found = []
        for tensor, edges in parcels_of(problem, np.union1d(self._edges, passing)):
            producer = int(problem.tensor_producer[tensor])
            is_inside = bool(self.inside[producer])
            found.append(
                Parcel(
                    tensor=tensor,
                    edges=[e for e in edges if self.inside[problem.consumers[e]]],
                    outer=[e for e in edges if not self.inside[problem.consumers[e]]],
                    producer=producer if is_inside else -1,
                    source=-1 if is_inside else int(state.device[producer]),
                    ready=0.0 if is_inside else float(state.op_finish[producer]),
                    there=frozenset(() if is_inside else self._there(edges[0])),
                    owed=self._owed(edges, is_inside),
                )
            )
        return found

    def _owed(self, edges: list[int], is_inside: bool) -> dict[int, Owed]:
        """What ops behind the stretch wait for.

        Of a tensor from before the stretch only what is sent in it: the rest is known. If it is
        sent early for an op of the stretch, those behind have it no later than now.
        """
        state, problem = self.state, self.problem
        owed: dict[int, Owed] = {}
        for edge in edges:
            consumer = int(problem.consumers[edge])
            if self.inside[consumer]:
                continue
            target = int(state.device[consumer])
            at = state.edge_position[edge]
            if not is_inside and not self.first <= at <= self.last:
                continue
            tail, late, source = float(state.tails[0][consumer]), None, -1
            if state.crosses[edge] and at > self.last:
                late = float(state.tails[1][edge])
                source = int(state.device[problem.edge_producer[edge]])
            before = owed.get(target)
            if before is not None:
                tail = max(tail, before.tail)
            owed[target] = Owed(tail, late, source)
        return owed

    # -- order -----------------------------------------------------------------------------------

    def _chains(self) -> list[tuple[int, int]]:
        last: dict[int, int] = {}
        chains = []
        for op in self.ops:
            if self.free[op]:
                continue
            device = int(self.state.device[op])
            if device in last:
                chains.append((last[device], op))
            last[device] = op
        return chains

    def _floor(self) -> float:
        """The longest path that does not touch the stretch."""
        state, problem = self.state, self.problem
        outside = ~self.inside
        floor = float((self._before_device + self._behind_device).max())
        floor = max(floor, float((self._release() + self._channel_tail()).max(initial=0.0)))
        before, behind = state.position < self.first, state.position > self.last
        if before.any():
            floor = max(floor, float(state.op_finish[before].max()))
        edge = np.flatnonzero(
            outside[problem.edge_producer]
            & before[problem.edge_producer]
            & behind[problem.consumers]
        )
        sent_before = state.edge_position[edge] < self.first
        local = ~state.crosses[edge]
        known = edge[sent_before | local]
        if len(known):
            paths = state.arrival[known] + state.tails[0][problem.consumers[known]]
            floor = max(floor, float(paths.max()))
        late = edge[(state.edge_position[edge] > self.last) & ~local]
        if len(late):
            paths = state.op_finish[problem.edge_producer[late]] + state.tails[1][late]
            floor = max(floor, float(paths.max()))
        return floor

    # -- a better schedule -----------------------------------------------------------------------

    def improved(self, effort: Effort, gain: float = GAIN) -> State | None:
        """A schedule that is shorter by `gain`, relatively; None if none was found.

        The simulator times it over the whole graph. KeyboardInterrupt after Ctrl-C.
        """
        model = self.model(gain)
        answer = model.solve(effort) if model else None
        return None if answer is None or answer.values is None else self.put_back(answer.values)

    def model(self, gain: float = GAIN) -> Model | None:
        """For schedules shorter than the present one by `gain`; None if there cannot be any.

        The makespan is that of the whole schedule.
        """
        horizon = self.state.value * (1 - gain)
        if self.frame.floor >= horizon:
            return None
        model = Model(self.frame, horizon, NEIGHBOURHOOD_TICKS, is_linear=False)
        model.hint(self.state.device, self.state.op_start)
        return model

    def put_back(self, times: Times) -> State:
        """The whole schedule with the stretch as in `times`."""
        state, problem = self.state, self.problem
        device = state.device.copy()
        device[self.ops] = times.device
        start = np.where(state.position < self.first, 0.0, 2.0)
        # Of items outside the stretch their position counts, of those in it the time.
        rank = state.position.astype(np.float64)
        finish = np.zeros(problem.op_count)
        start[self.ops], rank[self.ops], finish[self.ops] = 1.0, times.start, times.finish
        edge_group, edge_rank, edge_finish = self._edge_keys(times, device, start, rank, finish)
        items = np.concatenate([np.arange(problem.op_count), -1 - np.arange(problem.edge_count)])
        keys = (
            np.concatenate([state.position, state.edge_position]),  # topological as well
            np.concatenate([finish, edge_finish]),
            np.concatenate([rank, edge_rank]),
            np.concatenate([start, edge_group]),
        )
        sequence = items[np.lexsort(keys)].astype(np.int32)
        return State(problem, Placement(device, sequence))

    def _edge_keys(
        self, times: Times, device: Ints, group: Floats, rank: Floats, finish: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Group, rank and finish of edges: where they are now, or where the model sends them.

        An edge of the stretch's ops that is not sent comes with its producer.
        """
        state, problem = self.state, self.problem
        edge_group = np.where(state.edge_position < self.first, 0.0, 2.0)
        edge_rank = state.edge_position.astype(np.float64)
        edge_finish = np.zeros(problem.edge_count)
        for edge in self._edges.tolist():
            producer, target = (
                int(problem.edge_producer[edge]),
                int(device[problem.consumers[edge]]),
            )
            if self.inside[producer]:
                if not self._is_late(edge, int(device[producer])):
                    edge_group[edge] = 1.0
                    edge_rank[edge] = edge_finish[edge] = finish[producer]
            else:
                edge_group[edge], edge_rank[edge] = 0.0, rank[producer]
                for other in self._siblings(edge):
                    if self._was_sent_to(other, target):
                        edge_rank[edge] = state.edge_position[other]
        for (number, d), (begin, end) in times.begin.items():
            parcel = self.frame.parcels[number]
            edges = parcel.edges + parcel.outer
            for edge in edges:
                if device[problem.consumers[edge]] == d:
                    edge_group[edge], edge_rank[edge], edge_finish[edge] = 1.0, begin, end
        return edge_group, edge_rank, edge_finish

    def _is_late(self, edge: int, source: int) -> bool:
        """Whether the edge is sent behind the stretch, as it is now."""
        state, problem = self.state, self.problem
        return bool(
            self._contends
            and state.crosses[edge]
            and state.edge_position[edge] > self.last
            and source == state.device[problem.edge_producer[edge]]
        )

    def _was_sent_to(self, edge: int, device: int) -> bool:
        """Whether the edge's tensor is on the device, by this edge, before the stretch."""
        state = self.state
        return bool(
            self._contends
            and state.crosses[edge]
            and state.edge_position[edge] < self.first
            and state.device[self.problem.consumers[edge]] == device
        )
