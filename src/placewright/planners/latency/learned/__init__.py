"""Policies trained by reinforcement on the simulator: `hrl` and `placeto` (extra `torch`).

`planners` has both planners, `nodes` a problem as policies see it, `episodes` what trying
placements and keeping the best one have in common, `hierarchical` and `revising` the two policies
with how they learn, `policies` the files that keep them. The last four import torch.
"""
