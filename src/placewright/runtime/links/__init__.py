"""Measuring what tensors take between devices: latency and bandwidth of every pair, with errors."""

from placewright.runtime.links.hosts import Rendezvous, measure_hosts
from placewright.runtime.links.measured import measure_links

__all__ = ["Rendezvous", "measure_hosts", "measure_links"]
