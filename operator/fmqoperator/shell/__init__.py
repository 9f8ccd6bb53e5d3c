"""The operator's shell: it observes, asks the pure half what to do, does it, writes the status.

| file | what it is |
|---|---|
| `process.py` | the process: options, signals, the order of start and stop |
| `lease.py` | which of two replicas works: a real Lease (`election.py` decides, pure) |
| `handlers.py`, `cache.py` | kopf: what changed wakes a worker; nothing is annotated |
| `relist.py` | what went while a watch was broken is told to kopf as deleted |
| `keeper.py` | one worker for each custom resource: look, act, tell, again |
| `groups.py`, `topics.py`, `jobs.py` | what a round is: observe → plan → apply → status |
| `observe.py`, `bodies.py` | what is seen of one group, as `fmqoperator.seen` |
| `apply.py`, `events.py` | the actions of a plan, one by one |
| `zookeeper.py`, `brokers.py` | the two other places that are looked at |
| `kube.py` | the one door to Kubernetes' API |
| `pages.py` | health and metrics |
"""
