"""The five ports on simulated machines: clock, disk, transport, coordination, lifecycle.

Each passes the conformance suite of the real adapter.
"""
