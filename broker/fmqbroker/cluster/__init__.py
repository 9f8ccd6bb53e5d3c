"""The whole cluster as this broker knows it: groups, live brokers, topics, routes.

`view` follows ZooKeeper and answers from memory, `routes` is its wire form; `topic_alteration`
changes a topic by compare-and-set, `chain_nodes` the chain of an ordered topic. Nothing here knows
this broker's own role.
"""
