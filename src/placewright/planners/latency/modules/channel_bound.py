"""Channel bound: what modules with several channels between them prove (DiviML, §IV-B2).

Write dep(o) for all descendants of an op o, pre(o) for all its ancestors, OPT(S) for the shortest
makespan of the ops S alone, and take a boundary between modules; its *outputs* are the ops before
it that some op behind it reads.

*The remark.* Take any schedule and any set Q of outputs, and let q be the one of Q that ends last,
at τ. Every op that leads to Q, and Q, has ended by τ; every op of dep(q) begins at τ or later. So
for the makespan T

    T  ≥  OPT(pre(Q) ∪ Q)  +  min over q in Q of OPT(dep(q)).

DiviML takes for Q all outputs, and for pre(Q) ∪ Q the whole first module. The latter needs every
op of the module to lead to an output: one that does not may run after τ. Here only those that
lead to Q are counted. DiviML's minimum is over the inputs I_u on the other side; an op waits for
all outputs that it reads, and all readers of q begin after τ, so dep(q) holds each of the
dep(I_u) that are started by q.

*Any Q.* With all outputs the first term is the largest, the second the least: an output that
little depends on spoils it. With a single output there is no minimum at all. All subsets are
tried (there are few outputs), the best one counts.

*The recursion.* OPT(dep(o)) is bounded in the same way at a later boundary, with dep(o) for the
whole graph. With F(o) a bound on the time from the end of o to the end of the schedule,

    F(o)  ≥  OPT(o⁰ ∪ (dep(o) ∩ (pre(Q) ∪ Q)))  +  min over q in Q of F(q)

for every set Q of outputs among dep(o) at a later boundary, and F(start) bounds the makespan. Its
values do not depend on how o was reached, so DiviML's recursion is a dynamic program over
(boundary, output). o⁰ is o itself taking no time: what it sends to its readers is paid, once it
has ended, and o is where they need it from.

*Mirrored.* With first starts in place of last ends, for inputs in place of outputs: of a set Q of
inputs let q begin first, at σ. All of dep(Q) ∪ Q begins at σ or later; all of pre(q) has ended,
and its transfers to q have arrived, by σ. The better of both results counts.

*Each OPT may be replaced by a lower bound of it*: the solver's own proof, or one of
`bounds.latency.paths`. For the exact value of a small one see `cases.Case`.

*Why parts bound the whole.* Restrict a schedule of the problem to a set S of ops and the transfers
between them. Precedence, and that ops of a device and transfers of a channel do not overlap,
hold for fewer of them; a tensor sent once per device is sent at most as often; devices hold no more
than they did, in total or at any time; ops of one unit are still together, pins still kept. If all
of S begins at τ or later and ends by τ', it is a schedule of S of length τ' − τ, so that is at
least OPT(S). An op that lasts no time, as o⁰ at its end τ, adds nothing that the schedule lacks.
Under memory option ``peak`` OPT is bounded with resident memory only, which is a relaxation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations
from operator import or_

import numpy as np

from placewright.analysis.modules import Modules
from placewright.analysis.precedence import Precedence
from placewright.analysis.subproblem import Subproblem, subproblem
from placewright.bounds.latency.paths import lower_bound
from placewright.budget import Budget, Progress, no_progress
from placewright.errors import InfeasibleError
from placewright.formulations.latency.incumbent import timed
from placewright.graph import Ints
from placewright.planners.latency.construct.list_scheduling import Heft
from placewright.planners.latency.exact.cases import QUICK_TURNS, Job
from placewright.planners.latency.exact.parallel import Solvers
from placewright.problem import ROUNDING, Problem

MOST_OPS = 20_000  # sets of descendants take the square of it in bits
MOST_ENDS = 4  # whose subsets are all tried; of more, each alone and all together
REACH = 2  # boundaries ahead
LARGEST_BLOCK = 24  # ops between two boundaries that are not neighbours
FORWARDS_SHARE = 0.7  # of the time; blocks of the one way are known in the other where they agree
SOLVING_SHARE = 0.6
START = -1


def channel_bounds(
    modules: Modules, solvers: Solvers, limit: Budget, on_progress: Progress
) -> Iterator[float]:
    """Seconds that no schedule is shorter than: forwards, then backwards.

    Blocks of ops between boundaries have a few short turns each. Nothing is said of a problem with
    more than `MOST_OPS` ops.
    """
    if modules.count < 2 or modules.problem.op_count > MOST_OPS:
        return
    precedence = Precedence(modules.problem)
    for mirrored in (False, True):
        way = "backwards" if mirrored else "forwards"
        tails = _Tails(modules, precedence, mirrored, solvers)
        for done in tails.steps(limit.part(limit.left * (1.0 if mirrored else FORWARDS_SHARE))):
            on_progress(f"bound of the modules, {way}", done)
        if (START, START) in tails.value:
            yield tails.value[START, START] * (1 - ROUNDING * modules.count)


@dataclass(eq=False)
class _Block:
    """Ops that lie between an end op (which takes no time) and later ends; what OPT of it is."""

    sub: Subproblem
    low: float = 0.0
    high: float = np.inf
    solved: bool = False


@dataclass(eq=False)
class _Choice:
    """One argument for the tail of an end op: a block, and then the least of some tails."""

    block: _Block
    then: float

    @property
    def low(self) -> float:
        return self.block.low + self.then

    @property
    def high(self) -> float:
        return self.block.high + self.then


@dataclass(eq=False)
class _Tails:
    """`value[boundary, op]`: the time from the end of an output to the end of all is no less.

    Mirrored: the time from the start of all to the start of an input. Boundaries are numbered in
    the direction; `(START, START)` is the whole.
    """

    modules: Modules
    precedence: Precedence
    mirrored: bool
    solvers: Solvers
    value: dict[tuple[int, int], float] = field(default_factory=dict)
    blocks: dict[tuple[int, int], _Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem, precedence = self.modules.problem, self.precedence
        self.after, self.before = precedence.after, precedence.before
        side = problem.edge_producer
        order = list(range(self.modules.count - 1))
        if self.mirrored:
            self.after, self.before = self.before, self.after
            side = problem.consumers
            order.reverse()
        self.ends = [np.unique(side[self.modules.channel_edges(t)]).tolist() for t in order]
        self.everything = (1 << problem.op_count) - 1

    def steps(self, limit: Budget) -> Iterator[float]:
        """Fill `value` from the last boundary to the start, yielding the share that is done.

        Nothing is solved any more when most of the time has passed; what has not been reached when
        all has is left out.
        """
        count = len(self.ends)
        solving = limit.part(limit.left * SOLVING_SHARE)
        for boundary in range(count - 1, START - 1, -1):
            ends = self.ends[boundary] if boundary != START else [START]
            choices = {}
            for op in ends:
                if limit.left <= 0:
                    return
                choices[op] = self._choices(boundary, op)
            self._decide(list(choices.values()), solving)
            for op, each in choices.items():
                self.value[boundary, op] = max(choice.low for choice in each)
            yield (count - boundary) / (count + 1)

    # -- arguments -------------------------------------------------------------------------------

    def _choices(self, boundary: int, op: int) -> list[_Choice]:
        """All arguments for the tail of an op at a boundary."""
        rest = self._rest(op)
        choices = [_Choice(self._whole_rest(boundary, op, rest), 0.0)]
        best_then: dict[int, float] = {}
        for ahead in range(boundary + 1, min(boundary + REACH, len(self.ends) - 1) + 1):
            if (ahead, op) in self.value:  # it is read from there on, too
                choices.append(_Choice(_Block(choices[0].block.sub, 0.0, 0.0, True),
                                       self.value[ahead, op]))  # fmt: skip
            ends = [end for end in self.ends[ahead] if rest & self.precedence.bit(end)]
            for chosen in _subsets(ends):
                leading = (self.before[end] | self.precedence.bit(end) for end in chosen)
                bits = rest & reduce(or_, leading)
                if ahead > boundary + 1 and bits.bit_count() > LARGEST_BLOCK:
                    continue
                then = min(self.value[ahead, end] for end in chosen)
                best_then[bits] = max(then, best_then.get(bits, 0.0))
        choices += [_Choice(self._block(op, bits), then) for bits, then in best_then.items()]
        return choices

    def _rest(self, op: int) -> int:
        return self.everything if op == START else self.after[op]

    def _whole_rest(self, boundary: int, op: int, rest: int) -> _Block:
        """All that is left after an op: to be solved behind the last boundary, else too large."""
        block = self._block(op, rest)
        if boundary < len(self.ends) - 1 and len(block.sub.ops) > LARGEST_BLOCK:
            block.solved = True
        return block

    def _block(self, op: int, bits: int) -> _Block:
        if (op, bits) not in self.blocks:
            self.blocks[op, bits] = self._new_block(op, bits)
        return self.blocks[op, bits]

    def _new_block(self, op: int, bits: int) -> _Block:
        sub = self._sub(op, self.precedence.members(bits))
        low = lower_bound(sub.problem).value
        if not np.isfinite(low):
            return _Block(sub, 0.0, np.inf)
        return _Block(sub, low, self._heft(sub.problem))

    def _heft(self, problem: Problem) -> float:
        """What OPT of a block is not above, if a quick rule finds a plan at all."""
        try:
            proposal = Heft().plan(problem, Budget(), self.solvers.method.seed, no_progress)
        except InfeasibleError:
            return np.inf
        return timed(problem, proposal.placement).value

    def _sub(self, op: int, ops: list[int]) -> Subproblem:
        """The ops, with the end op before (mirrored: behind) them if there is one."""
        if op == START:
            return subproblem(self.modules.problem, np.array(ops, dtype=np.int32))
        at = len(ops) if self.mirrored else 0
        listed: Ints = np.insert(np.array(ops, dtype=np.int32), at, op)
        sub = subproblem(self.modules.problem, listed)
        time = sub.problem.op_time.copy()
        time[at] = np.where(np.isfinite(time[at]), 0.0, np.inf)
        return replace(sub, problem=replace(sub.problem, op_time=time))

    # -- which blocks are worth solving ----------------------------------------------------------

    def _decide(self, choices: list[list[_Choice]], limit: Budget) -> None:
        """Solve blocks until no unsolved one could give any op a higher tail."""
        while limit.left > 0:
            asked: list[_Block] = []
            for each in choices:
                proved = max(choice.low for choice in each)
                able = [c for c in each if not c.block.solved and c.high > proved]
                if able:
                    block = max(able, key=lambda choice: choice.high).block
                    if block not in asked:
                        asked.append(block)
            if not asked:
                return
            jobs = [Job(block.sub, until=QUICK_TURNS) for block in asked]
            answers = self.solvers.solve(jobs, limit)
            for block, answer in zip(asked, answers, strict=True):
                block.solved = True
                block.low = max(block.low, answer.lower_bound)
                block.high = min(block.high, answer.value)


def _subsets(ends: list[int]) -> list[tuple[int, ...]]:
    if len(ends) > MOST_ENDS:
        return [*((end,) for end in ends), tuple(ends)]
    return [chosen for size in range(1, len(ends) + 1) for chosen in combinations(ends, size)]
