"""Seeded traffic: ordinary clients that send, consume, come and go, and record everything.

`traffic` starts the `producer`s and `consumer`s; `ports` is how they reach a cluster; `values`
makes distinguishable records.
"""
