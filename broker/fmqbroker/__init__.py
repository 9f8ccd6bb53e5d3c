"""The broker's shell: asyncio around the pure core. One file per way (DESIGN §2).

produce.py, fetch.py, replicate_master.py + replicate_slave.py, failover.py; `broker.py` puts the
parts together. Nothing here reads a clock, opens a file or a socket, or speaks to ZooKeeper but
through a port of `fmqport`.
"""
