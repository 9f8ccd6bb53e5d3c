"""Seeded traffic: ordinary clients that send, consume, come and go, and record all of it.

`traffic` starts the `producer`s and `consumer`s; `ports` is how they reach a cluster; `values`
makes records that can be told apart.
"""
