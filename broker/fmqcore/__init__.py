"""The pure core: FMQ's decisions, without clock, disk, network or threads.

    ids names errors policy routing     shared values
    batch       one stored batch: header, columns, CRC, control payloads
    zk          what ZooKeeper holds: paths, one file per node
    journal     segments, index, checkpoint, state, recovery decisions
    scan        many batches at once: headers only, selections, digests
    verify      findings about a data directory
    replication reconcile two journals, in-sync set
    failover    who serves: evidence in, at most one step out
    consume     assignment of queues, deliveries in flight; progress under `consume.offsets`

Functions take values and return values. Nothing here imports a shell or a third-party package
except the CRC32C library, so the simulator, the brokers and the jobs run the same code.
"""
