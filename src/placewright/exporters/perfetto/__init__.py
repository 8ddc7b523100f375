"""Traces that ui.perfetto.dev and chrome://tracing read: a plan, and a run of it beside it.

In the trace-event format of Chrome (JSON): complete slices (`X`), names (`M`) and flows (`s`, `t`,
`f`), which are drawn as arrows from the op that makes a tensor through the transfer to the op
that reads it. Times are microseconds, to the nanosecond.
"""

from placewright.exporters.perfetto.trace import (
    MEASURED,
    PER_MICRO_BATCH,
    PLANNED,
    trace,
    write_trace,
)

__all__ = ["MEASURED", "PER_MICRO_BATCH", "PLANNED", "trace", "write_trace"]
