"""Progress entries: the table, merging, and the bytes that a takeover stores.

`table` holds all entries with their index (one entry is `fmqcore.batch.offset_entry`); `merge`
combines entries in any order; `takeover_record` and `side_journal` are the bytes that a takeover
reader writes into the group's state and onto its disk; `lag` is the one definition of lag.
"""
