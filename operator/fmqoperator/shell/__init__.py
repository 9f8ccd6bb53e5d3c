"""The operator's shell: it observes, asks the core for a plan, applies it, writes status.

| file | what it is |
|---|---|
| `process.py` | the process: options, signals, the order of start and stop |
| `lease.py`, `election.py` | which of two replicas works: a Lease, and its pure decisions |
| `handlers.py`, `cache.py` | kopf: what changed wakes a worker; nothing is annotated |
| `relist.py` | objects deleted while a watch was broken are reported to kopf as deleted |
| `keeper.py` | one worker for each custom resource: observe, act, report, again |
| `groups.py`, `topics.py`, `jobs.py` | one round: observe, plan, apply, status |
| `observe.py`, `decoding.py` | one group at one moment, as `fmqoperator.core.observation` |
| `apply.py`, `events.py` | the actions of a plan, one by one |
| `zookeeper.py`, `brokers.py` | the two other places that are observed |
| `kube.py` | the only access to Kubernetes' API |
| `pages.py` | health and metrics |
"""
