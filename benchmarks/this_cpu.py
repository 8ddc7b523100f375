"""The CPU of this machine as a device for benchmarks that measure on some of its cores."""

from __future__ import annotations

from dataclasses import replace

from placewright.cluster import CpuRun, Device
from placewright.costs.detect import detect
from placewright.errors import ClusterError


def this_cpu(cores: int) -> Device:
    """Device ``cpu``: so many cores of this machine, ClusterError if it has fewer."""
    whole = next((each for each in detect().devices if isinstance(each.run, CpuRun)), None)
    if whole is None or not isinstance(whole.run, CpuRun) or len(whole.run.cores) < cores:
        raise ClusterError(f"this machine names no {cores} cores to pin a process to")
    return replace(whole, name="cpu", run=CpuRun(whole.run.cores[:cores]))
