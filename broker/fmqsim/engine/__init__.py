"""The simulated environment: virtual time, machines, network, kernel, ZooKeeper servers.

`loop` and `tasks` are the event loop, `node` a machine and its processes, `network`, `wire` and
`stream` the network, `filesystem` the kernel's view of a disk, `zookeeper*` an ensemble.
"""
