"""Consumer progress: where it is stored in each mode, and how it passes between brokers.

`store` accepts progress and reports when it is stored; `append` writes it as OFFSETS batches on a
master, `side_journal` writes it on a takeover reader, `journal_tail` and `known_progress` read it
back; `write_round` groups entries that are written together. No consumer group lives here.
"""
