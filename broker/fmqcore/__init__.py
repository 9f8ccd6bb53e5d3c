"""The pure core of FMQ: data in, data out.

No asyncio, clock, random, file, socket, thread or logging: time is a field, bytes are arguments.
Everything that has to be *right* (formats, recovery, policies, reconcile, failover, leases,
assignment) lives here, so that it can be tabled, explored exhaustively and run under a simulator.
"""
