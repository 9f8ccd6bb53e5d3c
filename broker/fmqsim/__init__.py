"""The simulator (DESIGN §14, floor 2): the whole cluster in one process, in virtual time, by seed.

The shell of broker and client is the real one. What is swapped: the event loop (`loop.py`) and the
adapters of the five ports (`clock.py`, `network.py`, `disk.py`, `zookeeper.py`, `lifecycle.py`).
A development package: nothing of what is installed imports it. It leaves nothing behind.
"""
