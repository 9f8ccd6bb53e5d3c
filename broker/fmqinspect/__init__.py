"""Read a broker's data directory from outside: read-only, offline, also while it runs.

`directory` and `files` find what there is, `small_files` reads the notes. Used by `fmq journal` and
by the jobs.
"""
