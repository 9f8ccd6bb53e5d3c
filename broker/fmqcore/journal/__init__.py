"""The journal's pure half: segments, index, state, small files, and what recovery decides.

Read `segments` and `state` first, then `scan` (checks every batch of a segment and names each kind
of damage) and `recovery` (what a start makes of a directory). `findings` lists the codes.
"""
