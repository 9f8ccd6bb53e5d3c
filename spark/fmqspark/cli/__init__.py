"""The jobs on the command line, progress on standard error, every failure in one line."""
