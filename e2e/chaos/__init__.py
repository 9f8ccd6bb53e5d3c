"""Real processes, real faults: a cluster and a ZooKeeper ensemble, disturbed under traffic.

`python -m e2e.chaos` (or `make chaos`) makes every kind of fault, one after another, and judges
what clients saw. See `docs/internals/testing.md`.
"""
