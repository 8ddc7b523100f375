"""Smaller contracted graphs whose best contiguous splits are those of the whole graph.

Each module has one reduction with its proof. A reduced graph is a `ContractedGraph` of the same
problem, so its splits are splits of the ops as they are: the way back is `ContractedGraph.op_node`.
"""
