"""What requests come to: one placement of prefill and decode, judged as a whole and by phase."""

from __future__ import annotations

import math
from dataclasses import dataclass

from placewright.plan import Plan, Status, gap_of, status_of
from placewright.problem import LONG_ROUNDING
from placewright.serving.capacity import CacheCapacity, cache_capacity
from placewright.serving.mix import Mix


@dataclass(frozen=True, eq=False)
class KindPlan:
    """One kind of request; `prefill` and `decode` are plans for objective ``latency``.

    `decode` is that of one step, at the average context.
    """

    mix: Mix
    prefill: Plan
    decode: Plan

    @property
    def seconds_to_first_token(self) -> float:
        return self.prefill.value

    @property
    def seconds_per_token(self) -> float:
        return self.decode.value

    @property
    def seconds_per_request(self) -> float:
        return self.prefill.value + self.mix.output * self.decode.value


@dataclass(frozen=True, eq=False)
class ServingPlan:
    """One placement of both phases of every kind of request.

    `plan` is that of the request as one problem (see `serving.request`). `value` is what the
    placement comes to, from the phases alone: the seconds of a request, or for objective
    ``throughput`` the largest load of a device per request. `lower_bound` holds for every
    placement. Of several kinds it is all of the mean request, by their shares.

    What an engine runs (`exporters.requests`) has the plan of a step of decode as `plan`, with the
    memory of the request.
    """

    plan: Plan
    kinds: tuple[KindPlan, ...]
    value: float
    lower_bound: float
    bound_source: str

    @property
    def prefill(self) -> Plan:
        """Of the first kind."""
        return self.kinds[0].prefill

    @property
    def decode(self) -> Plan:
        """Of the first kind."""
        return self.kinds[0].decode

    @property
    def mix(self) -> Mix:
        """The first kind of request."""
        return self.kinds[0].mix

    @property
    def gap(self) -> float:
        """(value - lower_bound) / value."""
        return gap_of(self.value, self.lower_bound)

    @property
    def status(self) -> Status:
        return status_of(self.gap)

    @property
    def batch(self) -> int:
        """Sequences that are served at once."""
        return self.plan.problem.input_samples or 1

    @property
    def prompt(self) -> float:
        """Tokens in, of the mean request."""
        return sum(kind.mix.share * kind.mix.prompt for kind in self.kinds)

    @property
    def output(self) -> float:
        """Tokens out, of the mean request."""
        return sum(kind.mix.share * kind.mix.output for kind in self.kinds)

    @property
    def context(self) -> int:
        """Tokens that a sequence has at most."""
        return max(kind.mix.context for kind in self.kinds)

    @property
    def seconds_to_first_token(self) -> float:
        return sum(kind.mix.share * kind.seconds_to_first_token for kind in self.kinds)

    @property
    def seconds_per_token(self) -> float:
        """Of the mean token: a kind with a long output has more of them."""
        if len(self.kinds) == 1:
            return self.decode.value
        seconds = (each.mix.share * each.mix.output * each.decode.value for each in self.kinds)
        return sum(seconds) / self.output

    @property
    def seconds_per_request(self) -> float:
        return sum(kind.mix.share * kind.seconds_per_request for kind in self.kinds)

    @property
    def in_flight(self) -> int:
        """Batches of requests under way at once, in a pipeline that makes `tokens_per_second`.

        One after another under ``latency``. For ``throughput`` as many as keep the busiest device
        busy, or as there is room for their KV caches.
        """
        if self.plan.problem.options.objective == "latency" or not self.value:
            return 1
        needed = math.ceil(self.seconds_per_request / self.value * (1 - LONG_ROUNDING))
        fit = self.capacity.fit
        return max(needed if fit is None else min(needed, fit // self.batch), 1)

    @property
    def tokens_per_second(self) -> float:
        """Of the output: with one request after another, or for ``throughput`` a full pipeline.

        Where fewer can be `in_flight` than fill the pipeline, it is what these make.
        """
        tokens = self.batch * self.output
        seconds = max(self.value, self.seconds_per_request / self.in_flight)
        return tokens / seconds if seconds else float("inf")

    @property
    def capacity(self) -> CacheCapacity:
        found = cache_capacity(self.plan)
        assert found is not None  # decode keeps a cache
        return found
