"""Whether this broker may serve reads or writes at this moment.

`gate` answers by the clock at every call, from `lease` (how long an answer of ZooKeeper counts) and
`broker_group_state` (configuration, state and live brokers of the group, by compare-and-set).
`live_node` is this broker's ephemeral node, `identity` its incarnation and its promises.
"""
