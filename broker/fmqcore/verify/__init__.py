"""Verify a data directory: segments, index, checkpoint, small files, progress, times.

`directory` runs the checks; `fmqcore.journal.findings` lists the codes. Used by `fmq journal
verify` and by jobs.
"""
