"""What every rank does, and how ranks are started, heard and ended.

A `Job` (`job.py`) goes to a launcher: `distributed.py` starts processes (`launch.py`) that run
`worker.py`, `local.py` threads. Each calls its stages (`calls.py`), keeps their state (`state.py`)
and talks through a channel (`channels.py`, on GPUs `gpus.py`) to the ranks that it joined
(`joining.py`); `failures.py` says what went wrong.
"""
