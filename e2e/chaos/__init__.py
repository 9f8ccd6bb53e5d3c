"""Real processes, real faults: a cluster and a ZooKeeper ensemble that are hurt under traffic.

`python -m e2e.chaos` (or `make chaos`) hurts them in every way there is, one after another, and
judges what clients saw. See `docs/testing.md`.
"""
