"""Running throughput plans on torch.distributed.pipelining: stages by our own cut.

`chain.py` orders a placement's ops into runs, `cutting.py` makes stages of them, `boundaries.py`
says what travels between; `tables.py` and `schedules.py` decide what each rank does when, and
`legality.py` judges it. Where stages have replicas, `groups.py` says whose turn it is and
`turns.py` takes the place of torch's schedules. `rank.py` is a process, `reference.py` what it is
compared with.
"""

from placewright.runtime.pipelined.report import PipelineReport
from placewright.runtime.pipelined.running import run_pipeline

__all__ = ["PipelineReport", "run_pipeline"]
