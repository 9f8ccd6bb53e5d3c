"""The broker: asyncio shells around the pure core `fmqcore`.

A room per concern. Imports point downward only (import-linter checks it):

    app            a broker as a process: start, stop, probes, metrics, the table of calls
    failover       evidence -> pure decision -> one step; the steps that open and end a term
    admin | data   what people ask of one broker | stored segments for jobs, retention
    produce | consume        a message on its way in | on its way out, with its progress
    replication    master and slave halves, in-sync set, commit end
    journal        segments, group commit, index, recovery
    serving        may this broker serve: gate, lease, group state, identity
    cluster        all groups and topics, as this broker knows them
    runtime        settings, timers, wake-ups, clocks, slices of long work

Reading order: `app.broker` puts the parts together; then `produce.service`, `consume.service`,
`replication.master`, `failover.loop`. Nothing here reads a clock, opens a file or a socket, or
calls ZooKeeper but through a port of `fmqport`.
"""
