"""A run's history: what happened, in order, as it was seen from outside.

`events` lists what may happen, `history` keeps it, `journals` reads the data directories that a run
left.
"""
