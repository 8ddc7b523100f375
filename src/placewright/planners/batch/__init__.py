"""Planners for objective ``batch-throughput``: which device takes how many inputs of each op.

Inputs come in chunks (`kernels.batch.arrays`). A *row* is the device of each chunk of a unit; a
*split* is how many chunks each device gets; only splits whose parts are allowed batch sizes exist.
"""
