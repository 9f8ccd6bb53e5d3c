"""Replication, pure: reconcile two journals, and who is in sync.

    reconciliation  what a master answers to a slave's Hello
    epoch_history   how far two epoch histories agree
    in_sync_set     who leaves the in-sync set and who may enter
    frames          where a run of whole stored batches ends

The policy (who counts, how far it holds) is `fmqcore.policy`.
"""
