"""Consumer progress: where it is stored in each mode, and its way from one broker to the next.

`store` accepts progress and says when it is stored; `append` writes it as OFFSETS batches on a
master, `side_journal` writes it on a takeover reader, `journal_tail` and `known_progress` read it
back; `write_round` groups entries that are written together. No consumer group lives here.
"""
