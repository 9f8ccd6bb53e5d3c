"""Adapters of the process: signals and exit, clock, logs, child processes, Java, free ports."""
