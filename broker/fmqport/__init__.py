"""The five ports under the shells: protocols, and nothing that does I/O.

| port | file | real adapter | what it hides |
|---|---|---|---|
| clock and random | `clock.py` | `fmqadapters.process.clock` | times, random numbers |
| transport | `transport.py` | `fmqadapters.grpc` | connections, streams of messages |
| disk | `disk.py` | `fmqadapters.disk.files` | files below one data directory |
| coordination | `coordination.py` | `fmqadapters.zookeeper.session` | ZooKeeper |
| lifecycle | `lifecycle.py` | `fmqadapters.process.lifecycle` | signals, the end of the process |

Broker, client and operator are written against these protocols alone; a simulator swaps them and
runs the same code. Each port has a conformance suite in `tests/`, which every adapter must pass.
asyncio itself (tasks, events, timeouts) is not a port: the simulator brings its own event loop.
"""
