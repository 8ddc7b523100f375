"""Lower bounds on the time T to finish a batch of L inputs (DiviML §IV-A).

A *split* of an op says how many inputs n_d each device d takes, Σ_d n_d = L, each n_d > 0 a batch
size that the device takes for the op. Each argument prices an op by its cheapest split, found by
a dynamic program over the devices: no plan pays less. All hold under every transfer unit and
contention option, for they count computing alone. Memory enters as in `bounds.latency.paths`: with
prices μ_d ≥ 0 per byte, an op of m bytes pays μ_d m on each device that it uses, and a plan that
fits pays at most Σ_d μ_d M_d in all, which is taken off.
"""

from placewright.bounds.batch.best import lower_bound

__all__ = ["lower_bound"]
