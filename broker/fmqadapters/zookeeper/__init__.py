"""Adapter of the coordination port, and the one door to kazoo.

`session_core` is a session above its link (calls, states, watches), `session` the link by kazoo,
`watches` and `hosts` are its parts, `embedded` runs a ZooKeeper server on this machine.
"""
