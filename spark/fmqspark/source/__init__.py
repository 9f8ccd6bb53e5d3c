"""Read a journal's records as columns: what to read, where it lies, Arrow batches.

No Spark in here. `survey` lists what a journal holds, `planning` and `splits` divide it,
`stitch_replicas` joins replicas, `arrow` makes the batches.
"""
