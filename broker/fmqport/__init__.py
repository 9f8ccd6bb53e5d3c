"""The five ports under the shell, and their real adapters (DESIGN §2).

| port | file | real adapter | what it hides |
|---|---|---|---|
| clock and random | `clock.py` | `system.py` | monotonic and wall time, random numbers |
| transport | `transport.py` | `rpc/` (the one door to gRPC) | connections, streams of messages |
| disk | `disk.py` | `files.py` | files below one data directory, the writer thread |
| coordination | `coordination.py` | `zk/session.py` (the one door to kazoo) | ZooKeeper |
| lifecycle | `lifecycle.py` | `process.py` | signals, fatal errors, the end of the process |

Broker, client and operator are written against these protocols alone; a simulator swaps them and
runs the same code. Each port has a conformance suite in `tests/`, which every adapter must pass.
asyncio itself (tasks, events, timeouts) is not a port: the simulator brings its own event loop.
"""
