"""Costs that were measured: what an op takes on a device, kept in a store between runs.

`entry` says what is kept, `store` keeps it, `exchange` takes it to other machines; `profiling`
measures a source's `program` (of torch: `torch_program`, `measure`, `memory`, `values`; of ONNX:
`onnx`), `regression` learns of large batches from small ones, and `lookup` finds what a graph's
ops take.
"""
