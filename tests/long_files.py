"""Files whose tests take longest together: nearly half of the time of all, in a fiftieth of them.

``pytest`` alone leaves them out, so that it ends within ten minutes on two cores; `.ci/run` runs
them after the others (``pytest -m 'long and not slow'``). Where a path or ``-k`` is given they run
as all others do.
"""

LONG_FILES = frozenset(
    [
        "bounds/latency/relaxation/test_repeated_regions.py",
        "cli/test_run.py",
        "costs/profiles/onnx/test_onnx_program.py",
        "exporters/test_accelerate.py",
        "exporters/test_torch_pipelining.py",
        "importers/test_cache.py",
        "importers/test_hf_checkpoints.py",
        "importers/test_hf_phases.py",
        "importers/test_once.py",
        "importers/test_retarget.py",
        "importers/test_torch_export.py",
        "importers/test_torch_training.py",
        "importers/test_workloads.py",
        "measuring/test_standard_evaluation.py",
        "planners/batch/test_exact.py",
        "planners/latency/exact/test_milp_split.py",
        "planners/latency/learned/test_learned.py",
        "planners/latency/modules/test_module_annealing.py",
        "planners/test_contract.py",
        "planners/throughput/test_shares.py",
        "portfolio/test_kill.py",
        "portfolio/test_run.py",
        "runtime/gpus/test_runs.py",
        "runtime/links/test_real_times.py",
        "runtime/pipelined/test_cutting.py",
        "runtime/pipelined/test_pipelines.py",
        "runtime/pipelined/test_replicas.py",
        "runtime/test_decoding.py",
        "runtime/test_distributed.py",
        "runtime/test_every_model.py",
        "runtime/test_failures.py",
        "runtime/test_faults.py",
        "runtime/test_stages.py",
        "runtime/test_state.py",
        "runtime/weights/test_files.py",
        "test_examples.py",
        "whatif/test_neighbours.py",
        "whatif/test_replan_throughput.py",
    ]
)
