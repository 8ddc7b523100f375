"""A rank whose GPU is a stand-in, and whose NCCL is gloo: it orders nothing, but matches tags."""

from __future__ import annotations

from placewright.runtime.ranks import gpus, worker
from placewright.system.accelerators import cuda
from placewright.system.accelerators.places import CudaPlace
from tests.system.accelerators.standin import StandIn


def main() -> None:
    driver = StandIn(gpus=2)
    cuda.driver = lambda: driver
    gpus.BACKEND = "gloo"
    settle = CudaPlace.settle

    def checked(place: CudaPlace) -> None:
        settle(place)
        assert driver.faults == [], driver.faults

    CudaPlace.settle = checked
    worker.main()
