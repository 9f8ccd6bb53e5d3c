"""Where a job's tasks run: in this process, in a pool of processes, or on Spark."""
