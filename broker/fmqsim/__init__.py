"""The simulator (DESIGN §14, floor 2): a whole cluster in one process, in virtual time, by seed.

    report     one seed -> one result: run, judge, shortest story; the watch on the brokers
    scenario   what one seed means: scene, world, hosts, a stand-in for the operator, a person
    faults     what goes wrong and when: the table, the acts, power, damage, moves of the master
    adapters   the five ports on simulated machines
    engine     event loop, machines, network, file system, ZooKeeper servers
    mutants    planted mistakes that the checks must catch

The shells of broker and client are the real ones; only the event loop and the adapters of the ports
are swapped. A development package: nothing that is installed imports it.
"""
