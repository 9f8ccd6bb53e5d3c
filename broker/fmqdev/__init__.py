"""A cluster of real processes on one machine, and the demo that runs on it.

    cluster_plan -> cluster -> processes, broker_process, group_nodes     proxy cuts networks
    demo: flights -> run (producer, consumers, a killed master) -> verdict

Used by `fmq dev` and `fmq demo`, by tests and by the benchmarks.
"""
