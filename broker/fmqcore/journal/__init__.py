"""The pure half of the journal: segments, index, state, small files, recovery decisions.

Read `segments`, `state` and `snap_payload` first, then `scan` (checks every batch of a segment and
names each kind of damage) and `recovery` (what a start does with a directory). `findings` lists the
codes.
"""
