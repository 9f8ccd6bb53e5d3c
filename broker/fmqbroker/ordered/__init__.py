"""The broker's side of ordered topics: what a group does with the segments of a chain.

`chain_cache` has the chains of this broker's group as they were read last. The decisions are in
`fmqcore.ordered`; `docs/internals/ordered.md` has the steps.
"""
