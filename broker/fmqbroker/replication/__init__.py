"""Replication inside a group: the master's half, the slaves' half, and what both share.

    slave -> slave_stream ----Hello, acks----> master_stream -> master -> commit_end
                 <-----batches within credit------                  in_sync_set

Reading order: `master`, `master_stream`, `slave`, `slave_stream`; then `in_sync_set` (compare-and-
set by the master alone), `commit_end`, `shippable_end`. `view` is the interface for failover.
"""
