"""The broker's side of ordered topics: what a group does with the segments of a chain.

`chain_cache` has the chains of this broker's group as they were read last. The master's way of a
batch is in `append` and `session_batches`; `term`, `member_ends` and `chain_lease` are what an ack
rests on; `held` and `seal` are for the end of a segment. The decisions are in `fmqcore.ordered`;
`docs/internals/ordered.md` has the steps.
"""
