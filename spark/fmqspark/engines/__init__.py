"""Engines that run a job's tasks: in this process, in a pool of processes, or on Spark."""
