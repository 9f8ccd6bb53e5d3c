"""Deterministic simulator of a whole cluster: one process, virtual time, one seed.

    report     one seed -> one result: run, judge, shortest story; the watch on the brokers
    scenario   what one seed means: scene, world, hosts, a stand-in for the operator, a person
    faults     what goes wrong and when: the table, the acts, power, damage, switchovers
    adapters   the five ports on simulated machines
    engine     event loop, machines, network, file system, ZooKeeper servers
    mutants    planted mistakes that the checks must catch

The shells of broker and client are the real ones; only the event loop and the adapters of the ports
are replaced. This is a development package: no installed package imports it.
"""
