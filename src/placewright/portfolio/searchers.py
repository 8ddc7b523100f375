"""The searches of a portfolio, and which of them is worth the next turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from placewright.portfolio.members import Member

FADING = 0.75  # of what is known of all searches, with each turn of one
PRIOR_SECONDS = 3.0  # that a search counts as having gained at the rate of all
OPTIMISM = 2.0  # times that rate: who had few turns is asked again
NEW_SHARE = 0.25  # of the time that is left: the most for the first turn of a search
MOST_DOUBLED = 3  # times, turns that gain nothing
MOST_GAINED = 0.02  # that counts: from a poor plan everybody gains much
LEAST_RATE = 1e-9  # per second; where nobody gains, who had the fewest turns is next


@dataclass
class Searcher:
    """A search, what it `gained` lately, relative to the value, and the seconds it `spent`."""

    member: Member
    gained: float = 0.0
    spent: float = 0.0
    running: int = 0
    longest: float = 0.0  # of its turns
    in_vain: int = 0  # turns since the last that gained

    @property
    def is_new(self) -> bool:
        """Whether it has had no turn that counts, and has none now."""
        return not self.spent and not self.running

    def next_turn(self, usual: float, left: float) -> float:
        """Seconds, where a turn is `usual` so long and so much time is `left`.

        What gained nothing has twice as long the next time, and so has what starts `afresh`: it
        would find the same again, and slowly found is better. A first turn may be long at once.
        """
        if self.is_new and self.member.first_share:
            return max(usual, self.member.first_share * left)
        if self.member.afresh:
            return 2 * max(usual, self.longest)
        return usual * 2.0 ** min(self.in_vain, MOST_DOUBLED)

    def merit(self, rate: float) -> float:
        """Gain per second expected of another turn; a second one at the same time is worth less."""
        expected = (self.gained + PRIOR_SECONDS * rate) / (self.spent + PRIOR_SECONDS)
        return expected / (1 + self.running)


class Searchers:
    """Searches by what they gained lately.

    What counts is by how much a turn made the plan shorter for its seconds, not that it did: near
    the end each finds something. All fade alike, for all gain less as the plan gets better.
    """

    def __init__(self, members: Iterable[Member]) -> None:
        self._all = [Searcher(each) for each in members]

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def members(self) -> list[Member]:
        return [each.member for each in self._all]

    def begin(self, left: float, seconds: Callable[[Member], float]) -> tuple[Member, float] | None:
        """The search with most merit, whose turn begins, and for how long; None without any.

        `seconds` says how long a turn of a search usually is. One that starts `afresh` is not asked
        where less than its next turn is left.
        """
        turns = [(each, each.next_turn(seconds(each.member), left)) for each in self._all]
        in_time = [(each, turn) for each, turn in turns if turn <= left or not each.member.afresh]
        if not turns:
            return None
        rate = self._hoped_rate()
        # Those that had none first, in their order, where that leaves most of the time to the best.
        new = [
            (each, turn)
            for each, turn in in_time
            if each.is_new and turn <= max(NEW_SHARE, each.member.first_share) * left
        ]
        chosen, turn = (
            new[0] if new else max(in_time or turns, key=lambda pair: pair[0].merit(rate))
        )
        chosen.running += 1
        chosen.longest = max(chosen.longest, turn)
        return chosen.member, turn

    def _hoped_rate(self) -> float:
        """Gain per second of who is not known yet."""
        spent = sum(each.spent for each in self._all)
        gained = sum(each.gained for each in self._all)
        return max(OPTIMISM * gained / spent if spent else 0.0, LEAST_RATE)

    def end(self, member: Member, gain: float, seconds: float) -> None:
        """What came of a turn; one of 0 seconds does not count."""
        ended = next((each for each in self._all if each.member is member), None)
        if ended is None:  # no search, or one that was dropped meanwhile
            return
        ended.running -= 1
        if seconds > 0:
            ended.in_vain = 0 if gain > 0 else ended.in_vain + 1
            for each in self._all:
                each.gained *= FADING
                each.spent *= FADING
            ended.gained += min(gain, MOST_GAINED)
            ended.spent += seconds

    def drop(self, member: Member) -> None:
        """Not to be asked again."""
        self._all = [each for each in self._all if each.member is not member]
