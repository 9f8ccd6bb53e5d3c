"""Decide the life of an ordered topic's chain: evidence in, at most one step out. Pure.

A chain is a list of segments, each in one group; one compare-and-set changes it:

    g1  [ 1: records 1-40 ]                          [ 3: records 71-  open
    g2                     [ 2: records 39-70 ]
                             ^ 39, 40 came again: stored twice, delivered in segment 1

    OPEN k --close--> CLOSING --end given---------------> ENDED --open k+1--> OPEN k+1
                         |                                  ^
                         +--lease over: end is unknown------+   (the end is given later)

Read `evidence`, then `machine` (the table in words) and `table` (a row per step with its guards).
`guards` and `eligibility` are the conditions, `transitions` the new chains, `context` what one
decision sees, `requests` what persons may ask, `subscriptions` a subscription's place. `sending`
has the rules of append and ack, `delivery` what a consumer may see and when its head moves,
`headers` what a batch header holds, `invariants` K1 to K12 and K18.
The chain's types and JSON are in `fmqcore.zk.chain`. Who may import this: shells, `verify`.
"""
